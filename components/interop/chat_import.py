"""Import of chat messages, in the form of OpenAI's API and its variants, into a `TrajectoryDraft`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ratchet.components.core import Usage

from .log_source import LocatedValue, LogSource
from .log_values import as_mapping, drop_empty, to_cost, to_count, to_text, without_keys, words
from .message_content import (
    MessageContent,
    load_json,
    parse_arguments,
    parse_content,
    parse_exit_code,
    split_calls,
    split_results,
    split_thought,
)
from .trajectory_draft import TrajectoryDraft, TurnDraft

# Names of roles in OpenAI's, Google's and LangChain's logs, Llama's template and ShareGPT's exports.
ASSISTANT_ROLES = ("assistant", "model", "ai", "gpt")
TOOL_ROLES = ("tool", "function", "ipython", "observation", "tool_result")
# Fields that are read; all others of a message go to the extra fields of its turn.
_ASSISTANT_FIELDS = frozenset(words("role content tool_calls function_call reasoning_content reasoning thinking type"))
_TOOL_FIELDS = frozenset(words("role content tool_call_id name type error is_error call_id output tool_use_id"))
_OTHER_FIELDS = {"role", "content", "type"}
_RESPONSE_ITEM_TYPES = ("function_call", "function_call_output", "reasoning")


class ChatImporter:
    """Adds chat messages to `draft` in order. Fields besides role and content go to the extra fields of their turn.

    - `where`: location of the conversation in its log, for reports of unreadable messages.
    - `tags`: calls and results may be tagged text (Hermes).
    - `interleaved`: a call after a result belongs to the same reply until `end_reply`.
    - `in_parts`: consecutive assistant messages (a thought, a text, then calls) form one turn, and an empty message
      after a turn is dropped.
    """

    def __init__(
        self, draft: TrajectoryDraft, source: LogSource, where: str, *, tags: bool = False, in_parts: bool = False
    ) -> None:
        self.draft = draft
        self.source = source
        self.where = where
        self.tags = tags
        self.in_parts = in_parts
        self._pending_thought: str | None = None  # of a reasoning item, which precedes the reply that it belongs to
        self.interleaved = False
        self._ended_turn: TurnDraft | None = None

    def end_reply(self) -> None:
        """Begin a new turn with the next assistant message or call, also where nothing is between."""
        self._ended_turn = self.draft.last

    def add_all(self, messages: Iterable[Any], *, context: bool = False, agent_id: str | None = None) -> None:
        """Add messages; one that is no object is reported as unreadable.

        `context`: assistant messages are part of the prompt and create no turns. `agent_id`: agent of the turns (None:
        that of the draft).
        """
        for index, message in enumerate(messages):
            if isinstance(message, Mapping):
                self.add(message, context=context, agent_id=agent_id)
            else:
                self.source.bad(f"{self.where}, message {index}", "a message is no object", to_text(message).encode())

    def add(
        self, message: Mapping[str, Any], *, context: bool = False, agent_id: str | None = None
    ) -> TurnDraft | None:
        """Add one message, with the options of `add_all`; return the turn of a reply, None for other messages.

        Raises DataError only if `source` has no `on_bad` for an unreadable part.
        """
        role = message.get("role")
        role = role.lower() if isinstance(role, str) else ""
        if not role and message.get("type") in _RESPONSE_ITEM_TYPES:
            self._add_item(message, agent_id)
        # A result before the first reply answers no call: it is an opening message, as in few-shot prompts.
        elif role in TOOL_ROLES and self.draft.turns:
            self._add_result(message)
        elif role in ASSISTANT_ROLES and not context:
            return self._add_reply(message, agent_id)
        else:
            self._add_other(role or "user", message)
        return None

    def _add_reply(self, message: Mapping[str, Any], agent_id: str | None) -> TurnDraft | None:
        """Add a reply and return its turn; None where it is empty and `in_parts` merges it into the turn before."""
        content = parse_content(message.get("content"), self.source.blobs)
        text = content.text or (to_text(message["refusal"]) if isinstance(message.get("refusal"), str) else "")
        thought = self._join_thoughts(message, content)
        # Only without a reasoning field: with one, a <think> block in the text is part of the answer.
        if thought is None:
            thought, text = split_thought(text)
        calls = [*_as_list(message.get("tool_calls")), *_as_list(message.get("function_call"))]
        tagged = split_calls(text) if self.tags and not calls else (text, [])
        other_fields = drop_empty(blobs=content.blobs) | content.extra | without_keys(message, *_ASSISTANT_FIELDS)
        last = self.draft.last if self.in_parts else None
        if last is not None and not (tagged[0] or thought or calls or tagged[1] or content.blocks or content.blobs):
            last.extra.update({name: value for name, value in other_fields.items() if name not in last.extra})
            return None
        turn = self.draft.turn(tagged[0], thought, agent_id)
        may_continue = last is not None and last is not self._ended_turn and not last.calls and not last.results
        if last is not None and may_continue and last.agent_id == turn.agent_id:
            # A turn was added above only to normalise its text; its content belongs to the turn before.
            self.draft.turns.pop()
            last.add_text(turn.text, turn.thought)
            turn = last
        for raw_call in calls:
            self.call(turn, raw_call)
        for call in tagged[1]:
            self.draft.call(call.tool, parse_arguments(call.arguments), raw=call.raw)
        for block in content.blocks:
            self._add_block(turn, block)
        turn.extra.update(other_fields)
        return turn

    def _join_thoughts(self, message: Mapping[str, Any], content: MessageContent) -> str | None:
        pending, self._pending_thought = self._pending_thought, None
        fields = [message.get(key) for key in ("reasoning_content", "reasoning", "thinking")]
        field_thoughts = [thought for thought in fields if isinstance(thought, str) and thought][:1]
        return "\n".join([*([pending] if pending else []), *field_thoughts, *content.thoughts]) or None

    def call(self, turn: TurnDraft, raw_call: Any) -> None:
        """Add a call in the form of any provider to `turn`, which must be the last turn of the draft.

        A call that cannot be read is added as an unreadable call with its text.
        """
        call = load_json(raw_call) if isinstance(raw_call, str) else raw_call
        if not isinstance(call, Mapping):
            self.draft.call("", to_text(raw_call), raw=to_text(raw_call))
            return
        function = call.get("function")
        inner = function if isinstance(function, Mapping) else call
        name = function if isinstance(function, str) else inner.get("name") or inner.get("tool_name") or ""
        arguments = next((inner[key] for key in ("arguments", "args", "input", "parameters") if key in inner), None)
        raw = arguments if isinstance(arguments, str) else ""
        self.draft.call(
            to_text(name),
            parse_arguments(arguments),
            call_id=_call_id(call),
            raw=raw,
            parse_error=to_text(call.get("parse_error")) or None,
        )

    def _add_block(self, turn: TurnDraft, block: Mapping[str, Any]) -> None:
        if block.get("type") in ("tool_result", "function_call_output"):
            self._add_result(block)
        else:
            self.call(turn, block)
            if block.get("result") is not None:  # a tool that ran at the provider
                error = to_text(block.get("error")) or None
                self.draft.result(to_text(block["result"]), call_id=turn.calls[-1].call_id, error=error)

    def _add_item(self, item: Mapping[str, Any], agent_id: str | None) -> None:
        """Add an item of OpenAI's Responses API. A call joins the reply before it unless that has results already."""
        if item.get("type") == "reasoning":
            self._pending_thought = parse_content([{**item, "type": "reasoning"}], self.source.blobs).thought
        elif item.get("type") == "function_call_output" and self.draft.turns:
            self._add_result(item)
        elif item.get("type") == "function_call_output":
            self._add_other("tool", {**item, "content": item.get("output")})
        else:
            last = self.draft.last
            thought, self._pending_thought = self._pending_thought, None
            may_continue = last is not None and last is not self._ended_turn and (self.interleaved or not last.results)
            turn = last if may_continue and not thought else None
            self.call(turn or self.draft.turn("", thought, agent_id), item)

    def _add_result(self, message: Mapping[str, Any]) -> None:
        value = message.get("output") if "output" in message else message.get("content")
        content = parse_content(value, self.source.blobs)
        if self.tags and isinstance(value, str) and self._tagged_results(value):
            return
        # `is_error` is Anthropic's field, `status` LangChain's.
        failed = message.get("is_error") is True or message.get("status") == "error"
        error = message.get("error")
        error = error.get("message") or error if isinstance(error, Mapping) else error
        error = to_text(error) if error else (content.text.strip() or "failed").splitlines()[0] if failed else None
        call_id = _call_id(message, ("tool_call_id", "tool_use_id", "call_id"))
        call_id = call_id or self._unanswered_call_id(message.get("name"))
        text = to_text(value) if content.blocks or content.other else content.text
        code = parse_exit_code(message, value)
        self.draft.result(text, call_id=call_id, exit_code=code, error=error, blob=content.blob)
        other_fields = without_keys(message, *_TOOL_FIELDS) | drop_empty(links=content.links, blobs=content.blobs[1:])
        self._note_result(call_id, other_fields)

    def _tagged_results(self, text: str) -> bool:
        results = split_results(text)
        for result in results or ():
            code = parse_exit_code(result.content)
            self.draft.result(to_text(result.content), call_id=self._unanswered_call_id(result.tool), exit_code=code)
        return results is not None

    def _unanswered_call_id(self, tool: Any) -> str | None:
        """Return the id of the first call of `tool` in the last turn that has no result, else None."""
        waiting = self.draft.last.unanswered_calls if self.draft.last else []
        return next((call.call_id for call in waiting if call.tool == tool), None)

    def _add_other(self, role: str, message: Mapping[str, Any]) -> None:
        if self.tags and isinstance(message.get("content"), str) and self._tagged_results(message["content"]):
            return
        content = parse_content(message.get("content"), self.source.blobs)
        results = [item for item in content.blocks if item.get("type") in ("tool_result", "function_call_output")]
        other_fields = {**content.extra, **without_keys(message, *_OTHER_FIELDS)}
        if not self.draft.turns and content.blocks:
            other_fields["blocks"] = content.blocks
        for block in results if self.draft.turns else ():
            self._add_result(block)
        if results and self.draft.turns and not content.texts and not content.blobs:
            self._note_result(None, other_fields)
        elif self.draft.turns:
            self.draft.note(role, content.text, **drop_empty(blobs=content.blobs, extra=other_fields))
        else:
            self.draft.message(role, content.text, content.blobs, other_fields)

    def _note_result(self, call_id: str | None, fields: dict[str, Any]) -> None:
        if fields and self.draft.last:
            self.draft.last.note_result(**{"call_id": call_id, **fields})


def parse_usage(value: Any, cost: Any = None) -> Usage | None:
    """Return tokens and cost of a reply from the fields of OpenAI, Anthropic or Inspect; None without token counts."""
    if not isinstance(value, Mapping):
        return None
    prompt, completion = (
        next((number for key in keys if (number := to_count(value.get(key))) is not None), None)
        for keys in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
    )
    if prompt is None and completion is None:
        return None
    costs = map(to_cost, (cost, value.get("cost"), value.get("total_cost")))
    return Usage(prompt, completion, next((number for number in costs if number is not None), None))


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        value = load_json(value)
    return value if isinstance(value, list) else [value] if isinstance(value, Mapping) else []


def _call_id(value: Mapping[str, Any], keys: Iterable[str] = ("call_id", "id", "tool_call_id")) -> str | None:
    call_id = next((value[key] for key in keys if isinstance(value.get(key), str | int) and value[key] != ""), None)
    return None if call_id is None else to_text(call_id)


def as_messages(value: Any, role: str) -> list[Any]:
    """Return a list of messages as it is, a text as one message of `role`, and [] for any other value."""
    if isinstance(value, list):
        return value
    return [{"role": role, "content": value}] if isinstance(value, str) else []


def is_message(value: Any) -> bool:
    """Return whether a value looks like a chat message: it has a role, and content or calls."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("role"), str)
        and any(key in value for key in ("content", "tool_calls", "function_call", "reasoning_content", "reasoning"))
    )


def has_tags(messages: Iterable[Any]) -> bool:
    """Return whether calls are tagged text: no message has `tool_calls`, and an assistant's text has `<tool_call>`."""
    tagged = False
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        # One native call decides: text with tags may then be an example in a prompt.
        if message.get("tool_calls") or message.get("function_call"):
            return False
        text = message.get("content")
        tagged = tagged or (message.get("role") in ASSISTANT_ROLES and isinstance(text, str) and "<tool_call>" in text)
    return tagged


def to_openai_tools(value: Any) -> list[Any]:
    """Convert a list of tools, or the JSON text of one, to the form of OpenAI's API; return [] for other values.

    A bare function definition is wrapped as `{"type": "function", "function": …}`; Gemini's lists of them are joined.
    """
    listed = load_json(value) if isinstance(value, str) else value
    tools = []
    for tool in listed if isinstance(listed, list) else []:
        if declared := as_mapping(tool).get("function_declarations") or as_mapping(tool).get("functionDeclarations"):
            tools += to_openai_tools(declared)
            continue
        wrap = isinstance(tool, Mapping) and "function" not in tool and isinstance(tool.get("name"), str)
        tools.append({"type": "function", "function": tool} if wrap else tool)
    return tools


def root_records(source: LogSource) -> Iterator[LocatedValue]:
    """Yield the records of a source: the value of each line, or the document.

    A list is split into its elements, unless all are chat messages: then the list is one record.
    """
    # The sample may hold the whole document, of up to DOCUMENT_LIMIT bytes.
    source.drop_sample()
    for where, value in source.roots():
        if isinstance(value, list) and not all(map(is_message, value)):
            yield from (LocatedValue(f"{where}, element {index}", element) for index, element in enumerate(value))
        else:
            yield LocatedValue(where, value)
