"""Looks: moments, declared before the night, at which its evaluation may end; together they cost what one test at the end costs.

Superiority and each guardrail are group sequential tests (`statistics.sequential`): each spends its own level over the looks by
O'Brien and Fleming's function, nearly nothing early and nearly all of it at the end. A promotion needs every one of them beyond its
bound at the same look. Who is no better, or breaks a margin, must therefore cross one bound at some look, which happens with
probability at most that one's level: an intersection-union test stays one. To stop because a lead is ruled out costs power alone.
"""

from collections.abc import Sequence

import msgspec

from ..statistics.sequential import sequential_bounds


class PlannedLook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """After the first `tasks` tasks, all of `families` families: superiority counts as shown where its p-value is at most `level`,
    a guardrail where its own is at most `guardrail_alpha`.
    """

    tasks: int
    families: int
    level: float
    guardrail_alpha: float


class TakenLook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a look found: the p-value of superiority, and the verdict that the tasks played by then give. `stopped`: it ended the
    evaluation, or was the last.
    """

    look: PlannedLook
    p_value: float
    verdict: str
    why: str
    stopped: bool


def plan_looks(
    shares: Sequence[float], families: Sequence[str], level: float, guardrail_alpha: float
) -> tuple[PlannedLook, ...]:
    """The looks after those shares of the families, and after all of them. `families` (n,) are those of the tasks in the order in
    which they are played, each family's tasks together. Empty where there is no share, or no family that could be left unplayed.
    """
    ends = [place for place, each in enumerate(families, 1) if place == len(families) or families[place] != each]
    count = len(ends)
    early = sorted({round(share * count) for share in shares} & set(range(1, count)))
    if not early:
        return ()
    numbers = [*early, count]
    information = [number / count for number in numbers]
    superior, guarded = (sequential_bounds(information, alpha=alpha).p for alpha in (level, guardrail_alpha))
    return tuple(
        PlannedLook(ends[number - 1], number, p, guard)
        for number, p, guard in zip(numbers, superior, guarded, strict=True)
    )


def stops(verdict: str, p_value: float, look: PlannedLook) -> bool:
    """Whether an early look ends the evaluation: it promotes, or superiority is not shown and the lead that matters is ruled out.

    Where superiority is shown and a guardrail stands against it, more tasks may clear that up: the evaluation goes on.
    """
    return verdict == "promote" or (verdict == "keep" and p_value > look.level)
