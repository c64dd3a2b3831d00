"""What an agent has been shown so far: the identifiers and file names in its task and in the results of its calls."""

import builtins
import keyword
import re
from typing import Any

_SCANNED = 20_000  # characters of one text: a step costs the same however long an output is
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{2,}")
_FILE_NAME = re.compile(r"[\w-]+\.[A-Za-z]\w{0,4}\b")
_COMMON = """
    self cls args kwargs the and for with that this from are was not you must should when then all any one use has
    have import def return python python3 pytest unittest bash cat ls cd echo head tail grep find sed awk git rm
    mkdir touch pip usr bin dev tmp null etc workspace
"""
_NOISE = frozenset({*keyword.kwlist, *dir(builtins), *_COMMON.split()})


def names(text: str) -> set[str]:
    """The identifiers (three characters or more) and file names in a text."""
    found = set(_IDENTIFIER.findall(text, 0, _SCANNED))
    if "." in text:
        found.update(_FILE_NAME.findall(text, 0, _SCANNED))
    return found


def names_in(arguments: dict[Any, Any]) -> set[str]:
    """The names in every string of a call's arguments."""
    found: set[str] = set()
    for value in arguments.values():
        if isinstance(value, str):
            found |= names(value)
        elif isinstance(value, dict):
            found |= names_in(value)
        elif isinstance(value, list):
            found |= names_in(dict(enumerate(value)))
    return found


class Information:
    """The names seen so far."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def see(self, text: str) -> None:
        """Take in a text that stood before the agent's eyes."""
        self._seen |= names(text)

    def add(self, found: set[str]) -> None:
        """Take in names that the agent wrote itself, once they stand in the world."""
        self._seen |= found

    def used_by(self, mentioned: set[str]) -> float | None:
        """1 when one of the names was seen before, 0 when none was, None when they are no names of this world."""
        if not mentioned.isdisjoint(self._seen) and not (mentioned & self._seen) <= _NOISE:
            return 1.0
        return None if mentioned <= _NOISE else 0.0
