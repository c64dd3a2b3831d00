"""Drift: how far the figures of a build are from those of the last accepted one. Pure but for scipy's distribution.

- Population stability index: sum of (a - e) ln(a / e) over the tenths of the baseline, with e the share expected there and a the
  share found (as in Siddiqi, Credit Risk Scorecards, 2006). By custom .1 is little and .25 is much. A value that holds a tenth
  or more is a bin of its own: of successes, which are 0 or 1, no fall may hide in the bin of the 1s.
- Kolmogorov-Smirnov: D, the greatest difference of the two distribution functions, and its asymptotic p-value
  (Smirnov 1948). With many episodes the least difference is significant: D says whether it matters.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from .profile import FIGURES, REWARDS, SCORED, Counts, Profile

TENTHS = 10
LEAST_SHARE = 1e-4
"""An empty tenth counts for this much: the index stays finite."""
LEAST = 30
"""Episodes that either side must have: fewer say little."""


class Drift(NamedTuple):
    """One figure beside its baseline. `reward_ks` is D again where the figure is a reward, scored as it was.

    A policy that stops to run into its limits has other lengths altogether, and nothing is wrong: only rewards stop a build.
    `rescored` says by which versions of the scorer, where they are others than in the baseline: the two are not alike.
    """

    figure: str
    psi: float
    ks: float
    p_value: float
    episodes: int
    baseline: int
    reward_ks: float | None = None
    rescored: str | None = None


def drifts(baseline: Profile, now: Profile, which: str) -> Iterator[Drift]:
    """Each figure that both have, by source and taskset. `which` says in words what `now` is."""
    for source in sorted(baseline.figures.keys() & now.figures.keys()):
        rescored = _rescored(baseline.scorers.get(source, ()), now.scorers.get(source, ()))
        for name in FIGURES:
            before, after = (each.figures[source].get(name) for each in (baseline, now))
            if before and after and min(before.size, after.size) >= LEAST:
                distance, chance = kolmogorov_smirnov(before, after)
                figure = f"{name} of {source} {which}"
                other = rescored if name in SCORED else None
                reward = distance if name in REWARDS and other is None else None
                yield Drift(figure, stability(before, after), distance, chance, after.size, before.size, reward, other)


def _rescored(before: tuple[str, ...], after: tuple[str, ...]) -> str | None:
    """What is said of other versions; None where they are the same, or either is not known."""
    same = before == after or not before or not after
    return None if same else f"scored by {', '.join(after)}, and by {', '.join(before)} before"


def stability(expected: Counts, found: Counts) -> float:
    """The population stability index."""
    import numpy as np

    edges = _edges(expected)
    shares = []
    for each in (expected, found):
        place = np.searchsorted(edges, np.array(each.values), side="left")
        own = np.bincount(place, weights=np.array(each.counts), minlength=len(edges) + 1) / each.size
        shares.append(np.maximum(own, LEAST_SHARE))
    before, after = shares
    return float(np.sum((after - before) * np.log(after / before)))


def _edges(counts: Counts) -> Any:
    """The upper ends of the bins, each once and without the last: a value belongs to the first that is not below it."""
    import numpy as np

    values, number = np.array(counts.values), np.array(counts.counts)
    wanted = np.arange(1, TENTHS) * counts.size / TENTHS
    tenths = values[np.searchsorted(np.cumsum(number), wanted, side="left")]
    return np.unique(np.concatenate([tenths, values[number * TENTHS >= counts.size] - 1]))


def kolmogorov_smirnov(one: Counts, other: Counts) -> tuple[float, float]:
    """D and its p-value (two-sided, asymptotic)."""
    import numpy as np
    from scipy.special import kolmogorov

    places = np.union1d(one.values, other.values)
    functions = []
    for each in (one, other):
        reached = np.concatenate([[0], np.cumsum(each.counts)]) / each.size
        functions.append(reached[np.searchsorted(np.array(each.values), places, side="right")])
    distance = float(np.max(np.abs(functions[0] - functions[1])))
    size = one.size * other.size / (one.size + other.size)
    return distance, float(kolmogorov(math.sqrt(size) * distance))
