"""Scanner: all detectors over one text. One look tells which of them could find anything in it: mostly none."""

from collections.abc import Iterable

from . import (
    addresses,
    assignments,
    blocks,
    commands,
    formats,
    headers,
    identities,
    numbers,
    pairs,
    prose,
    statements,
    streets,
    urls,
)
from .kinds import Severity
from .patterns import Hints, Span, unescaped

_DETECTORS = (
    blocks,
    formats,
    urls,
    headers,
    assignments,
    pairs,
    commands,
    statements,
    identities,
    numbers,
    addresses,
    streets,
    prose,
)
"""The surer first: of two that find the same bytes, the first names them."""
_OF_PEOPLE = (identities, numbers, addresses, streets)
"""Those whose every kind is personal."""
_hints = Hints(each.HINT for each in _DETECTORS)
_SEVERITIES = list(Severity)


def may_hold(data: bytes) -> bool:
    """False where no detector could find anything."""
    return bool(_hints.found(data))


def may_hold_credential(data: bytes) -> bool:
    """The same, of detectors that find more than people and places."""
    return any(_DETECTORS[index] not in _OF_PEOPLE for index in _hints.found(data))


def scan(data: bytes) -> list[Span]:
    """What must go, in order, none overlapping another."""
    return merged(
        Span(unescaped(data, span.start, span.end), span.end, span.kind)
        for index in sorted(_hints.found(data))
        for span in _DETECTORS[index].find(data)
    )


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order: what lies within another goes with it; of two that overlap the whole goes, under the graver kind."""
    ordered = [each for each in spans if each.start < each.end]
    ordered.sort(key=lambda each: (each.start, -each.end))  # stable: the surer detector stays first
    kept: list[Span] = []
    for span in ordered:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
        elif span.end > kept[-1].end:
            last = kept[-1]
            graver = max(last.kind, span.kind, key=lambda kind: _SEVERITIES.index(kind.severity))
            kept[-1] = Span(last.start, span.end, graver)
    return kept
