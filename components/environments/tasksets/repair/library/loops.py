"""Programs that go through numbers or lists."""

from ..program import Program
from .words import COMPARISONS as IS
from .words import OPERATORS as SAID
from .words import cmp, op

LISTED = ("numbers", "number")
UPTO = {
    "A + 1": ("{A + 1|one:A|A + 2}", "from 0 to A"),
    "A": ("{A|one:A + 1|A - 1}", "from 0 to below A"),
    "1, A + 1": ("1, {A + 1|one:A|A + 2}", "from 1 to A"),
    "1, A": ("1, {A|one:A + 1|A - 1}", "from 1 to below A"),
}


def series(name: str, upto: str, each: str, last: str, audit: bool = False) -> Program:
    """A sum over a range."""
    marked, said = UPTO[upto]
    sentence = f"return the sum of i {SAID[each]} K for i {said}, then {SAID[last]} B"
    source = (
        f"def F(A, B):\n    total = 0\n    for i in range({marked}):\n        total += i {op(each)} K\n"
        f"    return total {op(last)} B\n"
    )
    return Program(f"series_{name}", ("few", "number"), sentence, source, audit=audit)


def chosen(name: str, sign: str, adds: str, said: str, last: str) -> Program:
    """Items of a list that pass a comparison, added up."""
    sentence = f"return {said} in A that is {IS[sign]} K, then {SAID[last]} B"
    source = (
        f"def F(A, B):\n    total = 0\n    for x in A:\n        if x {cmp(sign)} K:\n            total += {adds}\n"
        f"    return total {op(last)} B\n"
    )
    return Program(f"chosen_{name}", LISTED, sentence, source)


def kept(name: str, does: str, sign: str, audit: bool = False) -> Program:
    """A list comprehension with a condition."""
    sentence = f"return the list of x {SAID[does]} K for each x in A that is {IS[sign]} B"
    source = f"def F(A, B):\n    return [x {op(does)} K for x in A if x {cmp(sign)} B]\n"
    return Program(f"kept_{name}", LISTED, sentence, source, audit=audit)


def span(function: str, upto: str, off: str, said: str, last: str, audit: bool = False) -> Program:
    """A range between two arguments, which may be swapped."""
    places = f"{{A, {upto}|swap:B, {upto.replace('B', 'A')}|one:A, {off}}}"
    result = {"sum": "sum", "len": "count"}[function]
    sentence = f"return the {result} of the numbers from A {said} B, then {SAID[last]} K"
    source = f"def F(A, B):\n    return {function}(range({places})) {op(last)} K\n"
    name = f"span_{result}_{'to' if '1' in upto else 'below'}"
    return Program(name, ("few", "some"), sentence, source, audit=audit)


def sliced(name: str, place: str, said: str, last: str, audit: bool = False) -> Program:
    """The sum of a slice."""
    sentence = f"return the sum of {said}, then {SAID[last]} K"
    source = f"def F(A, B):\n    return sum(A[{place}]) {op(last)} K\n"
    return Program(f"sliced_{name}", ("numbers", "small"), sentence, source, audit=audit)


def indexed(name: str, place: str, said: str, last: str) -> Program:
    """One item of a list."""
    source = f"def F(A, B):\n    return A[{place}] {op(last)} K\n"
    sentence = f"return item B of A counted from {said}, then {SAID[last]} K"
    return Program(f"indexed_{name}", ("numbers", "small"), sentence, source)


LOOPS = (
    series("to", "A + 1", "*", "+"),
    series("below", "A", "+", "-"),
    series("one_below", "1, A", "*", "-", audit=True),
    chosen("above", ">", "x", "the sum of each x", "+"),
    chosen("below", "<", "x", "the sum of each x", "-"),
    chosen("least", ">=", "1", "the count of each x", "*"),
    chosen("most", "<=", "1", "the count of each x", "+"),
    kept("above", "+", ">"),
    kept("most", "-", "<="),
    kept("least", "-", ">=", audit=True),
    span("sum", "B", "B + 1", "to below", "+"),
    span("sum", "B + 1", "B", "to", "*"),
    span("len", "B", "B - 1", "to below", "*", audit=True),
    sliced("first", ":{B|one:B + 1|B - 1}", "the first B items of A", "*"),
    sliced("rest", "{B|one:B + 1|B - 1}:", "the items of A after the first B", "+"),
    sliced("last", "-{B|one:(B + 1)|(B - 1)}:", "the last B items of A", "-", audit=True),
    indexed("one", "{B - 1|one:B}", "1", "+"),
    indexed("zero", "{B|one:B - 1|B + 1}", "0", "*"),
)
