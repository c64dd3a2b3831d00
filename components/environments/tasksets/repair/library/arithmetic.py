"""Programs that compute with numbers."""

from ..program import Program
from .words import OPERATORS as SAID
from .words import op

NUMBERS = ("number", "number")
LARGE = ("large", "large")
HELPER = "def {name}(x, y):\n    return x {sign} y\n\n\n"


def chain(first: str, second: str, audit: bool = False) -> Program:
    """`A first K second B`."""
    name = f"chain_{_name(first)}_{_name(second)}"
    sentence = f"return A {SAID[first]} K {SAID[second]} B"
    inputs = LARGE if first == "//" else NUMBERS
    return Program(name, inputs, sentence, f"def F(A, B):\n    return A {op(first)} K {op(second)} B\n", audit=audit)


def group(first: str, second: str) -> Program:
    """`(A first B) second K`."""
    name = f"group_{_name(first)}_{_name(second)}"
    sentence = f"return A {SAID[first]} B, all {SAID[second]} K"
    inputs = LARGE if second in ("//", "%") else NUMBERS
    return Program(name, inputs, sentence, f"def F(A, B):\n    return (A {op(first)} B) {op(second)} K\n")


def part(first: str, second: str) -> Program:
    """A named part, then the whole."""
    name = f"part_{_name(first)}_{_name(second)}"
    sentence = f"set part to A {SAID[first]} K, return B {SAID[second]} part"
    source = f"def F(A, B):\n    part = A {op(first)} K\n    return B {op(second)} part\n"
    return Program(name, NUMBERS, sentence, source)


def twice(first: str, second: str) -> Program:
    """One argument, two constants."""
    name = f"twice_{_name(first)}_{_name(second)}"
    sentence = f"return A {SAID[first]} K, all {SAID[second]} M"
    inputs = ("large",) if second in ("//", "%") else ("number",)
    return Program(name, inputs, sentence, f"def F(A):\n    return (A {op(first)} K) {op(second)} M\n")


def helper(name: str, sign: str, second: str, divisor: str = "number") -> Program:
    """A helper whose arguments may be swapped."""
    sentence = f"return A {SAID[sign]} B, all {SAID[second]} K"
    source = HELPER.format(name=name, sign=sign) + (
        f"def F(A, B):\n    return {name}({{A, B|swap:B, A}}) {op(second)} K\n"
    )
    return Program(f"helper_{name}_{_name(second)}", ("number", divisor), sentence, source)


def power(second: str) -> Program:
    """`pow`, whose arguments may be swapped."""
    source = f"def F(A, B):\n    return pow({{A, B|swap:B, A}}) {op(second)} K\n"
    sentence = f"return A to the power B, all {SAID[second]} K"
    return Program(f"power_{_name(second)}", ("few", "few"), sentence, source)


def _name(sign: str) -> str:
    return {"+": "plus", "-": "minus", "*": "times", "//": "over", "%": "modulo"}[sign]


ARITHMETIC = (
    chain("*", "+"),
    chain("*", "-"),
    chain("+", "-"),
    chain("-", "*"),
    chain("//", "+"),
    chain("+", "*", audit=True),
    group("+", "*"),
    group("-", "*"),
    group("+", "//"),
    group("-", "%"),
    group("*", "-"),
    part("*", "-"),
    part("+", "*"),
    part("-", "+"),
    twice("-", "*"),
    twice("+", "//"),
    helper("diff", "-", "*"),
    helper("diff", "-", "+"),
    helper("rest", "%", "*", "divisor"),
    helper("share", "//", "-", "divisor"),
    power("+"),
    power("-"),
    Program(
        "divide",
        ("number", "divisor"),
        "return the quotient of A by B, times K, plus the rest",
        f"def F(A, B):\n    part, rest = divmod({{A, B|swap:B, A}})\n    return part {op('*')} K {op('+')} rest\n",
        audit=True,
    ),
    Program(
        "next_times",
        ("number",),
        "return one more than A, all times K",
        f"def F(A):\n    return {{(A + 1)|one:A|(A + 2)}} {op('*')} K\n",
    ),
    Program(
        "previous_plus",
        ("number", "number"),
        "return one less than A, all times B, plus K",
        f"def F(A, B):\n    return {{(A - 1)|one:A|(A - 2)}} * B {op('+')} K\n",
    ),
    Program(
        "times_next",
        ("number", "number"),
        "return A times one more than B, minus K",
        f"def F(A, B):\n    return A * {{(B + 1)|one:B|(B + 2)}} {op('-')} K\n",
    ),
    Program(
        "part_previous",
        ("number", "number"),
        "set part to one less than B, return A plus part times K",
        f"def F(A, B):\n    part = {{B - 1|one:B|B + 1}}\n    return A {op('+')} part * K\n",
        audit=True,
    ),
)
