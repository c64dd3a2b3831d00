"""Reader of Inspect AI: `.eval` logs (zip archives) and `.json` logs.

Each epoch of a sample is a trajectory: its messages with their attachments; usage, tools and stop reasons from its model events;
scores, error and limit. Other events are only counted. A sample that is stored in chunks is joined. Entries of an archive are read
one at a time and limited in size, so that a zip bomb raises DataError.

Score and success are those of the scorers, if all agree: C is 1, I and N (no answer) are 0, P is .5 with success None. An error is
an infrastructure failure, without score and success; a limit truncates the episode.
"""

import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from ratchet.components.core import ConfigurationError, DataError, Usage
from ratchet.components.core.errors import install_command
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .chat_import import ASSISTANT_ROLES, ChatImporter, as_messages, parse_usage, to_openai_tools
from .log_source import DOCUMENT_LIMIT, LogSource
from .log_values import (
    as_mapping,
    as_mappings,
    as_str,
    decode_json,
    drop_empty,
    first_text,
    to_count,
    to_iso,
    to_number,
    to_text,
    unread_fields,
    words,
)
from .trajectory_draft import TrajectoryDraft

DIRECTORY_LIMIT = 64 << 20
"""Maximum size of the directory of an archive, in bytes."""
ZSTANDARD = 93
"""Compression method of zip entries in zstandard."""
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
# Errors of `zipfile`, zlib and pyarrow for damaged entries (NotImplementedError is a RuntimeError).
_DAMAGE_ERRORS = (zipfile.BadZipFile, OSError, EOFError, ValueError, zlib.error, struct.error, RuntimeError)


class EvalArchive:
    """An open `.eval` archive. `names`: its entry names, in order, each once. Raises DataError if it is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            _check_directory(path)
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE_ERRORS as error:
            raise DataError(
                f"{path} is a damaged zip ({error}); recover it with `inspect log recover`, or restore it"
            ) from error
        # An archive may hold a name twice; zipfile reads its last entry.
        self.names = list(dict.fromkeys(self._zip.namelist()))
        self._entry_names = set(self.names)

    def __enter__(self) -> "EvalArchive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self._entry_names

    def value(self, name: str) -> Any:
        """Return the JSON value of an entry. Raises DataError for one that is damaged, too large or no JSON."""
        try:
            with self._open(name) as file:
                # The size in the directory is not to be trusted: a zip bomb states a small one.
                content = file.read(DOCUMENT_LIMIT + 1)
            if len(content) > DOCUMENT_LIMIT:
                limit = f"{DOCUMENT_LIMIT >> 20} MiB"
                raise DataError(f"it unpacks to more than {limit}; no sample is read that is larger")
            return decode_json(content)
        except _DAMAGE_ERRORS as error:
            raise DataError(str(error)) from error

    def _open(self, name: str) -> IO[bytes]:
        info = self._zip.getinfo(name)
        if info.compress_type != ZSTANDARD:
            return self._zip.open(info)
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ConfigurationError(
                f"{self.path} is packed with zstandard, which pyarrow reads; install it: {install_command('data')}"
            ) from error
        # `zipfile` of Python 3.11 cannot read zstandard, so the entry is found by its local header.
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            file.seek(header[9] + header[10], 1)
            packed = file.read(min(info.compress_size, DOCUMENT_LIMIT))
        unpacked: IO[bytes] = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
        return unpacked


def _check_directory(path: Path) -> None:
    """Raise for a zip directory that would not fit in memory, before `zipfile` reads it as a whole."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        # The end record has 22 bytes and a comment of at most 65,535.
        file.seek(max(0, size - 65_557))
        tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) < at + 22:
            raise zipfile.BadZipFile("its directory is absent: the writing was cut short")
        directory = struct.unpack_from("<L", tail, at + 12)[0]
        # All ones: the size is in the zip64 record, whose offset is in the locator before the end record.
        if directory == 0xFFFFFFFF and at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":
            file.seek(struct.unpack_from("<Q", tail, at - 12)[0])
            record = file.read(56)
            directory = struct.unpack_from("<Q", record, 40)[0]
        if directory > DIRECTORY_LIMIT:
            raise DataError(f"{path}: its directory has {directory >> 20} MiB; no log of that many entries is read")


GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_READ_FIELDS = {"messages", "events", "events_data", "attachments", "message_refs", "sequences", "id", "epoch", "input"}
_READ_FIELDS |= {"timelines"}
_READ_FIELDS |= {"started_at", "completed_at", "uuid", "output", "error", "transcript", "score"}
_EVAL_FIELDS = words("task task_id task_version task_args run_id eval_id tags")
ATTACHMENT_DEPTH = 60


class _Attachments:
    """Contents that messages name by `attachment://key`. Raises DataError where the resolved text exceeds DOCUMENT_LIMIT.

    One attachment may be named many times, so the size of a sample says nothing about that of its resolved text.
    """

    def __init__(self, attachments: Any) -> None:
        self._contents: Mapping[str, Any] = attachments if isinstance(attachments, Mapping) else {}
        self._budget = DOCUMENT_LIMIT

    def resolve(self, value: Any, depth: int = ATTACHMENT_DEPTH) -> Any:
        """Return the value with references replaced by their contents; unknown ones stay."""
        if isinstance(value, str):
            return self._resolve_text(value)
        if depth and isinstance(value, list):
            return [self.resolve(item, depth - 1) for item in value]
        if depth and isinstance(value, Mapping):
            return {key: self.resolve(item, depth - 1) for key, item in value.items()}
        return value

    def _resolve_text(self, text: str) -> str:
        scheme, separator, key = text.partition("://")
        if not separator or scheme not in ("attachment", "tc") or not isinstance(self._contents.get(key), str):
            return text
        content: str = self._contents[key]
        self._budget -= len(content)
        if self._budget < 0:
            raise DataError(f"its attachments unfold to more than {DOCUMENT_LIMIT >> 20} MiB")
        return content


class _ModelCall(NamedTuple):
    """Fields of a model event that belong to the reply `message_id`. `seconds`: duration of the request."""

    message_id: Any
    usage: Usage | None
    stop_reason: str | None
    seconds: float | None


def read_sample(source: LogSource, where: str, log: Mapping[str, Any], sample: Any) -> Iterator[Trajectory]:
    """Yield the trajectory of `sample`, or nothing if it is no sample: it is then reported as unreadable.

    `log`: the header of the log; `where`: location of the sample, for reports. Raises DataError only if `source` has no
    `on_bad`.
    """
    if not isinstance(sample, Mapping) or not ("messages" in sample or "input" in sample):
        source.bad_value(where, "no sample: an object with `messages` or `input`", sample)
        return
    try:
        attachments = _Attachments(sample.get("attachments") or as_mapping(sample.get("transcript")).get("content"))
        messages = attachments.resolve(sample.get("messages"))
        sample_input = attachments.resolve(sample.get("input"))
        tools = attachments.resolve(_first_tools(sample))
    except DataError as error:
        source.bad(where, str(error))
        return
    yield _trajectory(source, where, log, sample, messages, sample_input, tools)


def _trajectory(
    source: LogSource,
    where: str,
    log: Mapping[str, Any],
    sample: Mapping[str, Any],
    messages: Any,
    sample_input: Any,
    tools: Any,
) -> Trajectory:
    spec = as_mapping(log.get("eval"))
    draft = TrajectoryDraft("inspect_ai")
    chat = ChatImporter(draft, source, where)
    messages = messages if isinstance(messages, list) and messages else as_messages(sample_input, "user")
    for index, message in enumerate(messages):
        if isinstance(message, Mapping):
            chat.add(message, context=message.get("role") in ASSISTANT_ROLES and message.get("source") == "input")
        else:
            source.bad_value(f"{where}, message {index}", "a message is no object", message)
    _set_usage(draft, sample)
    _set_outcome(draft, sample)
    draft.extra.update(_extra(log, sample))
    if tools := to_openai_tools(tools):
        draft.extra["tools"] = tools
    output = as_mapping(sample.get("output"))
    draft.commit = as_str(as_mapping(spec.get("revision")).get("commit"))
    draft.collected_at = to_iso(sample.get("started_at")) or to_iso(spec.get("created"))
    task = to_text(spec.get("task") or "inspect")
    epoch = to_count(sample.get("epoch")) or 1
    run = first_text(spec.get("eval_id"), spec.get("run_id"))
    name = sample.get("id")
    sample_id = sample.get("uuid") or (f"{run}/{name}/{epoch}" if run else None)
    config = as_mapping(as_mapping(log.get("plan")).get("config")) or as_mapping(spec.get("model_generate_config"))
    return draft.finish(
        native_id=to_text(sample_id) if sample_id else None,
        task_id=f"{task}/{name}" if isinstance(name, str | int) else None,
        description=as_str(sample_input),
        taskset=task,
        domain="generic",
        agent=to_text(spec.get("solver") or "inspect_ai"),
        model=first_text(spec.get("model"), output.get("model")),
        sampling={key: value for key, value in config.items() if value is not None},
        attempt=epoch - 1,
    )


def _events(sample: Mapping[str, Any]) -> list[dict[str, Any]]:
    return as_mappings(sample.get("events") or as_mapping(sample.get("transcript")).get("events"))


def _first_tools(sample: Mapping[str, Any]) -> Any:
    events = (event for event in _events(sample) if event.get("event") == "model")
    return next((event["tools"] for event in events if event.get("tools")), None)


def _model_calls(sample: Mapping[str, Any]) -> Iterator[_ModelCall]:
    for event in _events(sample):
        output = as_mapping(event.get("output")) if event.get("event") == "model" else {}
        choices = output.get("choices")
        choice = as_mapping(choices[0]) if isinstance(choices, list) and choices else {}
        if choice:
            message_id, reason = as_mapping(choice.get("message")).get("id"), as_str(choice.get("stop_reason"))
            yield _ModelCall(message_id, parse_usage(output.get("usage")), reason, to_number(output.get("time")))


def _set_usage(draft: TrajectoryDraft, sample: Mapping[str, Any]) -> None:
    """Set usage, stop reason and seconds of each turn from its model event.

    Events are matched to turns by message id, or by their order where there are as many events as turns.
    """
    calls = list(_model_calls(sample))
    output = as_mapping(sample.get("output"))
    if not calls and len(draft.turns) == 1 and output:
        calls = list(_model_calls({"events": [{"event": "model", "output": output}]}))
    call_by_id = {call.message_id: call for call in calls if isinstance(call.message_id, str)}
    in_order = calls if len(calls) == len(draft.turns) else []
    for index, turn in enumerate(draft.turns):
        message_id = turn.extra.get("id")
        call = call_by_id.get(message_id) if isinstance(message_id, str) else None
        call = call or (in_order[index] if in_order else None)
        if call is not None:
            turn.usage, turn.stop_reason, turn.seconds = call.usage, call.stop_reason, call.seconds


def _set_outcome(draft: TrajectoryDraft, sample: Mapping[str, Any]) -> None:
    limit = sample.get("limit")
    kind = as_mapping(limit).get("type") or (limit if isinstance(limit, str) else None)
    error = sample.get("error")
    if error:
        message = to_text(as_mapping(error).get("message") or error)
        type_match = re.match(r"([A-Za-z_]\w*)\(", message)
        kind_of_error = type_match.group(1) if type_match else "SampleError"
        draft.failure = Failure(FailureKind.INFRASTRUCTURE, kind_of_error, message)
    scores = sample.get("scores") or ({"": sample["score"]} if sample.get("score") else None)
    score, success = (None, None) if error else parse_grade(scores)
    reason = f"limit: {to_text(kind)}" if kind else "error" if error else ""
    ended = not kind and not error and bool(sample.get("completed_at") or scores)
    draft.outcome = Outcome(success=success, score=score, terminated=ended, truncated=bool(kind), reason=reason)


def parse_grade(scores: Any) -> tuple[float | None, bool | None]:
    """Return the score and success that all scorers agree on; (None, None) where they differ or one gives no grade.

    `scores`: a sample's scores, by scorer. Success is True for 1, False for 0, else None.
    """
    scored = scores.values() if isinstance(scores, Mapping) else ()
    values = [_parse_grade(as_mapping(score).get("value")) for score in scored]
    if not values or len(set(values)) > 1 or values[0] is None:
        return None, None
    return values[0], {1.0: True, 0.0: False}.get(values[0])


def _parse_grade(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return to_number(value)
    grade = GRADES.get(value, GRADES.get(value.lower()) if len(value) > 1 else None)
    if grade is not None:
        return grade
    try:
        return to_number(float(value)) if len(value) < 32 else None
    except ValueError:
        return None


def _extra(log: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
    unread = unread_fields(sample, _READ_FIELDS, empty=(None, [], {}))
    kinds = Counter(to_text(event.get("event")) for event in _events(sample))
    spec = as_mapping(log.get("eval"))
    eval_fields = drop_empty(**{key: spec.get(key) for key in _EVAL_FIELDS}, status=log.get("status"))
    ended = {key: sample.get(key) for key in ("error", "completed_at")}
    return unread | drop_empty(events=dict(kinds), **ended, eval=eval_fields, score=sample.get("score"))


SAMPLE_NAME = re.compile(r"^samples/(.+_epoch_\d+)(?:\.json|/sample\.json)$", re.DOTALL)


class InspectAIReader:
    """Reader of Inspect AI's logs."""

    def detects(self, source: LogSource) -> bool:
        """Return whether it is a zip archive with a header of Inspect, or a document with `eval`."""
        if source.magic.startswith(b"PK"):
            try:
                with EvalArchive(source.path) as log:
                    return any(name in log for name in ("header.json", "_journal/start.json", "start.json"))
            except DataError:
                return source.path.suffix == ".eval"  # claim it, so that `read` reports the damage
        sample = source.sample
        return bool(sample) and all(map(_is_log, sample))

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every sample."""
        if source.magic.startswith(b"PK"):
            yield from _read_zip(source)
            return
        for where, log in source.roots():
            if not _is_log(log):
                source.bad_value(where, "no log of Inspect: an object with `eval` and `samples`", log)
                continue
            samples = log.get("samples")
            for index, sample in enumerate(samples if isinstance(samples, list) else []):
                yield from read_sample(source, f"{where}, sample {index}", log, sample)


def _is_log(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("eval"), Mapping)
        and ("samples" in value or "status" in value)
    )


def _read_zip(source: LogSource) -> Iterator[Trajectory]:
    with EvalArchive(source.path) as log:
        header = _header(log)
        chunks: dict[str, list[tuple[int, str]]] = {}
        for name in log.names:
            match = re.match(r"^samples/(.+_epoch_\d+/\w+)/(\d{1,18})\.json$", name, re.DOTALL)
            if match:
                chunks.setdefault(match.group(1), []).append((int(match.group(2)), name))
        for name in log.names:
            match = SAMPLE_NAME.match(name)
            if match is None:
                continue
            try:
                sample = log.value(name)
                if name.endswith("/sample.json") and isinstance(sample, Mapping):
                    sample = _join_chunks(log, match.group(1), sample, chunks)
            except DataError as error:
                source.bad(" ".join(name.split()), str(error))
            else:
                yield from read_sample(source, " ".join(name.split()), header, sample)


def _header(log: EvalArchive) -> Mapping[str, Any]:
    name = next((name for name in ("header.json", "_journal/start.json", "start.json") if name in log), None)
    try:
        header = log.value(name) if name else {}
    except DataError as error:
        raise DataError(f"{log.path}, {name}: {error}; restore the file") from error
    return as_mapping(header)


def _join_chunks(
    log: EvalArchive, key: str, shell: Mapping[str, Any], chunks: Mapping[str, list[tuple[int, str]]]
) -> dict[str, Any]:
    """Return a sample joined from its chunks: `message_refs` are ranges of one sequence, attachments are named by index."""

    def sequence(name: str) -> Iterator[Any]:
        for _, entry in sorted(chunks.get(f"{key}/{name}", [])):
            items = log.value(entry)
            yield from items if isinstance(items, list) else []

    pool = list(sequence("messages"))
    messages: list[Any] = []
    refs = shell.get("message_refs")
    for span in refs if isinstance(refs, list) else []:
        start, end = (to_count(bound) for bound in span) if isinstance(span, list) and len(span) == 2 else (None, None)
        if start is not None and end is not None:
            messages.extend(pool[start:end])
        if len(messages) > 1_000_000:  # ranges may overlap, so a small file can state any number of messages
            raise DataError("its message_refs tell more than a million messages")
    metadata = f"samples/{key}/metadata.json"
    events = [_slim_event(event) for event in sequence("events")]
    attachments = {str(index): attachment for index, attachment in enumerate(sequence("attachments"))}
    joined = {**shell, "messages": messages, "events": events, "attachments": attachments}
    return joined | ({"metadata": log.value(metadata)} if metadata in log else {})


def _slim_event(event: Any) -> Any:
    """Return the used fields of a model event, without its input, which repeats the conversation; of others the kind."""
    if not isinstance(event, Mapping):
        return event
    keys = ("event", "output", "model", "tools") if event.get("event") == "model" else ("event",)
    return {key: event[key] for key in keys if key in event}


READER = InspectAIReader()
