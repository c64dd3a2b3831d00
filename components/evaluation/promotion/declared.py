"""Declared: what a night's decision will be judged by, written down before anything is played."""

import msgspec

from ..statistics.spending import Allowance
from .looks import PlannedLook


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A night's promises. `at` is when (ISO 8601, UTC).

    `level`: tonight's one-sided level of superiority, what `allowance` leaves and at most the rule's alpha. `margins` and
    `guardrail_alpha` as in the rule. `minimum_effect` is looked for with `power`; `detectable` is the lead that `tasks` tasks
    of `families` families with `attempts` attempts find with that power, None where it is not known. `match`: whether the
    champion meets the anchor tonight, at `match_alpha` in both directions. `p_values`: of the earlier tests of this season, the
    oldest first, None where a night has seen outcomes and never decided. `expected_false`: the expected number of false
    promotions of the season up to and including tonight if no challenger is better, at most the sum of the levels. None in
    records of older versions. `looks`: when the evaluation may end, the last of them after all tasks; empty where there is one
    test, at the end.
    """

    at: str
    level: float
    allowance: Allowance | None
    guardrail_alpha: float
    margins: dict[str, float | None]
    power: float
    minimum_effect: float
    tasks: int
    families: int
    attempts: int
    detectable: float | None = None
    match: bool = False
    match_alpha: float | None = None
    looks: tuple[PlannedLook, ...] = ()
    p_values: tuple[float | None, ...] = ()
    expected_false: float | None = None
