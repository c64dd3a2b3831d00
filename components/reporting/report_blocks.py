"""Report blocks: the content of a report before it is HTML or Markdown. Both are rendered from the same blocks, so they
cannot differ.

Blocks hold plain text; `report_rendering` makes it safe and escapes it.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

Tone = Literal["plain", "good", "bad", "quiet"]
"""Colour of a block. It is never the only signal: the words say the same."""


class SectionHeading(msgspec.Struct, frozen=True):
    """Title of a section; `anchor` is its target in the list of contents, letters and hyphens only."""

    text: str
    anchor: str


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class ReportTable(msgspec.Struct, frozen=True):
    """Rows under columns; the first column names the row. `tones`: one per row, or empty for plain rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    tones: tuple[Tone, ...] = ()


class ReportFigure(msgspec.Struct, frozen=True):
    """A drawing with its description in words. `name`: of the figure, as in MLflow; `alt`: the description."""

    name: str
    title: str
    alt: str
    svg: bytes


class CommandList(msgspec.Struct, frozen=True):
    """Shell commands: `rows` of (command, purpose)."""

    rows: tuple[tuple[str, str], ...]


class QuotedText(msgspec.Struct, frozen=True):
    """Text from an episode, quoted as it is; `label` says whose text it is or what it shows. `link`: address of more of it."""

    label: str
    text: str
    link: str = ""


class CollapsedBlocks(msgspec.Struct, frozen=True):
    """Details that are closed until opened, and open in print."""

    title: str
    blocks: tuple["ReportBlock", ...]


class SideBySide(msgspec.Struct, frozen=True):
    """Two columns, stacked on a narrow screen. Either may be empty."""

    left: tuple[QuotedText, ...]
    right: tuple[QuotedText, ...]


class SubsectionTitle(msgspec.Struct, frozen=True):
    """A title within a section."""

    text: str
    tone: Tone = "plain"


class VerdictBanner(msgspec.Struct, frozen=True):
    """The top of a report: a word, a sentence, a few large `numbers` with labels, and notes of one sentence each."""

    word: str
    sentence: str
    tone: Tone
    numbers: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


ReportBlock = (
    SectionHeading
    | SubsectionTitle
    | Paragraph
    | ReportTable
    | ReportFigure
    | CommandList
    | QuotedText
    | CollapsedBlocks
    | SideBySide
    | VerdictBanner
)


class ReportDocument(msgspec.Struct, frozen=True):
    """A report: its title, a subtitle, and its blocks."""

    title: str
    subtitle: str
    blocks: tuple[ReportBlock, ...]

    @property
    def contents(self) -> Sequence[SectionHeading]:
        """The section headings, for a list of contents."""
        return [block for block in self.blocks if isinstance(block, SectionHeading)]
