"""A key from whoever sits at the terminal; where stdin is no terminal, the first letter of its next line."""

import sys


def key() -> str:
    """One key in lower case; an empty text when there is no more. Ctrl-C raises KeyboardInterrupt."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return (line.strip() or " ")[0].lower() if line else ""
    import typer

    try:
        return typer.getchar().lower()
    except EOFError:
        return ""


def line(prompt: str) -> str:
    """A line of text; empty when there is no more."""
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
