"""GDI, the quality rank of an episode: an explained sum of terms in [0, 1]. Pure and vectorised.

    gdi = sum of w_i * t_i / sum of w_i, over the terms that are known

A term that is not known (NaN here, null in tables) counts neither for nor against: its weight leaves the sum. Each array
has one value per episode; group statistics are over the arrays that are given.
"""

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .params import GdiWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

TERMS = ("reward", "process", "learnability", "uniqueness", "recency", "use")


class Gdi(msgspec.Struct, frozen=True):
    """`total` (n,), and what each term contributed to it: the contributions (n, terms) sum to the total. NaN: not known."""

    total: "Floats"
    contributions: "Floats"


def pass_rate(success: "Floats", group: "Codes") -> "Floats":
    """Share of successes among a group's episodes of known end (1.0, 0.0 or NaN a row); NaN for a group without any."""
    known = ~np.isnan(success)
    size = int(group.max(initial=-1)) + 1
    played = np.bincount(group[known], minlength=size)
    won = np.bincount(group[known], weights=success[known], minlength=size)
    rate: Floats = np.divide(won, played, out=np.full(size, np.nan), where=played > 0)
    return rate[group]


def learnability(rate: "Floats") -> "Floats":
    """4 p (1 - p): 1 where half of the attempts succeed, 0 where all or none do. The variance of the outcome, scaled."""
    return 4.0 * rate * (1.0 - rate)


def uniqueness(content: "Codes") -> "Floats":
    """One over the number of episodes that went the very same way (equal codes)."""
    counts = np.bincount(content, minlength=int(content.max(initial=-1)) + 1)
    return 1.0 / counts[content]


def recency(age_days: "Floats", half_life_days: float) -> "Floats":
    """0.5 ** (age / half-life); an episode from after `as_of` is not newer than new."""
    return np.asarray(0.5 ** (np.maximum(age_days, 0.0) / half_life_days), dtype=np.float64)


def use(exports: "Floats") -> "Floats":
    """How often the episode was trained on, on a logarithmic scale that is full at 100."""
    return np.asarray(np.minimum(1.0, np.log1p(exports) / np.log(101.0)), dtype=np.float64)


def weighted(terms: "Floats", weights: GdiWeights) -> Gdi:
    """Terms (n, 6) in the order of TERMS, to the sum and its parts. A row without a known, weighted term is NaN."""
    weight = np.array([getattr(weights, name) for name in TERMS])
    counted = ~np.isnan(terms) & (weight > 0)
    present = np.where(counted, weight, 0.0)
    whole = present.sum(axis=1, keepdims=True)
    share = np.divide(present, whole, out=np.zeros_like(present), where=whole > 0)
    contributions = share * np.where(counted, terms, 0.0)
    total = np.where(whole[:, 0] > 0, contributions.sum(axis=1), np.nan)
    return Gdi(total, contributions)
