"""What selection remembers between steps: past successes to play again from, and which families of tasks teach.

It is part of a checkpoint: a job that goes on after a kill chooses what it would have chosen.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from components.protocol import PlayableTask

from ..selection import ReplayBuffer, SelectionOptions, Success, UcbCurriculum, unsolved
from .outing import Outing, seed_of


class _State(msgspec.Struct):
    successes: list[Success[Outing]] = []
    families: dict[str, Any] | None = None


class Chooser:
    """One of each process: groups that lie across processes are neither replayed nor guided."""

    def __init__(self, options: SelectionOptions, tasks: Sequence[PlayableTask]) -> None:
        self.options = options
        self._by_family: dict[str, list[str]] = {}
        for task in tasks:
            self._by_family.setdefault(task.family, []).append(task.task_id)
        replay, ucb = options.replay, options.curriculum_ucb
        self._replay = None if replay is None else ReplayBuffer[Outing](replay.per_task, replay.max_staleness)
        self._families = None if ucb is None else UcbCurriculum(list(self._by_family), **ucb.model_dump())

    def tasks(self, asked: Sequence[str], *, size: int, first: int, total: int, when: str) -> list[str]:
        """The tasks to play in place of those asked for; `first` and `total`: attempts before these, and in all processes.

        With `curriculum_ucb` each group's family is drawn, then a task of it; every process draws the same for all.
        """
        if self._families is None:
            return list(asked)
        families = self._families.draw(total // size, seed_of(when, "families"))
        drawn = []
        for group, family in enumerate(families):
            known = self._by_family[family]
            drawn.append(known[seed_of(when, "task", group) % len(known)])
        return [drawn[(first + place) // size] for place in range(len(asked))]

    def failed(self, outings: Sequence[Outing], *, size: int, first: int) -> list[int]:
        """The places at which whole groups begin of which every known attempt failed."""
        solved, groups = _whole_groups(outings, size, first)
        flags = unsolved(solved, groups)
        return [place for place in range(len(outings)) if flags[place] and (first + place) % size == 0]

    def replayed(self, outings: Sequence[Outing], *, size: int, first: int, step: int) -> list[Outing]:
        """The attempts, one of each group that failed altogether replaced by a past success; new successes are kept."""
        if self._replay is None:
            return list(outings)
        found = list(outings)
        solved, groups = _whole_groups(outings, size, first)
        for each in self._replay.replacements(solved, groups, [one.task_id for one in outings], step):
            found[each.row] = msgspec.structs.replace(each.success.attempt, staleness=each.staleness)
        for one in outings:
            if one.solved and not one.off_policy:
                self._replay.add(Success(one.task_id, one, step))
        return found

    def learned(self, outings: Sequence[Outing], advantages: Sequence[float]) -> None:
        """What the attempts of all processes came to, (B,) advantages."""
        if self._families is not None:
            for one, advantage in zip(outings, advantages, strict=True):
                self._families.add(one.family, [advantage])

    def state(self) -> bytes:
        """What a checkpoint saves."""
        successes = [] if self._replay is None else self._replay.kept()
        families = None if self._families is None else self._families.state()
        return msgspec.msgpack.encode(_State(successes, families))

    def restore(self, saved: bytes) -> None:
        """Go on from there."""
        state = msgspec.msgpack.decode(saved, type=_State)
        if self._replay is not None:
            for success in state.successes:
                self._replay.add(success)
        if self._families is not None and state.families is not None:
            self._families.restore(state.families)


def _whole_groups(outings: Sequence[Outing], size: int, first: int) -> tuple[Any, Any]:
    """Whether each attempt solved its task (NaN: not known, or part of a group that lies in two processes), and its group."""
    groups = (first + np.arange(len(outings))) // size
    sizes = Counter(groups.tolist())
    solved = [
        np.nan if one.solved is None or sizes[group] < size else float(one.solved)
        for one, group in zip(outings, groups.tolist(), strict=True)
    ]
    return np.array(solved), groups
