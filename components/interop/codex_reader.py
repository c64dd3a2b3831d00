"""Reader of Codex CLI: the rollout files of sessions (`rollout-*.jsonl`), also those before September 2025, without `payload`.

A file is one trajectory. Its response items are read as by `openai_chat`: reasoning, text and calls that follow each other are
one turn, up to their token count. Input of a custom tool such as `apply_patch` is the argument `input`; a tool of a namespace is
named `NAMESPACE__TOOL`. Events repeat the items and are counted, except token counts, errors and interruptions. Instructions
are a system message; what the program says of itself at the start (`<environment_context>`, AGENTS.md) stays a user's message,
and the description is the user's first own request. A subagent and a fork are sessions of their own: their `parent_thread_id`
and `forked_from_id` are kept, and a fork has no turn of the session before it. Logs state no outcome.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ratchet.components.core import Usage
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .chat_import import ChatImporter, parse_usage
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_int, to_iso, to_text, words
from .message_content import load_json, parse_content, parse_exit_code
from .trajectory_draft import TrajectoryDraft

LINE_TYPES = words("session_meta response_item turn_context event_msg compacted")
_ITEM_TYPES = words(
    "message reasoning function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call"
)
_EXIT_CODE = re.compile(r"(?:Exit code:|Process exited with code) (-?\d{1,10})\b")
_WRAPPERS = {"output": ("metadata",), "content": ("success", "content_items")}
_PROGRAM_MARKS = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<permissions instructions>",
)


class CodexReader:
    """Reader of Codex CLI's rollouts."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first values are lines of a rollout."""
        first = [as_mapping(value) for value in source.sample[:5]]
        if any(line.get("type") in LINE_TYPES and isinstance(line.get("payload"), dict) for line in first):
            return True
        states = any(line.get("record_type") == "state" for line in first)
        head = first[0] if first else {}
        return (
            {"id", "timestamp"} <= head.keys()
            and ("instructions" in head or "git" in head)
            and (states or any(line.get("type") in _ITEM_TYPES for line in first))
        )

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield the session."""
        session = _Session(source)
        for where, value in source.values():
            line = as_mapping(value)
            kind, payload = line.get("type"), line.get("payload")
            if isinstance(payload, dict) and isinstance(kind, str):
                session.add_line(where, kind, payload, line.get("timestamp"))
            elif kind in _ITEM_TYPES:
                session.add_line(where, "response_item", line, line.get("timestamp"))
            elif "id" in line and "timestamp" in line and not session.meta:
                session.add_line(where, "session_meta", line, line.get("timestamp"))
            elif line.get("record_type") == "state":
                session.end_reply(interleaved=True)
            else:
                source.bad_value(where, "no line of a rollout: an object with `type` and `payload`", value)
        if session.draft.messages or session.draft.turns:
            yield session.finish()


class _Session:
    """The trajectory of a session under construction. `meta`: the first line of metadata."""

    def __init__(self, source: LogSource) -> None:
        self.source = source
        self.draft = TrajectoryDraft("codex")
        self.meta: dict[str, Any] = {}
        self._chat = ChatImporter(self.draft, source, "session", in_parts=True)
        self._context: dict[str, Any] = {}
        self._events: Counter[str] = Counter()
        self._instructions: str | None = None
        self._tools: list[dict[str, Any]] = []
        self._request: str | None = None
        self._typed_request: str | None = None
        self._failed_calls: set[str] = set()
        self._total_usage: Any = None
        self._next_usage: Usage | None = None
        self._error: str | None = None
        self._ended = ""

    def end_reply(self, *, interleaved: bool) -> None:
        """Begin a new turn with the next reply. `interleaved`: the log writes each call of a reply with its output."""
        self._chat.end_reply()
        self._chat.interleaved = interleaved

    def add_line(self, where: str, kind: str, payload: dict[str, Any], timestamp: Any) -> None:
        """Add a line. Types of newer versions are counted."""
        self.draft.collected_at = self.draft.collected_at or to_iso(timestamp)
        if kind == "session_meta" and not self.meta:
            self.meta = payload
            instructions = payload.get("instructions") or as_mapping(payload.get("base_instructions")).get("text")
            if isinstance(instructions, str):
                self._instructions = instructions
                self.draft.message("system", instructions)
            self._tools += as_mappings(payload.get("dynamic_tools"))
        elif kind == "turn_context":
            self._context = self._context or payload
        elif kind == "response_item":
            self._add_item(payload)
        elif kind == "compacted":
            self.draft.note("user", to_text(payload.get("message")), compacted=True)
        elif kind == "event_msg":
            self._add_event(to_text(payload.get("type")), payload)
        else:
            self._events[kind] += 1

    def _add_item(self, item: dict[str, Any]) -> None:
        kind = to_text(item.get("type"))
        if kind == "message":
            text = parse_content(item.get("content"), self.source.blobs).text
            if item.get("role") == "developer" and text == self._instructions:
                return  # newer versions send the instructions as a message and state them in the first line too
            self._chat.add({"role": item.get("role"), "content": item.get("content")})
            if item.get("role") == "user" and not text.lstrip().startswith(_PROGRAM_MARKS):
                self._request = self._request or text
            elif item.get("role") == "assistant":
                self._error = None
                self._take_next_usage()
        elif kind == "reasoning":
            # An encrypted item has no text; a pending thought of an earlier item must stay.
            if item.get("summary") or item.get("content"):
                self._chat.add({"type": kind, "summary": item.get("summary"), "content": item.get("content")})
        elif kind in ("function_call", "tool_search_call", "custom_tool_call", "local_shell_call", "web_search_call"):
            arguments = {"input": item.get("input")} if kind == "custom_tool_call" else item.get("arguments")
            if kind in ("local_shell_call", "web_search_call"):
                arguments = as_mapping(item.get("action"))
            name = "__".join(filter(None, (item.get("namespace"), item.get("name")))) or kind.removesuffix("_call")
            call_id = first_text(item.get("call_id"), item.get("id"))
            self._chat.add({"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id})
            self._take_next_usage()
            self._error = None
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._add_output(item)
        elif kind == "tool_search_output":
            self.draft.result(to_text(item.get("tools")), call_id=first_text(item.get("call_id")))
        elif kind == "additional_tools":
            self._tools += as_mappings(item.get("tools"))
        else:
            self._events[kind] += 1

    def _take_next_usage(self) -> None:
        if self._next_usage is not None and self.draft.last is not None:
            self.draft.last.usage, self._next_usage = self._next_usage, None

    def _add_output(self, item: dict[str, Any]) -> None:
        """Add a result: a text, content parts, or the JSON text `{"output", "metadata"}` or `{"content", "success"}`."""
        output = item.get("output")
        call_id = first_text(item.get("call_id"))
        decoded = as_mapping(load_json(output) if isinstance(output, str) and output[:1] == "{" else output)
        # A tool's own JSON, which is no wrapper, may have these fields among others.
        wrapped = any(name in decoded and decoded.keys() <= {name, *more} for name, more in _WRAPPERS.items())
        value = decoded.get("output", decoded.get("content")) if wrapped else output
        content = parse_content(value, self.source.blobs)
        match = _EXIT_CODE.search(content.text[:1000])
        code = parse_exit_code(as_mapping(decoded.get("metadata")))
        failed = call_id in self._failed_calls or (wrapped and decoded.get("success") is False)
        failed = failed or content.text.startswith("Script failed\n")  # JavaScript of the tool `exec`
        turn = self.draft.result(
            content.text,
            call_id=call_id,
            exit_code=to_int(int(match[1])) if code is None and match else code,
            error=content.text if failed else None,
            blob=content.blob,
        )
        if content.blobs[1:] or content.extra:
            turn.note_result(call_id=call_id, **drop_empty(blobs=content.blobs[1:]), **content.extra)

    def _add_event(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "token_count":
            self._add_usage(as_mapping(event.get("info")))
        elif kind == "user_message":
            self._typed_request = self._typed_request or first_text(event.get("message"))
            self._ended = ""
        elif kind == "task_started":
            self._events[kind] += 1
            self._ended = ""
        elif kind == "item_completed":
            self._events[kind] += 1
            self._add_completed_item(as_mapping(event.get("item")))
        elif kind in ("task_complete", "turn_complete", "turn_aborted"):
            self._ended = kind
            self._error = first_text(as_mapping(event.get("error")).get("message")) or self._error
            self.draft.extra.update(drop_empty(abort_reason=event.get("reason")))
        elif kind == "error":
            self._error = to_text(event.get("message")) or "error"
        else:
            self._events[kind] += 1

    def _add_usage(self, info: dict[str, Any]) -> None:
        """Take the tokens of a reply. A count with an unchanged total repeats one, or follows a compaction.

        Versions of 2025 count before they write the reply, newer ones after it.
        """
        usage, total, last = parse_usage(info.get("last_token_usage")), info.get("total_token_usage"), self.draft.last
        if usage is None:
            return
        precedes = self._chat.interleaved or (last is None and "forked_from_id" not in self.meta)
        if total is None or total != self._total_usage:
            if precedes:
                self._next_usage = usage
            elif last is not None:
                last.usage = last.usage or usage
        self._total_usage = total
        self.end_reply(interleaved=precedes)

    def _add_completed_item(self, item: dict[str, Any]) -> None:
        """Take from an event what the response item does not state: the typed request, and that a call of MCP failed."""
        if item.get("type") == "UserMessage":
            texts = [to_text(part.get("text")) for part in as_mappings(item.get("content")) if part.get("text")]
            self._typed_request = self._typed_request or "\n".join(texts)
        elif item.get("type") == "McpToolCall" and item.get("status") == "failed":
            self._failed_calls.add(to_text(item.get("id")))

    def finish(self) -> Trajectory:
        """Return the record."""
        draft, meta, context = self.draft, self.meta, self._context
        aborted = self._ended == "turn_aborted"
        completed = bool(self._ended) and not aborted and self._error is None
        draft.outcome = Outcome(terminated=completed, truncated=aborted, reason=self._ended)
        if self._error is not None:
            draft.failure = Failure(FailureKind.INFRASTRUCTURE, "Error", self._error)
        draft.commit = first_text(as_mapping(meta.get("git")).get("commit_hash"))
        meta_fields = {name: value for name, value in meta.items() if name not in ("instructions", "base_instructions")}
        draft.extra.update(drop_empty(session=meta_fields, events=dict(self._events)))
        draft.extra.update(drop_empty(tools=self._tools))
        effort = context.get("effort")
        return draft.finish(
            native_id=first_text(meta.get("id"), meta.get("session_id")),
            description=self._typed_request or self._request,
            agent="codex",
            model=first_text(context.get("model"), meta.get("model")),
            sampling={"reasoning_effort": effort} if isinstance(effort, str) else {},
        )


READER = CodexReader()
