"""The order of a curriculum: what is short and well rewarded comes first."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..credit.arrays import floats, same_shape

if TYPE_CHECKING:
    from ..credit.arrays import Codes, Floats


def curriculum_order(lengths: Any, rewards: Any) -> "Codes":
    """(N,) lengths and rewards to (N,) indices, the easiest first: by the mean of their ranks, shortest and best rewarded first.

    Ranks, so that neither's unit matters; equal ones share the mean of their places, and a tie is broken by index. A reward that is
    not known (NaN) takes the middle place. `curriculum_ratio` draws from this order.
    """
    length, reward = floats(lengths), floats(rewards)
    same_shape("curriculum_order", lengths=length, rewards=reward)
    known = ~np.isnan(reward)
    last = len(reward) - 1
    worth = np.full(len(reward), last / 2)
    worth[known] = _ranks(-reward[known]) * (last / max(1, known.sum() - 1))
    order: Codes = np.argsort(_ranks(length) + worth, kind="stable")
    return order


def _ranks(values: "Floats") -> "Floats":
    """Places from 0 on; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Floats = (ends - (counts + 1) / 2)[inverse]
    return found
