"""Reader of OpenCode: `opencode export` (also the messages of its server alone), and the events of `opencode run --format json`.

A session is one trajectory. Each step of the agent (from `step-start`) is a turn; older versions have several in one message.
The exit code of a command is in its metadata. A tool that did not finish has no result. Events lack the user's request and the
model. A session's subagents are sessions of their own, whose `parentID` is kept. Logs state no outcome; an error is an
infrastructure failure unless a step follows, an aborted message truncates the episode.
"""

from collections.abc import Iterator
from typing import Any

from ratchet.components.core import Usage
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .log_source import LogSource
from .log_values import (
    as_mapping,
    as_mappings,
    drop_empty,
    first_text,
    to_cost,
    to_count,
    to_int,
    to_iso,
    to_text,
    words,
)
from .message_content import parse_content
from .trajectory_draft import TrajectoryDraft, TurnDraft

_EVENT_TYPES = words("step_start step_finish text reasoning tool_use error")


class OpenCodeReader:
    """Reader of OpenCode's sessions."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value is an export, a list of messages, or an event."""
        return any(bool(_messages(value)) or _is_event(value) for value in source.sample[:1])

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every session. Events of one file that belong together are one session."""
        events: dict[str, list[dict[str, Any]]] = {}
        for where, value in source.roots():
            if messages := _messages(value):
                yield _trajectory(source, as_mapping(as_mapping(value).get("info")), messages)
            elif _is_event(value):
                events.setdefault(to_text(value["sessionID"]), []).append(value)
            else:
                source.bad_value(where, "no session or event of OpenCode", value)
        for session, group in events.items():
            yield _trajectory(source, {"id": session}, [_event_message(group)])


def _messages(value: Any) -> list[dict[str, Any]]:
    listed = as_mapping(value).get("messages") if isinstance(value, dict) else value
    messages = as_mappings(listed)
    is_session = all(isinstance(each.get("info"), dict) and isinstance(each.get("parts"), list) for each in messages)
    return messages if is_session else []


def _is_event(value: Any) -> bool:
    event = as_mapping(value)
    return event.get("type") in _EVENT_TYPES and isinstance(event.get("sessionID"), str) and "timestamp" in event


def _event_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the assistant message that the events of a session make together."""
    error = next((event["error"] for event in events if "error" in event), None)
    parts = [part for event in events if (part := as_mapping(event.get("part")))]
    return {"info": {"role": "assistant", "error": error, "time": {"created": events[0]["timestamp"]}}, "parts": parts}


def _trajectory(source: LogSource, session: dict[str, Any], messages: list[dict[str, Any]]) -> Trajectory:
    draft = TrajectoryDraft("opencode")
    model = request = None
    for message in messages:
        info = as_mapping(message["info"])
        draft.collected_at = draft.collected_at or to_iso(as_mapping(info.get("time")).get("created"))
        if info.get("role") == "assistant":
            model = model or first_text(info.get("modelID"))
            _add_reply(draft, source, info, as_mappings(message["parts"]))
        else:
            own_text = _add_request(draft, source, info, as_mappings(message["parts"]))
            request = request or own_text
    draft.extra.update(drop_empty(session={name: field for name, field in session.items() if name != "id"}))
    native_id = first_text(session.get("id"), as_mapping(messages[0]["info"]).get("sessionID"))
    return draft.finish(native_id=native_id, description=request, agent="opencode", model=model)


def _add_request(draft: TrajectoryDraft, source: LogSource, info: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    """Add a user's message and return the texts that are not the program's own, such as those of attached files."""
    if isinstance(info.get("system"), str) and not draft.messages:
        draft.message("system", info["system"])
    files = [
        {"type": "image_url", "image_url": {"url": part.get("url")}} for part in parts if part.get("type") == "file"
    ]
    texts = [{"type": "text", "text": to_text(part.get("text"))} for part in parts if part.get("type") == "text"]
    content = parse_content([*texts, *files], source.blobs)
    compacted = any(part.get("type") == "compaction" for part in parts)
    if draft.turns:
        draft.note("user", content.text, **drop_empty(blobs=content.blobs, compacted=compacted))
    else:
        draft.message("user", content.text, content.blobs, content.extra)
    own = [to_text(part.get("text")) for part in parts if part.get("type") == "text" and not part.get("synthetic")]
    return "\n".join(own)


def _add_reply(draft: TrajectoryDraft, source: LogSource, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    turn: TurnDraft | None = None
    for part in parts:
        kind = part.get("type")
        if kind == "step-start" or (turn is None and kind in ("text", "reasoning", "tool")):
            turn = draft.turn(agent_id=first_text(info.get("agent"), info.get("mode")))
        if turn is None:
            continue
        if kind == "text":
            turn.add_text(to_text(part.get("text")), None)
        elif kind == "reasoning":
            turn.add_text("", to_text(part.get("text")))
        elif kind == "tool":
            _add_call(draft, source, turn, part)
        elif kind == "step-finish":
            turn.usage, turn.stop_reason = _usage(part), first_text(part.get("reason"))
    if turn is not None:
        turn.usage, turn.stop_reason = turn.usage or _usage(info), turn.stop_reason or first_text(info.get("finish"))
    error = as_mapping(info.get("error"))
    name, message = to_text(error.get("name")), to_text(as_mapping(error.get("data")).get("message"))
    aborted = name == "MessageAbortedError"
    draft.failure = Failure(FailureKind.INFRASTRUCTURE, name or "Error", message) if error and not aborted else None
    reason = name or (turn.stop_reason if turn is not None else None) or ""
    draft.outcome = Outcome(terminated=reason == "stop", truncated=aborted, reason=reason)


def _add_call(draft: TrajectoryDraft, source: LogSource, turn: TurnDraft, part: dict[str, Any]) -> None:
    state = as_mapping(part.get("state"))
    call_id = first_text(part.get("callID"), part.get("id"))
    call = draft.call(to_text(part.get("tool")), state.get("input"), call_id=call_id)
    if state.get("status") not in ("completed", "error"):
        return
    metadata = as_mapping(state.get("metadata"))
    failed = state["status"] == "error"
    error = to_text(state.get("error")) or "failed" if failed else None
    if call.tool == "invalid":  # takes the place of a call of an unknown tool, or with unreadable arguments
        error = first_text(call.arguments.get("error"))
    attached = [{"type": "image_url", "image_url": each.get("url")} for each in as_mappings(state.get("attachments"))]
    content = parse_content(attached, source.blobs)
    draft.result(
        to_text(state.get("error" if failed else "output")),
        call_id=call.call_id,
        exit_code=to_int(metadata.get("exit")),
        error=error,
        truncated=metadata.get("truncated") is True,
        blob=content.blob,
    )
    if content.blobs[1:] or content.links:
        turn.note_result(call_id=call.call_id, **drop_empty(blobs=content.blobs[1:], links=content.links))


def _usage(part: dict[str, Any]) -> Usage | None:
    tokens = as_mapping(part.get("tokens"))
    cache = as_mapping(tokens.get("cache"))
    # Cached tokens and reasoning are counted apart from input and output.
    prompt = [to_count(each) for each in (tokens.get("input"), cache.get("read"), cache.get("write"))]
    reply = [to_count(each) for each in (tokens.get("output"), tokens.get("reasoning"))]
    if not any(prompt) and not any(reply):
        return None  # an unfinished message has zeros
    return Usage(sum(each or 0 for each in prompt), sum(each or 0 for each in reply), to_cost(part.get("cost")))


READER = OpenCodeReader()
