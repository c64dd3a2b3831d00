"""Played: an episode reduced to what pairing needs of it."""

from typing import NamedTuple

from components.trajectories.messages import opening
from components.trajectories.record import Trajectory, digest

from .moves import Move, move


class Left(NamedTuple):
    """Where a branch left its parent: the first turn that is the branch's own."""

    episode_id: str
    turn: int


class Played(NamedTuple):
    """One episode. `start` is the hash of its task and opening messages, `opening` of these messages alone.

    `policy` is the policy's version, `worth` what the episode is worth (in [0, 1]: its total, or its win rate). `may_be_chosen`:
    nothing speaks against imitating it. `parent` is None for an episode that is no branch.
    """

    episode_id: str
    task_id: str
    policy: str
    start: str
    opening: str
    moves: tuple[Move, ...]
    worth: float
    may_be_chosen: bool
    parent: Left | None = None


def played(trajectory: Trajectory, worth: float, may_be_chosen: bool) -> Played:
    """A whole trajectory reduced to what pairing compares: what a model would read, without the ids of calls."""
    task, parent = trajectory.task, trajectory.parent
    before = opening(trajectory.messages)
    return Played(
        trajectory.episode_id,
        task.task_id,
        trajectory.agent.policy_version,
        digest(task.task_id, task.task_hash, before),
        digest(before),
        tuple(move(turn) for turn in trajectory.turns),
        worth,
        may_be_chosen,
        None if parent is None else Left(parent.episode_id, parent.turn),
    )
