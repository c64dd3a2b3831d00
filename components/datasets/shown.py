"""Shown: what rows show of episodes, rendered shard by shard in worker processes, as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from components.protocol import DataError, Message
from components.trajectories.messages import opening, turn_messages
from components.trajectories.parallel import ShardPlace
from components.trajectories.record import Trajectory
from components.trajectories.writers.openai_chat import WRITER as OPENAI
from components.trajectories.writers.verifiers import WRITER as VERIFIERS

from .ranked import Pair, Ranked
from .rows import Row, dpo_row
from .text import as_text

What = Literal["chat", "opening", "history", "message", "rest", "tools", "trace", "rollout"]
"""A whole conversation; what stands before the first turn; before turn t; the assistant's message of turn t; all turns; the tools;
the record as verifiers or prime-rl write it."""
AgentFormat = Literal["tools", "text"]


class Want(NamedTuple):
    """One piece of an episode that some row shows. `number` is the piece's own; `weights` are of the turns of a chat."""

    number: int
    what: What
    turn: int = 0
    weights: tuple[float, ...] = ()


class Shown(NamedTuple):
    """Pieces: their numbers, the sizes of their JSON, which stands in `data` one after the other.

    `branches`: wanted episodes that are branches, and have to be completed by their parents first.
    """

    numbers: list[int]
    sizes: list[int]
    data: bytes
    branches: list[str]


def show_shard(
    wants: Mapping[str, Sequence[Want]], agent_format: AgentFormat, trajectories: list[Trajectory], place: ShardPlace
) -> Shown:
    """The wanted pieces of a shard. Raises DataError."""
    return show(wants, agent_format, trajectories)


def show(
    wants: Mapping[str, Sequence[Want]],
    agent_format: AgentFormat,
    trajectories: Iterable[Trajectory],
    *,
    whole: bool = False,
) -> Shown:
    """The wanted pieces of some episodes; of branches only where these are `whole`. Raises DataError that names the episode."""
    encode = msgspec.json.Encoder().encode
    numbers: list[int] = []
    pieces: list[bytes] = []
    branches: list[str] = []
    for trajectory in trajectories:
        wanted = wants.get(trajectory.episode_id)
        if wanted is None:
            continue
        if trajectory.parent is not None and not whole:
            branches.append(trajectory.episode_id)
            continue
        try:
            for want in wanted:
                pieces.append(encode(piece(trajectory, want, agent_format)))
                numbers.append(want.number)
        except (OverflowError, RecursionError, ValueError) as error:
            raise DataError(f"{trajectory.episode_id} cannot be written as JSON: {error}; leave it out") from error
    return Shown(numbers, [len(each) for each in pieces], b"".join(pieces), branches)


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
    if want.turn >= max(1, len(turns)) or (what == "message" and not turns):
        raise DataError(
            f"{trajectory.episode_id} has {len(turns)} turns, and a pair names turn {want.turn}; run the build again"
        )
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
