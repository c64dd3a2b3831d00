"""Means and deviations within pools: the attempts of a group, the turns of a role, the episodes of a task."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .arrays import Codes, Floats

EPSILON = 1e-4
"""What TRL adds to a standard deviation before it divides."""
_ROUNDING = 1e-12
"""A deviation below this share of the values is rounding: all of them are the same."""


def pooled_mean(values: "Floats", pools: "Codes", weights: "Floats | None" = None) -> "Floats":
    """For each value (N,) the mean of the known ones of its pool, by their weights (N,); NaN for a pool without any."""
    known = ~np.isnan(values)
    size = int(pools.max(initial=-1)) + 1
    weight = np.ones(len(values)) if weights is None else weights
    count = np.bincount(pools[known], weights=weight[known], minlength=size)
    total = np.bincount(pools[known], weights=(weight * values)[known], minlength=size)
    mean = np.divide(total, count, out=np.full(size, np.nan), where=count > 0)
    found: Floats = mean[pools]
    return found


def mean_of_others(values: "Floats", pools: "Codes", episodes: "Codes", weights: "Floats | None" = None) -> "Floats":
    """For each value (N,) the mean of the known ones of its pool that belong to other episodes; NaN where there are none."""
    known = ~np.isnan(values)
    weight = np.where(known, 1.0 if weights is None else weights, 0.0)
    product = weight * np.where(known, values, 0.0)
    own = pairs(pools, episodes)
    count, total = (np.bincount(pools, each)[pools] - np.bincount(own, each)[own] for each in (weight, product))
    found: Floats = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
    return found


def pairs(first: "Codes", second: "Codes") -> "Codes":
    """One number for each distinct pair of codes, from 0 on, in the shape of both."""
    _, found = np.unique(first * (int(second.max(initial=0)) + 1) + second, return_inverse=True)
    codes: Codes = found.reshape(first.shape).astype(np.int64)
    return codes


def pooled_std(values: "Floats", pools: "Codes", episodes: "Codes", weights: "Floats | None" = None) -> "Floats":
    """For each value (N,) the standard deviation of the known ones of its pool, by n / (n - 1) for n *episodes* (Bessel).

    Where each episode has one value, that is the usual estimate from a sample. Turns of one episode are no independent
    sample, so they do not count as one. 0 where all are the same; NaN where fewer than two episodes are known.
    """
    known = ~np.isnan(values)
    mean = pooled_mean(values, pools, weights)
    variance = pooled_mean((values - mean) ** 2, pools, weights)
    size = int(pools.max(initial=-1)) + 1
    members = np.unique(np.stack([pools[known], episodes[known]]), axis=1)
    n = np.bincount(members[0].astype(np.int64), minlength=size)[pools].astype(np.float64)
    correction = np.divide(n, n - 1, out=np.full(len(n), np.nan), where=n > 1)
    std: Floats = np.sqrt(variance * correction)
    largest = np.zeros(size)
    np.maximum.at(largest, pools[known], np.abs(values[known]))
    return np.where(std <= _ROUNDING * largest[pools], 0.0, std)


def normalised(
    values: "Floats",
    pools: "Codes",
    divisors: "Codes | None",
    *,
    epsilon: float = EPSILON,
    without_own: bool = False,
    centred_first: bool = False,
    weights: "Floats | None" = None,
) -> "Floats":
    """(value - mean of its pool) / (standard deviation of its `divisors` pool + epsilon), each (B,) or (B, S), a row an episode.

    `divisors` None: no division. `without_own`: the mean of the pool's other episodes. `centred_first`: the deviation is that of
    the centred values. `weights`: of the values, in means and deviations. Unknown values (NaN) enter no mean and give 0, as does
    a pool whose values are all the same.
    """
    episodes = np.broadcast_to(np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1)), values.shape).reshape(-1)
    flat, pool = values.reshape(-1), pools.reshape(-1)
    weight = None if weights is None else weights.reshape(-1)
    mean = mean_of_others(flat, pool, episodes, weight) if without_own else pooled_mean(flat, pool, weight)
    centred = flat - mean
    usable = (pooled_std(flat, pool, episodes, weight) > 0) & ~np.isnan(centred)
    if divisors is None:
        return np.where(usable, centred, 0.0).reshape(values.shape)
    std = pooled_std(centred if centred_first else flat, divisors.reshape(-1), episodes, weight)
    usable &= std > 0
    return np.divide(centred, std + epsilon, out=np.zeros(centred.shape), where=usable).reshape(values.shape)
