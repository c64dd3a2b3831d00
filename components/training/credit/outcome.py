"""Advantages of whole episodes, from how each ended beside the others of its group. One number an episode, (B,).

A reward that is NaN (an attempt that the infrastructure ended) enters no baseline, and its advantage is 0.
"""

from typing import Any

import numpy as np

from .arrays import Array, codes, floats, like, same_shape
from .pools import EPSILON, pooled_mean, pooled_std, scaled, standardised


def broadcast(rewards: Array, groups: Any, *, epsilon: float = EPSILON) -> Array:
    """(B,) rewards and groups to (B,): (r - mean of the group) / (deviation of the group + epsilon).

    GRPO's advantage (Shao et al. 2024, DeepSeekMath), as TRL computes it. Given to every trained token of every turn it is
    Flow-GRPO's (Li et al. 2025, AgentFlow): the outcome of the whole is that of each turn.
    """
    r, group = floats(rewards), codes(groups)
    same_shape("broadcast", rewards=r, groups=group)
    return like(rewards, standardised(r, group, epsilon))


def leave_one_out(rewards: Array, groups: Any) -> Array:
    """(B,) rewards and groups to (B,): r - mean of the *others* of the group = K / (K - 1) (r - mean), for K known rewards.

    RLOO (Kool et al. 2019; Ahmadian et al. 2024), and LOOP (Chen et al. 2025). Without a deviation: unbiased. One alone gets 0.
    """
    r, group = floats(rewards), codes(groups)
    same_shape("leave_one_out", rewards=r, groups=group)
    known = np.bincount(group, weights=~np.isnan(r), minlength=int(group.max(initial=-1)) + 1)[group]
    factor = np.divide(known, known - 1, out=np.zeros(len(r)), where=known > 1)
    differ = pooled_std(r, group, np.arange(len(r))) > 0
    return like(rewards, np.where(differ & ~np.isnan(r), factor * (r - pooled_mean(r, group)), 0.0))


def batch_std(rewards: Array, groups: Any, *, epsilon: float = EPSILON) -> Array:
    """(B,) rewards and groups to (B,): (r - mean of the group) / (deviation of the whole batch + epsilon).

    Lite PPO (Liu et al. 2025, "Tricks or Traps?"): a group of nearly equal rewards is not blown up to unit variance.
    """
    r, group = floats(rewards), codes(groups)
    same_shape("batch_std", rewards=r, groups=group)
    std = pooled_std(r, np.zeros(len(r), dtype=np.int64), np.arange(len(r)))
    return like(rewards, scaled(r - pooled_mean(r, group), std, epsilon))


def per_task(rewards: Array, groups: Any, tasks: Any, *, epsilon: float = EPSILON) -> Array:
    """(B,) rewards, groups and tasks to (B,): the mean of the group as baseline, then mean 0 and deviation 1 within each *task*.

    AgentRL (Zhang et al. 2025): kinds of tasks whose rewards differ in scale weigh equally, and the scale of one moves no
    gradient of another. A task holds whole groups: a kind of environment, or a family.
    """
    r, group, task = floats(rewards), codes(groups), codes(tasks)
    same_shape("per_task", rewards=r, groups=group, tasks=task)
    return like(rewards, standardised(r - pooled_mean(r, group), task, epsilon))
