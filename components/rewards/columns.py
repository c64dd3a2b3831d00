"""Columns: the scores of many episodes as flat arrays, without an object for each of millions of rows.

A step gives one row for each of its scorers, and steps of the same scorers are of one *kind*; so does the episode as a whole (turn
and step -1). Rows of an episode are sorted by turn, step and scorer.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from .episode_score import WHOLE, EpisodeScore

PROCESS, EFFICIENCY, TOTAL = "process", "efficiency", "total"
_MOST = 1 << 31


class Columns(NamedTuple):
    """`episodes` and `versions` (of the scorer) by episode, and how many rows each has, in their order; then by row.

    `scorer` is a place in `scorers`, which are sorted; `score` is NaN where nothing was scored.
    """

    episodes: list[str]
    versions: list[str]
    rows: NDArray[np.int64]
    scorers: tuple[str, ...]
    turn: NDArray[np.int32]
    step: NDArray[np.int32]
    scorer: NDArray[np.int16]
    score: NDArray[np.float64]

    def of_episodes(self, scorer: str) -> NDArray[np.int64]:
        """The row of that scorer (`total`, say) for each episode, in order."""
        return np.flatnonzero(self.scorer == self.scorers.index(scorer)) if scorer in self.scorers else _NO_ROWS


_NO_ROWS = np.empty(0, dtype=np.int64)


class _Kind:
    """The steps of the same scorers: their values but for `process`, flat, and their places among all steps."""

    def __init__(self, others: Sequence[str]) -> None:
        ordered = sorted(others)
        self.names = sorted([*others, PROCESS])
        self.get = itemgetter(*ordered) if len(ordered) > 1 else lambda scores: [scores[each] for each in ordered]
        self.values: list[float | None] = []
        self.process: list[float | None] = []
        self.steps: list[int] = []


class Gathering:
    """The scores of episodes while they are made, one after the other."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        self._episodes: list[str] = []
        self._versions: list[str] = []
        self._begins: list[int] = []
        self._turns: list[int] = []
        self._places: list[int] = []

    def add(self, scored: EpisodeScore) -> None:
        """The rows of one episode: of the whole, of its layers, and of its steps, whether scored or not.

        Raises OverflowError for a turn that the table cannot number.
        """
        if not all(-_MOST <= step.turn < _MOST for step in scored.steps):
            raise OverflowError("the number of a turn is beyond 32 bits")
        self._episodes.append(scored.episode_id)
        self._versions.append(scored.version)
        self._begins.append(len(self._turns))
        whole: dict[str, float | None] = {f"layer.{name}": layer.score for name, layer in scored.layers.items()}
        if scored.verifiable is not msgspec.UNSET:
            whole |= {f"verifiable.{name}": score for name, score in scored.verifiable.items()}
        whole |= {"outcome": scored.outcome, EFFICIENCY: scored.efficiency, TOTAL: scored.total}
        self._add(WHOLE, WHOLE, scored.process, whole)
        for step in scored.steps:
            self._add(step.turn, step.step, step.total, step.scores)

    def _add(self, turn: int, place: int, process: float | None, scores: dict[str, float | None]) -> None:
        names = tuple(scores)
        kind = self._kinds.get(names) or self._kinds.setdefault(names, _Kind(names))
        kind.steps.append(len(self._turns))
        kind.values.extend(kind.get(scores))
        kind.process.append(process)
        self._turns.append(turn)
        self._places.append(place)

    def columns(self) -> Columns:
        """All that was added."""
        turns, places = np.array(self._turns, dtype=np.int32), np.array(self._places, dtype=np.int32)
        scorers = tuple(sorted({name for kind in self._kinds.values() for name in kind.names}))
        sizes = np.zeros(len(turns), dtype=np.int64)
        for kind in self._kinds.values():
            sizes[kind.steps] = len(kind.names)
        ends = np.cumsum(sizes)
        count = int(ends[-1]) if len(ends) else 0
        scorer, score = np.empty(count, dtype=np.int16), np.empty(count, dtype=np.float64)
        for kind in self._kinds.values():
            _fill(kind, ends - sizes, scorers, scorer, score)
        begins = np.array(self._begins, dtype=np.int64)
        rows = np.diff(np.append((ends - sizes)[begins], count)) if count else _NO_ROWS
        found = Columns(
            self._episodes,
            self._versions,
            rows,
            scorers,
            np.repeat(turns, sizes),
            np.repeat(places, sizes),
            scorer,
            score,
        )
        return found if _is_sorted(turns, places, begins) else _sorted(found)


def _fill(
    kind: _Kind, begins: NDArray[np.int64], scorers: Sequence[str], scorer: NDArray[Any], score: NDArray[Any]
) -> None:
    """Put the steps of a kind where they belong. None becomes NaN."""
    own = kind.names.index(PROCESS)
    rows = begins[kind.steps][:, None] + np.arange(len(kind.names))
    scorer[rows] = [scorers.index(name) for name in kind.names]
    score[rows[:, own]] = np.array(kind.process, dtype=np.float64)
    others = np.delete(rows, own, axis=1)
    score[others] = np.array(kind.values, dtype=np.float64).reshape(others.shape)


def _is_sorted(turns: NDArray[np.int32], places: NDArray[np.int32], begins: NDArray[np.int64]) -> bool:
    """Whether the steps of each episode come in order, each once, as they do in every episode of our own."""
    keys = (turns.astype(np.int64) << 32) + places
    rises = keys[1:] > keys[:-1]
    rises[begins[1:] - 1] = True
    return bool(rises.all())


def _sorted(columns: Columns) -> Columns:
    episode = np.repeat(np.arange(len(columns.episodes)), columns.rows)
    order = np.lexsort((columns.scorer, columns.step, columns.turn, episode))
    return columns._replace(
        turn=columns.turn[order], step=columns.step[order], scorer=columns.scorer[order], score=columns.score[order]
    )


def joined(parts: Sequence[Columns]) -> Columns:
    """The columns of several shards as one, in their order."""
    scorers = tuple(sorted({name for part in parts for name in part.scorers}))
    place = {name: number for number, name in enumerate(scorers)}
    codes = [np.array([place[name] for name in part.scorers], dtype=np.int16)[part.scorer] for part in parts]
    return Columns(
        [each for part in parts for each in part.episodes],
        [each for part in parts for each in part.versions],
        _together([part.rows for part in parts], np.int64),
        scorers,
        _together([part.turn for part in parts], np.int32),
        _together([part.step for part in parts], np.int32),
        _together(codes, np.int16),
        _together([part.score for part in parts], np.float64),
    )


def _together(arrays: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=kind)
