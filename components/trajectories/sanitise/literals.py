"""Literals: where a value begins and ends, however it is written: quoted, escaped, in a block, or bare."""

import re
from typing import NamedTuple

_PREFIX = re.compile(
    rb"[ \t]{0,8}(?:!![a-z]{1,8}[ \t]+|[brfuBRFULN@$]{1,2}(?=[\"'])|(?:\[\]byte|[Bb]ytes|bytearray|Buffer\.from"
    rb"|SecretStr|SecretString|Secret|str|[Ss]tring(?:::from|\.valueOf)?|std::string|Some|text)\("
    rb"[brfuBRFUL]?(?=[\"'])|\((?=[\"']))?"
)
_QUOTE = re.compile(rb"(\\{0,15})([\"'`])|&quot;|&#34;|&#x27;|&#39;|%22|\\u0022")
_BARE = re.compile(rb"(?:[^\s\"'`<>\\\x00]|\\(?![nrt\"'\\/]))*")
_BLOCK = re.compile(
    rb"[ \t]*[|>][+\-]?[ \t]*\r?\n([ \t]+)([^\s\x00]+(?:\r?\n\1[ \t]{0,8}[A-Za-z0-9+/=_.\-]{8,512}(?=[ \t]*(?:\r?\n|$))){0,64})"
)
_REST = re.compile(rb"[^\s\"'`\\\x00]{4,512}(?=[ \t]*(?:\r?\n|$|\x00))")
_NO_REST = re.compile(rb"[;,&?][\w .\-]{1,40}=|</|<br|&&|\|\||://")
_QUERY = re.compile(rb"&(?:amp;)?[\w.\-\[\]]{1,40}=|&&|&$")
_FIELDS = re.compile(rb"[;,](?:[\w .\-]{1,40}[=:]|$)|,[{\[]|[)\]}],|[)\]}];?$")

SHORT = 512
"""Bytes of a bare value that are read to judge it; `whole` reads on."""


class Value(NamedTuple):
    """A value and where it stands; `quoted` tells how it was written."""

    start: int
    end: int
    quoted: bool


def read_value(data: bytes, at: int, *, literal: bool = False) -> Value | None:
    """The value that begins at `at` or after it on the line: quoted in any depth of escaping, or bare; None where there is none."""
    if block := _BLOCK.match(data, at):
        return Value(block.start(2), block.end(2), True)
    if prefix := _PREFIX.match(data, at):
        at = prefix.end()
    quote = _QUOTE.match(data, at)
    if quote is None:
        return _bare(data, at, literal)
    start = quote.end()
    if quote.group(2) and not quote.group(1) and data[start : start + 2] == quote.group(2) * 2:
        start, closing = start + 2, quote.group(2) * 3
    else:
        closing = quote.group()
    end = _closing(data, start, closing)
    return None if end == start else Value(start, end, True)


def _closing(data: bytes, start: int, closing: bytes) -> int:
    """Where the quoted value ends: at the same quote in the same depth of escaping, or, cut short, at the end of the line."""
    limit = min(len(data), start + 8192)
    stop = min(
        (each for each in (data.find(b"\n", start, limit), data.find(b"\x00", start, limit)) if each >= 0),
        default=limit,
    )
    at = data.find(closing, start, limit if len(closing) == 3 and closing[:1] == closing[1:2] else stop)
    while at > start and closing[:1] != b"&" and data[at - 1 : at] == b"\\":
        at = data.find(closing, at + 1, stop)
    if at >= 0:
        return at
    cut = _BARE.match(data, start, min(stop, start + SHORT))
    return cut.end() if cut else start


def read_rest(data: bytes, at: int) -> Value | None:
    """The one word that the rest of the line is, whatever symbols it has, as in a file of settings."""
    found = _REST.match(data, at)
    return None if found is None or _NO_REST.search(found.group()) else Value(at, found.end(), False)


def _bare(data: bytes, at: int, literal: bool) -> Value | None:
    found = _BARE.match(data, at, min(len(data), at + SHORT))
    if found is None or found.end() == at:
        return None
    value = found.group()
    queried = not literal or b"?" in data[max(0, at - 200) : at].rpartition(b"\n")[2]
    if queried and (query := _QUERY.search(value)):
        value = value[: query.start()]
    if fields := _FIELDS.search(value):
        value = value[: fields.start()] if not literal or fields.group()[:1] in b";," else value
    value = value.rstrip(b",;" if literal else b",;.:)]}")
    return Value(at, at + len(value), False) if value else None


def whole(data: bytes, value: Value) -> int:
    """Where the value really ends: a bare one may be longer than what was read of it."""
    if value.quoted or value.end - value.start < SHORT - 1:
        return value.end
    rest = _BARE.match(data, value.end)
    return rest.end() if rest else value.end


def quote_at(data: bytes, at: int) -> bool:
    """Whether a quoted value begins exactly there."""
    return _QUOTE.match(data, at) is not None
