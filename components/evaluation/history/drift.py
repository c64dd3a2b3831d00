"""Drift: an agent that stayed as it was, night after night. If its success changes, the tasks or the house changed, not the agent.

It is the control of every claim that is made across nights: a champion that rises while a fixed agent rises as much has
learned nothing.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..statistics import Estimate, Interval
from .change import standard_error
from .point import NightPoint


class Appearance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One night of a fixed agent."""

    night: str
    role: str
    success: Estimate


class Drift(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How steady one agent was on one taskset. `heterogeneity` is the p-value of Cochran's Q (1954): small where the nights differ
    by more than chance. `trend` is the change of success a night (weighted least squares over the order of nights), with
    `trend_p` two-sided. None where fewer than two nights have an interval (for the trend: three).

    Nights that share tasks are positively correlated, which makes both p-values too large rather than too small.
    """

    policy_version: str
    taskset_hash: str
    appearances: tuple[Appearance, ...]
    mean: float | None
    heterogeneity: float | None
    trend: Estimate | None
    trend_p: float | None

    def moved(self, alpha: float = 0.05) -> bool:
        """Whether the ground moved under it: either p-value below alpha / 2 (Bonferroni's correction for the two)."""
        found = [p for p in (self.heterogeneity, self.trend_p) if p is not None]
        return bool(found) and min(found) < alpha / 2


class _Seen(NamedTuple):
    """An appearance that can be weighed: its place among the nights, its success, its squared standard error."""

    place: int
    value: float
    variance: float


def appearances(points: Sequence[NightPoint]) -> dict[tuple[str, str], list[tuple[int, Appearance]]]:
    """Every agent's nights by (taskset hash, policy version), with their places in the order given.

    The night that promoted a challenger does not count for it: it was promoted because it did well that night, so that
    its figure is too high. Of two roles of one agent in one night the first counts.
    """
    found: dict[tuple[str, str], list[tuple[int, Appearance]]] = defaultdict(list)
    for place, point in enumerate(points):
        seen = set()
        for role, standing in point.agents.items():
            selected = role == "challenger" and point.promoted
            if selected or standing.policy_version in seen or standing.success.value is None:
                continue
            seen.add(standing.policy_version)
            key = point.taskset_hash, standing.policy_version
            found[key].append((place, Appearance(point.night, role, standing.success)))
    return dict(found)


def drift(points: Sequence[NightPoint]) -> tuple[Drift, ...]:
    """Every agent that played on two nights or more, those with the most nights first."""
    found = [
        _drift(taskset, version, nights)
        for (taskset, version), nights in appearances(points).items()
        if len(nights) > 1
    ]
    return tuple(sorted(found, key=lambda each: (-len(each.appearances), each.policy_version)))


def _drift(taskset: str, version: str, nights: Sequence[tuple[int, Appearance]]) -> Drift:
    seen = [
        _Seen(place, each.success.value, error**2)
        for place, each in nights
        if each.success.value is not None and (error := standard_error(each.success)) is not None
    ]
    mean, heterogeneity = _cochran(seen)
    trend, p_value = _trend(seen, nights[0][1].success.interval)
    return Drift(version, taskset, tuple(each for _, each in nights), mean, heterogeneity, trend, p_value)


def _cochran(seen: Sequence[_Seen]) -> tuple[float | None, float | None]:
    """The mean weighted by inverse variance, and the p-value of Q = sum w (x - mean)^2 against chi-squared with n - 1."""
    from scipy import special

    if not seen:
        return None, None
    weights = [1 / each.variance for each in seen]
    mean = sum(w * each.value for w, each in zip(weights, seen, strict=True)) / sum(weights)
    if len(seen) < 2:
        return mean, None
    q = sum(w * (each.value - mean) ** 2 for w, each in zip(weights, seen, strict=True))
    return mean, float(special.chdtrc(len(seen) - 1, q))


def _trend(seen: Sequence[_Seen], interval: Interval | None) -> tuple[Estimate | None, float | None]:
    """The slope of weighted least squares with known variances: its error is 1 / sqrt(sum w (t - mean t)^2)."""
    from scipy import special

    if len(seen) < 3 or interval is None:
        return None, None
    weights = [1 / each.variance for each in seen]
    centre = sum(w * each.place for w, each in zip(weights, seen, strict=True)) / sum(weights)
    spread = sum(w * (each.place - centre) ** 2 for w, each in zip(weights, seen, strict=True))
    slope = sum(w * (each.place - centre) * each.value for w, each in zip(weights, seen, strict=True)) / spread
    error = spread**-0.5
    half = float(special.ndtri(0.5 + interval.level / 2)) * error
    bounds = Interval(slope - half, slope + half, interval.level)
    return Estimate(slope, bounds, len(seen), len(seen)), float(2 * special.ndtr(-abs(slope) / error))
