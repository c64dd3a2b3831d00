"""Which region of a reply each token belongs to: reasoning, the form of a call, its tool's name, its arguments."""

import re
from collections.abc import Sequence
from typing import Any

from components.policies.formats.tool_call import CLOSE, OPEN

from ..credit.regions import ARGUMENTS, FORMAT, REASONING, TOOL_NAME

_CALL = re.compile(re.escape(OPEN) + r"(?:(?!" + re.escape(OPEN) + r").)*?(?:" + re.escape(CLOSE) + r"|\Z)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"arguments"\s*:\s*')


def regions_of(ids: Sequence[int], turns: Sequence[int], tokenizer: Any) -> list[int]:
    """The region of each id, by its first character. `turns` parts the replies; what the policy did not write is reasoning."""
    found: list[int] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or turns[end] != turns[start]:
            own = ids[start:end]
            found += _reply(own, tokenizer) if turns[start] >= 0 else [REASONING] * len(own)
            start = end
    return found


def _reply(ids: Sequence[int], tokenizer: Any) -> list[int]:
    pieces: list[str] = tokenizer.batch_decode([[each] for each in ids])
    text = "".join(pieces)
    marks = bytearray(len(text) + 1)  # every character REASONING, and one more for an empty last piece
    for call in _CALL.finditer(text):
        _mark(marks, call.start(), call.end(), FORMAT)
        if name := _NAME.search(text, call.start(), call.end()):
            _mark(marks, *name.span(1), TOOL_NAME)
        if arguments := _ARGUMENTS.search(text, name.end() if name else call.start(), call.end()):
            _mark(marks, arguments.end(), _end(text, arguments.end(), call.end()), ARGUMENTS)
    regions, place = [], 0
    for piece in pieces:
        regions.append(marks[place])
        place += len(piece)
    return regions


def _mark(marks: bytearray, start: int, end: int, region: int) -> None:
    marks[start:end] = bytes([region]) * (end - start)


def _end(text: str, start: int, end: int) -> int:
    """Where the arguments end: before the brace that closes the call."""
    last = text.rfind("}", start, end)
    return last if last >= start else end
