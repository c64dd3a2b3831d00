"""The promotion rule and what is declared before a night: levels, margins, interim looks, and which tasks decide.

Superiority and each guardrail are group sequential tests (`statistics.group_sequential`): each spends its level over
the looks by the O'Brien-Fleming function. A promotion needs all of them beyond their bounds at the same look. A
challenger that is no better, or breaks a margin, must therefore cross one bound at some look, which has at most that
test's level: an intersection-union test stays one. Stopping because a lead is ruled out costs only power.
"""

from collections.abc import Sequence

import msgspec

from ratchet.components.core import ConfigurationError, Role
from ratchet.components.statistics.group_sequential import sequential_bounds
from ratchet.components.statistics.multiple_testing import AlphaAllowance, AlphaSpending

from ..agent_results import AgentResult, TaskResult
from ..paired_comparison import shared_attempts

Margin = float | None
"""How much worse the challenger may be; None leaves the guardrail out."""


class PromotionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rule, declared before the night. Margins are how much worse the challenger may be and still pass
    (None: no guardrail).

    Superiority: `alpha` is the one-sided level of a night's test. `spending` lowers it over many nights (LORD++); None,
    the default, tests every night at `alpha`: `benchmarks/promotion.py --seasons` shows the cost of each. `power` is
    the probability with which a night should find a lead of `minimum_effect` (in shares of attempts); a lead that large
    neither shown nor ruled out leaves the night undecided.

    Guardrails: each is a one-sided test at `guardrail_alpha`. `invalid_call_margin` is in shares of calls,
    `unsafe_margin` in shares of attempts with an unsafe action, `steps_margin`, `tokens_margin` and `cost_margin` in
    shares of the champion's figure, `kind_margin` in shares of attempts for each kind of task. The smallest margin that
    n families can show is 3 / n of the worst possible loss (docs/promotion.md); the defaults can be shown with 50
    families.

    `max_lost`: share of attempts that may lack an outcome. `min_tasks`, `min_families`: least data for a verdict.
    `anchor_every`: nights between matches of the champion against the anchor (None: never). `level`: of the intervals.
    `n_resamples`: resamples of a test and an interval. `looks`: shares of the families after which a night may end
    early, such as .5; none means one test at the end.
    """

    alpha: float = 0.025
    level: float = 0.95
    invalid_call_margin: Margin = 0.1
    steps_margin: Margin = 0.25
    max_lost: float = 0.05
    min_tasks: int = 20
    min_families: int = 6
    n_resamples: int = 10_000
    spending: AlphaSpending | None = None
    power: float = 0.8
    minimum_effect: float = 0.08
    guardrail_alpha: float = 0.05
    tokens_margin: Margin = 0.25
    cost_margin: Margin = 0.25
    unsafe_margin: Margin = 0.06
    kind_margin: Margin = 0.3
    anchor_every: int | None = 7
    looks: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 0.5 or not 0 < self.level < 1:
            raise ConfigurationError(
                f"promotion rule: alpha {self.alpha} must lie in (0, .5) and level {self.level} in (0, 1)"
            )
        if not 0 < self.guardrail_alpha < 0.5 or not 0 < self.power < 1 or not 0 < self.minimum_effect < 1:
            raise ConfigurationError(
                f"promotion rule: guardrail_alpha {self.guardrail_alpha} must lie in (0, .5), power {self.power} and "
                f"minimum_effect {self.minimum_effect} in (0, 1)"
            )
        for name, margin in self.margins.items():
            if margin is not None and not margin >= 0:  # `margin < 0` would accept NaN
                raise ConfigurationError(f"promotion rule: {name} is {margin}; a margin is 0 or more, or null for none")
        if self.anchor_every is not None and self.anchor_every < 1:
            raise ConfigurationError(
                f"promotion rule: anchor_every is {self.anchor_every}; give 1 night or more, or null for never"
            )
        if list(self.looks) != sorted(set(self.looks)) or not all(0 < share < 1 for share in self.looks):
            raise ConfigurationError(
                f"promotion rule: looks {list(self.looks)} must be rising shares between 0 and 1, such as [0.5]; the end is one too"
            )

    @property
    def season(self) -> AlphaSpending:
        """The spending of a season: the declared one, else `alpha` on every night."""
        return self.spending or AlphaSpending("fixed", self.alpha)

    @property
    def margins(self) -> dict[str, Margin]:
        """Every margin by its name in the rule."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name.endswith("_margin")}


class PlannedLook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An interim look after the first `tasks` tasks, all of `families` families.

    Superiority is shown at p <= `level`, a guardrail at p <= `guardrail_alpha`.
    """

    tasks: int
    families: int
    level: float
    guardrail_alpha: float


class LookResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a look: the p-value of superiority and the verdict at that point. `stopped`: the look ended
    the evaluation or was the last one.
    """

    look: PlannedLook
    p_value: float
    verdict: str
    why: str
    stopped: bool


def plan_looks(
    shares: Sequence[float], families: Sequence[str], level: float, guardrail_alpha: float
) -> tuple[PlannedLook, ...]:
    """Return the planned looks after each of `shares` of the families, and after all families.

    `families` (n,): the family of each task in playing order, each family's tasks together. `level` and
    `guardrail_alpha` are spent over the looks. Empty where no share ends before the last family.
    """
    # Looks end at whole families: the bounds assume that what is added between two looks is independent.
    ends = [place for place, family in enumerate(families, 1) if place == len(families) or families[place] != family]
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


def ends_evaluation(verdict: str, p_value: float, look: PlannedLook) -> bool:
    """Return whether an early look ends the evaluation: its verdict is `promote`, or superiority is not shown and the
    minimum effect is ruled out.

    Where superiority is shown but a guardrail is not, more tasks may settle it and the evaluation continues.
    """
    return verdict == "promote" or (verdict == "keep" and p_value > look.level)


class NightDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The levels, margins and looks of a night's decision, fixed before anything is played. `at`: when (ISO 8601, UTC).

    `level`: one-sided level of superiority, at most the rule's alpha, derived from `allowance`. `margins` and
    `guardrail_alpha` as in the rule. `detectable`: the lead that `tasks` tasks of `families` families with `attempts`
    attempts find with `power`; None where unknown. `match`: whether the champion plays against the anchor tonight, at
    `match_alpha` in either direction. `p_values`: of the season's earlier tests, oldest first, None for a night that
    saw outcomes without deciding. `expected_false`: upper bound of the season's expected false promotions including
    tonight if no challenger is better; None in older records. `looks`: when the evaluation may end, the last after all
    tasks; empty for one test at the end.
    """

    at: str
    level: float
    allowance: AlphaAllowance | None
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


DECIDING_ROLES: tuple[str, ...] = (Role.PROMOTE.value, Role.RESERVE.value)
"""The roles whose tasks decide, in the order in which they are used. Audit tasks are only reported."""


def merge_deciding_roles(result: AgentResult) -> AgentResult:
    """Return the result with all deciding tasks under the role promote, sorted again by role and task id; other tasks
    are unchanged.
    """
    tasks = [
        msgspec.structs.replace(task, role=DECIDING_ROLES[0]) if task.role in DECIDING_ROLES else task
        for task in result.tasks
    ]
    tasks.sort(key=lambda task: (task.role, task.task_id))
    return msgspec.structs.replace(result, tasks=tuple(tasks))


def pair_deciding_tasks(a: AgentResult, b: AgentResult) -> list[tuple[TaskResult, TaskResult]]:
    """Return pairs of results for the deciding tasks that both agents have, with only the attempts whose outcome is
    known for both; tasks without one are left out.

    Both results must come from `merge_deciding_roles`.
    """
    theirs = {task.task_id: task for task in b.of(DECIDING_ROLES[0])}
    pairs = []
    for mine in a.of(DECIDING_ROLES[0]):
        if (their := theirs.get(mine.task_id)) is not None:
            attempt_pairs = [
                (one, other)
                for one, other in shared_attempts(mine, their)
                if one.success is not None and other.success is not None
            ]
            if attempt_pairs:
                left, right = zip(*attempt_pairs, strict=True)
                replace = msgspec.structs.replace
                pairs.append((replace(mine, attempts=left), replace(their, attempts=right)))
    return pairs
