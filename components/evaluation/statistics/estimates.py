"""A mean over tasks with the interval that its families allow."""

from collections.abc import Hashable, Sequence

from .bootstrap import bootstrap_ci
from .checks import Values, checked
from .proportions import wilson
from .results import Estimate


def rate_estimate(
    rates: Values,
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
    values = checked(rates, "rate_estimate")
    families = len(set(clusters))
    if not len(values):
        return Estimate(None, None, 0, 0)
    mean = float(values.mean())
    if mean in (0.0, 1.0):
        interval = wilson(round(mean) * families, families, level)
    else:
        interval = bootstrap_ci(rates, clusters=clusters, n_resamples=n_resamples, level=level, seed=seed)
    return Estimate(mean, interval, len(values), families)


def difference_estimate(
    differences: Values,
    clusters: Sequence[Hashable],
    *,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """The mean of per-task paired differences with its clustered interval."""
    values = checked(differences, "difference_estimate")
    if not len(values):
        return Estimate(None, None, 0, 0)
    interval = bootstrap_ci(differences, clusters=clusters, n_resamples=n_resamples, level=level, seed=seed)
    return Estimate(float(values.mean()), interval, len(values), len(set(clusters)))
