"""Bayesian comparison: the probability that a is better than b, that both are practically equal, and that a is worse.

Practically equal is a difference within [-rope, rope], the region of practical equivalence (Kruschke 2013; Benavoli, Corani, Demsar
& Zaffalon 2017, "Time for a change", JMLR 18(77)). Unlike a p-value these probabilities can say that two agents are equal.
They are for reading and never decide a promotion.

- `bayes_paired`: one difference over tasks. With the reference prior p(mean, variance) ~ 1 / variance the mean has Student's t
  distribution around the estimate. Families enter as their sums; for families of equal size this is the t posterior of their means.
- `bayes_groups`: the differences of several kinds of tasks, partially pooled: a normal hierarchy (Gelman et al. 2013, section 5.4)
  with a half-Cauchy prior on the spread between kinds (Gelman 2006). It needs no correction for the number of kinds.
"""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ratchet.components.core import DataError

from .numerics import (
    Values,
    check_level,
    family_sums,
    gauss_legendre,
    is_constant,
    require_finite_pairs,
    rounded_differences,
)
from .result_types import Interval

if TYPE_CHECKING:
    from .numerics import Floats


class DifferencePosterior(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The posterior of a difference a - b: its mean, a credible interval and three probabilities that sum to one.

    `p_worse`: a - b < -`rope`. `p_equivalent`: within [-`rope`, `rope`]. `p_better`: above `rope`.
    """

    mean: float
    interval: Interval
    p_worse: float
    p_equivalent: float
    p_better: float
    rope: float


def bayes_paired(
    a: Values, b: Values, *, clusters: Sequence[Hashable] | None = None, rope: float = 0.01, level: float = 0.95
) -> DifferencePosterior | None:
    """Return the posterior of the mean of a - b over tasks, shape (n,), of families `clusters` (n,); without them each
    task is its own family. `rope`: largest difference that counts as none. `level`: of the credible interval.

    None below two families, and where all families have the same difference, which says nothing about the error.
    """
    import numpy as np

    difference = rounded_differences(*require_finite_pairs(a, b, "bayes_paired"))
    sums, sizes = family_sums(difference, clusters)
    families = len(sums)
    if is_constant(sums / sizes):
        return None
    mean = float(difference.mean())
    off = sums - sizes * mean
    scale = float(np.sqrt((off**2).sum() * families / (families - 1))) / len(difference)
    return _student(mean, scale, families - 1, rope, level)


def bayes_groups(
    means: Values, errors: Values, *, spread: float = 0.1, rope: float = 0.01, level: float = 0.95
) -> tuple[DifferencePosterior, ...]:
    """Return the posterior of each of several measured differences `means`, shape (g,), with standard errors `errors`
    (g,), above 0. Each is pulled towards the common mean, the more the larger its error.

    theta_g ~ N(mu, tau^2), means_g ~ N(theta_g, errors_g^2), mu flat, tau half-Cauchy of scale `spread`, its median. tau is
    integrated numerically, the rest is closed form. A single group is not pooled: its posterior is its own normal.
    """
    import numpy as np

    y, s = require_finite_pairs(means, errors, "bayes_groups")
    _check_rope(rope, level)
    if not (s > 0).all() or not 0 < spread < float("inf"):
        raise DataError("bayes_groups: standard errors and the spread must be above zero; leave out a kind without one")
    if len(y) < 2:
        return tuple(_mixture(y[:1], s[:1], np.ones(1), rope, level) for _ in y)
    weights, centres, widths = _hierarchy_posterior(y, s, spread)
    return tuple(_mixture(centres[:, g], widths[:, g], weights, rope, level) for g in range(len(y)))


def _student(mean: float, scale: float, freedom: int, rope: float, level: float) -> DifferencePosterior:
    from scipy import special

    _check_rope(rope, level)
    if scale == 0:
        worse, better = float(mean < -rope), float(mean > rope)
    else:
        worse = float(special.stdtr(freedom, (-rope - mean) / scale))
        better = float(special.stdtr(freedom, (mean - rope) / scale))
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * scale
    return DifferencePosterior(
        mean, Interval(mean - half, mean + half, level), worse, max(0.0, 1 - worse - better), better, rope
    )


def _hierarchy_posterior(y: "Floats", s: "Floats", spread: float) -> tuple["Floats", "Floats", "Floats"]:
    """Return the posterior probabilities of values of tau, shape (t,) (Gelman et al. 2013, equation 5.21), and at each of them
    the mean and the standard deviation of every group's difference, (t, g), with mu integrated out.

    tau = spread tan(pi u / 2) makes the half-Cauchy prior uniform in u in (0, 1).
    """
    import numpy as np

    nodes, widths = gauss_legendre(0.0, 1.0)
    tau = spread * np.tan(np.pi * nodes / 2)
    precision = 1 / (s**2 + tau[:, None] ** 2)
    total = precision.sum(axis=1, keepdims=True)
    centre = (precision * y).sum(axis=1, keepdims=True) / total
    logs = (np.log(precision).sum(axis=1) - np.log(total[:, 0]) - (precision * (y - centre) ** 2).sum(axis=1)) / 2
    # The densities themselves underflow for many groups.
    weights = widths * np.exp(logs - logs.max())
    own = tau[:, None] ** 2 * precision
    return (
        weights / weights.sum(),
        own * y + (1 - own) * centre,
        np.sqrt(own * s**2 + (1 - own) ** 2 / total),
    )


def _mixture(centres: "Floats", widths: "Floats", weights: "Floats", rope: float, level: float) -> DifferencePosterior:
    """Return the posterior given by a mixture of t normals."""
    from scipy import optimize, special

    def below(x: float) -> float:
        return float((weights * special.ndtr((x - centres) / widths)).sum())

    def quantile(share: float) -> float:
        reach = 40 * float(widths.max())
        low, high = float(centres.min()) - reach, float(centres.max()) + reach
        return float(optimize.brentq(lambda x: below(x) - share, low, high, xtol=1e-12))

    worse = below(-rope)
    better = float((weights * special.ndtr((centres - rope) / widths)).sum())
    interval = Interval(quantile((1 - level) / 2), quantile((1 + level) / 2), level)
    equivalent = max(0.0, 1 - worse - better)
    return DifferencePosterior(float((weights * centres).sum()), interval, worse, equivalent, better, rope)


def _check_rope(rope: float, level: float) -> None:
    check_level(level, "a credible interval")
    if not 0 <= rope < float("inf"):
        raise DataError(f"rope {rope} must be a difference, 0 or more")
