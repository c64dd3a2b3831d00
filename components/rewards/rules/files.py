"""What is known of one file: which contents it has had and which edits were made, so that an undoing is recognised."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from .calls import Step

_OLD = ("old", "old_str", "old_string", "old_text", "search")
_NEW = ("new", "new_str", "new_string", "new_text", "insert_text", "replace")
_CONTENT = ("content", "file_text", "contents", "text")
_PLACES = ("start_line", "end_line", "start", "end", "line", "line_number", "insert_line", "range")
_UNUSUAL = frozenset({*_PLACES, "edits", "replace_all"})
_ABSENT = b"absent"
_SHORT = 2_000  # characters


class Edit(msgspec.Struct, gc=False):
    """A change of text: a replacement of `old` by `new` (one of them may be empty), or a whole new `content`.

    `everywhere`: every occurrence of `old`. `placed`: at a line that the call names.
    """

    old: str = ""
    new: str = ""
    content: str | None = None
    everywhere: bool = False
    placed: bool = False


@lru_cache(maxsize=1024)
def _simple(names: tuple[str, ...]) -> tuple[str, str] | None:
    """Which of the arguments are the old and the new text, where they say nothing else of how to edit."""
    old, new = ([name for name in names if name in known] for known in (_OLD, _NEW))
    return (old[0], new[0]) if len(old) == len(new) == 1 and not _UNUSUAL.intersection(names) else None


def replacement(step: Step) -> Edit | None:
    """The edit of a call that replaces one text of a file by another one, and does nothing else; None for any other call."""
    names = _simple(tuple(step.arguments))
    if names is None or step.target is None or step.tool.deletes or step.tool.undoes:
        return None
    old, new = step.arguments[names[0]], step.arguments[names[1]]
    return Edit(old, new) if isinstance(old, str) and isinstance(new, str) and old != new else None


def read_edits(arguments: dict[str, Any]) -> list[Edit]:
    """The edits that the arguments of a writing tool describe, in order; empty where they describe none that is known."""
    several = arguments.get("edits")
    if isinstance(several, list):
        found = [_read(each) for each in several if isinstance(each, dict)]
        known = [each for each in found if each is not None]
        return known if len(known) == len(several) else []
    edit = _read(arguments)
    return [] if edit is None else [edit]


def _read(arguments: dict[str, Any]) -> Edit | None:
    old, new, content = (_first(arguments, names) for names in (_OLD, _NEW, _CONTENT))
    placed = any(name in arguments for name in _PLACES)
    if old is not None or new is not None:
        return Edit(old or "", new or "", None, arguments.get("replace_all") is True, placed)
    partial = placed or arguments.get("append") is True or str(arguments.get("mode", "w"))[:1] == "a"
    return None if content is None or partial else Edit(content=content)


def _first(arguments: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        if isinstance(value := arguments.get(name), str):
            return value
    return None


def _digest(text: str) -> str | bytes:
    """What stands for a content: itself where it is short."""
    return text if len(text) <= _SHORT else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class FileHistory:
    """One file over an episode. A call costs the size of the edit or file, whatever the number of steps before it.

    `changed_at` is the step of the last change through a writing tool, `known_at` that of the last sight of its state.
    """

    __slots__ = ("_content", "_current", "_edits", "_seen", "_shown", "changed_at", "known_at")

    def __init__(self) -> None:
        self.changed_at = self.known_at = -1
        self._content: str | None = None
        self._current: str | bytes | None = None
        self._shown: str | None = None  # a content that was read and stands in no set yet: most files are never written
        self._seen: set[str | bytes] = set()
        self._edits: set[tuple[str, str]] = set()

    def forget(self) -> None:
        """Something that cannot be followed may have changed the file: its text is no longer known."""
        self._settle()
        self._content = None

    def observe(self, content: str, step: int) -> None:
        """The whole file was read."""
        self.known_at = step
        if content != self._content:
            self._settle()
            self._content = self._shown = content

    def delete(self, step: int) -> None:
        """The file was removed."""
        self._settle()
        self.known_at = step
        self._content, self._current = None, _ABSENT

    def apply(self, edits: Sequence[Edit], step: int) -> bool:
        """Carry out the edits of one call. True when they undo earlier ones: texts swapped, or a content that stood here before."""
        self._settle()
        self.changed_at = self.known_at = step
        before = self._current
        swapped = self._apply(edits[0])
        for edit in edits[1:]:
            swapped = self._apply(edit) and swapped
        now = self._current
        if now is None:
            return swapped
        returned = now != before and now in self._seen
        self._seen.add(now)
        return returned or swapped

    def take_back(self, step: int) -> bool:
        """The last edit is undone by a tool made for it. True where there was one."""
        before = self.changed_at
        self.change(step)
        return before >= 0

    def change(self, step: int) -> None:
        """A writing tool changed the file in a way that cannot be followed."""
        self._settle()
        self.changed_at = self.known_at = step
        self._content = self._current = None

    def _apply(self, edit: Edit) -> bool:
        """Whether the edit swaps the texts of an earlier one."""
        if edit.content is not None:
            self._now(edit.content)
            return False
        old, new = edit.old, edit.new
        if old == new:
            return False
        fresh = self._current is _ABSENT or not (self._seen or self._edits)
        edits = self._edits
        swapped = bool(edits) and (new, old) in edits
        edits.add((old, new))
        content = self._content
        if not old and fresh and not edit.placed:
            self._now(new)
        elif content is None or not old or not (edit.everywhere or content.count(old) == 1):
            self._content = self._current = None
        else:
            self._now(content.replace(old, new))
        return swapped

    def _now(self, content: str) -> None:
        self._content, self._current = content, _digest(content)

    def _settle(self) -> None:
        """Enter what was read into what the file is known to have held."""
        if self._shown is not None:
            self._current = _digest(self._shown)
            self._seen.add(self._current)
            self._shown = None
