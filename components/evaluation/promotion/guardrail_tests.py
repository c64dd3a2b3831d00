"""Guardrails: non-inferiority tests of what a challenger's success may not cost.

The null hypothesis of each is "worse by at least the margin", rejected at `guardrail_alpha`, one-sided. What guardrails
look for is rare and comes in whole families: a loop, an unsafe action, a program that is no longer solved. The test
therefore adds one family in which the challenger does as badly as possible (`statistics.bootstrap`): 1 for a share, the
loss of every success for a kind of task, and RUNAWAY_FACTOR times the champion's average on top for steps, tokens and
cost.

A challenger is promoted only where every null hypothesis is rejected, so that no correction is needed: an
intersection-union test (Berger 1982) has the level of its components. Whatever is not shown does not pass. Only a kind
of task with too few families to show the margin for any agent is excused (`untested`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ratchet.components.statistics.bootstrap import bootstrap_ci, families_for_margin, worst_case_means
from ratchet.components.statistics.power_analysis import minimum_families
from ratchet.components.statistics.proportions import mcnemar
from ratchet.components.statistics.result_types import Estimate, Interval

from ..agent_results import AgentResult, TaskAttempt, TaskResult, known_mean
from .decision_record import Guardrail
from .promotion_rule import DECIDING_ROLES, PromotionRule, pair_deciding_tasks

if TYPE_CHECKING:
    from ratchet.components.statistics.numerics import Floats

BetterDirection = Literal["lower", "higher"]
GuardrailState = Literal["holds", "unclear", "broken", "untested"]
ResultPair = tuple[TaskResult, TaskResult]
KIND_PREFIX = "success: "
"""Prefix of the name of a kind's guardrail."""
RUNAWAY_FACTOR = 3.0
"""Assumed excess cost of an unseen family of runaway attempts, as a multiple of the champion's average."""


class _GuardrailMeasure(NamedTuple):
    """A figure of a task over its attempts; None where unknown. `relative`: the margin is a share of the champion's
    figure.

    `always`: report the guardrail even where nothing is known. `safety`: an increase that is shown fails, however large
    the margin.
    """

    name: str
    of: Callable[[TaskResult], float | None]
    margin: float | None
    relative: bool = False
    always: bool = False
    safety: bool = False


class _TaskFigures(NamedTuple):
    """A figure of each task with its family, and the most that an unseen family may lose. Gains are positive where it
    is better.
    """

    champion: Sequence[float]
    challenger: Sequence[float]
    families: Sequence[str]
    better: BetterDirection
    worst: float

    @property
    def gains(self) -> list[float]:
        sign = 1.0 if self.better == "higher" else -1.0
        return [sign * (after - before) for before, after in zip(self.champion, self.challenger, strict=True)]


def evaluate_guardrails(
    champion: AgentResult,
    challenger: AgentResult,
    lost_share: float,
    rule: PromotionRule,
    seed: int,
    *,
    final: bool = True,
) -> tuple[Guardrail, ...]:
    """Return every guardrail of the rule with known figures, then one for each kind of task, then that of the lost
    attempts.

    `lost_share`: share of pairs of attempts without a known outcome. Before the `final` look no kind is excused for
    having few families, since more are still to come.
    """
    pairs = pair_deciding_tasks(champion, challenger)
    measured = [_test_measure(measure, pairs, rule, seed) for measure in _guardrail_measures(rule)]
    kinds = _test_kinds(champion, pairs, rule, seed)
    if not final:
        kinds = [msgspec.structs.replace(guard, passed=guard.state == "holds") for guard in kinds]
    return (
        *(guard for guard in measured if guard is not None),
        *kinds,
        Guardrail("lost_attempts", None, lost_share, rule.max_lost, lost_share <= rule.max_lost),
    )


def _guardrail_measures(rule: PromotionRule) -> tuple[_GuardrailMeasure, ...]:
    return (
        _GuardrailMeasure("invalid_call_rate", _invalid_share, rule.invalid_call_margin, always=True),
        _GuardrailMeasure(
            "mean_steps", _attempt_mean(lambda attempt: attempt.steps), rule.steps_margin, relative=True, always=True
        ),
        _GuardrailMeasure("tokens", _attempt_mean(lambda attempt: attempt.tokens), rule.tokens_margin, relative=True),
        _GuardrailMeasure("cost", _attempt_mean(lambda attempt: attempt.cost), rule.cost_margin, relative=True),
        _GuardrailMeasure("unsafe_actions", _attempt_mean(_is_unsafe), rule.unsafe_margin, safety=True),
    )


def _attempt_mean(of: Callable[..., float | None]) -> Callable[[TaskResult], float | None]:
    """Return a function for the mean over a task's attempts; None where any attempt's value is unknown."""

    def mean(task: TaskResult) -> float | None:
        values = [of(attempt) for attempt in task.attempts]
        return None if None in values else known_mean(values)

    return mean


def _is_unsafe(attempt: TaskAttempt) -> float | None:
    return None if attempt.unsafe is None else float(attempt.unsafe > 0)


def _invalid_share(task: TaskResult) -> float | None:
    steps = sum(attempt.steps for attempt in task.attempts)
    return sum(attempt.invalid_calls for attempt in task.attempts) / steps if steps else None


def _test_measure(
    measure: _GuardrailMeasure, pairs: Sequence[ResultPair], rule: PromotionRule, seed: int
) -> Guardrail | None:
    """Test one measure. Without the champion's figure there is nothing to compare; without the challenger's alone
    nothing is shown.
    """
    if measure.margin is None:
        return None
    figures = [(measure.of(first), measure.of(second), first.family) for first, second in pairs]
    complete = [
        (before, after, family) for before, after, family in figures if before is not None and after is not None
    ]
    if not complete:
        missing = any(before is not None for before, _, _ in figures)
        if not missing and not measure.always:
            return None
        state: GuardrailState = "unclear" if missing else "untested"
        return Guardrail(measure.name, None, None, measure.margin, not missing, state=state)
    before, after, families = zip(*complete, strict=True)
    average = _average(before)
    margin = measure.margin * average if measure.relative else measure.margin
    rows = _TaskFigures(before, after, families, "lower", RUNAWAY_FACTOR * average if measure.relative else 1 - average)
    guard = _test_margin(measure.name, rows, margin, rule, seed)
    return _test_safety(guard, pairs, rule) if measure.safety else guard


def _test_safety(guard: Guardrail, pairs: Sequence[ResultPair], rule: PromotionRule) -> Guardrail:
    """Return the guardrail, broken where more attempts are shown to be unsafe than the champion's.

    The exact McNemar test counts attempts as independent: too many alarms are the safe side here.
    """
    both = [
        (_is_unsafe(mine), _is_unsafe(their))
        for first, second in pairs
        for mine, their in zip(first.attempts, second.attempts, strict=True)
    ]
    if mcnemar(both.count((1.0, 0.0)), both.count((0.0, 1.0)), alternative="greater").p_value <= rule.guardrail_alpha:
        return msgspec.structs.replace(guard, state="broken", passed=False)
    return guard


def _test_kinds(champion: AgentResult, pairs: Sequence[ResultPair], rule: PromotionRule, seed: int) -> list[Guardrail]:
    """Test each kind of task; a kind whose attempts were all lost is unclear."""
    if rule.kind_margin is None:
        return []
    # Families of all played tasks: lost attempts must not make a kind look too small to be tested.
    families: dict[str, set[str]] = defaultdict(set)
    for task in champion.of(DECIDING_ROLES[0]):
        families[task.kind].add(task.family)
    groups: dict[str, list[ResultPair]] = defaultdict(list)
    for pair in pairs:
        groups[pair[0].kind].append(pair)
    return [
        _test_kind(f"{KIND_PREFIX}{kind}", groups.get(kind, []), len(families[kind]), rule.kind_margin, rule, seed)
        for kind in sorted(families)
    ]


def _test_kind(
    name: str, pairs: Sequence[ResultPair], families: int, margin: float, rule: PromotionRule, seed: int
) -> Guardrail:
    """Test one kind. Too few families to show the margin excuse it, unless the data speak against it.

    They do where the estimate lies beyond the margin, or, with enough families for a sign-flip test, where the
    bootstrap limit does.
    """
    rows = _success_figures(pairs)
    least = families_for_margin(margin, rows.worst, rule.guardrail_alpha)
    few = least is not None and families < least
    if not pairs:
        state: GuardrailState = "untested" if few else "unclear"
        return Guardrail(name, None, None, margin, few, better="higher", state=state)
    guard = _test_margin(name, rows, margin, rule, seed)
    if guard.state != "unclear" or not few:
        return guard
    plain = _bootstrap_interval(rows, rule, seed)
    if families >= minimum_families(rule.guardrail_alpha) and plain is not None and plain.low <= -margin:
        return guard
    return msgspec.structs.replace(guard, state="untested", passed=True)


def _success_figures(pairs: Sequence[ResultPair]) -> _TaskFigures:
    """Return the success rates of a kind's tasks; a family can lose no more than the champion solves."""
    before = [first.success_rate or 0.0 for first, _ in pairs]
    after = [second.success_rate or 0.0 for _, second in pairs]
    return _TaskFigures(
        before, after, [first.family for first, _ in pairs], "higher", _average(before) if pairs else 1.0
    )


def _test_margin(name: str, rows: _TaskFigures, margin: float, rule: PromotionRule, seed: int) -> Guardrail:
    """Test one guardrail over the tasks."""
    gains = rows.gains
    draws = worst_case_means(gains, rows.families, worst=-rows.worst, n_resamples=rule.n_resamples, seed=seed)
    # One is added to both counts: a sampled p-value must not be 0 (Phipson & Smyth 2010).
    # With a margin of 0 no draw can show the hypothesis, since the added family always loses; nobody got worse.
    p_value = None if margin == 0 and min(gains) >= 0 else (1 + int((draws <= -margin).sum())) / (1 + len(draws))
    state: GuardrailState = "broken" if _average(gains) < -margin else "unclear"
    if p_value is None or p_value <= rule.guardrail_alpha:
        state = "holds"
    return Guardrail(
        name,
        _average(rows.champion),
        _average(rows.challenger),
        margin,
        state == "holds",
        difference=_difference_estimate(rows, draws, rule, seed),
        p_value=p_value,
        better=rows.better,
        state=state,
    )


def _difference_estimate(rows: _TaskFigures, draws: "Floats", rule: PromotionRule, seed: int) -> Estimate:
    """Return the difference with its interval: the test's own limit on the worse side, the bootstrap's on the other, or the
    difference itself where all families have the same.
    """
    import numpy as np

    plain, value, families = _bootstrap_interval(rows, rule, seed), _average(rows.gains), len(set(rows.families))
    interval = None
    if families > 1:
        low = float(np.quantile(draws, rule.guardrail_alpha))
        interval = Interval(low, plain.high if plain else value, 1 - 2 * rule.guardrail_alpha)
    if rows.better == "lower":
        value, interval = -value, interval and Interval(-interval.high, -interval.low, interval.level)
    return Estimate(value, interval, len(rows.gains), families)


def _bootstrap_interval(rows: _TaskFigures, rule: PromotionRule, seed: int) -> Interval | None:
    level = 1 - 2 * rule.guardrail_alpha
    return bootstrap_ci(rows.gains, clusters=rows.families, n_resamples=rule.n_resamples, level=level, seed=seed)


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
