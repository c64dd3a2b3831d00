"""Programs that work on text and lists of words."""

from ..program import Program
from .words import COMPARISONS as IS
from .words import cmp, op


def words(name: str, sign: str, audit: bool = False) -> Program:
    """Words of a list by their length."""
    sentence = f"return the list of each x in A whose length is {IS[sign]} B, then K"
    source = f"def F(A, B):\n    return [x for x in A if len(x) {cmp(sign)} B] + [K]\n"
    return Program(f"words_{name}", ("words", "small"), sentence, source, audit=audit)


def padded(side: str, method: str) -> Program:
    """Text padded to a width."""
    sentence = f"return A padded on the {side} with B to width K"
    return Program(f"padded_{side}", ("text", "letter"), sentence, f"def F(A, B):\n    return A.{method}(K, B)\n")


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
        "occurs",
        ("text", "bit"),
        "return how often B occurs in A, then times K",
        f"def F(A, B):\n    return {{A.count(B)|swap:B.count(A)}} {op('*')} K\n",
    ),
    Program(
        "glued",
        ("text", "text"),
        "return A then a dash then B then K",
        "def glue(x, y):\n    return x + '-' + y\n\n\ndef F(A, B):\n    return glue({A, B|swap:B, A}) + str(K)\n",
    ),
    Program(
        "starts",
        ("bit", "bit", "number"),
        "return whether A starts with B and C is above K",
        f"def F(A, B, C):\n    return {{A.startswith(B)|swap:B.startswith(A)}} {{and|op:or}} C {cmp('>')} K\n",
    ),
    Program(
        "contains",
        ("bit", "bit", "number"),
        "return C plus K if B is in A, else C",
        f"def F(A, B, C):\n    return C {op('+')} K if {{B in A|swap:A in B}} else C\n",
        audit=True,
    ),
    Program(
        "without_first",
        ("text", "text"),
        "return A without its first letter, then B",
        "def F(A, B):\n    return A[{1|one:0|2}:] + B\n",
    ),
    Program(
        "first_letters",
        ("text", "small"),
        "return the first B letters of A, then K",
        "def F(A, B):\n    return A[:{B|one:B + 1|B - 1}] + str(K)\n",
    ),
    Program(
        "repeated",
        ("text", "small"),
        "return A repeated B times, then K",
        "def F(A, B):\n    return A * {B|one:(B + 1)|(B - 1)} + str(K)\n",
    ),
    Program(
        "lengths",
        ("text", "text"),
        "return the length of A times K minus the length of B",
        f"def F(A, B):\n    return len(A) {op('*')} K {op('-')} len(B)\n",
    ),
    Program(
        "longer",
        ("text", "text"),
        "return A if the length of A is above the length of B, else B then K",
        f"def F(A, B):\n    return A if len(A) {cmp('>')} len(B) else B + str(K)\n",
    ),
    padded("left", "rjust"),
    padded("right", "ljust"),
)
