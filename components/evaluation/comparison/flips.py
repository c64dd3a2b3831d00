"""Flips: the tasks at which two agents differ, with the very episodes that made the difference. What a person opens first."""

from collections.abc import Iterable

import msgspec

from ..metrics import AgentResult, Attempt, TaskResult
from .pairing import paired, shared_attempts, tasks_by_id


class FlippedAttempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One episode of each agent at the same task. `seed` is None where the two were given different ones; a cause is empty for a
    success.
    """

    attempt: int
    seed: int | None
    a_episode: str
    b_episode: str
    a_success: bool
    b_success: bool
    a_cause: str = ""
    b_cause: str = ""


class Flip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task that b solves more often than a (`won`) or less often (lost), with the rates that were compared.

    `attempts`: those in which one agent succeeded and the other failed, in the flip's own direction, come first.
    """

    task_id: str
    family: str
    kind: str
    role: str
    won: bool
    a: float
    b: float
    attempts: tuple[FlippedAttempt, ...]

    @property
    def difference(self) -> float:
        """The rate of b less that of a."""
        return self.b - self.a


def flips(a: AgentResult, b: AgentResult, role: str | None = None) -> tuple[Flip, ...]:
    """The tasks of a role (or all) at which b's success rate differs from a's: the largest difference first, then by task id.

    Raises DataError where the two share no task with a known outcome.
    """
    left, right = tasks_by_id(a, role), tasks_by_id(b, role)
    pairing = paired(a, b, role)
    found = [
        Flip(
            task_id=pair.task_id,
            family=pair.family,
            kind=pair.kind,
            role=left[pair.task_id].role,
            won=pair.b > pair.a,
            a=pair.a,
            b=pair.b,
            attempts=_attempts(left[pair.task_id], right[pair.task_id], pair.b > pair.a),
        )
        for pair in pairing.pairs
        if pair.a != pair.b
    ]
    return tuple(sorted(found, key=lambda flip: (-abs(flip.difference), flip.task_id)))


def _attempts(left: TaskResult, right: TaskResult, won: bool) -> tuple[FlippedAttempt, ...]:
    found = [
        FlippedAttempt(
            attempt=one.attempt,
            seed=one.seed if one.seed == other.seed else None,
            a_episode=one.episode_id,
            b_episode=other.episode_id,
            a_success=bool(one.success),
            b_success=bool(other.success),
            a_cause=one.cause,
            b_cause=other.cause,
        )
        for one, other in _side_by_side(left, right, won)
    ]
    return tuple(sorted(found, key=lambda each: (_dullness(each, won), each.attempt)))


def _side_by_side(left: TaskResult, right: TaskResult, won: bool) -> Iterable[tuple[Attempt, Attempt]]:
    """Attempts by number where all seeds agree; else the failures of the one beside the successes of the other."""
    pairs = shared_attempts(left, right)
    if all(one.seed == other.seed for one, other in pairs):
        return [(one, other) for one, other in pairs if one.success is not None and other.success is not None]
    mine = sorted((each for each in left.attempts if each.success is not None), key=lambda each: each.success is won)
    theirs = sorted(
        (each for each in right.attempts if each.success is not None), key=lambda each: each.success is not won
    )
    return zip(mine, theirs, strict=False)


def _dullness(attempt: FlippedAttempt, won: bool) -> int:
    """0 where the two differ as the task does, 1 where they end alike, 2 where they differ the other way."""
    if attempt.a_success == attempt.b_success:
        return 1
    return 0 if attempt.b_success is won else 2
