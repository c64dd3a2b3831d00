"""Measures of scores against labels, both in [0, 1]. A label of at least .5 counts as right where only yes or no will do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BINS = 10
PER_BIN = 15
"""Labels that a bin should hold: with fewer, ECE mostly measures how few there are (Roelofs et al. 2022)."""


class Bin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scores of one bin: their mean, the mean of their labels, and how many."""

    score: float
    label: float
    count: int


class Measures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How well scores agree with labels. `auroc` is None where all labels are right or all wrong, `tnr` where none is wrong.

    `mae` mean absolute error, `brier` mean squared error, `bias` mean of score - label, `ece` expected calibration error over bins
    of equal mass, `tnr` the share of wrong things with a score below .5.
    """

    labels: int
    episodes: int
    mae: float
    brier: float
    bias: float
    ece: float
    auroc: float | None
    tnr: float | None


def measure(scores: Sequence[float], labels: Sequence[float], episodes: Sequence[str]) -> Measures:
    """All measures at once; at least one score."""
    import numpy as np

    score, label = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    error = score - label
    wrong = label < 0.5
    return Measures(
        labels=len(score),
        episodes=len(set(episodes)),
        mae=float(np.abs(error).mean()),
        brier=float((error**2).mean()),
        bias=float(error.mean()),
        ece=sum(each.count * abs(each.score - each.label) for each in reliability(scores, labels)) / len(score),
        auroc=auroc(scores, labels),
        tnr=float((score[wrong] < 0.5).mean()) if wrong.any() else None,
    )


def reliability(scores: Sequence[float], labels: Sequence[float]) -> list[Bin]:
    """The reliability diagram: at most BINS bins of equal mass, by rising score. Equal scores are never parted."""
    import numpy as np

    score, label = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    _, place = np.unique(score, return_inverse=True)
    counts = np.bincount(place).astype(np.float64)
    bins = min(BINS, max(2, len(score) // PER_BIN))
    middle = np.cumsum(counts) - counts / 2
    number = np.minimum((middle * bins / len(score)).astype(np.int64), bins - 1)[place]
    total = np.bincount(number, minlength=bins)
    sums = np.bincount(number, weights=score, minlength=bins), np.bincount(number, weights=label, minlength=bins)
    return [
        Bin(float(sums[0][each] / total[each]), float(sums[1][each] / total[each]), int(total[each]))
        for each in range(bins)
        if total[each]
    ]


def auroc(scores: Sequence[float], labels: Sequence[float]) -> float | None:
    """The chance that a right thing scores higher than a wrong one, ties half (Mann & Whitney 1947); None without both."""
    import numpy as np

    score, right = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64) >= 0.5
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        return None
    return float((ranks(score)[right].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def ranks(values: "Floats") -> "Floats":
    """Ranks (n,) from 1, of ties their mean."""
    import numpy as np

    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: Floats = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return found
