"""Reader of Gemini CLI: the recorded sessions (`session-*.json`, and `.jsonl` with one change per line).

A file is one trajectory. A message of the model with its tool calls is a turn. Of the JSON lines, a later line with the id of an
earlier message replaces it, `$set` changes the metadata, and `$rewindTo` removes that message and all after it. A tool's result
is what the model was given; its exit code is the one that the shell tool states in it. Logs state no outcome; an error at the
end is an infrastructure failure. Notes to the user (`info`, `warning`) are counted.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ratchet.components.core import Usage
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_count, to_int, to_iso, to_text
from .message_content import parse_content
from .trajectory_draft import TrajectoryDraft

_EXIT_CODE = re.compile(r"^Exit Code: (-?\d{1,10})$", re.MULTILINE)


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
                session |= {name: field for name, field in fields.items() if name != "messages"}
                for message in as_mappings(fields.get("messages")):
                    messages[to_text(message.get("id")) or f"#{len(messages)}"] = message
            elif "$rewindTo" in line:
                session["rewinds"] = session.get("rewinds", 0) + 1
                ids = list(messages)
                at = to_text(line["$rewindTo"])
                for identity in ids[ids.index(at) :] if at in messages else []:
                    del messages[identity]
            elif isinstance(line.get("type"), str):
                identity = to_text(line.get("id")) or f"#{len(messages)}"
                fields = {name: field for name, field in line.items() if name != "type" or field != "message_update"}
                messages[identity] = messages.get(identity, {}) | fields
            else:
                source.bad_value(where, "no session or message of Gemini CLI", value)
        if any(message.get("type") in ("user", "gemini") for message in messages.values()):
            yield _trajectory(source, session, list(messages.values()))


def _trajectory(source: LogSource, session: dict[str, Any], messages: list[dict[str, Any]]) -> Trajectory:
    draft = TrajectoryDraft("gemini_cli")
    notices: Counter[str] = Counter()
    model = request = None
    for message in messages:
        kind = to_text(message.get("type"))
        content = parse_content(message.get("content"), source.blobs)
        if kind == "user" and any("functionResponse" in part for part in as_mappings(message.get("content"))):
            continue  # newer versions repeat the results of the calls as the user's message
        if kind == "user" and not content.text.startswith("<session_context>"):
            request = request or content.text
        if kind == "gemini":
            model = model or first_text(message.get("model"))
            draft.failure = None
            _add_turn(draft, source, message, content.text)
        elif kind == "user" and draft.turns:
            draft.note("user", content.text, **drop_empty(blobs=content.blobs))
        elif kind == "user":
            draft.message("user", content.text, content.blobs)
        else:
            notices[kind] += 1
            if kind == "error":
                draft.failure = Failure(FailureKind.INFRASTRUCTURE, "Error", content.text)
    draft.outcome = Outcome(terminated=bool(draft.last) and not draft.failure and not draft.turns[-1].calls)
    draft.collected_at = to_iso(session.get("startTime")) or to_iso(messages[0].get("timestamp"))
    draft.extra.update(drop_empty(rewinds=session.pop("rewinds", 0), session=session, notices=dict(notices)))
    native_id = first_text(session.get("sessionId"))
    return draft.finish(native_id=native_id, description=request, agent="gemini-cli", model=model)


def _add_turn(draft: TrajectoryDraft, source: LogSource, message: dict[str, Any], text: str) -> None:
    thoughts = [
        ": ".join(filter(None, (to_text(thought.get("subject")), to_text(thought.get("description")))))
        for thought in as_mappings(message.get("thoughts"))
    ]
    turn = draft.turn(text, "\n".join(thoughts) or None)
    tokens = as_mapping(message.get("tokens"))
    counts = [to_count(tokens.get(name)) for name in ("input", "output", "thoughts")]
    if counts[0] is not None or counts[1] is not None:
        # Google counts thoughts apart from the output.
        turn.usage = Usage(counts[0], None if counts[1] is None else counts[1] + (counts[2] or 0))
    for call in as_mappings(message.get("toolCalls")):
        call_id = draft.call(to_text(call.get("name")), call.get("args"), call_id=first_text(call.get("id"))).call_id
        if (result := call.get("result")) is None:
            continue
        responses = [as_mapping(part.get("functionResponse")) for part in as_mappings(result)]
        outputs = [as_mapping(response.get("response")) for response in responses]
        texts = [to_text(output.get("output", output.get("error", output))) for output in outputs]
        images = [
            as_mapping(part.get("inlineData")) for response in responses for part in as_mappings(response.get("parts"))
        ]
        stored = parse_content([{"type": "image", "data": image.get("data")} for image in images], source.blobs)
        shown = "\n".join(texts) if responses else parse_content(result, source.blobs).text
        match = _EXIT_CODE.search(shown)
        failed = call.get("status") in ("error", "cancelled")
        draft.result(
            shown,
            call_id=call_id,
            exit_code=to_int(int(match[1])) if match else None,
            error=(shown.strip() or to_text(call["status"])).splitlines()[0] if failed else None,
            blob=stored.blob,
        )


READER = GeminiCliReader()
