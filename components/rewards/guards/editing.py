"""Editing by script: what `sed` and `str.replace` take out of a file and put in, as far as their text says so."""

import ast
import re
from collections.abc import Iterator

from .python import Source, literal

_SUBSTITUTES = re.compile(
    r"(?:^|[;{}\s\d$/,!])s([/|#@,!:~])((?:\\.|(?!\1)[^\\\n])*+)\1((?:\\.|(?!\1)[^\\])*+)\1", re.MULTILINE
)
_INSERTS = re.compile(
    r"^[ \t]*(?:\d+|\$|/(?:\\.|[^/\\\n])*+/)?(?:,(?:\d+|\$))?[ \t]*[aic](?:\\\n?|[ \t])[ \t]*([^\n]+)", re.MULTILINE
)
_ESCAPED = re.compile(r"\\([^\w\n])")
_MOST = 64

Replaced = tuple[str, str]
"""What went and what came."""


def substituted(script: str) -> Iterator[Replaced]:
    """The substitutions and insertions of a script of `sed` (or `perl -pe`)."""
    for place, found in enumerate(_SUBSTITUTES.finditer(script)):
        if place < _MOST:
            pattern = found[2].removeprefix("^").removesuffix("$")
            yield _plain(pattern), _plain(found[3])
    for place, found in enumerate(_INSERTS.finditer(script)):
        if place < _MOST:
            yield "", _plain(found[1])


def replaced(code: str) -> Iterator[Replaced]:
    """The literal texts that Python puts in the place of others."""
    if ".replace(" not in code:
        return
    for node in Source(code).all():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
            before, after = (literal(each) for each in (*node.args[:2], None, None)[:2])
            if isinstance(before, str) and isinstance(after, str):
                yield before, after


def _plain(text: str) -> str:
    """A pattern or a replacement as the text that it stands for."""
    return _ESCAPED.sub(r"\1", text.replace("\\n", "\n").replace("\\t", "\t"))
