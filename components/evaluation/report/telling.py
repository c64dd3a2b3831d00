"""Telling: which few of the flipped tasks say most about the difference between two agents. Depends on the flips alone.

Losses are never crowded out by wins: while there are any, two of five places are theirs, and the other way round. Kinds of task
take turns, so that five pairs do not show five times the same.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from ..comparison import Flip

PAIRS = 5
"""Pairs of a report."""
FEWER = 2
"""Places that wins leave to losses, and losses to wins."""


def most_telling(flips: Iterable[Flip], count: int = PAIRS) -> tuple[Flip, ...]:
    """At most `count` flips, wins before losses: of each kind the largest difference first.

    Only tasks where some attempt shows it, one agent succeeding and the other failing as the task flipped.
    """
    shown = [flip for flip in flips if flip.attempts and _shows(flip)]
    won, lost = _spread([flip for flip in shown if flip.won]), _spread([flip for flip in shown if not flip.won])
    many, few = (won, lost) if len(won) >= len(lost) else (lost, won)
    few = few[: max(count - len(many), min(FEWER, count))]
    many = many[: count - len(few)]
    return (*many, *few) if len(won) >= len(lost) else (*few, *many)


def _shows(flip: Flip) -> bool:
    first = flip.attempts[0]
    return first.b_success is flip.won and first.a_success is not flip.won


def _spread(flips: Sequence[Flip]) -> list[Flip]:
    """The first flip of each kind, then the second of each, and so on; within that, in the order given."""
    seen: Counter[str] = Counter()
    turns: list[tuple[int, Flip]] = []
    for flip in flips:
        turns.append((seen[flip.kind], flip))
        seen[flip.kind] += 1
    return [flip for _, flip in sorted(turns, key=lambda turn: turn[0])]
