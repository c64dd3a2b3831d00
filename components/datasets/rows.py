"""The rows of the three datasets. Pure: a trajectory and what is known of it in, JSON values out.

Messages come from `components.trajectories.messages` alone, so that what is trained is what the policy saw. Every row
names the episodes that it came from.
"""

from collections.abc import Iterable
from typing import Any

from components.protocol import Message
from components.trajectories.messages import chat, opening, turn_messages
from components.trajectories.record import Trajectory

from .ranked import Pair, Ranked

Row = dict[str, Any]


def tools_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """The tools that the policy was told of, in OpenAI's form, as the collector recorded them; none where it did not."""
    tools = trajectory.source_extra.get("tools")
    return list(tools) if isinstance(tools, list) else []


def sft_row(trajectory: Trajectory, ranked: Ranked) -> Row:
    """A whole episode as a conversation."""
    return {
        "messages": chat(trajectory),
        "tools": tools_of(trajectory),
        "episode_id": trajectory.episode_id,
        "task_id": ranked.task_id,
        "night": ranked.night,
        "source": ranked.source,
        "weight": round(ranked.weight, 6),
        "kind": ranked.kind,
        "family": ranked.family,
    }


def dpo_row(pair: Pair, chosen: Trajectory, rejected: Trajectory, ranked: Ranked) -> Row:
    """A pair: the shared history as prompt, then one assistant message a side (or, at level trajectory, all that follows)."""
    sides = [_after(trajectory, pair.turn) for trajectory in (chosen, rejected)]
    return {
        "prompt": _before(chosen, pair.turn),
        "chosen": sides[0],
        "rejected": sides[1],
        "tools": tools_of(chosen),
        "episode_ids": [pair.chosen_episode_id, pair.rejected_episode_id],
        "task_id": pair.task_id,
        "level": pair.level,
        "turn": pair.turn,
        "margin": round(pair.margin, 6),
        "kind": ranked.kind,
        "family": ranked.family,
    }


def _before(trajectory: Trajectory, turn: int) -> list[Message]:
    messages = opening(trajectory.messages)
    for each in trajectory.turns[: max(turn, 0)]:
        messages.extend(turn_messages(each))
    return messages


def _after(trajectory: Trajectory, turn: int) -> list[Message]:
    if turn >= 0:
        return turn_messages(trajectory.turns[turn])[:1]
    return [message for each in trajectory.turns for message in turn_messages(each)]


def grpo_row(trajectory: Trajectory, ranked: Iterable[Ranked]) -> Row:
    """A task to play again: its opening as prompt, and the mean pass rate of the policies that played it (null: only shown)."""
    attempts = sorted(ranked, key=lambda row: row.episode_id)
    first = attempts[0]
    rates = {row.group_id: row.pass_rate for row in attempts if row.source == "on_policy"}
    known = [rate for rate in rates.values() if rate is not None]
    return {
        "prompt": opening(trajectory.messages),
        "tools": tools_of(trajectory),
        "task_id": first.task_id,
        "kind": first.kind,
        "family": first.family,
        "pass_rate": round(sum(known) / len(known), 6) if known else None,
        "episode_ids": [row.episode_id for row in attempts],
    }
