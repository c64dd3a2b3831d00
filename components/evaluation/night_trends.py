"""Trends over nights: each night reduced to its figures, regressions of the champion, and drift of the benchmark.

Promotion compares agents within a night, paired on the same tasks. Between nights the tasks differ, so changes are
unpaired. An unchanged agent is the control for claims across nights: if its success rate changes, the tasks or the
system changed.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ratchet.components.statistics.multiple_testing import holm
from ratchet.components.statistics.result_types import Estimate, Interval

from .promotion.decision_record import Contender, Decision


class AgentStanding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One agent on the deciding tasks of a night. `steps`, `tokens` (of prompts and completions) and `cost` are means
    over episodes; None where unknown.
    """

    policy_version: str
    success: Estimate
    steps: float | None = None
    tokens: float | None = None
    cost: float | None = None


class NightCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time and cost of a night. `seconds` by stage; stages run in parallel, so the sum may exceed the night's duration.

    `episodes` played, `trained_tokens`, and `judge_tokens` and `money` spent on judges.
    """

    seconds: dict[str, float] = {}
    episodes: int | None = None
    trained_tokens: int | None = None
    judge_tokens: int | None = None
    money: float | None = None


class NightQuality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Data quality of a night: episodes of the build, quarantined episodes, and failed expectations by severity."""

    episodes: int | None = None
    quarantined: int | None = None
    failed: dict[str, int] = {}


class NightPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One night. `verdict` is None, and no agent is set, where nothing was decided.

    `lead`: challenger minus champion in success, paired, on the deciding tasks, with the one-sided `p_value`. `begun`:
    ISO 8601, UTC. `anchor`: a fixed earlier champion; set only on nights on which it plays.
    """

    night: str
    begun: str = ""
    scale: str = ""
    recipe: str | None = None
    state: str = "finished"
    taskset: str = ""
    taskset_hash: str = ""
    n_tasks: int = 0
    n_families: int = 0
    k: int = 0
    verdict: str | None = None
    why: str = ""
    champion: AgentStanding | None = None
    challenger: AgentStanding | None = None
    control: AgentStanding | None = None
    anchor: AgentStanding | None = None
    lead: Estimate | None = None
    p_value: float | None = None
    lead_over_control: Estimate | None = None
    audit_lead: Estimate | None = None
    self_improvement: bool = False
    cost: NightCost | None = None
    quality: NightQuality | None = None

    @property
    def agents(self) -> dict[str, AgentStanding]:
        """The agents by role: champion, challenger, control, anchor."""
        names = ("champion", "challenger", "control", "anchor")
        return {name: standing for name in names if (standing := getattr(self, name)) is not None}

    @property
    def promoted(self) -> bool:
        """Whether the challenger was promoted."""
        return self.verdict == "promote"


def night_point(
    decision: Decision | None,
    *,
    night: str = "",
    begun: str = "",
    scale: str = "",
    recipe: str | None = None,
    state: str = "finished",
    cost: NightCost | None = None,
    quality: NightQuality | None = None,
) -> NightPoint:
    """Return the point of a night from its decision record and its other figures; a decision of None means undecided."""
    # A night that has failed before its decision still has a place in the history.
    if decision is None:
        return NightPoint(night, begun, scale, recipe, state, cost=cost, quality=quality)
    audit = decision.audit
    return NightPoint(
        night=night or decision.night,
        begun=begun,
        scale=scale,
        recipe=recipe,
        state=state,
        taskset=f"{decision.taskset.name} {decision.taskset.version}",
        taskset_hash=decision.taskset.hash,
        n_tasks=decision.n_tasks,
        n_families=decision.n_families,
        k=decision.k,
        verdict=decision.verdict,
        why=decision.why,
        champion=_standing(decision.champion),
        challenger=_standing(decision.challenger),
        control=_standing(decision.control) if decision.control else None,
        anchor=_standing(decision.match.anchor) if decision.match else None,
        lead=decision.versus_champion.difference,
        p_value=decision.versus_champion.p_value,
        lead_over_control=decision.versus_control.difference if decision.versus_control else None,
        audit_lead=audit.versus_champion.difference if audit else None,
        self_improvement=decision.self_improvement,
        cost=cost,
        quality=quality,
    )


def _standing(contender: Contender) -> AgentStanding:
    figures = contender.summary
    return AgentStanding(
        contender.agent.policy_version,
        contender.success,
        figures.mean_steps,
        figures.prompt_and_completion,
        figures.mean_cost,
    )


ALPHA = 0.05
"""Level of the tests for regressions of the champion."""


class NightChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The success of one night minus that of an earlier night, by role. `p_value` is two-sided, `corrected` is Holm's
    over all changes.

    Both are None where an estimate has no interval. `same`: the same agent in both nights. `worse`: corrected p below
    ALPHA, a negative difference, and another agent; a change of the same agent is drift, not regression.
    """

    role: str
    before: str
    night: str
    same: bool
    difference: Estimate
    p_value: float | None
    corrected: float | None = None
    worse: bool = False


def night_change(before: NightPoint, now: NightPoint, role: str = "champion") -> NightChange | None:
    """Return the change of a role's success between two nights; None where the taskset versions differ or a success is
    unknown.
    """
    first, second = before.agents.get(role), now.agents.get(role)
    # Another version of the taskset has other tasks: a difference would be theirs as much as the agent's.
    if first is None or second is None or before.taskset_hash != now.taskset_hash:
        return None
    if first.success.value is None or second.success.value is None:
        return None
    estimate, p_value = independent_difference(first.success, second.success)
    same = first.policy_version == second.policy_version
    return NightChange(role, before.night, now.night, same, estimate, p_value)


def consecutive_changes(points: Sequence[NightPoint]) -> tuple[NightChange, ...]:
    """Return the champion's changes from each decided night to the next, in the order given.

    Holm's correction is over all changes between different agents, so the probability of one false alarm in the history
    is at most ALPHA. Between nights on different versions of the taskset there is no change.
    """
    decided = [point for point in points if point.verdict is not None]
    changes = [change for before, now in pairwise(decided) if (change := night_change(before, now))]
    # Changes of one agent are drift, not candidates for a regression: counting them would weaken the correction's power.
    tested = [place for place, change in enumerate(changes) if change.p_value is not None and not change.same]
    p_values = [p_value for place in tested if (p_value := changes[place].p_value) is not None]
    for place, corrected in zip(tested, holm(p_values), strict=True):
        worse = (changes[place].difference.value or 0.0) < 0 and corrected < ALPHA
        changes[place] = msgspec.structs.replace(changes[place], corrected=corrected, worse=worse)
    return tuple(changes)


def independent_difference(first: Estimate, second: Estimate) -> tuple[Estimate, float | None]:
    """Return `second` minus `first`, independent estimates, with its t interval and two-sided p-value (Welch 1947).

    Standard errors are computed from the intervals (`implied_standard_error`); unless both estimates have an interval,
    the result has neither interval nor p-value.
    """
    from scipy import special

    tasks, families = first.tasks + second.tasks, first.families + second.families
    value = None if first.value is None or second.value is None else second.value - first.value
    errors = implied_standard_error(first), implied_standard_error(second)
    if value is None or not errors[0] or not errors[1] or second.interval is None:
        return Estimate(value, None, tasks, families), None
    squares, level = [error**2 for error in errors if error], second.interval.level
    total = sum(squares)
    parts = zip(squares, (first.families - 1, second.families - 1), strict=True)
    # Degrees of freedom by Welch and Satterthwaite, with one observation per family.
    freedom = total**2 / sum(part**2 / freedom for part, freedom in parts)
    half = float(special.stdtrit(freedom, 0.5 + level / 2)) * total**0.5
    p_value = float(2 * special.stdtr(freedom, -abs(value) / total**0.5))
    return Estimate(value, Interval(value - half, value + half, level), tasks, families), p_value


def implied_standard_error(estimate: Estimate) -> float | None:
    """Return the standard error that an interval implies: half its width divided by the t quantile with one degree
    of freedom fewer than the estimate has families.

    None without an interval, with fewer than two families, and for an interval of width 0.
    """
    from scipy import special

    interval = estimate.interval
    if interval is None or estimate.families < 2 or interval.high <= interval.low:
        return None
    quantile = float(special.stdtrit(estimate.families - 1, 0.5 + interval.level / 2))
    return (interval.high - interval.low) / (2 * quantile)


class NightAppearance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One night of an unchanged agent."""

    night: str
    role: str
    success: Estimate


class BenchmarkDrift(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stability of one unchanged agent on one taskset.

    `heterogeneity`: p-value of Cochran's Q (1954), small where nights differ by more than chance. `trend`: change of
    success per night by weighted least squares over the order of nights, with the two-sided `trend_p`. None below two
    (for the trend three) nights with an interval. Nights that share tasks are positively correlated, which makes both
    p-values conservative.
    """

    policy_version: str
    taskset_hash: str
    appearances: tuple[NightAppearance, ...]
    mean: float | None
    heterogeneity: float | None
    trend: Estimate | None
    trend_p: float | None

    def has_drifted(self, alpha: float = 0.05) -> bool:
        """Return whether the benchmark drifted: either p-value below alpha / 2 (Bonferroni)."""
        p_values = [p for p in (self.heterogeneity, self.trend_p) if p is not None]
        return bool(p_values) and min(p_values) < alpha / 2


class _WeightedNight(NamedTuple):
    """An appearance with its weight: position among the nights, success, squared standard error."""

    place: int
    value: float
    variance: float


def agent_appearances(points: Sequence[NightPoint]) -> dict[tuple[str, str], list[tuple[int, NightAppearance]]]:
    """Return every agent's nights by (taskset hash, policy version), with their positions.

    A challenger's night of promotion is left out: it was selected for its success, which is therefore too high. An
    agent with two roles in one night is counted once, in the first role of `NightPoint.agents`.
    """
    appearances: dict[tuple[str, str], list[tuple[int, NightAppearance]]] = defaultdict(list)
    for place, point in enumerate(points):
        seen = set()
        for role, standing in point.agents.items():
            selected = role == "challenger" and point.promoted
            if selected or standing.policy_version in seen or standing.success.value is None:
                continue
            seen.add(standing.policy_version)
            key = point.taskset_hash, standing.policy_version
            appearances[key].append((place, NightAppearance(point.night, role, standing.success)))
    return dict(appearances)


def benchmark_drift(points: Sequence[NightPoint]) -> tuple[BenchmarkDrift, ...]:
    """Return the drift of every agent with two nights or more, those with the most nights first."""
    drifts = [
        _agent_drift(taskset, version, nights)
        for (taskset, version), nights in agent_appearances(points).items()
        if len(nights) > 1
    ]
    return tuple(sorted(drifts, key=lambda drift: (-len(drift.appearances), drift.policy_version)))


def _agent_drift(taskset: str, version: str, nights: Sequence[tuple[int, NightAppearance]]) -> BenchmarkDrift:
    weighted_nights = [
        _WeightedNight(place, appearance.success.value, error**2)
        for place, appearance in nights
        if appearance.success.value is not None and (error := implied_standard_error(appearance.success)) is not None
    ]
    mean, heterogeneity = _cochran_q(weighted_nights)
    trend, p_value = _weighted_trend(weighted_nights, nights[0][1].success.interval)
    return BenchmarkDrift(
        version, taskset, tuple(appearance for _, appearance in nights), mean, heterogeneity, trend, p_value
    )


def _cochran_q(nights: Sequence[_WeightedNight]) -> tuple[float | None, float | None]:
    """Return the inverse-variance weighted mean and the p-value of Q = sum w (x - mean)^2, chi-squared with n - 1."""
    from scipy import special

    if not nights:
        return None, None
    weights = [1 / night.variance for night in nights]
    mean = sum(w * night.value for w, night in zip(weights, nights, strict=True)) / sum(weights)
    if len(nights) < 2:
        return mean, None
    q = sum(w * (night.value - mean) ** 2 for w, night in zip(weights, nights, strict=True))
    return mean, float(special.chdtrc(len(nights) - 1, q))


def _weighted_trend(
    nights: Sequence[_WeightedNight], interval: Interval | None
) -> tuple[Estimate | None, float | None]:
    """Return the slope of weighted least squares with known variances; its error is 1 / sqrt(sum w (t - mean t)^2)."""
    from scipy import special

    if len(nights) < 3 or interval is None:
        return None, None
    weights = [1 / night.variance for night in nights]
    centre = sum(w * night.place for w, night in zip(weights, nights, strict=True)) / sum(weights)
    spread = sum(w * (night.place - centre) ** 2 for w, night in zip(weights, nights, strict=True))
    slope = sum(w * (night.place - centre) * night.value for w, night in zip(weights, nights, strict=True)) / spread
    error = spread**-0.5
    half = float(special.ndtri(0.5 + interval.level / 2)) * error
    bounds = Interval(slope - half, slope + half, interval.level)
    return Estimate(slope, bounds, len(nights), len(nights)), float(2 * special.ndtr(-abs(slope) / error))
