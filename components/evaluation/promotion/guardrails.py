"""Guardrails: what a better agent must not pay for its success with. Each is a test of non-inferiority, not a look at two means.

The null hypothesis of each is "worse by at least the margin"; it is rejected at `guardrail_alpha`, one-sided, by the sign-flip test
over families of the paired differences plus the margin. A challenger is promoted only where *every* null hypothesis is
rejected, so none needs a correction for the others: an intersection-union test (Berger 1982) has the level of its components.
What is not shown does not pass: noise never counts as safety.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from ..metrics import AgentResult, TaskResult
from ..statistics import Estimate, difference_estimate, permutation_test
from ..statistics.power import least_families
from .record import Guardrail
from .rule import PromotionRule
from .tasks import DECIDING, paired

Better = Literal["lower", "higher"]
Pair = tuple[TaskResult, TaskResult]
KIND = "success: "
"""How the name of a kind's guardrail begins."""


class _Measure(NamedTuple):
    """One figure of a task over its attempts; None where nothing is known. `relative`: its margin is a share of the champion's."""

    name: str
    of: Callable[[TaskResult], float | None]
    margin: float | None
    relative: bool = False
    always: bool = False


def guardrails(
    champion: AgentResult, challenger: AgentResult, lost: float, rule: PromotionRule, seed: int
) -> tuple[Guardrail, ...]:
    """Every guardrail of the rule that the records know the figures of, then each kind of task, then the attempts that were lost.

    `lost` is the share of pairs of attempts without a known outcome.
    """
    pairs = paired(champion, challenger)
    measured = [_measured(measure, pairs, rule, seed) for measure in _measures(rule)]
    return (
        *(guard for guard in measured if guard is not None),
        *_kinds(champion, pairs, rule, seed),
        Guardrail("lost_attempts", None, lost, rule.max_lost, lost <= rule.max_lost),
    )


def _measures(rule: PromotionRule) -> tuple[_Measure, ...]:
    return (
        _Measure("invalid_call_rate", _invalid_share, rule.invalid_call_margin, always=True),
        _Measure("mean_steps", _mean(lambda attempt: attempt.steps), rule.steps_margin, always=True),
        _Measure("tokens", _mean(lambda attempt: attempt.tokens), rule.tokens_margin, relative=True),
        _Measure("cost", _mean(lambda attempt: attempt.cost), rule.cost_margin, relative=True),
        _Measure("unsafe_actions", _mean(lambda attempt: attempt.unsafe), rule.unsafe_margin),
    )


def _mean(of: Callable[..., float | None]) -> Callable[[TaskResult], float | None]:
    """The mean over a task's attempts; None where it is unknown of any."""

    def mean(task: TaskResult) -> float | None:
        values = [of(attempt) for attempt in task.attempts]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None

    return mean


def _invalid_share(task: TaskResult) -> float | None:
    steps = sum(attempt.steps for attempt in task.attempts)
    return sum(attempt.invalid_calls for attempt in task.attempts) / steps if steps else None


def _measured(measure: _Measure, pairs: Sequence[Pair], rule: PromotionRule, seed: int) -> Guardrail | None:
    """Without the champion's figure there is nothing to be worse than; without the challenger's alone nothing is shown."""
    if measure.margin is None:
        return None
    found = [(measure.of(first), measure.of(second), first.family) for first, second in pairs]
    rows = [(before, after, family) for before, after, family in found if before is not None and after is not None]
    if rows:
        margin = measure.margin * _average([before for before, _, _ in rows]) if measure.relative else measure.margin
        return _tested(measure.name, rows, margin, "lower", rule, seed)
    known = any(before is not None for before, _, _ in found)
    if not known and not measure.always:
        return None
    return Guardrail(measure.name, None, None, measure.margin, not known, state="unclear" if known else "untested")


def _kinds(champion: AgentResult, pairs: Sequence[Pair], rule: PromotionRule, seed: int) -> list[Guardrail]:
    """Also of a kind of which every attempt was lost: of that, nothing is shown."""
    if rule.kind_margin is None:
        return []
    families: dict[str, set[str]] = defaultdict(set)
    for task in champion.of(DECIDING[0]):
        families[task.kind].add(task.family)
    groups: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for first, second in pairs:
        assert first.rate is not None and second.rate is not None
        groups[first.kind].append((first.rate, second.rate, first.family))
    return [
        _tested(f"{KIND}{kind}", groups[kind], rule.kind_margin, "higher", rule, seed)
        if kind in groups
        else _unknown(kind, rule.kind_margin, len(families[kind]), rule)
        for kind in sorted(families)
    ]


def _unknown(kind: str, margin: float, families: int, rule: PromotionRule) -> Guardrail:
    few = families < least_families(rule.guardrail_alpha)
    state: Literal["untested", "unclear"] = "untested" if few else "unclear"
    return Guardrail(f"{KIND}{kind}", None, None, margin, few, better="higher", state=state)


def _tested(
    name: str, rows: Sequence[tuple[float, float, str]], margin: float, better: Better, rule: PromotionRule, seed: int
) -> Guardrail:
    """The guardrail over (champion, challenger, family) of each task."""
    sign = 1.0 if better == "higher" else -1.0
    families = [family for _, _, family in rows]
    gains = [sign * (after - before) for before, after, _ in rows]
    p_value = None if margin == 0 and min(gains) >= 0 else _p_value(gains, margin, families, rule, seed)
    state = _state(p_value, _average(gains), margin, len(set(families)), rule.guardrail_alpha)
    return Guardrail(
        name,
        _average([before for before, _, _ in rows]),
        _average([after for _, after, _ in rows]),
        margin,
        state in ("holds", "untested"),
        difference=_difference([sign * gain for gain in gains], families, rule, seed),
        p_value=p_value,
        better=better,
        state=state,
    )


def _p_value(gains: Sequence[float], margin: float, families: list[str], rule: PromotionRule, seed: int) -> float:
    """Of "worse by the margin or more", one-sided."""
    null = [-margin] * len(gains)
    how: dict[str, Any] = {"clusters": families, "n_resamples": rule.n_resamples, "seed": seed}
    return permutation_test(gains, null, alternative="greater", **how).p_value


def _state(
    p_value: float | None, gain: float, margin: float, families: int, alpha: float
) -> Literal["holds", "unclear", "broken", "untested"]:
    """Without a p-value the margin is nothing (as of what costs nothing) and no task is worse: there is nothing to show."""
    if p_value is None or p_value <= alpha:
        return "holds"
    if gain < -margin:
        return "broken"
    return "untested" if families < least_families(alpha) else "unclear"


def _difference(values: list[float], families: list[str], rule: PromotionRule, seed: int) -> Estimate:
    """With the interval that belongs to the test: it lies within the margin where the guardrail holds, nearly always."""
    level = 1 - 2 * rule.guardrail_alpha
    return difference_estimate(values, families, level=level, n_resamples=rule.n_resamples, seed=seed)


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
