"""`LogSource` reads the JSON values of one log as a stream, in bounded memory."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import is_zipfile

from ratchet.components.core import DataError
from ratchet.components.trajectories.blobs import BlobFolder

from .log_values import BOM, UTF_16, decode_json, to_plain_json, to_text

SAMPLE_VALUES = 20
SAMPLE_BYTES = 1 << 20
# In bytes. A decoded value takes several times as much memory.
LINE_LIMIT = 64 << 20
DOCUMENT_LIMIT = 256 << 20
CHUNK_BYTES = 1 << 20
LOG_SUFFIXES = frozenset({".jsonl", ".json", ".traj", ".eval"})
"""File name suffixes of logs. Other files may be logs too."""


class LocatedValue(NamedTuple):
    """A JSON value of a log. `where`: its line, or index in an array, for messages."""

    where: str
    value: Any


class LogLine(NamedTuple):
    """A non-blank line of a log. `where`: its number, for messages. `raw` includes the newline, if there is one."""

    where: str
    raw: bytes


class UnreadablePart(NamedTuple):
    """A part of a log that could not be read.

    - `where`: its location; `why`: the reason; `advice`: what the user can do, in the imperative.
    - `raw`: its bytes, at most `LINE_LIMIT` (may be empty); if `truncated`, only the beginning of the part.
    """

    where: str
    why: str
    raw: bytes
    truncated: bool = False
    advice: str = "mend or remove it"


class LogSource:
    """A log: a file, or a folder for formats that support folders.

    - `on_bad`: called with each unreadable part, which is then skipped; without it the first one raises DataError.
    - `blobs`: stores images and other bytes that a record references.
    - `reported`: number of unreadable parts so far.
    """

    def __init__(
        self, path: Path, *, on_bad: Callable[[UnreadablePart], None] | None = None, blobs: BlobFolder | None = None
    ) -> None:
        self.path = path
        self.blobs = blobs or BlobFolder()
        self.reported = 0
        self._on_bad = on_bad
        self._span = (0, sys.maxsize)
        """Offsets between which lines are read."""
        self._lines_before = 0
        self._cut = ""
        """Why the file is unreadable after its `documents`."""

    @cached_property
    def is_folder(self) -> bool:
        """Whether the log is a folder, which has no lines, values or document."""
        try:
            return self.path.is_dir()
        except OSError:
            return False

    @cached_property
    def magic(self) -> bytes:
        """The first 8 bytes; empty for a folder. Raises DataError where the file is empty or cannot be read."""
        if self.is_folder:
            return b""
        with _open_log(self.path) as file:
            first_bytes = file.read(8)
        if not first_bytes:
            raise DataError(f"{self.path} is empty; give a log that holds something")
        return first_bytes

    @cached_property
    def is_lines(self) -> bool:
        """Whether the file is JSON lines, as opposed to one JSON document over several lines.

        True where the first non-blank line is a whole JSON value (also that of a document on one line), or where it is
        damaged and the next line is an object.
        """
        if not self.magic or not self._may_be_json:
            return False
        lines = (line for line in self._raw_lines() if not line[2].isspace())
        _, is_complete, first = next(lines, (0, True, b""))
        if not is_complete:
            return self.path.stat().st_size > DOCUMENT_LIMIT or next(lines, None) is not None
        if _try_decode(first) is not _UNREADABLE:
            return True
        _, _, second = next(lines, (0, True, b""))
        # A pretty-printed document begins with a bracket alone; the lines below it may look like values.
        if not first.strip(b" \t\r\n[{") or not isinstance(_try_decode(second), dict):
            return False
        return self.path.stat().st_size > SAMPLE_BYTES or _try_decode(self.path.read_bytes()) is _UNREADABLE

    @cached_property
    def sample(self) -> list[Any]:
        """The first values, for detection: those of up to `SAMPLE_VALUES` lines or `SAMPLE_BYTES`, or the document.

        Empty where nothing is readable as JSON.
        """
        if not self.is_lines:
            try:
                return self.documents[:SAMPLE_VALUES] if self.magic and self._may_be_json else []
            except DataError:
                return []
        values: list[Any] = []
        size = 0
        for _, is_complete, line in self._raw_lines():
            size += len(line)
            if values and size > SAMPLE_BYTES:
                break
            if is_complete and not line.isspace() and (value := _try_decode(line)) is not _UNREADABLE:
                values.append(value)
            if len(values) == SAMPLE_VALUES:
                break
        return values

    def mostly_matches(self, is_known: Callable[[Any], bool]) -> bool:
        """Return whether `is_known` holds for at least half of the values in `sample`, and for one or more.

        An array in the sample counts as its first 20 elements.
        """
        sample = [element for value in self.sample for element in (value[:20] if isinstance(value, list) else [value])]
        matches = sum(map(is_known, sample))
        return matches > 0 and 2 * matches >= len(sample)

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value. Raises DataError."""
        if self.is_folder:
            raise DataError(f"{self.path} is a folder; give one of its files")
        if self.magic.startswith(UTF_16):
            raise DataError(f"{self.path} is UTF-16; save it as UTF-8: iconv -f UTF-16 -t UTF-8")
        if not self._may_be_json:
            raise DataError(
                f"{self.path} is neither JSON lines nor a JSON document: it begins with {self.magic!r}; export it as one of them"
            )
        size = self.path.stat().st_size
        if size > DOCUMENT_LIMIT:
            limit = f"a JSON document of at most {DOCUMENT_LIMIT >> 20} MiB is read at once"
            raise DataError(f"{self.path} has {size >> 20} MiB; {limit}; write one record a line (JSONL)")
        with _open_log(self.path) as file:
            raw = file.read()
        try:
            return decode_json(raw)
        except ValueError as error:
            raise DataError(f"{self.path} is neither JSON lines nor a JSON document: {error}") from error

    @cached_property
    def documents(self) -> list[Any]:
        """`document`, or several objects that follow each other, as OpenTelemetry's console exporter and `jq` write them.

        Raises DataError.
        """
        try:
            return [self.document]
        except DataError:
            if not self.magic.lstrip().startswith(b"{") or self.path.stat().st_size > DOCUMENT_LIMIT:
                raise
            documents, self._cut = _decode_objects(self.path.read_bytes())
            if not documents:
                raise
            return documents

    @property
    def is_damaged(self) -> bool:
        """Whether the file has the suffix of a log, is not empty, and nothing in it is readable."""
        if self.path.suffix.lower() not in LOG_SUFFIXES or self.is_folder:
            return False
        try:
            beginning = self.beginning()[0]
            return bool(beginning.strip()) and not self.sample and not is_zipfile(self.path)
        except (DataError, OSError):
            return True

    def beginning(self) -> tuple[bytes, bool]:
        """Return the first `CHUNK_BYTES`, and whether there are more. Raises DataError."""
        with _open_log(self.path) as file:
            data = file.read(CHUNK_BYTES + 1)
        return data[:CHUNK_BYTES], len(data) > CHUNK_BYTES

    def nested(self, path: Path, name: str) -> "LogSource":
        """Return a source for another file, `path`, of this log.

        Its unreadable parts are reported to this source, with `name` in front of their location.
        """

        def report(part: UnreadablePart) -> None:
            self.bad(f"{name}, {part.where}", part.why, part.raw, truncated=part.truncated, advice=part.advice)

        return LogSource(path, on_bad=report, blobs=self.blobs)

    def as_unreadable(self, why: object) -> UnreadablePart:
        """Return the whole file as one unreadable part, for the reason `why`."""
        try:
            return UnreadablePart("file", str(why), *self.beginning())
        except (DataError, OSError):
            return UnreadablePart("file", str(why), b"")

    def drop_sample(self) -> None:
        """Free the memory of the cached sample; a later access reads it again."""
        self.__dict__.pop("sample", None)

    def values(self) -> Iterator[LocatedValue]:
        """Yield the value of each line; of a document, each element of its array, or its only value."""
        if not self.is_lines and isinstance(self.documents[0], list):
            for index, value in enumerate(self.documents[0]):
                yield LocatedValue(f"element {index}", value)
        else:
            yield from self.roots()

    def roots(self) -> Iterator[LocatedValue]:
        """Yield the value of each line, or each document: as `values`, but an array is one value."""
        if not self.is_lines:
            for number, document in enumerate(self.documents, 1):
                yield LocatedValue("document" if len(self.documents) == 1 else f"document {number}", document)
            if self._cut:
                self.bad(f"document {len(self.documents) + 1}", self._cut)
            return
        for where, raw in self.lines():
            try:
                value = decode_json(raw)
            except ValueError as error:
                self.bad_line(where, raw, error)
                continue
            del raw  # see _raw_lines
            yield LocatedValue(where, value)

    def lines(self) -> Iterator[LogLine]:
        """Yield every non-blank line as bytes. A line of more than `LINE_LIMIT` bytes is reported as unreadable."""
        for number, is_complete, raw in self._raw_lines():
            if not is_complete:
                self.bad(f"line {number}", f"longer than {LINE_LIMIT >> 20} MiB", raw, truncated=True)
            elif not raw.isspace():
                holder = [raw]
                del raw  # see _raw_lines
                yield LogLine(f"line {number}", holder.pop())

    def bad(
        self,
        where: str,
        why: str,
        raw: bytes = b"",
        *,
        truncated: bool = False,
        advice: str = UnreadablePart("", "", b"").advice,
    ) -> None:
        """Report an unreadable part; the arguments are fields of UnreadablePart. Raises DataError without `on_bad`."""
        self.reported += 1
        why = " ".join(why.split())  # a name in a log may hold a newline
        if self._on_bad is None:
            raise DataError(
                f"{self.path}, {where}: {why}; {advice}, or read on with `ratchet trajectories convert --skip-bad`"
            )
        self._on_bad(UnreadablePart(where, why, raw, truncated, advice))

    def bad_value(self, where: str, why: str, value: object) -> None:
        """Report a JSON value that is no record of the format, with the first 1,000 characters of its text."""
        self.bad(where, why, to_text(value)[:1000].encode())

    def bad_line(self, where: str, raw: bytes, why: object) -> None:
        """Report an unreadable line. One without a newline is the last, cut short by a crash or a running writer."""
        cut = "" if raw.endswith(b"\n") else "the last line is cut short: "
        self.bad(where, f"{cut}{why}", raw)

    @cached_property
    def _may_be_json(self) -> bool:
        first = self.magic.removeprefix(BOM).lstrip()[:1]
        return not first or first in b'{["-0123456789tfnNI'

    def _raw_lines(self) -> Iterator[tuple[int, bool, bytes]]:
        """Yield (number, is complete, bytes) of each line; a line over `LINE_LIMIT` is incomplete, its first bytes given."""
        # A suspended generator keeps its local variables alive. A line may have LINE_LIMIT bytes, so the generators that
        # pass it on delete their variable and yield `holder.pop()`: memory then holds the line once.
        start, end = self._span
        number, remaining = self._lines_before, end - start
        with _open_log(self.path) as file:
            file.seek(start)
            while line := file.readline(min(LINE_LIMIT + 1, remaining)):
                number += 1
                remaining -= len(line)
                if len(line) <= LINE_LIMIT:
                    holder = [line]
                    del line
                    yield number, True, holder.pop()
                    continue
                beginning = line[:CHUNK_BYTES]
                while line and not line.endswith(b"\n"):
                    line = file.readline(min(CHUNK_BYTES, remaining))
                    remaining -= len(line)
                yield number, False, beginning


_UNREADABLE = object()
_SPACE = re.compile(r"\s*")


def _try_decode(raw: bytes) -> Any:
    try:
        return decode_json(raw)
    except ValueError:
        return _UNREADABLE


def _decode_objects(raw: bytes) -> tuple[list[Any], str]:
    """Return the JSON objects that `raw` begins with, and why the rest is unreadable ("" without a rest)."""
    decoder = json.JSONDecoder(parse_constant=lambda name: name)
    documents: list[Any] = []
    try:
        text = raw.decode().rstrip()
        at = 0
        while at < len(text):
            document, at = decoder.raw_decode(text, _SPACE.match(text, at).end())  # type: ignore[union-attr]
            documents.append(to_plain_json(document, depth=-1))
    except (ValueError, RecursionError) as error:
        return documents, f"not JSON, or cut short: {' '.join(str(error).split())}"
    return documents, ""


def _open_log(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {why}; check the path") from error
