"""Rendered: planned rows as lines."""

from collections.abc import Callable, Iterable

import msgspec

from .episodes import Episodes
from .plan import Planned, Source
from .ranked import Ranked
from .rows import Row, benchmark_row, dpo_row, group_row, grpo_row, rollout_row, sft_row, trace_row
from .shown import Want, sides_of
from .written import LATER, Batch, Line, batch_of, line_of, ranked_line, trace_origin

OPENING, REST, TOOLS, TRACE, ROLLOUT = Want("opening"), Want("rest"), Want("tools"), Want("trace"), Want("rollout")


def render(dataset: str, rows: Iterable[Planned], source: Source, episodes: Episodes) -> Batch:
    """Rows of a dataset as they are written. Raises DataError."""
    line = _LINES[dataset]
    return batch_of([line(each, source, episodes) for each in rows])


def _sft(planned: Planned, source: Source, episodes: Episodes) -> Line:
    row = planned.shown[0]
    weights = source.steps.weights(row.episode_id, row.turns) if source.params.step_weights else ()
    return ranked_line(episodes.json(row.episode_id, Want("chat", 0, weights, _end(row))), row)


_BEFORE = b'{"messages":null,"tools":null'


def _end(row: Ranked) -> bytes:
    """What stands after messages and tools in the line of an SFT row."""
    return msgspec.json.encode(sft_row(LATER, LATER, row)).removeprefix(_BEFORE)


def _dpo(planned: Planned, source: Source, episodes: Episodes) -> Line:
    (chosen, rejected), pair = planned.shown, planned.about
    (before, prompt_turn), (side, turn) = sides_of(pair)
    good: tuple[float, ...] = ()
    bad: tuple[float, ...] = ()
    if pair.turn < 0 and source.params.step_weights:
        good = source.steps.weights(chosen.episode_id, chosen.turns)
        bad = source.steps.shortfalls(rejected.episode_id, rejected.turns)
    pieces = (
        episodes.json(chosen.episode_id, Want(before, prompt_turn)),
        episodes.json(chosen.episode_id, Want(side, turn, good)),
        episodes.json(rejected.episode_id, Want(side, turn, bad)),
        episodes.json(chosen.episode_id, TOOLS),
    )
    return line_of(dpo_row(LATER, LATER, LATER, LATER, pair, (chosen, rejected)), pieces=pieces)


def _of_task(make: Callable[..., Row], planned: Planned, episodes: Episodes) -> Line:
    name = planned.shown[0].episode_id
    pieces = episodes.json(name, OPENING), episodes.json(name, TOOLS)
    return line_of(make(LATER, LATER, planned.about), pieces=pieces)


def _groups(planned: Planned, source: Source, episodes: Episodes) -> Line:
    members = planned.shown
    pieces = [episodes.json(members[0].episode_id, each) for each in (OPENING, TOOLS)]
    pieces += [episodes.json(row.episode_id, REST) for row in members]
    steps = [source.steps.of(row.episode_id, row.turns) for row in members]
    return line_of(group_row(*[LATER] * len(pieces), members=members, steps=steps), pieces=pieces)


def _verifiers(planned: Planned, source: Source, episodes: Episodes) -> Line:
    row = planned.shown[0]
    return line_of(trace_row(msgspec.json.decode(episodes.json(row.episode_id, TRACE)), row), trace_origin)


def _prime_rl(planned: Planned, source: Source, episodes: Episodes) -> Line:
    row = planned.shown[0]
    return line_of(rollout_row(msgspec.json.decode(episodes.json(row.episode_id, ROLLOUT)), row))


_LINES: dict[str, Callable[[Planned, Source, Episodes], Line]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": lambda planned, _, episodes: _of_task(grpo_row, planned, episodes),
    "groups": _groups,
    "benchmark": lambda planned, _, episodes: _of_task(benchmark_row, planned, episodes),
    "verifiers": _verifiers,
    "prime-rl": _prime_rl,
}
