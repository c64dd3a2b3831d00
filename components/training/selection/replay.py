"""Replay: a past success stands in for one attempt of a group that failed altogether, so that the group teaches something."""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from ..credit.arrays import codes, flags, floats
from .groups import unsolved

Attempt = TypeVar("Attempt")


class Success(msgspec.Struct, Generic[Attempt], frozen=True):
    """An attempt that solved its task, and the optimiser step at which it was played."""

    task: str
    attempt: Attempt
    step: int


class Replacement(msgspec.Struct, Generic[Attempt], frozen=True):
    """What takes a row's place. `staleness`: how many optimiser steps ago it was played; to be logged."""

    row: int
    success: Success[Attempt]
    staleness: int


class ReplayBuffer(Generic[Attempt]):
    """The last successes of each task, at most `per_task` of them (ARPO, Lu et al. 2025, arXiv:2505.16282).

    A replayed attempt was sampled by an older policy: keep the log-probabilities that it was sampled with beside it, and use them
    as the old ones. `max_staleness`: older ones are forgotten; None keeps all.
    """

    def __init__(
        self, per_task: int = 4, max_staleness: int | None = None, kept: Iterable[Success[Attempt]] = ()
    ) -> None:
        self.per_task, self.max_staleness = per_task, max_staleness
        self._by_task: dict[str, list[Success[Attempt]]] = {}
        for each in kept:
            self.add(each)

    def add(self, success: Success[Attempt]) -> None:
        """Keep one more; the oldest of its task goes where there is no room."""
        found = [*self._by_task.get(success.task, ()), success]
        self._by_task[success.task] = sorted(found, key=lambda each: each.step)[-self.per_task :]

    def kept(self) -> list[Success[Attempt]]:
        """All of them, by task: what a checkpoint saves, and `ReplayBuffer(kept=...)` takes back."""
        return [each for task in sorted(self._by_task) for each in self._by_task[task]]

    def replacements(self, solved: Any, groups: Any, tasks: Sequence[str], step: int) -> list[Replacement[Attempt]]:
        """For each group (B,) whose known attempts all failed (`solved` (B,), NaN unknown) and whose task has a success: one.

        It takes the place of an attempt that nobody knows the end of, or else of the group's last; it is the latest success.
        """
        known, group = ~np.isnan(floats(solved)), codes(groups)
        failed = flags(unsolved(floats(solved), groups))
        found = []
        for each in np.unique(group[failed]):
            rows = np.flatnonzero(group == each)
            success = self._latest(tasks[int(rows[0])], step)
            if success is not None:
                unknown = rows[~known[rows]]
                row = int(unknown[0] if len(unknown) else rows[-1])
                found.append(Replacement(row, success, step - success.step))
        return found

    def _latest(self, task: str, step: int) -> Success[Attempt] | None:
        fresh = [
            each
            for each in self._by_task.get(task, ())
            if self.max_staleness is None or step - each.step <= self.max_staleness
        ]
        return fresh[-1] if fresh else None
