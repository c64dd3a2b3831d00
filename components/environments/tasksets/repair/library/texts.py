"""Programs that work on text and lists of words."""

from ..program import Program
from .words import COMPARISONS as IS
from .words import cmp, op


def words(name: str, sign: str, audit: bool = False) -> Program:
    """Words of a list by their length."""
    sentence = f"return the list of each x in A whose length is {IS[sign]} B, then K"
    source = f"def F(A, B):\n    return [x for x in A if len(x) {cmp(sign)} B] + [K]\n"
    return Program(f"words_{name}", ("words", "small"), sentence, source, audit=audit)


TEXTS = (
    words("above", ">"),
    words("most", "<="),
    words("equal", "==", audit=True),
    Program(
        "replaced",
        ("text", "letter", "letter"),
        "return A with each B replaced by C",
        "def F(A, B, C):\n    return A.replace({B, C|swap:C, B})\n",
    ),
    Program(
        "contains",
        ("bit", "bit", "number"),
        "return C plus K if B is in A, else C",
        f"def F(A, B, C):\n    return C {op('+')} K if {{B in A|swap:A in B}} else C\n",
        audit=True,
    ),
    Program(
        "lengths",
        ("text", "text"),
        "return the length of A times K minus the length of B",
        f"def F(A, B):\n    return len(A) {op('*')} K {op('-')} len(B)\n",
    ),
)
