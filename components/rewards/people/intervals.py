"""Intervals by resampling whole episodes: labels of one episode are alike, and as many do not say as much."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

RESAMPLES = 500
LEVEL = 0.95


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure with its 95 % interval. `value` is None where it is not defined, `low` and `high` where nothing can be said."""

    value: float | None
    low: float | None = None
    high: float | None = None


def resampled(clusters: Sequence[Hashable], resamples: int, seed: int) -> Iterator["Indices"]:
    """Indices of whole clusters drawn with replacement, `resamples` times; of the same seed the same."""
    import numpy as np

    numbers: dict[Hashable, int] = {}
    number = np.array([numbers.setdefault(each, len(numbers)) for each in clusters], dtype=np.int64)
    order = np.argsort(number, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(number))[:-1])
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.concatenate([members[each] for each in rng.integers(0, len(members), len(members))])


def estimates(
    statistic: Callable[["Indices"], dict[str, float | None]],
    clusters: Sequence[Hashable],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Every figure of `statistic` (of indices) with its interval over `clusters` (n,).

    Percentiles, widened to those of a t interval over the clusters (Hesterberg 2015). Below two clusters, or where most resamples
    leave a figure undefined, there is no interval.
    """
    import numpy as np

    count = len(set(clusters))
    found = statistic(np.arange(len(clusters)))
    if count < 2 or not resamples:
        return {name: Estimate(value) for name, value in found.items()}
    draws = [statistic(drawn) for drawn in resampled(clusters, resamples, seed)]
    tail = _tail(count)
    return {name: _estimate(value, [draw[name] for draw in draws], tail) for name, value in found.items()}


def _estimate(value: float | None, draws: list[float | None], tail: float) -> Estimate:
    import numpy as np

    known = [each for each in draws if each is not None]
    if value is None or 2 * len(known) < len(draws):
        return Estimate(value)
    low, high = np.quantile(known, [tail, 1 - tail])
    return Estimate(value, float(low), float(high))


def _tail(clusters: int) -> float:
    from scipy import special

    quantile = -special.stdtrit(clusters - 1, (1 - LEVEL) / 2)
    return float(special.ndtr(-((clusters / (clusters - 1)) ** 0.5) * quantile))
