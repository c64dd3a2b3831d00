"""Means and deviations within pools: the attempts of a group, the turns of a role, the episodes of a task."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .arrays import Codes, Floats

EPSILON = 1e-4
"""What TRL adds to a standard deviation before it divides."""
_ROUNDING = 1e-12
"""A deviation below this share of the values is rounding: all of them are the same."""


def pooled_mean(values: "Floats", pools: "Codes") -> "Floats":
    """For each value (N,) the mean of the known ones of its pool; NaN for a pool without any."""
    known = ~np.isnan(values)
    size = int(pools.max(initial=-1)) + 1
    count = np.bincount(pools[known], minlength=size)
    total = np.bincount(pools[known], weights=values[known], minlength=size)
    mean = np.divide(total, count, out=np.full(size, np.nan), where=count > 0)
    found: Floats = mean[pools]
    return found


def pooled_std(values: "Floats", pools: "Codes", episodes: "Codes") -> "Floats":
    """For each value (N,) the standard deviation of the known ones of its pool, by n / (n - 1) for n *episodes* (Bessel).

    Where each episode has one value, that is the usual estimate from a sample. Turns of one episode are no independent
    sample, so they do not count as one. 0 where all are the same; NaN where fewer than two episodes are known.
    """
    known = ~np.isnan(values)
    mean = pooled_mean(values, pools)
    variance = pooled_mean((values - mean) ** 2, pools)
    size = int(pools.max(initial=-1)) + 1
    members = np.unique(np.stack([pools[known], episodes[known]]), axis=1)
    n = np.bincount(members[0].astype(np.int64), minlength=size)[pools].astype(np.float64)
    correction = np.divide(n, n - 1, out=np.full(len(n), np.nan), where=n > 1)
    std: Floats = np.sqrt(variance * correction)
    largest = np.zeros(size)
    np.maximum.at(largest, pools[known], np.abs(values[known]))
    return np.where(std <= _ROUNDING * largest[pools], 0.0, std)


def scaled(centred: "Floats", std: "Floats", epsilon: float) -> "Floats":
    """centred / (std + epsilon); 0 where the deviation is 0 or not known, and where the value is not known."""
    usable = (std > 0) & ~np.isnan(centred)
    return np.divide(centred, std + epsilon, out=np.zeros(centred.shape), where=usable)


def standardised(values: "Floats", pools: "Codes", epsilon: float = EPSILON) -> "Floats":
    """(value - mean of its pool) / (deviation of its pool + epsilon), for values (B,) or (B, S) and pools of the same shape.

    A row is an episode. What is not known (NaN) enters no mean and comes out as 0, as does a pool where all are the same.
    """
    episodes = np.broadcast_to(np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    flat, pool, row = values.reshape(-1), pools.reshape(-1), episodes.reshape(-1)
    result = scaled(flat - pooled_mean(flat, pool), pooled_std(flat, pool, row), epsilon)
    return result.reshape(values.shape)
