"""Bootstrap over whole families: intervals, estimates of rates and differences, and lower limits for rare losses.

The percentiles of the resampled means are widened to those of a t interval over the families (Hesterberg 2015,
doi:10.1080/00031305.2015.1089789), since plain percentile intervals are too short for few families.

`worst_case_means` gives lower limits of the mean of a bounded metric that allow for rare losses in families that were not sampled.
Where no loss was observed, resampling and sign flips see no spread and would exclude any loss. Here one family is added whose tasks
all have the worst possible value, and all families get exponential weights (the Bayesian bootstrap of Rubin 1981 with that
addition): Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable",
and Learned-Miller & Thomas (2019), arXiv:1905.06208. For values that are only best or worst the limit is Clopper and Pearson's;
if none of n families shows a loss it is the rule of three; with many families it approaches the bootstrap. For other
distributions the level is a conjecture without a known counterexample; `benchmarks/promotion.py --only guardrails` simulates it.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from ratchet.components.core import ConfigurationError, DataError

from .numerics import Values, check_level, family_index, family_sums, is_constant, require_finite, sum_of_squares
from .proportions import clopper_pearson, wilson
from .result_types import Estimate, Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .numerics import Floats

_CHUNK = 250_000
"""Draws at a time, so that the gathered values stay in the cache of one core."""
_WEIGHTS = 2_000_000
"""Weights at a time of `worst_case_means`, to bound its memory."""


def bootstrap_ci(
    x: Values,
    *,
    clusters: Sequence[Hashable] | None = None,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Return the interval of the mean of `x`, shape (n,), from resamples of whole `clusters` (n,), or of values without them.

    None below two clusters, and where all of them have the same mean: resamples without spread say nothing about the error.
    Raises DataError for values that are not finite.

    >>> interval = ratchet.bootstrap_ci([0.0, 1.0] * 20)
    >>> interval.low < 0.5 < interval.high
    True
    """
    values = require_finite(x, "bootstrap_ci")
    check_level(level, "bootstrap")
    if n_resamples < 1:
        raise ConfigurationError(f"bootstrap: {n_resamples} resamples; take 10,000, or at least 1")
    sums, sizes = family_sums(values, clusters)
    if len(sums) < 2:
        return None
    return expanded_interval(resampled_means(sums, sizes, n_resamples, seed), len(sums), level)


def resampled_means(sums: "Floats", sizes: "Floats", n_resamples: int, seed: int) -> "Floats":
    """Return the mean over tasks of each resample of families, shape (n_resamples,). `sums`, `sizes` (families,): sum
    of the values and number of tasks of each family.
    """
    import numpy as np

    means = np.empty(n_resamples)
    equal = bool((sizes == 1).all())
    for rows, picked in _draws(n_resamples, len(sums), seed):
        # The indices are in range: mode="clip" skips numpy's check and is three times as fast.
        totals = sums.take(picked, mode="clip").sum(axis=1)
        means[rows] = totals / (len(sums) if equal else sizes.take(picked, mode="clip").sum(axis=1))
    return means


def expanded_interval(resampled: "Floats", families: int, level: float) -> Interval | None:
    """Return the percentile interval of resampled statistics, widened to the tails of Student's t over the families, of
    which there must be at least two. None where all resamples are equal.
    """
    import numpy as np
    from scipy import special

    if is_constant(resampled):
        return None
    quantile = -special.stdtrit(families - 1, (1 - level) / 2)
    tail = float(special.ndtr(-((families / (families - 1)) ** 0.5) * quantile))
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return Interval(float(low), float(high), level)


def bootstrap_figures(
    figures: Callable[["NDArray[np.int64]"], dict[str, float | None]],
    clusters: Sequence[Hashable],
    *,
    n_resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval | None]:
    """Return the interval of every figure that `figures` computes, by name, from resamples of whole clusters (n,).

    `figures(indices)` gets the indices of the resampled values, with repetitions. An interval is None below two
    clusters, for a figure that is equal in all resamples, and for one that is undefined (None) for the data itself or in
    more than half of the resamples.
    """
    import numpy as np

    index = family_index(clusters, len(clusters))
    families = int(index.max(initial=-1)) + 1
    observed = figures(np.arange(len(clusters)))
    if families < 2 or not n_resamples:
        return dict.fromkeys(observed)
    members = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    resampled = [
        figures(np.concatenate([members[family] for family in picked]))
        for _, chunk in _draws(n_resamples, families, seed)
        for picked in chunk
    ]
    intervals: dict[str, Interval | None] = {}
    for name, value in observed.items():
        defined = [drawn for resample in resampled if (drawn := resample[name]) is not None]
        enough = value is not None and 2 * len(defined) >= len(resampled)
        intervals[name] = expanded_interval(np.array(defined), families, level) if enough else None
    return intervals


def rate_estimate(
    rates: Values, clusters: Sequence[Hashable], *, n_resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Return the mean of success rates or rewards in [0, 1], one per task, with its bootstrap interval over `clusters`, the
    family of each task.

    Where all families have the same mean, resampling sees no spread and would claim certainty. The interval then allows for
    families that differ as far as the bounds let them, in a share up to Wilson's limit for none among those observed: at 0 and
    at 1 it is Wilson's, for a single family too. Values beyond the bounds have no such interval.
    """
    return _bounded_mean(require_finite(rates, "rate_estimate"), clusters, 0.0, n_resamples, level, seed)


def difference_estimate(
    differences: Values, clusters: Sequence[Hashable], *, n_resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Return the mean of paired differences in [-1, 1], one per task, with its interval as in `rate_estimate`. Without
    differences the value is None.

    Where all families have the same difference the limit is Clopper and Pearson's instead of Wilson's: if that difference is
    1, the interval excludes 0 exactly where the two-sided sign-flip test rejects. A single family has no interval.
    """
    values = require_finite(differences, "difference_estimate")
    return _bounded_mean(values, clusters, -1.0, n_resamples, level, seed)


def _bounded_mean(
    values: "Floats", clusters: Sequence[Hashable], lowest: float, n_resamples: int, level: float, seed: int
) -> Estimate:
    """Return the mean of values in [`lowest`, 1] with its interval."""
    if not len(values):
        return Estimate(None, None, 0, 0)
    mean, families = float(values.mean()), len(set(clusters))
    interval = bootstrap_ci(values, clusters=clusters, n_resamples=n_resamples, level=level, seed=seed)
    if interval is None and lowest <= mean <= 1 and (families > 1 or (lowest == 0 and mean in (0.0, 1.0))):
        unseen = (clopper_pearson if lowest else wilson)(0, families, level)
        assert unseen is not None
        interval = Interval(mean - unseen.high * (mean - lowest), mean + unseen.high * (1 - mean), level)
    return Estimate(mean, interval, len(values), families)


def clustered_standard_error(x: Values, clusters: Sequence[Hashable]) -> float | None:
    """Return the cluster-robust standard error (CR1; Liang & Zeger 1986) of the mean of `x` (n,). None below two clusters."""
    values = require_finite(x, "clustered_standard_error")
    sums, sizes = family_sums(values, clusters)
    count = len(sums)
    if count < 2:
        return None
    residuals = sums - sizes * values.mean()
    variance = sum_of_squares(residuals) / len(values) ** 2
    return float((variance * (count / (count - 1))) ** 0.5)


def _draws(n_resamples: int, units: int, seed: int) -> "Iterator[tuple[slice, NDArray[np.int64]]]":
    """Yield slices of the resamples with the drawn units, shape (rows, units). The draws do not depend on the chunk size."""
    import numpy as np

    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // units)
    for start in range(0, n_resamples, step):
        stop = min(n_resamples, start + step)
        yield slice(start, stop), rng.integers(0, units, size=(stop - start, units))


def worst_case_means(
    x: Values, clusters: Sequence[Hashable] | None = None, *, worst: float, n_resamples: int = 10_000, seed: int = 0
) -> "Floats":
    """Draw the mean of `x`, shape (n,), over tasks with one added family of average size at `worst`; shape (n_resamples,).

    The alpha quantile of the draws is a lower confidence limit of the mean at level 1 - alpha; the share of draws at or below m
    is the p-value of the hypothesis that the mean is at most m. `clusters` (n,) are the families; without them each value is
    one. Where the mean of a family lies below `worst`, the added family has the lowest such mean. Raises DataError
    without values.
    """
    import numpy as np

    values = require_finite(x, "worst_case_means")
    if not len(values):
        raise DataError("worst_case_means: no values; leave the metric out where nothing was measured")
    sums, sizes = family_sums(values, clusters)
    size = float(sizes.mean())
    least = min(worst, float((sums / sizes).min()))
    sums, sizes = np.append(sums, least * size), np.append(sizes, size)
    rng = np.random.default_rng(seed)
    # Most of the variance is in the weight of the added family: stratifying it halves the error of a quantile.
    added = -np.log((np.arange(n_resamples) + rng.random(n_resamples)) / n_resamples)
    step = max(1, _WEIGHTS // len(sums))
    means: Floats = np.empty(n_resamples)
    for start in range(0, n_resamples, step):
        rows = slice(start, min(n_resamples, start + step))
        weights = rng.standard_exponential((rows.stop - start, len(sums)))
        weights[:, -1] = added[rows]
        means[rows] = (weights @ sums) / (weights @ sizes)
    return means


def families_for_margin(margin: float, worst: float, alpha: float) -> int | None:
    """Return how many families, all without a loss, show at level `alpha` that the mean loss is below `margin` (the
    rule of three). `worst`: largest possible loss of a family. None for a margin of 0 or less, which cannot be shown.
    """
    if margin <= 0:
        return None
    if margin >= worst:
        return 1
    return math.ceil(math.log(alpha) / math.log1p(-margin / worst))
