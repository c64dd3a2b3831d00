"""From trajectories, ranks and pairs to the rows of every dataset, by split. Pure but for reading the sealed nights."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import msgspec

from components.protocol import DataError
from components.trajectories.lineage import with_ancestors
from components.trajectories.record import Trajectory
from components.trajectories.shards import read_folder

from .params import ExportParams
from .ranked import Pair, Ranked
from .rows import Row, dpo_row, grpo_row, sft_row
from .split import SPLITS

DATASETS = ("sft", "dpo", "grpo")


class Datasets(msgspec.Struct, frozen=True):
    """Rows by dataset and split, sorted, so that the same episodes give the same files."""

    rows: dict[str, dict[str, list[Row]]]


def needed(ranked: Mapping[str, Ranked], pairs: Iterable[Pair], *, on_policy_only: bool) -> set[str]:
    """The episodes whose messages some row shows: the accepted ones, both sides of each pair, one per task."""
    wanted = {row.episode_id for row in ranked.values() if trained(row, on_policy_only=on_policy_only)}
    for pair in pairs:
        wanted |= {pair.chosen_episode_id, pair.rejected_episode_id}
    return wanted | {attempts[0].episode_id for attempts in by_task(ranked).values()}


def trained(row: Ranked, *, on_policy_only: bool) -> bool:
    """Whether an episode becomes an SFT row."""
    return row.accepted and row.usable and (row.source == "on_policy" or not on_policy_only)


def by_task(ranked: Mapping[str, Ranked]) -> dict[str, list[Ranked]]:
    """The usable episodes of each task, by `episode_id`."""
    tasks: dict[str, list[Ranked]] = defaultdict(list)
    for episode in sorted(ranked):
        if ranked[episode].usable:
            tasks[ranked[episode].task_id].append(ranked[episode])
    return tasks


def read_needed(folders: Iterable[Path], wanted: set[str]) -> dict[str, Trajectory]:
    """Those trajectories by `episode_id`, branches completed. Raises DataError where one is in none of the folders."""
    nights = list(folders)
    episodes = with_ancestors(lambda: chain.from_iterable(read_folder(folder) for folder in nights))
    found = {each.episode_id: each for each in episodes if each.episode_id in wanted}
    if absent := sorted(wanted - found.keys()):
        raise DataError(f"{absent[0]} is ranked and stands in none of the nights; run the build again")
    return found


def build_rows(
    ranked: Mapping[str, Ranked],
    pairs: Iterable[Pair],
    trajectories: Mapping[str, Trajectory],
    params: ExportParams,
    *,
    on_policy_only: bool,
) -> Datasets:
    """The rows of each dataset. One split holds for all three."""
    rows: dict[str, dict[str, list[Row]]] = {name: {split: [] for split in SPLITS} for name in DATASETS}
    for row in sorted(ranked.values(), key=lambda each: (each.task_id, each.episode_id)):
        if trained(row, on_policy_only=on_policy_only):
            rows["sft"][row.split(params)].append(sft_row(trajectories[row.episode_id], row))
    for pair in pairs:
        chosen = ranked[pair.chosen_episode_id]
        sides = trajectories[pair.chosen_episode_id], trajectories[pair.rejected_episode_id]
        rows["dpo"][chosen.split(params)].append(dpo_row(pair, *sides, chosen))
    for _, attempts in sorted(by_task(ranked).items()):
        first = attempts[0]
        rows["grpo"][first.split(params)].append(grpo_row(trajectories[first.episode_id], attempts))
    return Datasets(rows)
