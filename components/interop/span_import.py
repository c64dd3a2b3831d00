"""Conversations from spans in MLflow's form.

Spans are read in order of start: a model call (LLM, CHAT_MODEL) is a turn; a TOOL span is the result of the call that
requested it, or a separate turn if no call did. Tool results and user messages without a span are taken from the input of
the next model call, as is the text of a result that has a span. The agent of a turn is the nearest AGENT span above; agents
of one name that run at once are numbered. Other spans add nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from ratchet.components.trajectories.trajectory import Trajectory

from .chat_import import ASSISTANT_ROLES, TOOL_ROLES, ChatImporter, parse_usage, to_openai_tools
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, as_str, drop_empty, to_count, to_iso, to_text
from .message_content import load_json, parse_arguments, parse_content, parse_exit_code
from .provider_messages import gemini_config, input_messages, output_reply, stop_reason
from .trajectory_draft import TrajectoryDraft, TurnDraft


class MlflowSpan:
    """A span of a trace, of schema 2 or 3. `start`, `end`: in nanoseconds since 1970; `kind`: its type in capitals.

    `load`: returns inputs and outputs of a model call that is read late, since those of a long conversation repeat it and
    together need more memory than the log; else None.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        context = as_mapping(raw.get("context"))
        raw_attributes = as_mapping(raw.get("attributes"))
        self.attributes = {key: _decode_attribute(value) for key, value in raw_attributes.items()}
        self.name = to_text(raw.get("name"))
        self.kind = to_text(self.attributes.get("mlflow.spanType") or raw.get("span_type") or "UNKNOWN").upper()
        self.span_id = to_text(raw.get("span_id") or context.get("span_id"))
        trace_id = self.attributes.get("mlflow.traceRequestId") or raw.get("trace_id") or context.get("trace_id")
        self.trace_id = to_text(trace_id) or None
        self.parent_id = to_text(raw.get("parent_span_id") or raw.get("parent_id")) or None
        self.start = _first_count(raw, "start_time_unix_nano", "start_time", "start_time_ns")
        self.end = _first_count(raw, "end_time_unix_nano", "end_time", "end_time_ns")
        self.inputs = self.attributes.get("mlflow.spanInputs", raw.get("inputs"))
        self.outputs = self.attributes.get("mlflow.spanOutputs", raw.get("outputs"))
        self.load = load if callable(load := raw.get("load")) else None
        status = raw.get("status")
        code = as_mapping(status).get("code") or raw.get("status_code") or status
        self.failed = isinstance(code, str) and code.endswith("ERROR")
        self._message = as_mapping(status).get("message") or raw.get("status_message") or ""
        self._events = as_mappings(raw.get("events"))

    @property
    def seconds(self) -> float | None:
        """Duration in seconds; None where start or end is missing, or the end is before the start."""
        if self.start is None or self.end is None or self.end < self.start:
            return None
        return round((self.end - self.start) / 1e9, 6)

    @property
    def start_time(self) -> str | None:
        """Start time as ISO 8601 text in UTC; None where it is missing."""
        return to_iso(self.start)

    @property
    def error(self) -> tuple[str, str]:
        """Type and message of the span's exception; without one, "" and the message of its status, if any."""
        for event in self._events:
            attributes = event.get("attributes")
            attributes = as_mapping(load_json(attributes) if isinstance(attributes, str) else attributes)
            if event.get("name") == "exception" or "exception.message" in attributes:
                message = attributes.get("exception.message") or self._message
                return to_text(attributes.get("exception.type")), to_text(message)
        return "", to_text(self._message)


def read_spans(source: LogSource, where: str, values: list[Any]) -> list[MlflowSpan]:
    """Return the spans, and those nested in their `children`, as one list in order of start.

    A value that is no span is reported as unreadable. `where`: location of the trace, for reports.
    """
    spans = []
    waiting: list[tuple[int, Any, str | None]] = [(index, value, None) for index, value in enumerate(values)]
    waiting.reverse()
    while waiting:
        index, raw, parent = waiting.pop()
        if not isinstance(raw, Mapping):
            source.bad_value(f"{where}, span {index}", "a span is no object", raw)
            continue
        span = MlflowSpan(raw)
        span.parent_id = span.parent_id or parent
        spans.append(span)
        children = raw.get("children") or raw.get("child_spans")
        waiting.extend((index, child, span.span_id) for child in (children if isinstance(children, list) else [])[::-1])
    return sorted(spans, key=lambda span: span.start if span.start is not None else 0)


def _decode_attribute(value: Any) -> Any:
    """Return the value of an attribute, which schemas 2 and 3 encode as JSON."""
    if value == "null":
        return None
    if not isinstance(value, str) or value[:1] not in '{["0123456789-tfn':
        return value
    decoded = load_json(value)
    return value if decoded is None else decoded


def _first_count(raw: Mapping[str, Any], *names: str) -> int | None:
    return next((number for name in names if (number := nanoseconds(raw.get(name))) is not None), None)


def nanoseconds(value: Any) -> int | None:
    """Return a time of a span, an integer or its digits: JSON of protocol buffers has 64-bit integers as text; else None."""
    is_digits = isinstance(value, str) and value.isdecimal() and len(value) < 20
    return int(value) if is_digits else to_count(value) or None


MODEL_KINDS = {"LLM", "CHAT_MODEL"}
_STEP_KINDS = MODEL_KINDS | {"TOOL", "AGENT"}
_INSTRUCTION_ROLES = ("system", "developer")
SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop")


def _is_instruction(message: Mapping[str, Any]) -> bool:
    return message.get("role") in _INSTRUCTION_ROLES


def _is_definition(message: Mapping[str, Any]) -> bool:
    content = as_mapping(message.get("content"))
    return message.get("role") == "tool" and content.get("type") == "function" and "function" in content


class SpanImporter:
    """Adds the conversation of the spans to `draft`. `model`, `agent`, `tools`, `sampling`: the first ones in the spans.
    `first_name`: name of the first span.
    """

    def __init__(self, draft: TrajectoryDraft, source: LogSource, where: str, spans: list[MlflowSpan]) -> None:
        self.draft = draft
        self.chat = ChatImporter(draft, source, where)
        self.model: str | None = None
        self.tools: list[Any] = []
        self.sampling: dict[str, Any] = {}
        self._by_id = {span.span_id: span for span in spans if span.span_id}
        self._agent_names = self._named_agents(span for span in spans if span.kind == "AGENT")
        # Messages with which an agent's next input may begin without its last reply: its instructions, or, after a call
        # that failed, all of that call's input.
        self._repeatable: dict[str, list[Mapping[str, Any]]] = {}
        self._failed: dict[str, TurnDraft] = {}  # by agent, if its last call failed without a reply
        first = next((span for span in spans if span.kind == "AGENT"), None)
        self.agent = first.name if first is not None else ""
        self.first_name = spans[0].name if spans else None
        for span in spans:
            above = self._step_above(span)
            # A call of a model or a tool within one is the same call, as the client's within a wrapper is.
            if span.kind in MODEL_KINDS and (above is None or above.kind not in MODEL_KINDS):
                self._add_model_call(span)
            elif span.kind == "TOOL" and (above is None or (above.kind, above.name) != ("TOOL", span.name)):
                self._add_tool_result(span)

    def finish(self, native_id: str | None, name: str | None, model: str | None = None) -> Trajectory:
        """Return the record. `name`: of the taskset, and of an agent that the spans do not name; `model`: likewise."""
        return self.draft.finish(
            native_id=native_id,
            taskset=name,
            domain="generic",
            agent=self.agent or name or "",
            model=self.model or model,
            sampling=self.sampling,
        )

    def _ancestors(self, span: MlflowSpan) -> Iterator[MlflowSpan]:
        at, steps_left = span.parent_id, 100  # a damaged trace may have a cycle of parents
        while at in self._by_id and steps_left:
            yield self._by_id[at]
            at, steps_left = self._by_id[at].parent_id, steps_left - 1

    def _step_above(self, span: MlflowSpan) -> MlflowSpan | None:
        """Return the nearest span of a model, a tool or an agent that a span is part of."""
        return next((ancestor for ancestor in self._ancestors(span) if ancestor.kind in _STEP_KINDS), None)

    def _named_agents(self, agents: Iterable[MlflowSpan]) -> dict[str, str]:
        """Return the names of agents by span id. Those of one name that run at once in a trace are numbered: they are several."""
        names: dict[str, str] = {}
        ends: dict[tuple[str | None, str], list[int]] = {}  # of the last span of each number
        for span in agents:
            above = self._step_above(span)
            if above is not None and (above.kind, above.name) == ("AGENT", span.name):  # the same agent, wrapped
                names[span.span_id] = names.get(above.span_id, span.name)
                continue
            last = ends.setdefault((span.trace_id, span.name), [])
            number = next((index for index, end in enumerate(last) if end <= (span.start or 0)), len(last))
            last[number : number + 1] = [span.end or 0]
            names[span.span_id] = f"{span.name}#{number + 1}" if number else span.name
        return names

    def _agent_name(self, span: MlflowSpan) -> str:
        agents = (ancestor.span_id for ancestor in self._ancestors(span) if ancestor.kind == "AGENT")
        return self._agent_names.get(next(agents, ""), "") or "agent"

    def _add_model_call(self, span: MlflowSpan) -> None:
        """Add a turn, after the new messages in its input."""
        agent = self._agent_name(span)
        failed = self._failed.pop(agent, None)
        errors = []
        if failed is not None and failed is self.draft.last and not failed.results:  # tried again
            self.draft.turns.pop()
            errors = [*failed.extra.get("failed_calls", ()), failed.extra["error"]]
        given, returned = (span.inputs, span.outputs) if span.load is None else span.load()
        messages = list(input_messages(given))
        # Langfuse's handler for LangChain adds the definitions of the tools as messages.
        defined = [message["content"] for message in messages if _is_definition(message)]
        messages = [message for message in messages if not _is_definition(message)] if defined else messages
        self._add_new_messages(agent, messages)
        reply = output_reply(returned)
        self._repeatable[agent] = list(takewhile(_is_instruction, messages)) if reply else messages
        added_turn = self.chat.add({"role": "assistant", **reply}, agent_id=agent) if reply else None
        turn = added_turn or self.draft.turn(agent_id=agent)
        attributes, outputs, inputs = span.attributes, as_mapping(returned), as_mapping(given)
        cost = as_mapping(attributes.get("mlflow.llm.cost")).get("total_cost")
        turn.usage = parse_usage(attributes.get("mlflow.chat.tokenUsage"), cost) or parse_usage(outputs.get("usage"))
        turn.seconds = span.seconds
        turn.stop_reason = stop_reason(returned)
        if span.failed:
            turn.extra["error"] = {"type": span.error[0], "message": span.error[1]}
            if not reply:
                self._failed[agent] = turn
        turn.extra |= drop_empty(failed_calls=errors)
        self.model = self.model or as_str(
            attributes.get("mlflow.llm.model") or inputs.get("model") or outputs.get("model")
        )
        request = {**gemini_config(inputs), **inputs}
        self.tools = self.tools or to_openai_tools(
            attributes.get("mlflow.chat.tools") or request.get("tools") or defined
        )
        self.sampling = self.sampling or {key: request[key] for key in SAMPLING if request.get(key) is not None}

    def _add_new_messages(self, agent: str, messages: list[Mapping[str, Any]]) -> None:
        """Add the new messages of a model call's input: all of an agent's first input, later those after the last reply.

        Without a former reply (the history was compacted, or never given) all are new but the agent's instructions. An agent
        to which a conversation is handed over has new instructions, and what follows the last reply of the agent before.
        """
        replies = [index for index, message in enumerate(messages) if message.get("role") in ASSISTANT_ROLES]
        start = replies[-1] + 1 if replies else 0
        new = messages[start:]
        if (known := self._repeatable.get(agent)) is not None:
            repeated = takewhile(lambda pair: pair[0] == pair[1], zip(known, messages, strict=False))
            new = messages[max(start, sum(1 for _ in repeated)) :]
        elif replies and self._is_recorded(messages[replies[-1]]):
            new = [message for message in messages[:start] if _is_instruction(message)] + messages[start:]
            new.sort(key=lambda message: message.get("role") not in TOOL_ROLES)
        else:
            self.chat.add_all(messages, context=True)
            return
        last = next((turn for turn in reversed(self.draft.turns) if turn.agent_id == agent), None)
        calls = [] if last is None else list(last.calls)
        for message in new:
            is_result, has_id = message.get("role") in TOOL_ROLES, bool(message.get("tool_call_id"))
            # Gemini's results name their tool alone, in the order of the calls.
            if is_result and not has_id:
                call = next((call for call in calls if message.get("name") in (None, call.tool)), None)
                if call is not None:
                    calls.remove(call)
                    message = {**message, "tool_call_id": call.call_id}
            call_id = to_text(message.get("tool_call_id"))
            turn = self._turn_of_call(agent, call_id) if is_result and call_id else None
            text = parse_content(message.get("content"), self.chat.source.blobs).text if turn and has_id else ""
            if turn is None or not turn.amend_result(call_id, **({"content": text} if text else {})):
                self.chat.add(message)

    def _turn_of_call(self, agent: str, call_id: str) -> TurnDraft | None:
        """Return the last turn with a call of that id, if possible one of the agent's: ids may be repeated."""
        other = None
        for turn in reversed(self.draft.turns):
            if any(call.call_id == call_id for call in turn.calls):
                if turn.agent_id == agent:
                    return turn
                other = other or turn
        return other

    def _is_recorded(self, message: Mapping[str, Any]) -> bool:
        """Return whether an assistant message is the reply of a turn."""
        parts = as_mappings(message.get("tool_calls")) + as_mappings(message.get("content"))
        ids = {to_text(part.get("id")) for part in parts if part.get("id")}
        text = parse_content(message.get("content"), self.chat.source.blobs).text
        return any(
            (text and turn.text == text) or any(call.call_id in ids for call in turn.calls) for turn in self.draft.turns
        )

    def _add_tool_result(self, span: MlflowSpan) -> None:
        """Add the result of the agent's latest call of that tool without one; else a turn with a call and its result."""
        agent = self._agent_name(span)
        if isinstance(span.inputs, Mapping) and span.inputs.keys() <= {"args", "kwargs"}:  # of a decorated function
            span.inputs = span.inputs.get("kwargs") or span.inputs
        kind, message = span.error
        error = (message or kind or "failed") if span.failed else None
        output = span.outputs
        message_of_tool = as_mapping(load_json(output) if isinstance(output, str) and output[:1] == "{" else output)
        if isinstance(message_of_tool.get("content"), str) and {"tool_call_id", "type"} & message_of_tool.keys():
            output = message_of_tool["content"]  # LangChain's ToolMessage
        elif message_of_tool.keys() == {"id", "name", "response"}:
            output = message_of_tool["response"]  # Gemini's function response
        text, code = to_text(output) if output is not None else error or "", parse_exit_code(span.outputs)
        holders = (as_mapping(span.inputs), message_of_tool, span.attributes)
        own_id = to_text(next((holder["tool_call_id"] for holder in holders if holder.get("tool_call_id")), None))
        turn = self._turn_of_call(agent, own_id) if own_id else None
        # A tool that is tried again under the id of its call.
        if turn is not None and turn.amend_result(own_id, content=text, exit_code=code, error=error):
            return
        call_id = self._find_waiting_call(agent, span, own_id)
        if call_id is None:
            turn = self.draft.turn(agent_id=agent)
            turn.seconds = span.seconds
            is_mapping = isinstance(span.inputs, Mapping) or span.inputs is None
            arguments = span.inputs if is_mapping else {"input": span.inputs}
            call_id = self.draft.call(span.name, parse_arguments(arguments)).call_id
        self.draft.result(text, call_id=call_id, exit_code=code, error=error)

    def _find_waiting_call(self, agent: str, span: MlflowSpan, own_id: str) -> str | None:
        tool_names = {span.name, span.name.rpartition("_")[0] if span.name.rpartition("_")[2].isdigit() else span.name}
        for turn in reversed(self.draft.turns[-20:]):
            calls = turn.unanswered_calls if turn.agent_id == agent else []
            alike = [call for call in calls if call.tool in tool_names]
            same_inputs = [call for call in alike if call.arguments == span.inputs]
            named = [call for call in calls if call.call_id == own_id]
            if found := [*named, *same_inputs, *alike]:
                return found[0].call_id
        return None
