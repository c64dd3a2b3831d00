"""Print results on stdout, errors and notes on stderr.

Text from records and logs is untrusted: it is shown as plain text, without markup and without control sequences.
"""

import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from ratchet.components.core import RatchetError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MAX_FILE_NAMES = 10
"""File names in a note; more are counted."""
MAX_CHARACTERS = 2000
"""Maximum characters of a line on stderr, of a cell or a value."""


class CommandExitCode(int):
    """Exit code of a command that `ratchet sandbox` ran for the user, as distinct from ratchet's own exit codes."""


def print_error(message: str) -> None:
    """Print an error on one line of stderr."""
    print(f"error: {_escape_stderr_line(' '.join(message.split()))}", file=sys.stderr, flush=True)


def print_text(message: str = "") -> None:
    """Print a text of the result on stdout."""
    print(message if message.isascii() and message.isprintable() else _escape_text(message))


def _escape_text(text: str) -> str:
    from ratchet.components.trajectories.terminal_rendering import escape_terminal

    return escape_terminal(text)


def _one_line(text: str) -> str:
    from ratchet.components.trajectories.terminal_rendering import single_line

    return single_line(text, MAX_CHARACTERS)


def _cell(value: object) -> "Text":
    """Return a table cell with a text on one line; rich's Text stays as it is."""
    from rich.text import Text

    return value if isinstance(value, Text) else Text("-" if value is None else _one_line(str(value)))


def print_note(message: str) -> None:
    """Print a note on stderr."""
    print("\n".join(map(_escape_stderr_line, message.split("\n"))), file=sys.stderr, flush=True)


def _escape_stderr_line(line: str) -> str:
    """Escape control characters in a line of stderr and shorten it: errors quote untrusted text."""
    if line.isascii() and line.isprintable() and len(line) <= MAX_CHARACTERS:
        return line
    from ratchet.components.reporting.safe_text import visible_text

    head, tail = line[: MAX_CHARACTERS // 2], line[MAX_CHARACTERS // 2 :][-MAX_CHARACTERS // 2 :]
    omitted_length = len(line) - len(head) - len(tail)
    return visible_text(f"{head}… {omitted_length:,} characters left out …{tail}" if omitted_length else line)


def note_skipped_files(strangers: Sequence[str], empty: Sequence[str]) -> None:
    """Print on stderr which files of a folder were skipped: `strangers` of no known format, `empty` without a
    trajectory.
    """
    for what, names in (("of no known format", strangers), ("without a trajectory", empty)):
        if names:
            more = f" and {len(names) - MAX_FILE_NAMES} more" if len(names) > MAX_FILE_NAMES else ""
            print_note(f"left out, {what}: {', '.join(names[:MAX_FILE_NAMES])}{more}")


class CommandInterrupted(RatchetError):
    """Error for an interrupt (Ctrl-C), with a message for the user; the command exits with 130."""

    exit_code = 130


@contextmanager
def explain_interrupt(out: object) -> Iterator[None]:
    """Context manager for a command that writes `out` atomically: an interrupt (Ctrl-C) raises
    CommandInterrupted, whose message says that the file is complete or unchanged.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise CommandInterrupted(
            f"interrupted; {out} is written whole or not at all: give the same command again"
        ) from None


def open_page(path: Path) -> None:
    """Open a page in the user's browser; a note says where it is if there is no browser."""
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        print_note(f"no browser could be opened; open {path} yourself")


def print_json(value: object) -> None:
    """Print one line of JSON on stdout."""
    import msgspec

    sys.stdout.flush()
    line = msgspec.json.encode(value).decode()
    print(escaped_json(line) if sys.stdout.isatty() else line, flush=True)


def escaped_json(line: str) -> str:
    """Escape every character in JSON that controls a terminal, is invisible, or changes the direction of text."""
    if line.isascii() and line.isprintable():
        return line
    return _UNPRINTABLE.sub(lambda character: f"\\u{ord(character[0]):04x}", line)


_UNPRINTABLE = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class _EscapedJson(io.BytesIO):
    """JSON lines for a terminal."""

    def write(self, data: Any) -> int:
        sys.stdout.write(escaped_json(bytes(data).decode()))
        return len(data)


def json_lines() -> BinaryIO:
    """Return stdout for JSON lines as bytes, with `escaped_json` on a terminal."""
    return _EscapedJson() if sys.stdout.isatty() else sys.stdout.buffer


def show_output(stream: TextIO, data: bytes) -> None:
    """Write the output of a command: unchanged to a pipe or file, with control sequences escaped to a terminal."""
    # The bytes bypass the text layer: text that it still holds must be written before them.
    stream.flush()
    stream.buffer.write(_escape_text(data.decode("utf-8", "replace")).encode() if stream.isatty() else data)
    stream.flush()


DEFAULT_WIDTH = 140
"""Columns where stdout is no terminal."""
FRAME_COLUMNS = 3
"""Columns of a table's frame and padding per cell."""


def print_drawing(drawing: object) -> None:
    """Print a rich renderable on stdout; tables are fitted to the terminal, never truncated."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else DEFAULT_WIDTH)
    if isinstance(drawing, Table):
        _fit_table(drawing, console)
    console.print(drawing)


def _fit_table(drawn: "Table", console: "Console") -> None:
    """Fit a table to the terminal: shrink the widest columns between words, then drop the frame, then break the longest
    words.
    """
    # rich would cut words with an ellipsis: a user could not copy an id from such a table.
    from rich.text import Text

    cells = [
        [cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain for cell in column]
        for column in ((table_column.header, *table_column.cells) for table_column in drawn.columns)
    ]
    widths = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    room = console.width - FRAME_COLUMNS * len(widths) - 1
    if sum(widths) <= room:
        return
    if sum(words) > room:
        drawn.box, drawn.padding = None, (0, 1, 0, 0)
        room = console.width - len(widths)
    while sum(widths) > max(room, len(widths)):
        widest = max(range(len(widths)), key=lambda index: (widths[index] > words[index], widths[index]))
        widths[widest] -= 1
    for column, width in zip(drawn.columns, widths, strict=True):
        column.width, column.overflow = width, "fold"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; None is shown as a dash. Use rich's Text for cells with styles or several lines."""
    from rich.table import Table

    heading = None if title is None else _cell(title)
    drawn = Table(title=heading, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        drawn.add_column(_cell(column))
    for row in rows:
        drawn.add_row(*map(_cell, row))
    print_drawing(drawn)


def multiline_cell(lines: Iterable[str]) -> "Text":
    """Return a cell of several lines."""
    from rich.text import Text

    return Text("\n".join(_cell(line).plain for line in lines))


def print_fields(pairs: Mapping[str, Any]) -> None:
    """Print names and values, one pair per line; None is left out."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        if value is not None:
            text = _number_text(value) if isinstance(value, float) else _one_line(str(value))
            print(f"{_one_line(name):<{width}}  {text}")


def decimals(value: float | None, digits: int = 3) -> str | None:
    """Format a value with a number of decimals; None stays None, which a table shows as a dash."""
    return None if value is None else f"{value:.{digits}f}"


def _number_text(value: float) -> str:
    """Format a value with four digits, or a whole number with all of its digits."""
    return f"{value:.0f}" if value.is_integer() else f"{value:.4g}"


def duration_text(seconds: float | None) -> str | None:
    """Format a duration: `0.4 s`, `12 s`, `4 min 10 s`, `2 h 5 min`; None stays None."""
    if seconds is None:
        return None
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, more = divmod(minutes, 60)
    if hours:
        return f"{hours} h {more} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def bytes_text(count: int | None) -> str | None:
    """Format a number of bytes: `512 B`, `1.4 MB`, `80 GB`, in powers of 1000; None stays None."""
    if count is None:
        return None
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
