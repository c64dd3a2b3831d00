"""Conversations from spans in MLflow's form.

Spans are read in order of start: a model call (LLM, CHAT_MODEL) is a turn; a TOOL span is the result of the call that
requested it, or a separate turn if no call did. Tool results and user messages without a span are taken from the input of
the next model call. The agent of a turn is the nearest AGENT span above. Other spans add nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.components.trajectories.trajectory import Trajectory

from .chat_import import ASSISTANT_ROLES, TOOL_ROLES, ChatImporter, parse_usage, to_openai_tools
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, as_str, to_count, to_iso, to_text
from .message_content import load_json, parse_arguments, parse_content, parse_exit_code
from .provider_messages import gemini_config, input_messages, output_reply, stop_reason
from .trajectory_draft import TrajectoryDraft


class MlflowSpan:
    """A span of a trace, of schema 2 or 3. `start`, `end`: in nanoseconds since 1970; `kind`: its type in capitals."""

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
    return next((number for name in names if (number := _nanoseconds(raw.get(name))) is not None), None)


def _nanoseconds(value: Any) -> int | None:
    # JSON of protocol buffers has 64-bit integers as text.
    is_digits = isinstance(value, str) and value.isdecimal() and len(value) < 20
    return int(value) if is_digits else to_count(value) or None


MODEL_KINDS = {"LLM", "CHAT_MODEL"}
SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop")


def _is_definition(message: Mapping[str, Any]) -> bool:
    content = as_mapping(message.get("content"))
    return message.get("role") == "tool" and content.get("type") == "function" and "function" in content


class SpanImporter:
    """Adds the conversation of the spans to `draft`. `model`, `agent`, `tools`, `sampling`: the first ones in the spans.
    `first_name`: name of the first span. `shown_results`: contents of tool results that model calls were given, by the id of the
    call, which replace the outputs of the tool spans.
    """

    def __init__(
        self,
        draft: TrajectoryDraft,
        source: LogSource,
        where: str,
        spans: list[MlflowSpan],
        shown_results: Mapping[str, Any] | None = None,
    ) -> None:
        self.draft = draft
        self.shown_results = shown_results or {}
        self.chat = ChatImporter(draft, source, where)
        self.model: str | None = None
        self.tools: list[Any] = []
        self.sampling: dict[str, Any] = {}
        self._by_id = {span.span_id: span for span in spans if span.span_id}
        self._seen_agents: set[str] = set()  # agents whose first input was added
        first = next((span for span in spans if span.kind == "AGENT"), None)
        self.agent = first.name if first is not None else ""
        self.first_name = spans[0].name if spans else None
        for span in spans:
            if span.kind in MODEL_KINDS and not self._is_within_model(span):
                self._add_model_call(span)
            elif span.kind == "TOOL":
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

    def _is_within_model(self, span: MlflowSpan) -> bool:
        """Return whether a model call is part of another one, as the client's call within a wrapper is."""
        return any(ancestor.kind in MODEL_KINDS for ancestor in self._ancestors(span))

    def _agent_name(self, span: MlflowSpan) -> str:
        return next((ancestor.name for ancestor in self._ancestors(span) if ancestor.kind == "AGENT"), "") or "agent"

    def _add_model_call(self, span: MlflowSpan) -> None:
        """Add a turn, after the new messages in its input."""
        agent = self._agent_name(span)
        messages = list(input_messages(span.inputs))
        # Langfuse's handler for LangChain adds the definitions of the tools as messages.
        defined = [message["content"] for message in messages if _is_definition(message)]
        self._add_new_messages(agent, [message for message in messages if not _is_definition(message)])
        reply = output_reply(span.outputs)
        added_turn = self.chat.add({"role": "assistant", **reply}, agent_id=agent) if reply else None
        turn = added_turn or self.draft.turn(agent_id=agent)
        attributes, outputs = span.attributes, as_mapping(span.outputs)
        cost = as_mapping(attributes.get("mlflow.llm.cost")).get("total_cost")
        turn.usage = parse_usage(attributes.get("mlflow.chat.tokenUsage"), cost) or parse_usage(outputs.get("usage"))
        turn.seconds = span.seconds
        turn.stop_reason = stop_reason(span.outputs)
        if span.failed:
            turn.extra["error"] = {"type": span.error[0], "message": span.error[1]}
        inputs = as_mapping(span.inputs)
        self.model = self.model or as_str(
            attributes.get("mlflow.llm.model") or inputs.get("model") or outputs.get("model")
        )
        request = {**gemini_config(inputs), **inputs}
        self.tools = self.tools or to_openai_tools(
            attributes.get("mlflow.chat.tools") or request.get("tools") or defined
        )
        self.sampling = self.sampling or {key: request[key] for key in SAMPLING if request.get(key) is not None}

    def _add_new_messages(self, agent: str, messages: list[Mapping[str, Any]]) -> None:
        """Add the new messages of a model call's input: all of an agent's first input, later those after the last reply."""
        if agent not in self._seen_agents:
            self._seen_agents.add(agent)
            self.chat.add_all(messages, context=True)
            return
        answered = {result.call_id for turn in self.draft.turns[-50:] for result in turn.results if result.call_id}
        last = next((turn for turn in reversed(self.draft.turns) if turn.agent_id == agent), None)
        calls = [] if last is None else list(last.calls)
        replies = [index for index, message in enumerate(messages) if message.get("role") in ASSISTANT_ROLES]
        # The input of a call repeats the conversation; its last reply is the turn before this one.
        for message in messages[replies[-1] + 1 if replies else 0 :]:
            is_result = message.get("role") in TOOL_ROLES
            # Gemini's results name their tool alone, in the order of the calls.
            if is_result and not message.get("tool_call_id"):
                call = next((call for call in calls if message.get("name") in (None, call.tool)), None)
                if call is not None:
                    calls.remove(call)
                    message = {**message, "tool_call_id": call.call_id}
            if not (is_result and message.get("tool_call_id") in answered):
                self.chat.add(message)

    def _add_tool_result(self, span: MlflowSpan) -> None:
        """Add the result of the agent's latest call of that tool without one; else a turn with a call and its result."""
        agent = self._agent_name(span)
        if isinstance(span.inputs, Mapping) and span.inputs.keys() <= {"args", "kwargs"}:  # of a decorated function
            span.inputs = span.inputs.get("kwargs") or span.inputs
        call_id = self._find_waiting_call(agent, span)
        if call_id is None:
            turn = self.draft.turn(agent_id=agent)
            turn.seconds = span.seconds
            is_mapping = isinstance(span.inputs, Mapping) or span.inputs is None
            arguments = span.inputs if is_mapping else {"input": span.inputs}
            call_id = self.draft.call(span.name, parse_arguments(arguments)).call_id
        kind, message = span.error
        error = (message or kind or "failed") if span.failed else None
        output, message_of_tool = span.outputs, as_mapping(span.outputs)
        if isinstance(message_of_tool.get("content"), str) and {"tool_call_id", "type"} & message_of_tool.keys():
            output = message_of_tool["content"]  # LangChain's ToolMessage
        text = to_text(output) if output is not None else error or ""
        if call_id in self.shown_results:
            text = parse_content(self.shown_results[call_id], self.chat.source.blobs).text or text
        self.draft.result(text, call_id=call_id, exit_code=parse_exit_code(span.outputs), error=error)

    def _find_waiting_call(self, agent: str, span: MlflowSpan) -> str | None:
        tool_names = {span.name, span.name.rpartition("_")[0] if span.name.rpartition("_")[2].isdigit() else span.name}
        holders = (as_mapping(span.inputs), as_mapping(span.outputs), span.attributes)
        own_id = next((holder["tool_call_id"] for holder in holders if holder.get("tool_call_id")), None)
        for turn in reversed(self.draft.turns[-20:]):
            calls = turn.unanswered_calls if turn.agent_id == agent else []
            alike = [call for call in calls if call.tool in tool_names]
            same_inputs = [call for call in alike if call.arguments == span.inputs]
            exact = [call for call in calls if call.call_id == own_id or call in same_inputs]
            if exact or alike:
                return [*exact, *alike][0].call_id
        return None
