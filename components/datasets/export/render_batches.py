"""Rendering of the planned rows of an export in batches, by worker processes if the rollouts are large."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ratchet.components.core import DataError
from ratchet.components.trajectories.parallel_shards import ShardProgress, map_ordered

from ..deduplication.split_assignment import SPLITS, Split
from .dataset_files import PLACEHOLDER, RowBatch, RowLine, encode_row, episode_line, make_batch, trace_source
from .dataset_rows import Row, benchmark_row, dpo_row, group_row, grpo_row, rollout_row, sft_row, trace_row
from .export_plan import ExportTables, PlannedRow
from .message_views import EpisodeViews, MessageView, edited_view, pair_views
from .ranked_episodes import RankedEpisode
from .shard_offsets import ShardOffsets

OPENING, REST, TOOLS, TRACE, ROLLOUT = (
    MessageView("opening"),
    MessageView("rest"),
    MessageView("tools"),
    MessageView("trace"),
    MessageView("rollout"),
)


def _sft(planned: PlannedRow, source: ExportTables, episodes: EpisodeViews) -> RowLine:
    row = planned.episodes[0]
    weights = source.steps.weights(row.episode_id, row.turns) if source.params.step_weights else ()
    return episode_line(episodes.json(row.episode_id, MessageView("chat", 0, weights, _end(row))), row)


_BEFORE = b'{"messages":null,"tools":null'


def _end(row: RankedEpisode) -> bytes:
    """Return the JSON of an SFT row after its messages and tools."""
    return msgspec.json.encode(sft_row(PLACEHOLDER, PLACEHOLDER, row)).removeprefix(_BEFORE)


def _dpo(planned: PlannedRow, source: ExportTables, episodes: EpisodeViews) -> RowLine:
    (chosen, rejected), pair = planned.episodes, planned.subject
    (before, prompt_turn), (side, turn) = pair_views(pair)
    good: tuple[float, ...] = ()
    bad: tuple[float, ...] = ()
    if pair.turn < 0 and source.params.step_weights:
        good = source.steps.weights(chosen.episode_id, chosen.turns)
        bad = source.steps.shortfalls(rejected.episode_id, rejected.turns)
    pieces = (
        episodes.json(chosen.episode_id, MessageView(before, prompt_turn)),
        edited_view(pair.edit, source.params.agent_format)
        if pair.edit
        else episodes.json(chosen.episode_id, MessageView(side, turn, good)),
        episodes.json(rejected.episode_id, MessageView(side, turn, bad)),
        episodes.json(chosen.episode_id, TOOLS),
    )
    return encode_row(
        dpo_row(PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, pair, (chosen, rejected)), pieces=pieces
    )


def _of_task(make: Callable[..., Row], planned: PlannedRow, episodes: EpisodeViews) -> RowLine:
    name = planned.episodes[0].episode_id
    pieces = episodes.json(name, OPENING), episodes.json(name, TOOLS)
    return encode_row(make(PLACEHOLDER, PLACEHOLDER, planned.subject), pieces=pieces)


def _groups(planned: PlannedRow, source: ExportTables, episodes: EpisodeViews) -> RowLine:
    members = planned.episodes
    pieces = [episodes.json(members[0].episode_id, view) for view in (OPENING, TOOLS)]
    pieces += [episodes.json(row.episode_id, REST) for row in members]
    steps = [source.steps.of(row.episode_id, row.turns) for row in members]
    return encode_row(group_row(*[PLACEHOLDER] * len(pieces), members=members, steps=steps), pieces=pieces)


def _verifiers(planned: PlannedRow, source: ExportTables, episodes: EpisodeViews) -> RowLine:
    row = planned.episodes[0]
    return encode_row(trace_row(msgspec.json.decode(episodes.json(row.episode_id, TRACE)), row), trace_source)


def _prime_rl(planned: PlannedRow, source: ExportTables, episodes: EpisodeViews) -> RowLine:
    row = planned.episodes[0]
    return encode_row(rollout_row(msgspec.json.decode(episodes.json(row.episode_id, ROLLOUT)), row))


_LINES: dict[str, Callable[[PlannedRow, ExportTables, EpisodeViews], RowLine]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": lambda planned, _, episodes: _of_task(grpo_row, planned, episodes),
    "groups": _groups,
    "benchmark": lambda planned, _, episodes: _of_task(benchmark_row, planned, episodes),
    "verifiers": _verifiers,
    "prime-rl": _prime_rl,
}


BATCH_ROWS = 64
"""Rows per batch."""

Plans = Mapping[str, Mapping[Split, Sequence[PlannedRow]]]
"""Planned rows by dataset and split."""


class RowRange(NamedTuple):
    """Up to `BATCH_ROWS` rows of a split, from index `begin`."""

    dataset: str
    split: Split
    begin: int


class RenderWork(NamedTuple):
    """Plans, tables and episodes from which batches are rendered."""

    plans: Plans
    source: ExportTables
    episodes: EpisodeViews

    def batch(self, part: RowRange) -> RowBatch:
        """Return the encoded rows of a range with their hashes. Raises DataError."""
        rows = self.plans[part.dataset][part.split][part.begin : part.begin + BATCH_ROWS]
        line = _LINES[part.dataset]
        return make_batch([line(row, self.source, self.episodes) for row in rows])


def row_ranges(plans: Plans) -> list[RowRange]:
    """Return the row ranges of all batches, in the order of datasets, splits and rows."""
    return [
        RowRange(name, split, begin)
        for name, rows in plans.items()
        for split in SPLITS
        for begin in range(0, len(rows[split]), BATCH_ROWS)
    ]


def check_episodes_present(plans: Plans, places: ShardOffsets) -> None:
    """Check that every episode of the planned rows is in one of the nights. Raises DataError."""
    episode_ids = (
        row.episode_id
        for rows in plans.values()
        for own in rows.values()
        for planned in own
        for row in planned.episodes
    )
    if absent := {name for name in episode_ids if name not in places}:
        raise DataError(f"{min(absent)} is ranked and is in none of the nights; run the build again")


def rendered_batches(
    work: RenderWork, *, in_memory: bool, workers: int | None = None, on_progress: ShardProgress | None = None
) -> Iterator[RowBatch]:
    """Yield the rows of all row ranges in order, a batch for each.

    If the shards are in memory, rows are rendered in this process, since starting workers would take longer. Raises
    DataError, and InfrastructureError if a worker was killed.
    """
    # The order of the batches, and so each byte, is the same with any number of workers.
    return map_ordered(row_ranges(work.plans), work.batch, workers=1 if in_memory else workers, on_progress=on_progress)
