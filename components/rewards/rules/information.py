"""What an agent has been shown so far: the names in its task and in the results of its calls.

A name is a word of three or more letters, digits and underscores that does not begin with a digit. Only ASCII counts: in a text
of another script identifiers and paths still do, and where there are none the rule has nothing to say.

Texts are read late: a text waits until a call names something that is not known yet, and at most so many wait. Each is read
once, so that the cost of a call does not grow with the calls before it.
"""

import builtins
import keyword
from collections import deque
from typing import Any

_SCANNED = 20_000  # characters of one text: a step costs the same however long an output is
_WAITING = 32
_COMMON = """
    self cls args kwargs the and for with that this from are was not you must should when then all any one use has
    have import def return python python3 pytest unittest bash cat ls cd echo head tail grep find sed awk git rm
    mkdir touch pip usr bin dev tmp null etc workspace
    txt json html yaml yml toml csv log cfg ini css xml sql java cpp hpp tsx jsx lock
"""
_NOISE = frozenset(word.encode() for word in {*keyword.kwlist, *dir(builtins), *_COMMON.split()})
_WORDS = bytes(byte if chr(byte).isalnum() or byte == ord("_") else ord(" ") for byte in range(128)) + b" " * 128
_DIGITS = frozenset(b"0123456789")

Names = frozenset[bytes] | set[bytes]


def _words(text: str) -> list[bytes]:
    return text[:_SCANNED].encode("utf-8", "replace").translate(_WORDS).split()


def names(text: str) -> set[bytes]:
    """The names in a text."""
    return {word for word in _words(text) if len(word) > 2 and word[0] not in _DIGITS}


def names_in(arguments: dict[Any, Any]) -> set[bytes]:
    """The names in every string of a call's arguments."""
    found: set[bytes] = set()
    waiting: list[Any] = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found |= names(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


class Information:
    """The names seen so far."""

    __slots__ = ("_seen", "_waiting")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._waiting: deque[str] = deque()

    def see(self, text: str) -> None:
        """Take in a text that stood before the agent's eyes."""
        self._waiting.append(text)
        if len(self._waiting) > _WAITING:
            self._read()

    def add(self, found: Names) -> None:
        """Take in names that the agent wrote itself, once they stand in the world."""
        self._seen |= found

    def used_by(self, mentioned: Names) -> float | None:
        """1 when one of the names was seen before, 0 when none was, None when they are no names of this world."""
        own = mentioned - _NOISE
        if not own:
            return None
        while own.isdisjoint(self._seen):
            if not self._waiting:
                return 0.0
            self._read()
        return 1.0

    def _read(self) -> None:
        self._seen.update(_words(self._waiting.popleft()))


def listed(mentioned: Names) -> str:
    """Up to three of the names, for a person."""
    own = sorted(name.decode() for name in mentioned - _NOISE)
    return ", ".join(own[:3]) + (", ..." if len(own) > 3 else "")
