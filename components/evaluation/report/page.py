"""Page: a report as one file of HTML that needs nothing else: no script, no request, no font of its own.

Every text is made inert and escaped here, and here alone. A policy in the page forbids what escaping would have to miss first:
scripts, requests, frames, forms, and every style but the sheet. Drawings are images in the page, so nothing in them can run.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterable

from .blocks import Banner, Block, Commands, Document, Fold, Heading, Picture, Prose, Quoted, Sides, Table, Title
from .inert import short, shown
from .style import SHEET

FIGURE = 14
"""Characters of a cell that is never broken."""
_UNBROKEN = re.compile(r"\[[-+]?[\d.]{1,9},\s[-+]?[\d.]{1,9}\]|\bp\s=\s[\d.e-]{1,12}(?<!\.)|\([\w-]{1,12}\)")
"""An interval, a p-value or a word in parentheses, which no line or cell breaks."""
_SHEET_HASH = base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_SHEET_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
"""The page's Content-Security-Policy."""


def page(document: Document) -> bytes:
    """The page as UTF-8. The same document gives the same bytes."""
    title = _text(document.title)
    links = "".join(f'<a href="#{_text(each.anchor)}">{_text(each.text)}</a>' for each in document.contents)
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{SHEET}</style>"
    )
    top = f'<header><h1>{title}</h1><p class="subtitle">{_text(document.subtitle)}</p></header>'
    first, rest = document.blocks[:1], document.blocks[1:]
    body = f"{_all(first)}<nav>{links}</nav>\n{_all(rest)}"
    made = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{top}\n<main>{body}</main></body></html>\n'
    return made.encode("utf-8", "replace")


def _all(blocks: Iterable[Block]) -> str:
    return "\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    match block:
        case Heading(text, anchor):
            return f'<h2 id="{_text(anchor)}">{_text(text)}</h2>'
        case Title(text, tone):
            return f'<h3 class="{tone}">{_text(text)}</h3>'
        case Prose(text, tone):
            return f'<p class="{tone}">{_flow(text)}</p>'
        case Banner():
            return _banner(block)
        case Table():
            return _table(block)
        case Picture():
            return _picture(block)
        case Commands(rows):
            items = "".join(f"<dt><code>{_text(line)}</code></dt><dd>{_text(what)}</dd>" for line, what in rows)
            return f'<dl class="commands">{items}</dl>'
        case Quoted():
            return _quoted(block)
        case Fold(title, blocks):
            return f"<details><summary>{_text(title)}</summary>{_all(blocks)}</details>"
        case Sides(left, right):
            return (
                f'<div class="sides"><div class="left">{_all(left)}</div><div class="right">{_all(right)}</div></div>'
            )


def _banner(banner: Banner) -> str:
    numbers = "".join(f"<div><dt>{_text(what)}</dt><dd>{_flow(value)}</dd></div>" for value, what in banner.numbers)
    told = f'<dl class="numbers">{numbers}</dl>' if numbers else ""
    notes = "".join(f"<p>{_flow(note)}</p>" for note in banner.notes)
    return (
        f'<section class="banner {banner.tone}"><div class="word">{_text(banner.word)}</div>'
        f"<p>{_flow(banner.sentence)}</p>{told}{notes}</section>"
    )


def _table(table: Table) -> str:
    tones = table.tones or ("plain",) * len(table.rows)
    head = "".join(f'<th scope="col">{_flow(each)}</th>' for each in table.columns)
    rows = "".join(_row(row, tone) for row, tone in zip(table.rows, tones, strict=True))
    caption = f"<caption>{_flow(table.caption)}</caption>" if table.caption else ""
    return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(row: tuple[str, ...], tone: str) -> str:
    cells = "".join(f'<td class="{"figure" if len(cell) <= FIGURE else "text"}">{_flow(cell)}</td>' for cell in row[1:])
    name = _text(row[0]).replace("_", "_<wbr>").replace(" (", "&nbsp;(")
    return f'<tr class="{tone}"><th scope="row">{name}</th>{cells}</tr>'


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.svg).decode()
    alt = _text(picture.alt)
    source = f"data:image/svg+xml;base64,{data}"
    return f'<figure><img alt="{alt}" src="{source}"><figcaption>{_text(picture.title)}</figcaption></figure>'


def _quoted(quoted: Quoted) -> str:
    text = f'<pre dir="ltr">{html.escape(shown(quoted.text))}</pre>' if quoted.text.strip() else ""
    return f'<div class="quoted"><div class="label">{_text(quoted.label)}</div>{text}</div>'


def _flow(value: str) -> str:
    """A text whose intervals, p-values and parentheses stay on one line."""
    return _UNBROKEN.sub(r'<span class="figure">\g<0></span>', _text(value))


def _text(value: str) -> str:
    """A text on one line; sentences of our own are never so long that they would be cut."""
    return html.escape(short(value))
