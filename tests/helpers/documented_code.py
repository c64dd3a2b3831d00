"""The fenced code blocks of README and docs/, and the `ratchet` commands in them."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = DOCS / "tutorials"
SHELLS = ("bash", "sh", "console")
BLOCK = re.compile(
    r"(?:^ *<!-- fragment: (?P<why>[^>]+?) -->\n)?^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)


class CodeBlock(NamedTuple):
    """A fenced block. `why_fragment`: why it does not run alone; None where it runs."""

    page: Path
    line: int
    language: str
    code: str
    why_fragment: str | None


def pages() -> list[Path]:
    """Return README and every page of docs/."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def code_blocks(page: Path) -> list[CodeBlock]:
    """Return the blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        CodeBlock(
            page,
            text[: match.start("language")].count("\n") + 1,
            match["language"],
            textwrap.dedent(match["code"]),
            match["why"],
        )
        for match in BLOCK.finditer(text)
    ]


def ratchet_commands(block: CodeBlock) -> Iterator[list[str]]:
    """Yield the arguments of each `ratchet` command line in a block: of a shell, or of a block without a language."""
    if block.language not in (*SHELLS, ""):
        return
    for line in block.code.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ")
        if line.startswith("ratchet ") and "…" not in line:
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            lexer.whitespace_split, lexer.commenters = True, "#"
            words = list(lexer)
            end = next((i for i, word in enumerate(words) if set(word) <= set("|&;<>")), len(words))
            yield words[1:end]
