"""The plan of an export: the ordered rows of each dataset, the episodes that each row shows, and the process rewards
that weigh their messages.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..deduplication.split_assignment import SPLITS, Split
from ..parquet_tables import Floats, read_table
from ..stage_params import ExportParams
from .dataset_rows import offline_groups
from .ranked_episodes import RankedEpisode, RankedPair

MIN_MEAN_REWARD = 1e-6
"""Mean process reward below which all messages of an episode get weight 1."""
PROCESS = "process"
"""Name of the scorer whose step score is the weighted mean of all step scorers."""
STEP_SCORE_COLUMNS = {
    "episode_id": "string",
    "turn": "int32",
    "scorer": "string",
    "version": "string",
    "score": "double",
}


class ProcessRewards:
    """Process rewards of selected episodes by turn: the mean score of the turn's steps. `versions` holds the scorer
    versions by night, also for nights without a selected episode.
    """

    def __init__(self) -> None:
        self.versions: dict[str, list[str]] = {}
        self._means: defaultdict[str, dict[int, float]] = defaultdict(dict)

    @classmethod
    def read(cls, paths: Iterable[Path], episode_ids: Collection[str]) -> "ProcessRewards":
        """Read the process rewards of these episodes from the score tables of some nights. Raises DataError."""
        scores = cls()
        for path in paths:
            scores._read(path, episode_ids)
        return scores

    @classmethod
    def of_means(cls, means: Mapping[str, Mapping[int, float]], versions: Iterable[str]) -> "ProcessRewards":
        """Return process rewards that are known already, by episode and turn."""
        scores = cls()
        scores.versions["memory"] = sorted(versions)
        scores._means.update({episode: dict(own) for episode, own in means.items()})
        return scores

    def _read(self, path: Path, episode_ids: Collection[str]) -> None:
        # Dictionaries: the table has a row per step and scorer, each with the episode's id.
        texts = ["episode_id", "scorer", "version"]
        table = read_table(path, STEP_SCORE_COLUMNS, dictionaries=texts, only=None if episode_ids else ["version"])
        self.versions[path.stem] = sorted(map(str, pc.unique(table["version"]).to_pylist()))
        if not episode_ids:
            return
        # Turn -1 holds the score of the whole episode.
        of_steps = pc.and_(pc.equal(table["scorer"], PROCESS), pc.greater_equal(table["turn"], 0))
        table = table.filter(pc.and_(of_steps, pc.is_valid(table["score"]))).select(["episode_id", "turn", "score"])
        table = table.set_column(0, "episode_id", table["episode_id"].cast(pa.string()))
        table = table.filter(pc.is_in(table["episode_id"], pa.array(sorted(episode_ids), pa.string())))
        # One thread: the order of a sum decides its last bit.
        means = table.group_by(["episode_id", "turn"], use_threads=False).aggregate([("score", "mean")])
        rounded = round_to_millionths(means["score_mean"].to_numpy())
        for episode, turn, mean in zip(
            means["episode_id"].to_pylist(), means["turn"].to_pylist(), rounded, strict=True
        ):
            self._means[episode][turn] = mean

    def of(self, episode_id: str, turns: int) -> list[float | None]:
        """Return the process reward of each turn; None for a turn without a scored step."""
        means = self._means.get(episode_id, {})
        return [means.get(turn) for turn in range(turns)]

    def weights(self, episode_id: str, turns: int) -> tuple[float, ...]:
        """Return the weight of each turn's message, proportional to its process reward; see `message_weights`."""
        return message_weights(self.of(episode_id, turns))

    def shortfalls(self, episode_id: str, turns: int) -> tuple[float, ...]:
        """Return message weights for a rejected episode, in which the worst messages weigh most.

        They are proportional to 1 minus the process reward, and normalised to mean 1 as in `message_weights`.
        """
        return message_weights(
            [None if reward is None else max(0.0, 1.0 - reward) for reward in self.of(episode_id, turns)]
        )


def round_to_millionths(values: Floats) -> list[float]:
    """Return Python's `round(value, 6)` of each value, which unlike `numpy.round` rounds the exact decimal value."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * 1e6
        rounded = np.rint(scaled) / 1e6  # the quotient of two exact numbers is the double nearest to the decimal
        # The product is inexact: next to a tie, and where a double has too few bits left, only Python's own is right.
        unsure = (np.abs(scaled - np.floor(scaled) - 0.5) < 1e-3) | ~(np.abs(scaled) < 2.0**40)
    rounded[unsure] = [round(value, 6) for value in values[unsure].tolist()]
    return list(rounded.tolist())


def message_weights(scores: Sequence[float | None]) -> tuple[float, ...]:
    """Return a weight per assistant message, proportional to its process reward, with mean 1.

    Messages without a process reward get 1. If the known rewards have a mean below `MIN_MEAN_REWARD`, all weights are
    1, so that an episode never has zero weight.
    """
    rewards = [score for score in scores if score is not None]
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    if mean < MIN_MEAN_REWARD:
        return (1.0,) * len(scores)
    return tuple(1.0 if score is None else round(score / mean, 6) for score in scores)


class PlannedRow(NamedTuple):
    """One row: its split, the episodes whose messages it contains, and the pair (DPO) or the list of all attempts at
    the task (GRPO, benchmark) that it is made from. `subject` is None for other datasets.
    """

    split: Split
    episodes: Sequence[RankedEpisode]
    subject: Any = None


class ExportTables(NamedTuple):
    """Input tables of a plan: episodes by id, exportable pairs, and process rewards. `own_only` restricts SFT rows to
    on-policy episodes; `pairs` are already restricted.
    """

    ranked: Mapping[str, RankedEpisode]
    pairs: Sequence[RankedPair]
    steps: ProcessRewards
    params: ExportParams
    own_only: bool


def plan_rows(dataset: str, source: ExportTables) -> dict[Split, list[PlannedRow]]:
    """Return the rows of a dataset by split, in export order."""
    rows_by_split: dict[Split, list[PlannedRow]] = {split: [] for split in SPLITS}
    for row in _PLANS[dataset](source):
        rows_by_split[row.split].append(row)
    return rows_by_split


def scored_episodes(datasets: Iterable[str], source: ExportTables) -> set[str]:
    """Return the ids of the episodes whose step scores are used by rows of these datasets."""
    episode_ids = set()
    if "sft" in datasets and source.params.step_weights:
        episode_ids |= {row.episode_id for row in _sft_episodes(source)}
    if "dpo" in datasets and source.params.step_weights:
        episode_ids |= {
            episode_id
            for pair in source.pairs
            if pair.turn < 0
            for episode_id in (pair.chosen_episode_id, pair.rejected_episode_id)
        }
    if "groups" in datasets and source.params.group_size:
        groups = offline_groups(source.ranked.values(), source.params.group_size)
        episode_ids |= {row.episode_id for members in groups for row in members}
    return episode_ids


def _sft_episodes(source: ExportTables) -> list[RankedEpisode]:
    """Return the episodes that become SFT rows, sorted by task and `episode_id`."""
    rows = [
        row
        for row in source.ranked.values()
        if row.accepted and row.usable and row.fits and (row.source == "on_policy" or not source.own_only)
    ]
    return sorted(rows, key=lambda row: (row.task_id, row.episode_id))


def _usable(source: ExportTables) -> list[RankedEpisode]:
    """Return the usable episodes that pass the filters, sorted by task and `episode_id`."""
    rows = [row for row in source.ranked.values() if row.usable and row.fits]
    return sorted(rows, key=lambda row: (row.task_id, row.episode_id))


def attempts_by_task(ranked: Mapping[str, RankedEpisode]) -> list[list[RankedEpisode]]:
    """Return the usable attempts at each task that has at least one attempt that passes the filters.

    Tasks are sorted by id, and attempts by `episode_id`.
    """
    tasks: dict[str, list[RankedEpisode]] = defaultdict(list)
    for row in ranked.values():
        if row.usable:
            tasks[row.task_id].append(row)
    ordered = (sorted(tasks[task], key=lambda row: row.episode_id) for task in sorted(tasks))
    return [attempts for attempts in ordered if any(row.fits for row in attempts)]


def _sft(source: ExportTables) -> Iterator[PlannedRow]:
    for row in _sft_episodes(source):
        yield PlannedRow(_split(row), (row,))


def _dpo(source: ExportTables) -> Iterator[PlannedRow]:
    for pair in source.pairs:
        chosen, rejected = source.ranked[pair.chosen_episode_id], source.ranked[pair.rejected_episode_id]
        yield PlannedRow(_split(chosen), (chosen, rejected), pair)


def _tasks(source: ExportTables) -> Iterator[PlannedRow]:
    for attempts in attempts_by_task(source.ranked):
        yield PlannedRow(_split(attempts[0]), attempts[:1], attempts)


def _groups(source: ExportTables) -> Iterator[PlannedRow]:
    if source.params.group_size:
        for members in offline_groups(source.ranked.values(), source.params.group_size):
            yield PlannedRow(_split(members[0]), members)


def _attempts(source: ExportTables) -> Iterator[PlannedRow]:
    for row in _usable(source):
        yield PlannedRow(_split(row), (row,))


def _split(row: RankedEpisode) -> Split:
    """Return the split of a usable episode, which is never None."""
    return row.split or "train"


_PLANS: dict[str, Callable[[ExportTables], Iterator[PlannedRow]]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": _tasks,
    "groups": _groups,
    "benchmark": _tasks,
    "verifiers": _attempts,
    "prime-rl": _attempts,
}
