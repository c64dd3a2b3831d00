"""Curriculum: the order in which a run reads its rows, easy ones first (`curriculum_ratio`).

The order is that of the whole run, known before its first step. It changes which rows a step reads and nothing else: steps,
learning rate and checkpoints are those of the same run without it.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from .config.curriculum import Curriculum
from .selection import curriculum_order


def pool_size(rows: int, progress: float, curriculum: Curriculum) -> int:
    """How many of the easiest rows a run draws from after this share of its steps (0 to 1), at least one.

    From `start_ratio` of them it grows linearly to all of them at `warmup_ratio` of the run.
    """
    grown = min(1.0, progress / curriculum.warmup_ratio) if curriculum.warmup_ratio else 1.0
    share = curriculum.start_ratio + (1.0 - curriculum.start_ratio) * grown
    return max(1, min(rows, math.ceil(share * rows - 1e-9)))


def draw(order: Sequence[int], curriculum: Curriculum, *, steps: int, batch_size: int, seed: int) -> list[int]:
    """The rows of a whole run, `steps * batch_size` of them. `order`: rows from the easiest on.

    A run goes through its pool in random order, then through the pool as it is by then, and so on: each pass reads a row once.
    """
    random = np.random.default_rng(seed)
    wanted = steps * batch_size
    drawn: list[int] = []
    while len(drawn) < wanted:
        pool = pool_size(len(order), len(drawn) / wanted, curriculum)
        drawn += [order[index] for index in random.permutation(pool)]
    return drawn[:wanted]


def run_order(
    curriculum: Curriculum | None,
    lengths: Sequence[int],
    rewards: Sequence[float],
    *,
    steps: int,
    batch_size: int,
    seed: int,
) -> list[int] | None:
    """The rows of a whole run by `curriculum_ratio`: short and well-rewarded ones are easy. None without a curriculum."""
    if curriculum is None:
        return None
    order = curriculum_order(lengths, rewards).tolist()
    return draw(order, curriculum, steps=steps, batch_size=batch_size, seed=seed)


class RunSampler(torch.utils.data.Sampler[int]):  # type: ignore[misc]
    """Reads rows in a given order, once: a run of one epoch, which a resumed trainer skips its way into."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)
