"""Redaction: placeholders in place of spans, such that JSON stays JSON, and known secrets wherever else they stand."""

import re
from collections.abc import Iterable, Sequence

import re2

from .kinds import Kind
from .patterns import Span, compile_pattern, is_word
from .pseudonyms import Pseudonyms

_FEW = 16
_MANY = 256
_AS_VALUE = re.compile(rb"(\\*)\"[ \t\r\n]*:[ \t\r\n]*$")
_IN_ARRAY = re.compile(rb"[\[,][ \t\r\n]*$")
_AFTER = re.compile(rb"[ \t\r\n]*[,\]}]")
_QUOTE = re.compile(rb"(\\*)\"")


def elsewhere(data: bytes, taken: Sequence[Span], known: dict[bytes, Kind]) -> list[Span]:
    """The other places of `data` where known secrets stand, as whole words; none within what is taken already."""
    found = []
    for start, end, kind in _occurrences(data, known):
        inside = (is_word(data, start) and is_word(data, start - 1)) or (is_word(data, end - 1) and is_word(data, end))
        if not inside:
            found.append(Span(start, end, kind))
    if not taken:
        return found
    starts = sorted(taken)
    return [each for each in found if not _touches(each, starts)]


def _occurrences(data: bytes, known: dict[bytes, Kind]) -> Iterable[tuple[int, int, Kind]]:
    if len(known) <= _FEW:
        for value, kind in known.items():
            at = data.find(value)
            while at >= 0:
                yield at, at + len(value), kind
                at = data.find(value, at + len(value))
        return
    values = sorted(known, key=len, reverse=True)
    for first in range(0, len(values), _MANY):
        some = values[first : first + _MANY]
        for match in compile_pattern(b"|".join(re2.escape(each) for each in some)).finditer(data):
            yield match.start(), match.end(), known[data[match.start() : match.end()]]


def _touches(span: Span, ordered: Sequence[Span]) -> bool:
    import bisect

    at = bisect.bisect_right(ordered, span.start, key=lambda each: each.start)
    before = at > 0 and ordered[at - 1].end > span.start
    return before or (at < len(ordered) and ordered[at].start < span.end)


def redact(data: bytes, spans: Iterable[Span], pseudonyms: Pseudonyms) -> bytes:
    """`data` with a placeholder for each span. A bare number of JSON becomes a string, quoted as deeply as its neighbours."""
    pieces = []
    at = 0
    for span in spans:
        mark = pseudonyms.placeholder(span.kind, span.value(data))
        quote = _quote_of(data, span)
        pieces += [data[at : span.start], quote, mark, quote]
        at = span.end
    return b"".join([*pieces, data[at:]])


def _quote_of(data: bytes, span: Span) -> bytes:
    value = data[span.start : span.end]
    if not value.lstrip(b"-").replace(b".", b"").isdigit() or _AFTER.match(data, span.end) is None:
        return b""
    before = data[max(0, span.start - 64) : span.start]
    if key := _AS_VALUE.search(before):
        return key.group(1) + b'"'
    if _IN_ARRAY.search(before) is None or data.lstrip()[:1] not in (b"{", b"["):
        return b""
    near = _QUOTE.search(data, max(0, span.start - 2000), span.start + 2000)
    return near.group() if near else b'"'
