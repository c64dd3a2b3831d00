"""Entry: what the index knows of one episode. Place: where its record stands."""

from datetime import UTC
from typing import Any, NamedTuple

import msgspec

from ..readers.values import moment
from ..record import Trajectory


class Place(NamedTuple):
    """A line of a segment: bytes from `offset`, its newline included."""

    shard: int
    offset: int
    length: int


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One episode in a list. `collected_at` is ISO 8601 in UTC with microseconds, so that text order is time's order.

    `reward` and `quality` come of attached tables (`total` of the scores, `gdi` of the ranks): None is not scored, not ranked.
    """

    episode_id: str
    group_id: str
    content_hash: str
    task_id: str
    taskset: str
    family: str
    domain: str
    policy: str
    policy_version: str
    source: str
    collected_at: str | None
    success: bool | None
    score: float | None
    failure: str | None
    turns: int
    steps: int
    reward: float | None = None
    quality: float | None = None


FACTS = Entry.__struct_fields__[:-2]
"""The columns that a record fills; the two that follow are filled by tables."""


def facts_of(trajectory: Trajectory) -> tuple[Any, ...]:
    """The values of FACTS."""
    task, agent, outcome, failure = trajectory.task, trajectory.agent, trajectory.outcome, trajectory.failure
    return (
        trajectory.episode_id,
        trajectory.group_id,
        trajectory.content,
        task.task_id,
        task.taskset,
        task.family,
        task.domain,
        agent.policy,
        agent.policy_version,
        trajectory.provenance.source,
        stamp(trajectory.provenance.collected_at),
        outcome.success,
        outcome.score,
        None if failure is None else failure.kind.value,
        len(trajectory.turns),
        sum([len(turn.calls) for turn in trajectory.turns]),
    )


def stamp(value: object) -> str | None:
    """A point in time as the index holds it; None for what is none."""
    try:
        found = moment(value)
        return (
            None if found is None else found.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        )
    except OverflowError:  # the first or last year, in another zone
        return None
