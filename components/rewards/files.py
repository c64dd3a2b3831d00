"""What is known of one file: which contents it has had and which edits were made, so that an undoing is recognised."""

from hashlib import blake2b
from typing import Any, NamedTuple

_OLD = ("old", "old_str", "old_string", "old_text", "search")
_NEW = ("new", "new_str", "new_string", "new_text", "insert_text", "replace")
_CONTENT = ("content", "file_text", "contents", "text")
_ABSENT = b"absent"


class Edit(NamedTuple):
    """A change of text: a replacement of `old` by `new` (one of them may be empty), or a whole new `content`."""

    old: str = ""
    new: str = ""
    content: str | None = None


def read_edit(arguments: dict[str, Any]) -> Edit | None:
    """The edit that the arguments of a writing tool describe; None where they describe none that is known."""
    old, new, content = (_first(arguments, names) for names in (_OLD, _NEW, _CONTENT))
    if old is not None or new is not None:
        return Edit(old or "", new or "")
    return None if content is None else Edit(content=content)


def _first(arguments: dict[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        if isinstance(value := arguments.get(name), str):
            return value
    return None


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class FileHistory:
    """One file over an episode. A call costs the size of the edit or file, whatever the number of steps before it.

    `changed_at` is the step of the last change through a writing tool, `known_at` that of the last sight of its state.
    """

    __slots__ = ("_content", "_current", "_edits", "_seen", "changed_at", "known_at")

    def __init__(self) -> None:
        self.changed_at = self.known_at = -1
        self._content: str | None = None
        self._current: bytes | None = None
        self._seen: set[bytes] = set()
        self._edits: set[tuple[bytes, bytes]] = set()

    def forget(self) -> None:
        """Something that cannot be followed may have changed the file: its text is no longer known."""
        self._content = None

    def observe(self, content: str, step: int) -> None:
        """The whole file was read."""
        self.known_at = step
        self._know(content)

    def delete(self, step: int) -> None:
        """The file was removed."""
        self.known_at = step
        self._content, self._current = None, _ABSENT

    def apply(self, edit: Edit, step: int) -> bool:
        """Carry out an edit. True when it exactly undoes an earlier one: swapped texts, or a content that stood here before."""
        self.changed_at = self.known_at = step
        return self._write(edit.content) if edit.content is not None else self._replace(edit.old, edit.new)

    def change(self, step: int) -> None:
        """A writing tool changed the file in a way that cannot be followed."""
        self.changed_at = self.known_at = step
        self._content = self._current = None

    def _write(self, content: str) -> bool:
        digest = _digest(content)
        undone = digest in self._seen and digest != self._current
        self._know(content)
        return undone

    def _replace(self, old: str, new: str) -> bool:
        if old == new:
            return False
        before, after = _digest(old), _digest(new)
        undone = (after, before) in self._edits
        creates = not old and (self._current is _ABSENT or not (self._seen or self._edits))
        self._edits.add((before, after))
        if creates:
            return self._write(new) or undone
        content = self._content
        if content is None or not old or content.count(old) != 1:
            self._content = self._current = None
            return undone
        content = content.replace(old, new, 1)
        undone = undone or _digest(content) in self._seen
        self._know(content)
        return undone

    def _know(self, content: str) -> None:
        self._content, self._current = content, _digest(content)
        self._seen.add(self._current)
