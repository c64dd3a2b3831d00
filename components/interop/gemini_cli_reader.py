"""Reader of Gemini CLI: the recorded sessions (`session-*.json`, and `.jsonl` with one change per line).

A file is one trajectory. A message of the model with its tool calls is a turn. Of the JSON lines, a later line with the id of an
earlier message replaces it, `$set` changes the metadata, and `$rewindTo` removes that message and all after it. A resumed or
compressed session states its history again in `$set`, in less detail: only what is new in it is taken. A tool's result is what
the model was given; its exit code is the one that the shell tool states in it, which newer versions do for failures alone. A
subagent has its own session file, in a folder named by the id of the parent (`parent_session`). Logs state no outcome; an error
at the end is an infrastructure failure. Notes to the user (`info`, `warning`) are counted.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ratchet.components.core import Usage
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_count, to_int, to_iso, to_text
from .message_content import MessageContent, parse_content
from .trajectory_draft import TrajectoryDraft

# The shell tool's own lines end its text; the command's output above them may have the same words.
_EXIT_CODE = re.compile(
    r"^Exit Code: (-?\d{1,10})(?:\n(?:Signal|Error|Background PIDs|Process Group PGID|</untrusted_context>).*)*\s*\Z",
    re.MULTILINE,
)
_CONTEXT_MARK = "<session_context>"


class GeminiCliReader:
    """Reader of Gemini CLI's sessions."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value has a session and the hash of its project."""
        return any({"sessionId", "projectHash"} <= as_mapping(value).keys() for value in source.sample[:1])

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield the session."""
        session: dict[str, Any] = {}
        messages: dict[str, dict[str, Any]] = {}
        for where, value in source.values():
            line = as_mapping(value)
            if "sessionId" in line or isinstance(line.get("$set"), dict):
                fields = as_mapping(line.get("$set")) or line
                started = drop_empty(startTime=session.get("startTime"))
                session |= {name: field for name, field in fields.items() if name != "messages"} | started
                for message in as_mappings(fields.get("messages")):
                    key = _key(message, len(messages))
                    messages[key] = message | messages.get(key, {})
            elif "$rewindTo" in line:
                session["rewinds"] = session.get("rewinds", 0) + 1
                ids = list(messages)
                at = to_text(line["$rewindTo"])
                for identity in ids[ids.index(at) :] if at in messages else []:
                    del messages[identity]
            elif isinstance(line.get("type"), str):
                key = _key(line, len(messages))
                fields = {name: field for name, field in line.items() if name != "type" or field != "message_update"}
                messages[key] = messages.get(key, {}) | fields
            else:
                source.bad_value(where, "no session or message of Gemini CLI", value)
        if (trajectory := _trajectory(source, session, list(messages.values()))) is not None:
            yield trajectory


def _key(message: dict[str, Any], count: int) -> str:
    """Return the id of a message. Results repeated as the user's message may have that of the message with their calls."""
    identity = to_text(message.get("id")) or f"#{count}"
    return f"{identity} results" if _responses(message.get("content")) else identity


def _responses(parts: Any) -> list[dict[str, Any]]:
    return [as_mapping(part["functionResponse"]) for part in as_mappings(parts) if "functionResponse" in part]


def _content(source: LogSource, parts: Any) -> MessageContent:
    """Return the parsed content of a text or of parts of Gemini's API."""
    if not isinstance(parts, list):
        return parse_content(parts, source.blobs)
    texts = [
        {"type": "thinking", "thinking": part["text"]}
        if isinstance(part, dict) and part.get("thought") is True
        else part
        for part in parts
        if not isinstance(part, dict) or not part.keys() & {"inlineData", "functionCall", "functionResponse"}
    ]
    images = [as_mapping(part["inlineData"]) for part in as_mappings(parts) if "inlineData" in part]
    urls = [f"data:{to_text(image.get('mimeType'))};base64,{to_text(image.get('data'))}" for image in images]
    return parse_content([*texts, *({"type": "image", "image": url} for url in urls)], source.blobs)


def _trajectory(source: LogSource, session: dict[str, Any], messages: list[dict[str, Any]]) -> Trajectory | None:
    """Return the session; None for one that nobody said anything in, as a resumed one leaves in a second file."""
    draft = TrajectoryDraft("gemini_cli")
    notices: Counter[str] = Counter()
    model = request = None
    waiting: set[str] = set()
    for message in messages:
        kind = to_text(message.get("type"))
        content = _content(source, message.get("content"))
        if kind == "user" and (responses := _responses(message.get("content"))):
            for response in responses:  # newer versions repeat the results of the calls as the user's message
                if (call_id := to_text(response.get("id"))) in waiting:
                    waiting.remove(call_id)
                    _add_result(
                        draft, source, {"id": call_id, "name": response.get("name")}, [{"functionResponse": response}]
                    )
            continue
        if kind == "user" and not content.text.startswith(_CONTEXT_MARK):
            request = request or _content(source, message.get("displayContent")).text or content.text
        if kind == "gemini":
            model = model or first_text(message.get("model"))
            draft.failure = None
            waiting |= _add_turn(draft, source, message, content)
        elif kind == "user" and draft.turns:
            draft.note("user", content.text, **drop_empty(blobs=content.blobs))
        elif kind == "user":
            draft.message("user", content.text, content.blobs)
        else:
            notices[kind] += 1
            if kind == "error":
                draft.failure = Failure(FailureKind.INFRASTRUCTURE, "Error", content.text)
    if request is None and not draft.turns:
        return None
    draft.outcome = Outcome(terminated=bool(draft.last) and not draft.failure and not draft.turns[-1].calls)
    draft.collected_at = to_iso(session.get("startTime")) or to_iso(messages[0].get("timestamp"))
    parent = source.path.parent.name if session.get("kind") == "subagent" else None
    draft.extra.update(drop_empty(rewinds=session.pop("rewinds", 0), session=session, notices=dict(notices)))
    draft.extra.update(drop_empty(parent_session=parent))
    native_id = first_text(session.get("sessionId"))
    return draft.finish(native_id=native_id, description=request, agent="gemini-cli", model=model)


def _add_turn(draft: TrajectoryDraft, source: LogSource, message: dict[str, Any], content: MessageContent) -> set[str]:
    """Add a message of the model and return the ids of its calls without a result."""
    thoughts = [
        ": ".join(filter(None, (to_text(thought.get("subject")), to_text(thought.get("description")))))
        for thought in as_mappings(message.get("thoughts"))
    ]
    turn = draft.turn(content.text, "\n".join(thoughts) or content.thought)
    turn.extra.update(drop_empty(blobs=content.blobs))
    tokens = as_mapping(message.get("tokens"))
    counts = [to_count(tokens.get(name)) for name in ("input", "output", "thoughts")]
    if counts[0] is not None or counts[1] is not None:
        # Google counts thoughts apart from the output.
        turn.usage = Usage(counts[0], None if counts[1] is None else counts[1] + (counts[2] or 0))
    parts = as_mappings(message.get("content"))
    waiting = set()
    for call in as_mappings(message.get("toolCalls")) or [as_mapping(part.get("functionCall")) for part in parts]:
        if not call:
            continue
        call_id = draft.call(to_text(call.get("name")), call.get("args"), call_id=first_text(call.get("id"))).call_id
        if (result := call.get("result")) is None:
            waiting.add(call_id)
        else:
            _add_result(draft, source, {**call, "id": call_id}, result)
    return waiting


def _add_result(draft: TrajectoryDraft, source: LogSource, call: dict[str, Any], result: Any) -> None:
    """Add the result of a call: parts with the function's response, and images beside or within it."""
    responses = _responses(result)
    outputs = [as_mapping(response.get("response")) for response in responses]
    texts = [to_text(output.get("output", output.get("error", output))) for output in outputs]
    inner = [part for response in responses for part in as_mappings(response.get("parts"))]
    content = _content(source, [*result, *inner] if isinstance(result, list) else result)
    shown = "\n".join([*texts, *content.texts])
    match = _EXIT_CODE.search(shown[-2000:]) if call.get("name") == "run_shell_command" else None
    failed = call.get("status") in ("error", "cancelled")
    turn = draft.result(
        shown,
        call_id=call["id"],
        exit_code=to_int(int(match[1])) if match else None,
        error=(shown.strip() or to_text(call["status"])).splitlines()[0] if failed else None,
        blob=content.blob,
    )
    if content.blobs[1:]:
        turn.note_result(call_id=call["id"], blobs=content.blobs[1:])


READER = GeminiCliReader()
