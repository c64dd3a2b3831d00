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
_NOISE = frozenset(
    {
        *keyword.kwlist,
        *dir(builtins),
        *_COMMON.split(),
    }
)


def names(text: str) -> set[str]:
    """The identifiers (three characters or more) and file names in a text."""
    found = set(_IDENTIFIER.findall(text, 0, _SCANNED))
    if "." in text:
        found.update(_FILE_NAME.findall(text, 0, _SCANNED))
    return found


class Information:
    """The names seen so far."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def see(self, text: str) -> None:
        """Take in a text that stood before the agent's eyes."""
        self._seen |= names(text)

    def see_arguments(self, arguments: dict[str, Any]) -> None:
        """Take in what the agent wrote itself, once it stands in the world."""
        for text in _texts(arguments):
            self.see(text)

    def used_by(self, arguments: dict[str, Any]) -> float | None:
        """1 when the arguments use a name seen so far, 0 when they use none, None when they name nothing of their own."""
        used: set[str] = set()
        for text in _texts(arguments):
            used |= names(text)
        used -= _NOISE
        if not used:
            return None
        return 0.0 if used.isdisjoint(self._seen) else 1.0


def _texts(value: Any) -> list[str]:
    """Every string in the values of arguments, however deep."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []
