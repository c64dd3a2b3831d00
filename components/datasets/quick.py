"""Quick: records as rows show them, copied as JSON from their shard and not read. What it gives is what `messages` gives.

Most of a record is text that a row shows as it is. Here that text stays the bytes that it was; only what lies around it is written
anew. The lines were read in full, and refused where they are no records, by the stage `validate` before.
"""

from collections.abc import Sequence

import msgspec

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


_records = msgspec.json.Decoder(Record)


def records_of(data: bytes, piece: Piece) -> list[Record]:
    """The records of a piece's bytes; those of an older schema migrated. Raises DataError that names the line."""
    try:
        if not data.isascii():
            data.decode()  # texts are copied: they must be what JSON may hold
        found = _records.decode_lines(data)
        if all(each.schema_version == SCHEMA_VERSION for each in found):
            return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return _records.decode_lines(msgspec.json.Encoder().encode_lines(trajectories_of(data, piece)))


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
