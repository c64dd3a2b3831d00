"""Tables of records for notebooks: HTML for `_repr_html_`, and pandas frames."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ratchet.components.core import ConfigurationError

if TYPE_CHECKING:
    import pandas

SHOWN_ROWS = 20
CELL_CHARACTERS = 120
TableRow = Mapping[str, Any]
_CELL = "text-align:left;vertical-align:top"


def html_table(title: str, rows: Sequence[TableRow], note: str = "") -> str:
    """Return a title, the first rows as a table with the keys of the first row as columns, and a note.

    Texts are escaped, and control characters made visible: episodes may hold anything.
    """
    lines = [f"<div><p><b>{_cell(title, 400)}</b></p>"]
    if rows:
        head = "".join(f'<th style="{_CELL}">{_cell(name)}</th>' for name in rows[0])
        body = (
            "".join(f'<td style="{_CELL}">{_cell(value)}</td>' for value in row.values()) for row in rows[:SHOWN_ROWS]
        )
        lines += [f"<table><tr>{head}</tr>", *(f"<tr>{cells}</tr>" for cells in body), "</table>"]
    if len(rows) > SHOWN_ROWS:
        lines.append(f"<p>{len(rows) - SHOWN_ROWS:,} more rows</p>")
    if note:
        lines.append(f"<p>{_cell(note, 1000)}</p>")
    return "".join([*lines, "</div>"])


def _cell(value: Any, limit: int = CELL_CHARACTERS) -> str:
    from .terminal_rendering import single_line  # it imports Trajectory, which is a NotebookTable

    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(single_line(f"{value:.4g}" if isinstance(value, float) else str(value), limit))


class NotebookTable:
    """Mixin of records that are tables of rows: a frame, and HTML in a notebook."""

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per row of the table."""
        raise NotImplementedError

    def to_pandas(self) -> "pandas.DataFrame":
        """Return `rows` as a frame; None is a missing value. Raises ConfigurationError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ConfigurationError("to_pandas needs pandas; install it: pip install pandas") from error
        return pandas.DataFrame(self.rows())

    def _caption(self) -> tuple[str, str]:
        """Return the title of the table in a notebook, and a note below it."""
        return repr(self), ""

    def _repr_html_(self) -> str:
        title, note = self._caption()
        # Ids of episodes are hashes of 64 characters: for programs, not for readers.
        shown = [{name: value for name, value in row.items() if name != "episode_id"} for row in self.rows()]
        return html_table(title, shown, note)
