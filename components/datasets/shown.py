"""Shown: what rows show of episodes, rendered shard by shard in worker processes, as JSON."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from components.protocol import DataError, Message
from components.trajectories.messages import opening, turn_messages
from components.trajectories.parallel import ShardPlace
from components.trajectories.record import Trajectory
from components.trajectories.text import as_text
from components.trajectories.writers.openai_chat import WRITER as OPENAI
from components.trajectories.writers.verifiers import WRITER as VERIFIERS

from .quick import Line, Record, opening_parts, record_of, reply_json, turn_parts
from .ranked import Pair, Ranked
from .rows import Row, dpo_row

Known = TypeVar("Known", Record, Trajectory)
What = Literal["chat", "opening", "history", "message", "rest", "tools", "trace", "rollout"]
"""A whole conversation; what stands before the first turn; before turn t; the assistant's message of turn t; all turns; the tools;
the record as verifiers or prime-rl write it."""
AgentFormat = Literal["tools", "text"]
WRITTEN: frozenset[What] = frozenset({"trace", "rollout"})
"""What only a whole record tells."""


class Want(NamedTuple):
    """One piece of an episode that some row shows. `number` is the piece's own; `weights` are of the turns of a chat.

    A chat with an `end` is a whole line of SFT: all that stands after its tools is given. Its hash is made with it.
    """

    number: int
    what: What
    turn: int = 0
    weights: tuple[float, ...] = ()
    end: bytes | None = None


class Shown(NamedTuple):
    """Pieces: their numbers, the sizes of their JSON, which begins with `room` in the spool, and hashes of whole lines.

    `branches`: wanted episodes that are branches, and have to be completed by their parents first.
    """

    numbers: list[int]
    sizes: list[int]
    hashes: list[str]
    begin: int
    branches: list[str]


Wants = Mapping[str, Sequence[Want]]
"""What is wanted of each episode."""


def show_lines(wants: Wants, spool: Path, lines: list[Line], place: ShardPlace) -> Shown:
    """Spool the wanted pieces of a shard's lines, copied as they stand there; see `quick`. Raises DataError."""
    shard = place.folder / place.shard
    records = (record_of(line, shard) for line in lines if line.episode_id in wants)  # one at a time: memory stays warm
    return _pieces(wants, spool, records, record_json, lambda record: record.is_branch)


def show_shard(
    wants: Wants,
    spool: Path,
    agent_format: AgentFormat,
    trajectories: Iterable[Trajectory],
    place: ShardPlace | None = None,
) -> Shown:
    """Spool the wanted pieces of trajectories. Raises DataError."""

    def is_branch(trajectory: Trajectory) -> bool:
        return place is not None and trajectory.parent is not None

    return _pieces(wants, spool, trajectories, partial(trajectory_json, agent_format=agent_format), is_branch)


def _pieces(
    wants: Wants,
    spool: Path,
    records: Iterable[Known],
    render: Callable[[Known, Want], bytes],
    is_branch: Callable[[Known], bool],
) -> Shown:
    found: list[tuple[int, bytes, str]] = []
    branches: list[str] = []
    for record in records:
        wanted = wants.get(record.episode_id)
        if wanted is None:
            continue
        if is_branch(record):
            branches.append(record.episode_id)
            continue
        for want in wanted:
            shown = render(record, want)
            found.append((want.number, shown, "" if want.end is None else hashlib.sha256(shown).hexdigest()))
    found.sort(key=lambda each: each[0])  # the pieces of a row stand side by side, and are read at once
    pieces = [shown for _, shown, _ in found]
    begin = append(spool, pieces)
    numbers, hashes = [number for number, _, _ in found], [line for _, _, line in found]
    return Shown(numbers, [len(each) for each in pieces], hashes, begin, branches)


def append(spool: Path, pieces: list[bytes]) -> int:
    """Write pieces to the end of a file that others append to as well; where they begin. Raises OSError.

    One write in append mode is never mixed with another's. Through a pipe to the process that writes rows they would be copied
    several times.
    """
    data = b"".join(pieces)
    file = os.open(spool, os.O_WRONLY | os.O_APPEND)
    try:
        if data and os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, "no room for all that was to be written", str(spool))
        return os.lseek(file, 0, os.SEEK_CUR) - len(data)
    finally:
        os.close(file)


def record_json(record: Record, want: Want) -> bytes:
    """One piece, copied. Raises DataError for a turn that the episode has not."""
    what, turns = want.what, record.turns
    if what == "tools":
        return record.tools
    _check_turn(record.episode_id, want, len(turns))
    if what == "message":
        return b"[%b]" % reply_json(turns[want.turn])[1:]
    parts = [] if what == "rest" else opening_parts(record)
    if what == "history":
        turns = turns[: want.turn]
    if want.weights and what != "opening":
        for turn, weight in zip(turns, _weights_json(want.weights, len(turns)), strict=True):
            parts += turn_parts(turn, weight)
    elif what != "opening":
        for turn in turns:
            parts += turn_parts(turn)
    begin = b"[" if want.end is None else b'{"messages":['
    parts[:1] = (begin, parts[0][1:]) if parts else (begin,)  # the first message follows none
    parts += (b"]",) if want.end is None else (b'],"tools":', record.tools, want.end)
    return b"".join(parts)


def _weights_json(weights: Sequence[float], turns: int) -> list[bytes]:
    """What says the weight of each turn's message; turns that have none weigh 1."""
    known = [*weights[:turns], *([1.0] * (turns - len(weights)))]
    return [b',"weight":' + each for each in msgspec.json.encode(known)[1:-1].split(b",")] if known else []


def trajectory_json(trajectory: Trajectory, want: Want, *, agent_format: AgentFormat) -> bytes:
    """One piece. Raises DataError, also for what JSON cannot hold."""
    encode = msgspec.json.encode
    try:
        shown = encode(piece(trajectory, want, agent_format))
        if want.end is None:
            return shown
        tools = encode(piece(trajectory, Want(0, "tools"), agent_format))
    except (OverflowError, RecursionError, ValueError) as error:
        raise DataError(f"{trajectory.episode_id} cannot be written as JSON: {error}; leave it out") from error
    return b'{"messages":%b,"tools":%b%b' % (shown, tools, want.end)


def piece(trajectory: Trajectory, want: Want, agent_format: AgentFormat = "tools") -> Any:
    """One piece as JSON values. Raises DataError for a turn that the episode has not."""
    what, tools = want.what, tools_of(trajectory)
    if what == "tools":
        return tools if agent_format == "tools" else []
    if what == "trace":
        return VERIFIERS.row(trajectory)
    if what == "rollout":
        return _rollout(trajectory)
    messages = _messages(trajectory, want)
    if agent_format == "tools":
        return messages
    return as_text(messages, tools if what in ("chat", "opening", "history") else ())


def _messages(trajectory: Trajectory, want: Want) -> list[Message]:
    what, turns = want.what, trajectory.turns
    _check_turn(trajectory.episode_id, want, len(turns))
    if what == "message":
        return turn_messages(turns[want.turn])[:1]
    messages = [] if what == "rest" else opening(trajectory.messages)
    if what == "opening":
        return messages
    for index, turn in enumerate(turns[: want.turn] if what == "history" else turns):
        said = turn_messages(turn)
        if want.weights:
            said[0]["weight"] = want.weights[index] if index < len(want.weights) else 1.0
        messages += said
    return messages


def _check_turn(episode_id: str, want: Want, turns: int) -> None:
    if want.turn >= max(1, turns) or (want.what == "message" and not turns):
        raise DataError(f"{episode_id} has {turns} turns, and a pair names turn {want.turn}; run the build again")


def sides_of(pair: Pair) -> tuple[tuple[What, int], tuple[What, int]]:
    """What a pair shows of its chosen episode as prompt, and of either as its side."""
    return (("history", pair.turn), ("message", pair.turn)) if pair.turn >= 0 else (("opening", 0), ("rest", 0))


def pair_row(pair: Pair, chosen: Trajectory, rejected: Trajectory, *ranked: Ranked) -> Row:
    """The row of a pair whose whole episodes are at hand; `ranked`: what is known of either. Raises DataError."""
    (before, prompt_turn), (side, turn) = sides_of(pair)
    prompt = piece(chosen, Want(0, before, prompt_turn))
    sides = [piece(each, Want(0, side, turn)) for each in (chosen, rejected)]
    return dpo_row(prompt, sides[0], sides[1], tools_of(chosen), pair, ranked)


def tools_of(trajectory: Trajectory) -> list[Any]:
    """The tools that the policy was told of, in OpenAI's form, as the collector recorded them; none where it did not."""
    tools = trajectory.source_extra.get("tools")
    return list(tools) if isinstance(tools, list) else []


def _rollout(trajectory: Trajectory) -> dict[str, Any]:
    """What a row of prime-rl says of the record alone."""
    messages = OPENAI.row(trajectory)["messages"]
    outcome, begin = trajectory.outcome, len(trajectory.messages)
    return {
        "prompt": messages[:begin],
        "completion": messages[begin:],
        "tools": tools_of(trajectory),
        "example_id": trajectory.task.task_id,
        "task": trajectory.task.taskset,
        "model": trajectory.agent.policy_version,
        "is_completed": outcome.terminated or outcome.truncated,
        "is_truncated": outcome.truncated,
        "stop_condition": outcome.reason or None,
    }
