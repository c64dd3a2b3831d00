"""Programs that decide by comparing."""

from ..program import Program
from .words import COMPARISONS as IS
from .words import OPERATORS as SAID
from .words import cmp, op

NUMBERS = ("number", "number")
NAMES = {">": "above", "<": "below", ">=": "least", "<=": "most", "==": "equal", "!=": "unequal"}


def guard(sign: str, does: str) -> Program:
    """An `if` that returns early."""
    sentence = f"return A {SAID[does]} B if A is {IS[sign]} K, else B"
    source = f"def F(A, B):\n    if A {cmp(sign)} K:\n        return A {op(does)} B\n    return B\n"
    return Program(f"guard_{NAMES[sign]}", NUMBERS, sentence, source)


def otherwise(sign: str, does: str) -> Program:
    """A conditional expression."""
    sentence = f"return A if A is {IS[sign]} B, else B {SAID[does]} K"
    source = f"def F(A, B):\n    return A if A {cmp(sign)} B else B {op(does)} K\n"
    return Program(f"otherwise_{NAMES[sign]}", NUMBERS, sentence, source)


def both(left: str, join: str, right: str) -> Program:
    """Two comparisons, joined."""
    sentence = f"return whether A is {IS[left]} K {join} B is {IS[right]} M"
    other = "or" if join == "and" else "and"
    source = f"def F(A, B):\n    return A {cmp(left)} K {{{join}|op:{other}}} B {cmp(right)} M\n"
    return Program(f"both_{NAMES[left]}_{join}_{NAMES[right]}", NUMBERS, sentence, source)


def judged(name: str, sign: str, does: str, audit: bool = False) -> Program:
    """A helper that compares, whose arguments may be swapped."""
    sentence = f"return A {SAID[does]} K if A is {IS[sign]} B, else B"
    source = f"def {name}(x, y):\n    return x {sign} y\n\n\n" + (
        f"def F(A, B):\n    return A {op(does)} K if {name}({{A, B|swap:B, A}}) else B\n"
    )
    return Program(f"judged_{name}", NUMBERS, sentence, source, audit=audit)


def bounded(function: str, said: str, does: str, audit: bool = False) -> Program:
    """`min` or `max` of a sum or a difference."""
    sentence = f"return A {SAID[does]} B, but {said} K"
    source = f"def F(A, B):\n    return {function}(A {op(does)} B, K)\n"
    return Program(f"bounded_{function}", NUMBERS, sentence, source, audit=audit)


COMPARISONS = (
    guard(">", "+"),
    guard("<", "-"),
    guard(">=", "*"),
    guard("<=", "+"),
    otherwise(">", "+"),
    otherwise("<=", "-"),
    both(">", "and", "<"),
    judged("more", ">", "+"),
    judged("less", "<", "-"),
    judged("most", "<=", "*", audit=True),
    bounded("min", "at most", "+"),
    bounded("max", "at least", "-", audit=True),
    Program(
        "outside",
        ("number", "number"),
        "return B plus A if A is below K or above M, else B",
        f"def F(A, B):\n    if A {cmp('<')} K or A {cmp('>')} M:\n        return B {op('+')} A\n    return B\n",
        ordered=True,
        audit=True,
    ),
)
