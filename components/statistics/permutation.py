"""Paired sign-flip permutation tests over families: one test, or many tests over the same tasks."""

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from ratchet.components.core import DataError

from .bootstrap import bootstrap_ci
from .numerics import Values, family_index, family_sums, is_constant, require_finite_pairs, rounded_differences
from .result_types import Alternative, TestResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .numerics import Floats

EXACT_FAMILIES = 16
"""Up to this number of families with a difference all sign assignments are enumerated; beyond it they are sampled."""
# A chunk size is part of the result: numpy draws int8 signs from whole 32-bit words, so other chunks are other signs.
_CHUNK_ONE, _CHUNK_MANY = 4_000_000, 2_000_000
# The same sums added in another order differ in the last digits: the observed assignment must count itself.
_SLACK = 1e-10


def permutation_test(
    a: Values,
    b: Values,
    *,
    clusters: Sequence[Hashable] | None = None,
    alternative: Alternative = "two-sided",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> TestResult:
    """Test whether `a` and `b`, one value a task, shape (n,), have the same mean. The interval is the bootstrap's.

    The null hypothesis is that within a family (`clusters`, shape (n,)) the two agents are exchangeable. The sign is flipped for
    a whole family, and the statistic is the *sum* of its tasks' differences, so that the mean over tasks is tested; means of
    families would test another quantity where families differ in size. Effect: the mean difference in standard deviations (d_z).

    Up to EXACT_FAMILIES families with a difference all assignments are enumerated; beyond, `n_resamples` are drawn and
    p = (1 + those at least as extreme) / (1 + n_resamples) (Phipson & Smyth 2010). Two-sided: twice the smaller side, at most 1.
    Without data or without a difference p = 1.

    >>> after, before = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    >>> result = ratchet.permutation_test(after, before)
    >>> round(result.estimate, 3), result.p_value
    (0.667, 0.125)
    """
    difference = rounded_differences(*require_finite_pairs(a, b, "permutation_test"))
    sums, _ = family_sums(difference, clusters)
    moving = sums[abs(sums) > _SLACK * abs(difference).max(initial=0.0)]
    exact = len(moving) <= EXACT_FAMILIES
    # The scale of the rounding error of a sum is that of its absolute terms, however small their sum is.
    slack = _SLACK * abs(moving).sum(keepdims=True)
    above, below, count = _count_extremes(moving[None, :], slack, None if exact else n_resamples, seed, _CHUNK_ONE)
    mean = float(difference.mean()) if len(difference) else None
    return TestResult(
        statistic=mean,
        p_value=_p_value(int(above[0]), int(below[0]), count, alternative, exact),
        effect_size=standardised_mean(difference),
        interval=bootstrap_ci(difference, clusters=clusters, n_resamples=n_resamples, level=level, seed=seed),
        alternative=alternative,
        families=len(sums),
        exact=exact,
        resamples=count,
        estimate=mean,
    )


def paired_p_values(
    differences: "Floats", clusters: Sequence[Hashable], *, n_resamples: int = 10_000, seed: int = 0
) -> tuple[float, ...]:
    """Return the two-sided p-value of each row of paired differences, shape (tests, n), over n tasks; `clusters` (n,):
    family of each task.

    Each is that of `permutation_test` on its row, with the same signs for every row: the p-values are dependent, which
    corrections such as Holm's allow. Signs are enumerated up to EXACT_FAMILIES families that differ in any row. Raises DataError
    for values that are not finite.
    """
    import numpy as np

    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise DataError(
            "paired_p_values: needs one finite difference a test and task; leave out what has none and count it"
        )
    if not values.size:
        return (1.0,) * len(values)
    index = family_index(clusters, values.shape[1])
    sums = np.stack([np.bincount(index, weights=row) for row in values]).astype(np.float64)
    slack = _SLACK * abs(values).max(axis=1) * np.sqrt(values.shape[1])
    sums = np.where(abs(sums) <= slack[:, None], 0.0, sums)
    sums = sums[:, (sums != 0).any(axis=0)]
    exact = sums.shape[1] <= EXACT_FAMILIES
    above, below, count = _count_extremes(sums, slack, None if exact else n_resamples, seed, _CHUNK_MANY)
    return tuple(_p_value(int(up), int(down), count, "two-sided", exact) for up, down in zip(above, below, strict=True))


def standardised_mean(difference: "Floats") -> float | None:
    """Return the mean of paired differences in their standard deviations (d_z); None below two, or where they do not vary."""
    if len(difference) < 2 or is_constant(difference):
        return None
    return float(difference.mean()) / float(difference.std(ddof=1))


def _count_extremes(
    sums: "Floats", slack: "Floats", draws: int | None, seed: int, chunk: int
) -> tuple["NDArray[np.int64]", "NDArray[np.int64]", int]:
    """Count the assignments that give each test at least, and at most, its observed total, shapes (tests,); and how many there are.

    `sums` (tests, families). All 2 ** families assignments are counted, or `draws` random ones.
    """
    import numpy as np

    tests, families = sums.shape
    count = 2**families if draws is None else draws
    observed = sums.sum(axis=1)
    above, below = np.zeros(tests, dtype=np.int64), np.zeros(tests, dtype=np.int64)
    for bits in _sign_bits(count, families, None if draws is None else seed, max(1, chunk // max(1, tests, families))):
        totals = (bits * 2.0 - 1.0) @ sums.T
        above += (totals >= observed - slack).sum(axis=0)
        below += (totals <= observed + slack).sum(axis=0)
    return above, below, count


def _sign_bits(count: int, families: int, seed: int | None, step: int) -> "Iterator[NDArray[np.int8]]":
    """Yield sign assignments as bits, shape (rows, families): all of them in order, or random ones where there is a seed."""
    import numpy as np

    rng = None if seed is None else np.random.default_rng(seed)
    for start in range(0, count, step):
        rows = min(step, count - start)
        if rng is not None:
            yield rng.integers(0, 2, size=(rows, families), dtype=np.int8)
        else:
            numbers = np.arange(start, start + rows, dtype=np.int64)[:, None]
            yield cast("NDArray[np.int8]", ((numbers >> np.arange(families)) & 1).astype(np.int8))


def _p_value(above: int, below: int, count: int, alternative: Alternative, exact: bool) -> float:
    """Return the p-value from the counts of assignments at least as extreme on either side."""
    hits = {"greater": above, "less": below, "two-sided": 2 * min(above, below)}[alternative]
    if exact:
        return min(1.0, hits / count)
    # The observed assignment counts as one of the draws on each side, else a sampled p-value could be 0.
    extra = 2 if alternative == "two-sided" else 1
    return min(1.0, (extra + hits) / (1 + count))
