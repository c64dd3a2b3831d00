"""Reader of Claude Code: the JSONL of sessions with their subagents, and the output of `--output-format stream-json`.

Each session is one trajectory. Each subagent is another, with the session as `parent`, because its context is separate; so is
each branch that the user left by a rewind. Subagents are in the session's file (`isSidechain`, `parent_tool_use_id`) or in files
beside it (`<session>/subagents/agent-*.jsonl`, `agent-*.jsonl`). A folder yields all its sessions.

A reply over several lines is one turn. Only failed commands have an exit code ("Exit code 1"). Logs state no outcome. An API
error without a later reply is an infrastructure failure; an interruption by the user truncates the episode. Bookkeeping lines
are counted; short titles and summaries are stored.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ratchet.components.trajectories.trajectory import Parent, Trajectory

from .claude_code_turns import (
    MESSAGE_TYPES,
    READ_TYPES,
    SMALL_LINE_BYTES,
    ClaudeConversation,
    ConversationImporter,
    first_prompt,
)
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, decode_json, to_text
from .message_content import StoredBlob, parse_content

Key = TypeVar("Key")
BOOKKEEPING_TYPES: tuple[str, ...] = ("summary", "file-history-snapshot", "queue-operation", "progress", "custom-title")
BOOKKEEPING_TYPES += ("ai-title", "agent-name", "last-prompt")
HELD_BYTES_LIMIT = 64 << 20
"""Maximum size of the conversations of a file that are held in memory, in bytes of JSON without images."""


def is_session_line(value: Any) -> bool:
    """Return whether a value is a line of a Claude Code session."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str):
        return False
    if kind in MESSAGE_TYPES:
        message = value.get("message")
        return isinstance(message, Mapping) and ("content" in message or "role" in message)
    if kind in ("system", "result", "attachment"):
        return "sessionId" in value or "session_id" in value
    return kind in BOOKKEEPING_TYPES and bool(
        {"sessionId", "leafUuid", "messageId", "snapshot", "session_id"} & value.keys()
    )


def read_session_id(line: Mapping[str, Any]) -> str:
    """Return the session id in a log line, with each run of white space as one space; "" without an id."""
    return " ".join(to_text(line.get("sessionId") or line.get("session_id")).split())


def read_conversations(source: LogSource) -> Iterator[tuple[list[ClaudeConversation], list[ClaudeConversation]]]:
    """Yield (sessions, subagents) of a file: one pair at its end, unless its conversations exceed HELD_BYTES_LIMIT.

    Above that limit, all conversations except those of the current session are taken for finished and yielded first. A
    session that is too large by itself is reported as unreadable.
    """
    conversations = _OpenConversations()
    refused: set[str] = set()  # sessions over the limit: the rest of their lines would give half a session
    for where, value, size in _lines(source):
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            source.bad_value(where, "no line of a session: an object with `type`", value)
            continue
        if refused and read_session_id(value) in refused:
            continue
        line, size = drop_images(value, size, source)
        at = conversations.add(line, size)
        report = _progress_line(line)
        if report is not None:
            subagent = conversations.add(*drop_images(report, size, source))
            if subagent is not None:
                subagent.from_progress = True
        if conversations.size > HELD_BYTES_LIMIT:
            current = at.session_id if at is not None else ""
            ready = conversations.remove_others(current)
            if ready[0] or ready[1]:
                yield ready
            if conversations.size > HELD_BYTES_LIMIT:
                source.bad(
                    where,
                    f"session {current} holds more than {HELD_BYTES_LIMIT >> 20} MiB beside its images; split its file",
                )
                refused.add(current)
                conversations = _OpenConversations()
    ready = conversations.remove_others(None)
    if ready[0] or ready[1]:
        yield ready


def _progress_line(line: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the line of a subagent that a progress line of its session contains; None for other lines."""
    data = as_mapping(line.get("data")) if line.get("type") == "progress" else {}
    message = as_mapping(data.get("message"))
    if (
        data.get("type") != "agent_progress"
        or not isinstance(data.get("agentId"), str)
        or message.get("type") not in MESSAGE_TYPES
    ):
        return None
    return {**message, "sessionId": line.get("sessionId"), "agentId": data["agentId"], "isSidechain": True}


class _OpenConversations:
    """The conversations of a file that were not yielded yet. `size`: bytes of JSON that they hold."""

    def __init__(self) -> None:
        self.sessions: dict[str, ClaudeConversation] = {}
        self.subagents: dict[tuple[str, str], ClaudeConversation] = {}
        self.size = 0
        self._conversation_by_uuid: dict[str, ClaudeConversation] = {}  # keys: uuids of lines
        self._early_lines: list[tuple[Mapping[str, Any], int]] = []  # bookkeeping lines before the first session

    def add(self, line: Mapping[str, Any], size: int) -> ClaudeConversation | None:
        at = self._conversation_for(line)
        if at is None:
            if len(self._early_lines) < 1000 and size < SMALL_LINE_BYTES:
                self._early_lines.append((line, size))
            return None
        if self._early_lines and not at.agent_id:
            for early, early_size in self._early_lines:
                at.add(early, early_size)
            self._early_lines.clear()
        before = at.size
        at.add(line, size)
        self.size += at.size - before
        if isinstance(line.get("uuid"), str):
            self._conversation_by_uuid[line["uuid"]] = at
        return at

    def _conversation_for(self, line: Mapping[str, Any]) -> ClaudeConversation | None:
        session = read_session_id(line)
        above = line.get("parentUuid")
        over = self._conversation_by_uuid.get(above) if isinstance(above, str) else None
        agent = line.get("agentId") or line.get("parent_tool_use_id")
        if line.get("type") not in READ_TYPES:
            return self.sessions.get(session) or next(reversed(self.sessions.values()), None)
        if agent or line.get("isSidechain") is True:
            if not agent and over is not None and over.agent_id:
                return over
            name = to_text(agent) or f"sidechain-{to_text(line.get('uuid')) or len(self.subagents)}"
            return self.subagents.setdefault((session, name), ClaudeConversation(session, name))
        if over is not None and not over.agent_id:
            over.session_id = session or over.session_id
            self.sessions[over.session_id] = over
            return over
        return self.sessions.setdefault(session, ClaudeConversation(session, ""))

    def remove_others(self, current: str | None) -> tuple[list[ClaudeConversation], list[ClaudeConversation]]:
        """Remove all conversations except those of the session `current`; return (sessions, subagents)."""
        ready = [
            conversation for conversation in dict.fromkeys(self.sessions.values()) if conversation.session_id != current
        ]
        session_keys = {key for key, conversation in self.sessions.items() if conversation in ready}
        subagents = [
            conversation for key, conversation in self.subagents.items() if key[0] in session_keys or key[0] != current
        ]
        removed = {*ready, *subagents}
        self.sessions = _without(self.sessions, removed)
        self.subagents = _without(self.subagents, removed)
        self._conversation_by_uuid = _without(self._conversation_by_uuid, removed)
        self.size = sum(
            conversation.size for conversation in (*dict.fromkeys(self.sessions.values()), *self.subagents.values())
        )
        return ready, subagents


def _without(table: dict[Key, ClaudeConversation], removed: set[ClaudeConversation]) -> dict[Key, ClaudeConversation]:
    return {key: conversation for key, conversation in table.items() if conversation not in removed}


def _lines(source: LogSource) -> Iterator[tuple[str, Any, int]]:
    source.drop_sample()
    if not source.is_lines:
        for where, value in source.values():
            yield where, value, 0
        return
    for where, raw in source.lines():
        try:
            value = decode_json(raw)
        except ValueError as error:
            source.bad_line(where, raw, error)
            continue
        if isinstance(value, list):
            yield from ((f"{where}, element {index}", element, 0) for index, element in enumerate(value))
        else:
            yield where, value, len(raw)


def drop_images(line: Mapping[str, Any], size: int, source: LogSource) -> tuple[Mapping[str, Any], int]:
    """Return the line with its images stored as blobs and without large fields of `toolUseResult`, and its new size.

    `size`: bytes of JSON of the line. The large fields hold whole files, which the text of the result repeats; many
    such lines would exceed memory.
    """
    result, message = line.get("toolUseResult"), as_mapping(line.get("message"))
    slim = dict(line)
    if isinstance(message.get("content"), list):
        slim["message"] = {**message, "content": [_slim_part(part, source) for part in message["content"]]}
    is_large = isinstance(result, Mapping) and size > SMALL_LINE_BYTES
    if slim == line and not is_large:
        return line, size
    if isinstance(result, Mapping):
        slim["toolUseResult"] = {
            key: field for key, field in result.items() if key == "stderr" or len(to_text(field)) <= SMALL_LINE_BYTES
        }
    return slim, len(to_text(slim))


def _slim_part(part: Any, source: LogSource) -> Any:
    inner = as_mapping(part).get("content")
    if isinstance(inner, list):
        return {**part, "content": [_slim_image(inner_part, source) for inner_part in inner]}
    return _slim_image(part, source)


def _slim_image(part: Any, source: LogSource) -> Any:
    if as_mapping(as_mapping(part).get("source")).get("type") == "base64":
        blobs = parse_content([part], source.blobs).blobs
        return StoredBlob(blobs[0]) if blobs else part
    return part


# Each branch repeats the conversation before it, so their total grows with the square of the number of rewinds.
BRANCH_LIMIT = 1_000_000
"""Maximum number of lines in all branches of a session."""


def read_sessions_and_subagents(
    source: LogSource, sessions: list[ClaudeConversation], subagents: list[ClaudeConversation]
) -> Iterator[Trajectory]:
    """Yield the trajectories of each session, its branches and its subagents, then of subagents without a session."""
    yielded: set[int] = set()
    for session in sessions:
        if not _has_messages(session):
            continue
        owners = _rewound_prompts(session.lines)
        main = ConversationImporter(source, session)
        for line, owner in zip(session.lines, owners, strict=True):
            if owner is None:
                main.add(line)
        record = main.to_trajectory()
        yield record
        yield from _read_branches(source, session, owners, record)
        for subagent in subagents:
            if subagent.session_id == session.session_id and id(subagent) not in yielded and _has_messages(subagent):
                yielded.add(id(subagent))
                yield _read_subagent(
                    source,
                    subagent,
                    Parent(record.episode_id, main.starting_turn(subagent.agent_id, first_prompt(subagent.lines))),
                )
    for subagent in subagents:
        if id(subagent) not in yielded and _has_messages(subagent):
            yield _read_subagent(source, subagent, None)


def _has_messages(conversation: ClaudeConversation) -> bool:
    return any(line.get("type") in MESSAGE_TYPES for line in conversation.lines)


def _read_subagent(source: LogSource, subagent: ClaudeConversation, parent: Parent | None) -> Trajectory:
    importer = ConversationImporter(source, subagent)
    importer.draft.parent = parent
    for line in subagent.lines:
        importer.add(line)
    return importer.to_trajectory()


def _read_branches(
    source: LogSource, session: ClaudeConversation, owners: list[int | None], main: Trajectory
) -> Iterator[Trajectory]:
    """Yield the branches that rewinds left, each with the conversation before it, as the agent saw it.

    `owners`: result of `_rewound_prompts`; `main`: the trajectory of the session.
    """
    budget = BRANCH_LIMIT
    places = {line["uuid"]: index for index, line in enumerate(session.lines) if isinstance(line.get("uuid"), str)}
    for number, root in enumerate(sorted({owner for owner in owners if owner is not None})):
        ancestors = {root}
        at: int | None = root
        while at is not None:
            parent_index = places.get(to_text(session.lines[at].get("parentUuid")))
            at = owners[parent_index] if parent_index is not None and owners[parent_index] not in ancestors else None
            ancestors |= {at} if at is not None else set()
        budget -= len(session.lines)
        if budget < 0:
            source.bad(
                f"session {session.session_id}",
                "it was rewound too often to tell every branch; the rest of them is left out",
            )
            return
        importer = ConversationImporter(source, session, branch=number + 1)
        shared = 0
        for index, line in enumerate(session.lines):
            if index == root:
                shared = len(importer.draft.turns)
            if owners[index] == root or (index < root and (owners[index] is None or owners[index] in ancestors)):
                importer.add(line)
        importer.draft.parent = Parent(main.episode_id, shared)
        yield importer.to_trajectory()


def _rewound_prompts(lines: list[Mapping[str, Any]]) -> list[int | None]:
    """Return for each line the index of the abandoned prompt that it descends from, or None.

    A rewind is a second user prompt with the same parent: the first prompt and its descendants are abandoned. Parallel
    calls and their results share a parent too, and are no rewinds.
    """
    last: dict[str, int] = {}
    abandoned: set[int] = set()
    for index, line in enumerate(lines):
        parent_uuid = line.get("parentUuid")
        if isinstance(parent_uuid, str) and _is_prompt(line):
            if parent_uuid in last:
                abandoned.add(last[parent_uuid])
            last[parent_uuid] = index
    if not abandoned:
        return [None] * len(lines)
    owner: dict[str, int | None] = {}
    owners: list[int | None] = []
    for index, line in enumerate(lines):
        parent_uuid, uuid = line.get("parentUuid"), line.get("uuid")
        owner_index = index if index in abandoned else owner.get(parent_uuid) if isinstance(parent_uuid, str) else None
        owners.append(owner_index)
        if isinstance(uuid, str):
            owner[uuid] = owner_index
    return owners


def _is_prompt(line: Mapping[str, Any]) -> bool:
    if line.get("type") != "user" or line.get("isMeta") is True or line.get("isCompactSummary") is True:
        return False
    content = as_mapping(line.get("message")).get("content")
    if isinstance(content, str):
        return not to_text(content).startswith(
            ("<local-command", "<command-", "[Request interrupted", "<bash-", "<task-notification")
        )
    return bool(as_mappings(content)) and all(part.get("type") in ("text", "image") for part in as_mappings(content))


FILES_LIMIT = 200
OTHER_LOG_SUFFIXES = {".json", ".traj", ".eval", ".gz", ".zip"}


class ClaudeCodeReader:
    """Reader of Claude Code's sessions."""

    def detects(self, source: LogSource) -> bool:
        """Return whether most sample values are lines of a session; for a folder, whether it holds sessions and no other
        logs.
        """
        if source.is_folder:
            session_files = _session_files(source.path)[:FILES_LIMIT]
            return (
                bool(session_files)
                and not _has_other_logs(source.path)
                and all(self.detects(source.nested(path, path.name)) for path in session_files)
            )
        # Qwen Code's lines look alike, with Gemini's `parts` for content.
        messages = [as_mapping(as_mapping(value).get("message")) for value in source.sample]
        return source.mostly_matches(is_session_line) and not any("parts" in message for message in messages)

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every session, with its branches and subagents after it."""
        if not source.is_folder:
            yield from _read_file(source, set())
            return
        read: set[Path] = set()
        for path in _session_files(source.path):
            if path not in read:
                yield from _read_file(source.nested(path, path.name), read)


def _read_file(source: LogSource, read: set[Path]) -> Iterator[Trajectory]:
    """Yield the sessions of a file with the subagents from files beside it, and add those files to `read`."""
    for sessions, subagents in read_conversations(source):
        for path in [] if not sessions else _subagent_files(source.path, sessions):
            read.add(path)
            for others, found_subagents in read_conversations(source.nested(path, path.name)):
                for conversation in others:  # a subagent's lines without the mark `isSidechain`
                    conversation.agent_id = path.stem.removeprefix("agent-")
                agents_with_files = {conversation.agent_id for conversation in (*others, *found_subagents)}
                subagents[:] = [
                    one for one in subagents if not (one.from_progress and one.agent_id in agents_with_files)
                ]
                subagents.extend([*others, *found_subagents])
        yield from read_sessions_and_subagents(source, sessions, subagents)


def _subagent_files(path: Path, sessions: list[ClaudeConversation]) -> list[Path]:
    """Return the subagent files in the folder of a session, and those beside its file that the session names."""
    session_folder = path.with_suffix("") / "subagents"
    agents = {agent for session in sessions for agent in session.subagent_ids}
    around = [path.parent / f"agent-{agent}.jsonl" for agent in sorted(agents)]
    inside = sorted(session_folder.rglob("agent-*.jsonl"))
    return [*inside, *(file for file in around if file.is_file() and file != path)]


def _session_files(folder: Path) -> list[Path]:
    """Return the non-empty JSONL files below a folder, those of subagents last."""
    session_files = sorted(path for path in folder.rglob("*.jsonl") if path.is_file() and path.stat().st_size)
    return sorted(session_files, key=lambda path: path.name.startswith("agent-"))


def _has_other_logs(folder: Path) -> bool:
    """Return whether a folder contains files that may be logs of other formats: this reader would skip them."""
    own_endings = (".meta.json", "sessions-index.json")
    files = (path for path in folder.rglob("*") if path.is_file())
    return any(path.suffix in OTHER_LOG_SUFFIXES and not path.name.endswith(own_endings) for path in files)


READER = ClaudeCodeReader()
