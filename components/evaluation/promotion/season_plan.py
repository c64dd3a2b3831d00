"""Season plan: tonight's declaration as a pure function of the rule and the earlier nights, and the tasks that it needs.

A night that has seen outcomes has spent its level, whether or not it decided: nobody may look, stop, and try again at
full strength. A night that failed before that, or lost too much to promote anything, has spent nothing.

Sample sizes are planned with the minimum effect and the observed variance, never with the observed effect: planned with
that, a night that has just missed would always need about as much again.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ratchet.components.statistics.multiple_testing import PastTest, alpha_allowance
from ratchet.components.statistics.power_analysis import (
    VarianceComponents,
    clustered_design,
    minimum_detectable_effect,
    paired_components,
    tasks_needed,
)
from ratchet.components.statistics.result_types import Estimate

from ..paired_comparison import TaskPair
from .promotion_rule import NightDeclaration, PromotionRule, plan_looks


class PastNight(NamedTuple):
    """One earlier night. `tested`: outcomes were seen that could have led to a promotion; `promoted`: the challenger
    was promoted; `matched`: the champion played against the anchor.

    `tasks`: deciding tasks whose outcomes were seen; `spread`: variance of their differences; `level` and `p_value`: of
    the test of superiority. None is unknown.
    """

    tested: bool
    promoted: bool = False
    matched: bool = False
    tasks: tuple[str, ...] = ()
    spread: VarianceComponents | None = None
    level: float | None = None
    p_value: float | None = None


def declare_night(
    rule: PromotionRule, past: Sequence[PastNight], families: Sequence[str], attempts: int, *, at: str
) -> NightDeclaration:
    """Return tonight's declaration after `past`, every earlier night in order, on tasks of `families` (one entry per
    task, in playing order).

    `attempts`: per task. `at`: time of the declaration (ISO 8601, UTC). A night with an anchor match has no interim
    looks, since the anchor's test has only one.
    """
    allowance = alpha_allowance(rule.season, [PastTest(night.tested, night.promoted) for night in past])
    level = min(allowance.level, rule.alpha)
    match = is_match_due(past, rule.anchor_every)
    # The latest variance; before any night was decided it is assumed.
    spreads = [night.spread for night in past if night.spread is not None]
    # Seasons count tests, not nights: a night that saw no outcome is in none of them.
    season = [night for night in past if night.tested][(allowance.season - 1) * allowance.nights :]
    levels = [rule.alpha if night.level is None else night.level for night in season]
    return NightDeclaration(
        at=at,
        level=level,
        allowance=allowance,
        guardrail_alpha=rule.guardrail_alpha,
        margins=rule.margins,
        power=rule.power,
        minimum_effect=rule.minimum_effect,
        tasks=len(families),
        families=len(set(families)),
        attempts=attempts,
        detectable=detectable_lead(families, attempts, spreads[-1] if spreads else None, level, rule.power),
        match=match,
        match_alpha=match_alpha(rule) if match else None,
        looks=() if match else plan_looks(rule.looks, families, level, rule.guardrail_alpha),
        p_values=tuple(night.p_value for night in season),
        expected_false=math.fsum([*levels, level]),
    )


def is_match_due(past: Sequence[PastNight], every: int | None) -> bool:
    """Return whether tonight is the `every`-th night since the last match, or since the first night.

    Nights in which no outcome was seen are not counted. `every` None: never.
    """
    if every is None:
        return False
    since = 0
    for night in past:
        # Nights that failed before any outcome was seen do not bring the match closer.
        since = 0 if night.matched else since + night.tested
    return since + 1 >= every


def match_alpha(rule: PromotionRule) -> float:
    """Return the level of each of the two one-sided tests of an anchor match: alpha where every night tests at alpha.

    Under a spending rule the matches of a season share alpha (Bonferroni), so that a season in which no champion is
    worse rolls one back with probability at most alpha.
    """
    if rule.anchor_every is None or rule.season.method == "fixed":
        return rule.alpha
    return rule.alpha / math.ceil(rule.season.nights / rule.anchor_every)


def count_task_uses(past: Sequence[PastNight]) -> dict[str, int]:
    """Return how often each task (by id) was among a night's deciding tasks."""
    return dict(Counter(task for night in past for task in night.tasks))


ASSUMED_COMPONENTS = VarianceComponents(family=0.005, task=0.15, attempt=0.055)
"""Variance assumed before any night was decided: that of a smoke night's paired differences, measured."""
MIN_ADDITIONAL_SHARE = 0.25
"""An undecided night asks for at least this share of its tasks again; fewer would change nothing."""


def difference_components(pairs: Sequence[TaskPair], attempts: int) -> VarianceComponents | None:
    """Return the variance components of the paired difference of success; None below two families."""
    families = [pair.family for pair in pairs]
    return paired_components([pair.b for pair in pairs], [pair.a for pair in pairs], families, attempts)


def detectable_lead(
    families: Sequence[str], attempts: int, components: VarianceComponents | None, level: float, power: float
) -> float | None:
    """Return the least lead that tasks of `families` (one entry per task) show with `power`; None where none does."""
    if not families:
        return None
    design = clustered_design(families, attempts, components or ASSUMED_COMPONENTS)
    return minimum_detectable_effect(design, target_power=power, alpha=level)


def additional_tasks_for_lead(
    families: Sequence[str],
    attempts: int,
    components: VarianceComponents | None,
    effect: float,
    level: float,
    power: float,
) -> int | None:
    """Return how many further tasks, in proportionally more families, show a lead of `effect` with `power`.

    `families`: of the tasks played, one entry per task. At least MIN_ADDITIONAL_SHARE of their number; None if unknown.
    """
    if components is None or not families:
        return None
    needed = tasks_needed(effect, clustered_design(families, attempts, components), target_power=power, alpha=level)
    return _additional_count(needed, len(families))


def additional_tasks_for_margin(difference: Estimate, margin: float, level: float, power: float) -> int | None:
    """Return how many tasks beyond those played show with `power` that an agent that is worse by half the margin is
    within the margin.

    The shorter side of the interval is sampling error and shrinks with the root of the number of tasks; the excess of
    the longer side is the allowance for unseen families and shrinks with the number itself. None without an interval.
    """
    from scipy import special

    interval = difference.interval
    if interval is None or difference.value is None or difference.tasks < 2 or margin <= 0:
        return None
    sides = sorted((interval.high - difference.value, difference.value - interval.low))
    error = max(0.0, sides[0]) / float(special.ndtri(0.5 + interval.level / 2))
    noise = error * float(special.ndtri(1 - level) + special.ndtri(power))
    unseen = sides[1] - max(0.0, sides[0])
    # With n times the tasks: noise / sqrt(n) + unseen / n = margin / 2, a quadratic equation in sqrt(n).
    root = (noise + math.sqrt(noise**2 + 2 * unseen * margin)) / margin
    return _additional_count(math.ceil(difference.tasks * root**2), difference.tasks)


def _additional_count(needed: int | None, played: int) -> int | None:
    return None if needed is None else max(math.ceil(MIN_ADDITIONAL_SHARE * played), needed - played)
