"""Change: from one night to the next, in success. What is compared are two nights' figures on different tasks: an unpaired test.

Within a night agents are paired on the same tasks, and that is what decides. Between nights the tasks, and so the chance, differ:
a change is only news where it is larger than both nights' intervals allow.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ..statistics import Estimate, Interval, holm
from .point import NightPoint


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The success of one night less that of an earlier one, by role. `p_value` is two-sided, `corrected` Holm's over all changes
    that were asked for together; both None where an estimate has no interval. `same`: the very same agent played both nights.

    `worse`: the corrected p-value is below alpha, the difference negative, and the agent another. Where the same agent differs,
    the tasks or the house have changed, not the agent: see `drift`.
    """

    role: str
    before: str
    night: str
    same: bool
    difference: Estimate
    p_value: float | None
    corrected: float | None = None
    worse: bool = False


class Independent(NamedTuple):
    """The difference of two independent estimates: its standard error and degrees of freedom (Welch 1947)."""

    value: float
    error: float
    df: float


def compared(before: NightPoint, now: NightPoint, role: str = "champion") -> Change | None:
    """The change of a role's success between two nights of the same taskset; None where it cannot be told."""
    first, second = before.agents.get(role), now.agents.get(role)
    if first is None or second is None or before.taskset_hash != now.taskset_hash:
        return None
    if first.success.value is None or second.success.value is None:
        return None
    estimate, p_value = difference(first.success, second.success)
    same = first.policy_version == second.policy_version
    return Change(role, before.night, now.night, same, estimate, p_value)


def regressions(points: Sequence[NightPoint], *, role: str = "champion", alpha: float = 0.05) -> tuple[Change, ...]:
    """A role's success from each night to the next, in the order given; nights without a decision are passed over.

    Holm's correction is over all changes between different agents, so that the chance of one false alarm in the whole
    history is at most alpha. A night on another version of the taskset begins anew.
    """
    decided = [point for point in points if point.verdict is not None]
    changes = [each for before, now in pairwise(decided) if (each := compared(before, now, role))]
    known = {place: each.p_value for place, each in enumerate(changes) if each.p_value is not None and not each.same}
    corrected = dict(zip(known, holm(list(known.values())), strict=True))
    return tuple(
        _judged(each, corrected[place], alpha) if place in corrected else each for place, each in enumerate(changes)
    )


def _judged(change: Change, corrected: float, alpha: float) -> Change:
    lower = change.difference.value is not None and change.difference.value < 0
    return msgspec.structs.replace(change, corrected=corrected, worse=lower and corrected < alpha)


def difference(first: Estimate, second: Estimate) -> tuple[Estimate, float | None]:
    """`second` less `first`, both of independent draws of families, with its t interval and two-sided p-value (Welch 1947).

    The standard errors are those that the intervals imply. Without both intervals there is neither interval nor p-value.
    """
    from scipy import special

    tasks, families = first.tasks + second.tasks, first.families + second.families
    value = None if first.value is None or second.value is None else second.value - first.value
    found = _independent(first, second)
    if found is None:
        return Estimate(value, None, tasks, families), None
    level = second.interval.level if second.interval else 0.95
    half = float(special.stdtrit(found.df, 0.5 + level / 2)) * found.error
    p_value = float(2 * special.stdtr(found.df, -abs(found.value) / found.error))
    return Estimate(found.value, Interval(found.value - half, found.value + half, level), tasks, families), p_value


def _independent(first: Estimate, second: Estimate) -> Independent | None:
    if first.value is None or second.value is None:
        return None
    errors = [standard_error(first), standard_error(second)]
    known = [error**2 for error in errors if error]
    if len(known) < 2:
        return None
    total = sum(known)
    freedom = _satterthwaite(zip(known, (first.families - 1, second.families - 1), strict=True), total)
    return Independent(second.value - first.value, total**0.5, freedom)


def _satterthwaite(parts: Iterable[tuple[float, int]], total: float) -> float:
    return total**2 / sum(part**2 / freedom for part, freedom in parts)


def standard_error(estimate: Estimate) -> float | None:
    """The standard error that an estimate's interval implies: half its width over the t quantile of its families.

    None without an interval, below two families, and where the interval has no width.
    """
    from scipy import special

    interval = estimate.interval
    if interval is None or estimate.families < 2 or interval.high <= interval.low:
        return None
    quantile = float(special.stdtrit(estimate.families - 1, 0.5 + interval.level / 2))
    return (interval.high - interval.low) / (2 * quantile)
