"""Confusion: how the same attempts ended for two agents, cause against cause."""

from collections import Counter

import msgspec

from .metrics import AgentResult

SOLVED = "solved"
OTHER = "other causes"
CAUSES = 6
"""Causes with a row of their own; rarer ones stand together."""


class Confusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`counts[i][j]`: attempts at the same task with the same number that ended in `causes[i]` for a, in `causes[j]` for b.

    The first cause is `solved`, then the most frequent first. Attempts without a known outcome of both are left out.
    """

    a: str
    b: str
    causes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """The attempts that are counted."""
        return sum(map(sum, self.counts))


def confusion(a: AgentResult, b: AgentResult, role: str | None = "promote") -> Confusion:
    """The ends of the attempts that both agents played."""
    left, right = _ends(a, role), _ends(b, role)
    pairs = Counter((left[key], right[key]) for key in left.keys() & right.keys())
    seen: Counter[str] = Counter()
    for (mine, theirs), count in pairs.items():
        seen[mine] += count
        seen[theirs] += count
    ranked = sorted((cause for cause in seen if cause != SOLVED), key=lambda cause: (-seen[cause], cause))
    causes = [SOLVED, *ranked] if len(ranked) <= CAUSES + 1 else [SOLVED, *ranked[:CAUSES], OTHER]
    place = {cause: number for number, cause in enumerate(causes)}
    counts = [[0] * len(causes) for _ in causes]
    for (mine, theirs), count in pairs.items():
        counts[place.get(mine, len(causes) - 1)][place.get(theirs, len(causes) - 1)] += count
    return Confusion(a.name, b.name, tuple(causes), tuple(map(tuple, counts)))


def _ends(result: AgentResult, role: str | None) -> dict[tuple[str, int], str]:
    return {
        (task.task_id, attempt.attempt): SOLVED if attempt.success else attempt.cause or "unknown"
        for task in result.of(role)
        for attempt in task.attempts
        if attempt.success is not None
    }
