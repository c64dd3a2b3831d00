"""The programs of `repair`, by what they work on. Names are unique; a name is the family of its tasks."""

from ..program import Program
from .arithmetic import ARITHMETIC
from .comparisons import COMPARISONS
from .loops import LOOPS
from .texts import TEXTS

PROGRAMS: tuple[Program, ...] = (*ARITHMETIC, *COMPARISONS, *LOOPS, *TEXTS)
KNOWN = tuple(program for program in PROGRAMS if not program.audit)
AUDIT = tuple(program for program in PROGRAMS if program.audit)
