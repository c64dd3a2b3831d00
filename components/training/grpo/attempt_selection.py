"""Select the attempts of a batch that are trained on, and the options of selection. By default all attempts are."""

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator

from ratchet.components.core.configuration import Configuration

from ..credit.estimators import pooled_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..credit.estimators import Codes, Floats

    Flags = NDArray[np.bool_]


def unsolved_groups(solved: "Floats", groups: "Codes") -> "Flags":
    """Return (B,) flags: True for every attempt of a group that has known results, all of them failures. `solved` (B,):
    1, 0, or NaN for unknown.
    """
    flags: Flags = pooled_mean(solved, groups) == 0
    return flags


def accuracy_band(scores: "Floats", groups: "Codes", low: float = 0.0, high: float = 1.0) -> "Flags":
    """Return (B,) flags: True for every attempt of a group whose mean score is strictly between `low` and `high` and
    whose scores differ.

    DAPO's dynamic sampling (Yu et al. 2025) with (0, 1); a narrower band excludes tasks that are nearly always or never
    solved (MARS). NaN scores enter no mean.
    """
    mean = pooled_mean(scores, groups)
    size = int(groups.max(initial=-1)) + 1
    lowest, highest = np.full(size, np.inf), np.full(size, -np.inf)
    np.fmin.at(lowest, groups, scores)
    np.fmax.at(highest, groups, scores)
    flags: Flags = (mean > low) & (mean < high) & (lowest < highest)[groups]
    return flags


def max_variance(advantages: "Floats", count: int) -> "Flags":
    """Return (B,) flags: True for those `count` attempts whose advantages have the largest variance among all subsets
    of that size.

    D³S (Wang et al. 2025), PODS (Xu et al. 2025). The best subset consists of the lowest and the highest values, so
    every split of `count` is tried over the sorted values, O(n log n). Ties: fewest low values, then by index. NaN is
    never chosen.
    """
    members = np.flatnonzero(~np.isnan(advantages))
    chosen = np.zeros(len(advantages), dtype=bool)
    chosen[members[_widest_subset(advantages[members], min(count, len(members)))]] = True
    return chosen


def _widest_subset(values: "Floats", count: int) -> "Codes":
    """Return the indices of the `count` values with the largest variance."""
    order = np.argsort(values, kind="stable")
    sorted_ = values[order] - values.mean() if len(values) else values
    first, second = (np.concatenate([[0.0], np.cumsum(sorted_**power)]) for power in (1, 2))
    low = np.arange(count + 1)
    high = len(values) - (count - low)
    total, squares = first[low] + first[-1] - first[high], second[low] + second[-1] - second[high]
    spread = squares - total**2 / max(count, 1)
    best = int(np.flatnonzero(spread >= spread.max() - 1e-12 * squares.max())[0])
    result: Codes = order[np.concatenate([np.arange(best), np.arange(len(values) - (count - best), len(values))])]
    return result


class AccuracyBand(Configuration):
    """Train on groups whose mean reward is strictly between `low` and `high`, and whose rewards differ."""

    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _check_bounds(self) -> "AccuracyBand":
        if not self.low < self.high:
            raise ValueError("'low' must be below 'high'")
        return self


class UcbOptions(Configuration):
    """Sample families by the magnitude of their advantages, see `UcbFamilySampler`. `exploration`: factor of the bonus for
    families that were seldom drawn. `temperature`: of the softmax over scores. `floor`: share of the draws that is spread
    evenly over all families. `window`: last attempts of a family that count.
    """

    exploration: float = Field(1.0, ge=0)
    temperature: float = Field(0.1, gt=0)
    floor: float = Field(0.01, gt=0, lt=1)
    window: int = Field(300, ge=1)


class ReplayOptions(Configuration):
    """Put a past success in place of an attempt in groups that fail altogether, see `ReplayBuffer`. `per_task`: successes
    that are kept of a task. `max_staleness`: their maximum age in optimiser steps; None for no limit.
    """

    per_task: int = Field(4, ge=1)
    max_staleness: int | None = Field(None, ge=1)


class GuideOptions(Configuration):
    """Repeat half of the attempts of each group that fails altogether, with the first `share` of the reference solution
    as a hint; see `failed_groups`.
    """

    share: float = Field(0.5, gt=0, lt=1)


class SelectionOptions(Configuration):
    """Each option that is set is active; by default none is. `max_variance`: share of a batch's attempts that is kept;
    `relift`: number of hard tasks that are collected before an SFT loss on their demonstrations.
    """

    accuracy_band: AccuracyBand | None = None
    max_variance: float | None = Field(None, gt=0, le=1)
    replay: ReplayOptions | None = None
    guide: GuideOptions | None = None
    relift: int | None = Field(None, ge=1)
    curriculum_ucb: UcbOptions | None = None


def select_attempts(rewards: "Floats", groups: "Codes", advantages: "Floats", options: SelectionOptions) -> "Flags":
    """Return (B,) flags of the attempts to train on. `rewards`, `groups`, `advantages`: (B,); NaN advantages are
    unknown and not selected.

    Groups are selected by their mean reward first (`accuracy_band`), then the attempts of largest variance among the
    rest (`max_variance`). The caller gives unselected attempts advantage 0, and does not normalise again: the deviation
    would be 1 whatever was chosen.
    """
    keep = ~np.isnan(advantages)
    if options.accuracy_band is not None:
        keep &= accuracy_band(rewards, groups, options.accuracy_band.low, options.accuracy_band.high)
    if options.max_variance is not None and keep.any():
        count = int(np.ceil(options.max_variance * keep.sum() - 1e-9))
        keep &= max_variance(np.where(keep, advantages, np.nan), count)
    return keep
