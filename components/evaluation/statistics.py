"""Estimates, intervals and tests over tasks that come in families. Pure functions over numpy, seeded, vectorised.

The unit that varies is the family: tasks of one family succeed and fail together, so every interval resamples whole
families and every test flips whole families. The estimate is always the mean over *tasks*: a family weighs as much as
it has tasks. Degenerate inputs have answers: no value gives no estimate and p = 1; one family gives no interval,
because nothing was seen of how families differ; NaN is refused.
"""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from components.protocol import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Alternative = Literal["greater", "less", "two-sided"]
EXACT_FAMILIES = 16
"""Up to so many families with a difference all sign assignments are enumerated; beyond, they are sampled."""
_CHUNK = 4_000_000
_TOLERANCE = 1e-12


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A confidence interval of confidence `level`."""

    low: float
    high: float
    level: float = 0.95


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mean with its interval. `value` is None without data, `interval` None where the data cannot give one."""

    value: float | None
    interval: Interval | None
    tasks: int
    families: int


class TestResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test. `statistic` is the mean difference over tasks, `effect_size` that mean in standard deviations (None if 0)."""

    __test__ = False

    statistic: float | None
    p_value: float
    effect_size: float | None
    interval: Interval | None
    alternative: Alternative
    families: int
    exact: bool
    resamples: int


def wilson(successes: int, n: int, level: float = 0.95) -> Interval | None:
    """Wilson's score interval of a proportion (Wilson 1927); None for n = 0. For independent trials only."""
    if not 0 <= successes <= n:
        raise DataError(f"wilson: {successes} successes of {n} trials cannot be; count the trials again")
    if n == 0:
        return None
    z = _normal_quantile(0.5 + level / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (rate * (1 - rate) / n + z * z / (4 * n * n)) ** 0.5
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high, level)


def bootstrap_ci(
    x: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Interval of the mean of `x` (n,) by resampling whole clusters (n,); without `clusters` each value is its own.

    Expanded percentile interval (Hesterberg 2015, doi:10.1080/00031305.2015.1089789): the quantiles are widened to those
    of a t interval over the clusters, since the plain percentile interval is too short with few. None below two clusters.
    """
    import numpy as np

    values = _checked(x, "bootstrap_ci")
    sums, sizes = _family_sums(values, clusters)
    families = len(sums)
    if families < 2:
        return None
    means = np.empty(n_resamples)
    rng = np.random.default_rng(seed)
    for start, stop in _chunks(n_resamples, families):
        picked = rng.integers(0, families, size=(stop - start, families))
        means[start:stop] = sums[picked].sum(axis=1) / sizes[picked].sum(axis=1)
    tail = _expanded_tail((1 - level) / 2, families)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), level)


def rate_estimate(
    rates: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The mean of per-task success rates in [0, 1] with its clustered interval.

    Where every task has rate 0 (or every task 1) resampling sees no spread and would claim certainty: Wilson's interval
    over the *families* stands in, as if each family were one trial.
    """
    values = _checked(rates, "rate_estimate")
    families = len(set(clusters))
    if not len(values):
        return Estimate(None, None, 0, 0)
    mean = _mean(values)
    if mean in (0.0, 1.0):
        interval = wilson(round(mean) * families, families, level)
    else:
        interval = bootstrap_ci(rates, clusters=clusters, n_resamples=n_resamples, level=level, seed=seed)
    return Estimate(mean, interval, len(values), families)


def difference_estimate(
    differences: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The mean of per-task paired differences with its clustered interval."""
    values = _checked(differences, "difference_estimate")
    if not len(values):
        return Estimate(None, None, 0, 0)
    interval = bootstrap_ci(differences, clusters=clusters, n_resamples=n_resamples, level=level, seed=seed)
    return Estimate(_mean(values), interval, len(values), len(set(clusters)))


def permutation_test(
    a: Sequence[float],
    b: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    alternative: Alternative = "greater",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> TestResult:
    """Paired sign-flip test of mean(b - a) > 0 over tasks; `a`, `b` (n,) hold one value a task, `clusters` its family.

    The null hypothesis: within a family the two agents are exchangeable. The sign is flipped for a whole family, and the
    statistic is the *sum* of its tasks' differences, so that what is tested is the mean over tasks that is reported. (Means
    of families would test another quantity where families differ in size.) All assignments are enumerated up to
    EXACT_FAMILIES families with a non-zero sum (one without changes nothing); beyond, `n_resamples` are drawn and
    p = (1 + those at least as extreme) / (1 + n_resamples) (Phipson & Smyth 2010). No data, or no difference: p = 1.
    """
    before, after = _checked(a, "permutation_test"), _checked(b, "permutation_test")
    if len(before) != len(after):
        raise DataError(
            f"permutation_test: {len(before)} against {len(after)} values; a paired test needs equally many"
        )
    difference = after - before
    sums, _ = _family_sums(difference, clusters)
    families = len(sums)
    moving = sums[abs(sums) > _TOLERANCE]
    exact = len(moving) <= EXACT_FAMILIES
    p_value = _enumerated(moving, alternative) if exact else _sampled(moving, alternative, n_resamples, seed)
    return TestResult(
        statistic=_mean(difference) if len(difference) else None,
        p_value=p_value,
        effect_size=_standardised(difference),
        interval=bootstrap_ci(
            cast(Sequence[float], difference), clusters=clusters, n_resamples=n_resamples, level=level, seed=seed
        ),
        alternative=alternative,
        families=families,
        exact=exact,
        resamples=2 ** len(moving) if exact else n_resamples,
    )


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k attempts succeeds, unbiased from c successes in n (Chen et al. 2021)."""
    _check_k(n, c, k)
    from math import comb

    return 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k attempts succeed, unbiased from c successes in n (Yao et al. 2024, tau-bench)."""
    _check_k(n, c, k)
    from math import comb

    return comb(c, k) / comb(n, k)


def _check_k(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise DataError(f"k = {k} attempts of n = {n} with c = {c} successes: needs 1 <= k <= n and 0 <= c <= n")


def _checked(x: Sequence[float], who: str) -> "Floats":
    import numpy as np

    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1:
        raise DataError(f"{who}: needs one value a task, got an array of shape {values.shape}")
    if not np.isfinite(values).all():
        raise DataError(
            f"{who}: {int((~np.isfinite(values)).sum())} values are NaN or infinite; leave them out and count them"
        )
    return values


def _mean(values: "Floats") -> float:
    return float(values.mean())


def _family_sums(values: "Floats", clusters: Sequence[Hashable] | None) -> tuple["Floats", "Floats"]:
    """Per family, in order of first appearance: the sum of its values and how many they are."""
    import numpy as np

    if clusters is None:
        return values, np.ones(len(values))
    if len(clusters) != len(values):
        raise DataError(f"{len(values)} values but {len(clusters)} families; give one family a value")
    numbers: dict[Hashable, int] = {}
    index = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64)
    sums = np.bincount(index, weights=values, minlength=len(numbers)).astype(np.float64)
    return sums, np.bincount(index, minlength=len(numbers)).astype(np.float64)


def _chunks(rows: int, width: int) -> list[tuple[int, int]]:
    step = max(1, _CHUNK // max(1, width))
    return [(start, min(rows, start + step)) for start in range(0, rows, step)]


def _enumerated(sums: "Floats", alternative: Alternative) -> float:
    import numpy as np

    totals = np.zeros(1)
    for value in sums:
        totals = np.concatenate([totals + value, totals - value])
    return float(_extreme(totals, float(sums.sum()), alternative).mean())


def _sampled(sums: "Floats", alternative: Alternative, resamples: int, seed: int) -> float:
    import numpy as np

    rng = np.random.default_rng(seed)
    hits = 0
    for start, stop in _chunks(resamples, len(sums)):
        signs = rng.integers(0, 2, size=(stop - start, len(sums)), dtype=np.int8) * 2.0 - 1.0
        hits += int(_extreme(signs @ sums, float(sums.sum()), alternative).sum())
    return (1 + hits) / (1 + resamples)


def _extreme(totals: "Floats", observed: float, alternative: Alternative) -> "NDArray[np.bool_]":
    import numpy as np

    slack = 1e-9 * max(1.0, abs(observed))
    if alternative == "greater":
        return totals >= observed - slack
    if alternative == "less":
        return totals <= observed + slack
    return np.abs(totals) >= abs(observed) - slack


def _standardised(values: "Floats") -> float | None:
    if len(values) < 2:
        return None
    spread = float(values.std(ddof=1))
    return float(values.mean()) / spread if spread > _TOLERANCE else None


def _normal_quantile(probability: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(probability)


def _expanded_tail(tail: float, families: int) -> float:
    from scipy import special

    quantile = -special.stdtrit(families - 1, tail)
    return float(special.ndtr(-((families / (families - 1)) ** 0.5) * quantile))
