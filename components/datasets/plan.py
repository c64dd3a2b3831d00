"""The plan of an export: every row in its order, and the pieces of episodes that it is made of. Nothing is read here.

Workers render the pieces, shard by shard; a row is put together when its turn to be written comes. No list of trajectories is held.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from components.quality.split import Split

from .groups import groups_of
from .params import ExportParams
from .ranked import Pair, Ranked
from .rows import Row, benchmark_row, dpo_row, group_row, grpo_row, rollout_row, sft_row, trace_row
from .shown import WRITTEN, Want, What, sides_of
from .steps import StepScores


class Planned(NamedTuple):
    """One row: `make` puts it together of its pieces, given in the order of their numbers.

    Of a row that is one piece, a whole line, `ranked` says what else there is to know. A row that is not `decoded` shows its
    pieces as they are, before all else.
    """

    split: Split
    pieces: Sequence[int]
    make: Callable[..., Row]
    ranked: Ranked | None = None
    decoded: bool = False


class Wants:
    """The pieces that are wanted, by episode; each gets a number. `written`: whether whole records have to be read for them."""

    def __init__(self) -> None:
        self.by_episode: dict[str, list[Want]] = defaultdict(list)
        self.count = 0
        self.written = False

    def piece(
        self, row: Ranked, what: What, turn: int = 0, weights: tuple[float, ...] = (), end: bytes | None = None
    ) -> int:
        """Want a piece of an episode; its number."""
        number = self.count
        self.count += 1
        self.written |= what in WRITTEN
        self.by_episode[row.episode_id].append(Want(number, what, turn, weights, end))
        return number


class Source(NamedTuple):
    """What a plan is made from. `own_only`: demonstrations are left out of what is imitated."""

    ranked: Mapping[str, Ranked]
    pairs: Sequence[Pair]
    steps: StepScores
    params: ExportParams
    own_only: bool


def plan(dataset: str, source: Source, wants: Wants) -> list[Planned]:
    """The rows of a dataset, in order; what they show is added to `wants`."""
    return list(_PLANS[dataset](source, wants))


def scored_episodes(datasets: Iterable[str], source: Source) -> set[str]:
    """The episodes whose step scores some row of these datasets shows."""
    wanted = set()
    if "sft" in datasets and source.params.step_weights:
        wanted |= {row.episode_id for row in _imitated(source)}
    if "dpo" in datasets and source.params.step_weights:
        wanted |= {
            each
            for pair in source.pairs
            if pair.turn < 0
            for each in (pair.chosen_episode_id, pair.rejected_episode_id)
        }
    if "groups" in datasets and source.params.group_size:
        groups = groups_of(source.ranked.values(), source.params.group_size)
        wanted |= {row.episode_id for members in groups for row in members}
    return wanted


def _imitated(source: Source) -> list[Ranked]:
    """The episodes that become SFT rows, by task and `episode_id`."""
    rows = [
        row
        for row in source.ranked.values()
        if row.accepted and row.usable and row.fits and (row.source == "on_policy" or not source.own_only)
    ]
    return sorted(rows, key=lambda row: (row.task_id, row.episode_id))


def _usable(source: Source) -> list[Ranked]:
    """The attempts that fit, by task and `episode_id`."""
    rows = [row for row in source.ranked.values() if row.usable and row.fits]
    return sorted(rows, key=lambda row: (row.task_id, row.episode_id))


def by_task(ranked: Mapping[str, Ranked]) -> list[list[Ranked]]:
    """The usable attempts at each task of which one fits, by `episode_id`; tasks by name."""
    tasks: dict[str, list[Ranked]] = defaultdict(list)
    for row in ranked.values():
        if row.usable:
            tasks[row.task_id].append(row)
    ordered = (sorted(tasks[task], key=lambda row: row.episode_id) for task in sorted(tasks))
    return [attempts for attempts in ordered if any(row.fits for row in attempts)]


def _sft(source: Source, wants: Wants) -> Iterator[Planned]:
    for row in _imitated(source):
        weights: tuple[float, ...] = ()
        if source.params.step_weights:
            weights = source.steps.weights(row.episode_id, row.turns)
        line = wants.piece(row, "chat", weights=weights, end=_end(row))
        yield Planned(_split(row), (line,), partial(sft_row, ranked=row), row)


def _dpo(source: Source, wants: Wants) -> Iterator[Planned]:
    for pair in source.pairs:
        chosen, rejected = source.ranked[pair.chosen_episode_id], source.ranked[pair.rejected_episode_id]
        (before, prompt_turn), (side, turn) = sides_of(pair)
        good: tuple[float, ...] = ()
        bad: tuple[float, ...] = ()
        if pair.turn < 0 and source.params.step_weights:
            good = source.steps.weights(chosen.episode_id, chosen.turns)
            bad = source.steps.shortfalls(rejected.episode_id, rejected.turns)
        pieces = (
            wants.piece(chosen, before, prompt_turn),
            wants.piece(chosen, side, turn, good),
            wants.piece(rejected, side, turn, bad),
            wants.piece(chosen, "tools"),
        )
        yield Planned(_split(chosen), pieces, partial(dpo_row, pair=pair, sides=(chosen, rejected)))


def _grpo(source: Source, wants: Wants) -> Iterator[Planned]:
    for attempts in by_task(source.ranked):
        pieces = wants.piece(attempts[0], "opening"), wants.piece(attempts[0], "tools")
        yield Planned(_split(attempts[0]), pieces, partial(grpo_row, attempts=attempts))


def _benchmark(source: Source, wants: Wants) -> Iterator[Planned]:
    for attempts in by_task(source.ranked):
        pieces = wants.piece(attempts[0], "opening"), wants.piece(attempts[0], "tools")
        yield Planned(_split(attempts[0]), pieces, partial(benchmark_row, attempts=attempts))


def _groups(source: Source, wants: Wants) -> Iterator[Planned]:
    if not source.params.group_size:
        return
    for members in groups_of(source.ranked.values(), source.params.group_size):
        shown = [wants.piece(members[0], "opening"), wants.piece(members[0], "tools")]
        shown += [wants.piece(row, "rest") for row in members]
        steps = [source.steps.of(row.episode_id, row.turns) for row in members]
        yield Planned(_split(members[0]), shown, partial(group_row, members=members, steps=steps))


def _verifiers(source: Source, wants: Wants) -> Iterator[Planned]:
    for row in _usable(source):
        yield Planned(_split(row), (wants.piece(row, "trace"),), partial(_decoded, trace_row, row), decoded=True)


def _prime_rl(source: Source, wants: Wants) -> Iterator[Planned]:
    for row in _usable(source):
        yield Planned(_split(row), (wants.piece(row, "rollout"),), partial(_decoded, rollout_row, row), decoded=True)


def _decoded(make: Callable[..., Row], row: Ranked, shown: msgspec.Raw) -> Row:
    return make(msgspec.json.decode(shown), row)


_BEFORE = b'{"messages":null,"tools":null'


def _end(row: Ranked) -> bytes:
    """What stands after messages and tools in the line of an SFT row."""
    null = msgspec.Raw(b"null")
    return msgspec.json.encode(sft_row(null, null, row)).removeprefix(_BEFORE)


def _split(row: Ranked) -> Split:
    """The split of a usable row, which has one."""
    return row.split or "train"


_PLANS: dict[str, Callable[[Source, Wants], Iterator[Planned]]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": _grpo,
    "groups": _groups,
    "benchmark": _benchmark,
    "verifiers": _verifiers,
    "prime-rl": _prime_rl,
}
