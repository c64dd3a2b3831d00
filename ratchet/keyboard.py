"""A key from whoever sits at the terminal; where stdin is no terminal, the first letter of its next line."""

import os
import sys

END = b"\x04"
"""Ctrl-D."""
ESCAPE = b"\x1b"


def key() -> str:
    """One key in lower case; an empty text when there is no more. Ctrl-C raises KeyboardInterrupt."""
    if not sys.stdin.isatty():
        said = sys.stdin.readline()
        return (said.strip() or " ")[0].lower() if said else ""
    pressed = _pressed(sys.stdin.fileno())
    return "" if pressed in (b"", END) else pressed.decode(errors="replace").lower()


def _pressed(terminal: int) -> bytes:
    """One byte as it is typed. TCSANOW: what was typed ahead is not thrown away."""
    import termios
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        pressed = os.read(terminal, 1)
        if pressed == ESCAPE:
            _rest_of_escape(terminal)
        return pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _rest_of_escape(terminal: int) -> None:
    """The other bytes of an arrow, say, are no keys of their own: they end with a letter or ~ behind [ or O."""
    import select

    while select.select([terminal], [], [], 0)[0]:
        found = os.read(terminal, 1)
        if not found or (found not in b"[O" and 0x40 <= found[0] <= 0x7E):
            return


def line(prompt: str) -> str:
    """A line of text; empty when there is no more."""
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
