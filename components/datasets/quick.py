"""Quick: records as rows show them, copied as JSON from their shard and not read. What it gives is what `messages` gives.

Most of a record is text that a row shows as it is. Here that text stays the bytes that it was; only what lies around it is written
anew. The lines were read in full, and refused where they are no records, by the stage `validate` before.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from components.protocol import DataError
from components.trajectories.pieces import Piece, trajectories_of
from components.trajectories.record import SCHEMA_VERSION

NONE, NULL = msgspec.Raw(b"[]"), msgspec.Raw(b"null")


class Said(msgspec.Struct, gc=False):
    """A message before the first turn."""

    role: msgspec.Raw
    content: msgspec.Raw


class Call(msgspec.Struct, gc=False):
    """A call; `parse_error` is JSON too: null where it could be read."""

    call_id: msgspec.Raw
    tool: msgspec.Raw
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    raw: str = ""
    parse_error: str | None = None


class Result(msgspec.Struct, gc=False):
    """What came back."""

    call_id: msgspec.Raw
    content: msgspec.Raw


class Turn(msgspec.Struct, gc=False):
    """One reply and what its calls returned."""

    text: msgspec.Raw
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


class Extra(msgspec.Struct, frozen=True, gc=False):
    """Of `source_extra` the tools."""

    tools: msgspec.Raw = NONE


class Record(msgspec.Struct, gc=False):
    """Of a trajectory what rows show."""

    episode_id: str
    messages: tuple[Said, ...]
    turns: tuple[Turn, ...]
    source_extra: Extra = Extra()
    parent: msgspec.Raw = NULL
    schema_version: int = SCHEMA_VERSION

    @property
    def is_branch(self) -> bool:
        """Whether it left another episode, and has to be completed by it."""
        return bytes(self.parent) != b"null"

    @property
    def tools(self) -> bytes:
        """The tools that the policy was told of, as JSON."""
        tools = bytes(self.source_extra.tools)
        return tools if tools.startswith(b"[") else b"[]"


class Line(NamedTuple):
    """The line of an episode."""

    episode_id: str
    data: bytes | memoryview


_records = msgspec.json.Decoder(Record)
_BEGIN = b'{"episode_id":"'
"""How our own lines begin."""


def lines_of(data: bytes, piece: Piece) -> list[Line]:
    """The lines of a piece by their episodes. Only the beginning of each is read. Raises DataError that names the line."""
    if not data.isascii():
        try:
            data.decode()  # texts are copied: they must be what JSON may hold
        except UnicodeDecodeError:
            return _read(data, piece)
    view, found, begin = memoryview(data), [], 0
    while begin < len(data):
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        quote = data.find(b'"', begin + len(_BEGIN), end)
        name = data[begin + len(_BEGIN) : quote]
        if quote < 0 or not data.startswith(_BEGIN, begin) or b"\\" in name:
            return _read(data, piece)
        found.append(Line(name.decode(), view[begin:end]))
        begin = end + 1
    return found


def record_of(line: Line, shard: Path) -> Record:
    """One record; one of an older schema is migrated. Raises DataError."""
    try:
        record = _records.decode(line.data)
    except (msgspec.DecodeError, RecursionError):
        record = None
    if record is not None and record.schema_version == SCHEMA_VERSION:
        return record
    piece = Piece(shard.parent, shard.name, "", 0, 0, 0, ())
    try:
        return _records.decode(_read(bytes(line.data) + b"\n", piece)[0].data)
    except DataError as error:
        raise DataError(f"{line.episode_id}: {error}") from error


def _read(data: bytes, piece: Piece) -> list[Line]:
    """The lines of what is no line of ours: read in full, and written as ours."""
    encode = msgspec.json.Encoder().encode
    return [Line(each.episode_id, encode(each)) for each in trajectories_of(data, piece)]


def opening_json(record: Record) -> list[bytes]:
    """The messages that stand before the first turn."""
    return [b'{"role":%b,"content":%b}' % (each.role, each.content) for each in record.messages]


def turn_json(turn: Turn, weight: bytes = b"") -> list[bytes]:
    """One assistant message, then one tool message per result. `weight`: `,"weight":1.0`, or nothing."""
    calls, text = turn.calls, turn.text
    if len(calls) == 1 and calls[0].parse_error is None:
        call = calls[0]
        said = [_ONE_CALL % (text, call.call_id, call.tool, call.arguments, weight)]
        if len(turn.results) == 1 and bytes(turn.results[0].call_id) == bytes(call.call_id):
            result = turn.results[0]
            said.append(_RESULT % (result.call_id, call.tool, result.content))
            return said
    else:
        said = [_reply(text, calls, weight)]
    if turn.results:
        names = {bytes(call.call_id): call.tool for call in calls}
        for result in turn.results:
            said.append(_RESULT % (result.call_id, names.get(bytes(result.call_id), _NAMELESS), result.content))
    return said


_NAMELESS = msgspec.Raw(b'""')
_CALL = b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}'
_ONE_CALL = b'{"role":"assistant","content":%b,"tool_calls":[' + _CALL + b"]%b}"
_RESULT = b'{"role":"tool","tool_call_id":%b,"name":%b,"content":%b}'


def _reply(text: msgspec.Raw, calls: Sequence[Call], weight: bytes) -> bytes:
    """The assistant's message of any number of calls, readable or not."""
    unreadable = "".join(call.raw for call in calls if call.parse_error is not None)
    content = msgspec.json.encode(msgspec.json.decode(text, type=str) + unreadable) if unreadable else bytes(text)
    parsed = [_CALL % (call.call_id, call.tool, call.arguments) for call in calls if call.parse_error is None]
    called = b',"tool_calls":[%b]' % b",".join(parsed) if parsed else b""
    return b'{"role":"assistant","content":%b%b%b}' % (content, called, weight)
