"""Which groups hold a lesson: what the others of this folder ask of a batch first."""

from typing import Any

import numpy as np

from ..credit.arrays import Array, codes, flags, floats, like, same_shape
from ..credit.pools import pooled_mean


def unsolved(solved: Array, groups: Any) -> Array:
    """(B,) solved (1, 0, NaN unknown) and groups to (B,) flags: the group has known attempts, and all of them failed."""
    s, group = floats(solved), codes(groups)
    same_shape("unsolved", solved=s, groups=group)
    return like(solved, pooled_mean(s, group) == 0)


def accuracy_band(scores: Array, groups: Any, low: float = 0.0, high: float = 1.0) -> Array:
    """(B,) scores and groups to (B,) flags: the group's mean lies strictly between `low` and `high`, and its scores differ.

    DAPO's dynamic sampling (Yu et al. 2025) with (0, 1); a narrower band leaves out what is nearly always or never solved (MARS).
    Scores that are NaN enter no mean, and their attempts go with their group.
    """
    s, group = floats(scores), codes(groups)
    same_shape("accuracy_band", scores=s, groups=group)
    mean = pooled_mean(s, group)
    size = int(group.max(initial=-1)) + 1
    lowest, highest = np.full(size, np.inf), np.full(size, -np.inf)
    np.fmin.at(lowest, group, s)
    np.fmax.at(highest, group, s)
    return like(scores, (mean > low) & (mean < high) & (lowest < highest)[group])


def kept(advantages: Array, keep: Any) -> Array:
    """(B, T) advantages and (B,) flags to (B, T): 0 for what was not selected, and *nothing else changed*.

    To normalise again over what is left would take back the selection: its spread would be 1 again, whatever was chosen.
    """
    a, keeps = floats(advantages), flags(keep)
    return like(advantages, np.where(keeps.reshape(-1, *[1] * (a.ndim - 1)), a, 0.0))
