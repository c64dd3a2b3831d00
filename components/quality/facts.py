"""Facts: one flat row per episode, what the suite judges and the rank reads. Messages are not in it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from components.protocol import DataError
from components.trajectories.messages import chat
from components.trajectories.record import FailureKind, Trajectory, content_hash
from components.trajectories.shards import read_folder

from .tables import Columns

if TYPE_CHECKING:
    import pyarrow as pa

EPISODE_SCORES = ("total", "outcome", "process", "efficiency")
"""Scorers of a whole episode that become columns."""
GUARDS = "layer.guards"
"""The scorer that is 0 for an episode in which a hack was found."""

FIELDS = {
    "episode_id": "string", "group_id": "string", "night": "string", "schema_version": "int32", "task_id": "string",
    "taskset": "string", "family": "string", "kind": "string", "role": "string", "domain": "string",
    "policy": "string", "policy_version": "string", "source": "string", "attempt": "int32", "content_hash": "string",
    "messages_hash": "string", "hash_matches": "bool", "collected_on": "string", "turns": "int32", "steps": "int32",
    "parse_errors": "int32",
    "calls_answered": "bool", "longest_observation": "int64", "secrets_remaining": "int32",
    "success": "bool", "outcome_known": "bool",
    "outcome_consistent": "bool", "truncated": "bool", "infrastructure_failure": "bool", "played": "bool",
    "total": "float64", "outcome": "float64", "process": "float64", "efficiency": "float64", "scored": "bool",
    "scores_in_range": "bool", "failure_unscored": "bool", "caught": "bool", "group_size": "int32",
}  # fmt: skip
"""Columns of the table and their Arrow types."""


class Scores:
    """The scores of one night: the episode's own by scorer, which episodes have any, which have one out of [0, 1]."""

    def __init__(self, totals: Mapping[str, Mapping[str, float | None]], scored: set[str], out_of_range: set[str]):
        self.totals = totals
        self.scored = scored
        self.out_of_range = out_of_range


def read_scores(path: Path) -> Scores:
    """The scores table of a night, reduced to what the facts need. Null scores stay None. Raises DataError."""
    import pyarrow.compute as pc

    from .tables import read_table

    table = read_table(path, ["episode_id", "turn", "scorer", "score"])
    whole = table.filter(
        pc.and_(pc.equal(table["turn"], -1), pc.is_in(table["scorer"], _values((*EPISODE_SCORES, GUARDS))))
    )
    totals: dict[str, dict[str, float | None]] = {}
    for row in whole.to_pylist():
        known = totals.setdefault(row["episode_id"], {})
        if row["scorer"] in known:
            raise DataError(f"{path}: {row['episode_id']} has two scores '{row['scorer']}'; score the night again")
        known[row["scorer"]] = row["score"]
    present = table.filter(pc.is_valid(table["score"]))
    inside = pc.and_(pc.greater_equal(present["score"], 0.0), pc.less_equal(present["score"], 1.0))
    outside = present.filter(pc.invert(inside))  # NaN compares false: it is outside
    return Scores(totals, set(present["episode_id"].to_pylist()), set(outside["episode_id"].to_pylist()))


def messages_hash(trajectory: Trajectory) -> str:
    """SHA-256 (first 16 hex digits) of the conversation as it would be exported: runs that read the same are one run.

    It is coarser than `content_hash`, which tells apart two texts that say the same call.
    """
    encoded = msgspec.json.encode(chat(trajectory), order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:16]


def _values(names: Iterable[str]) -> "pa.Array":
    import pyarrow as pa

    return pa.array(list(names))


Remaining = Callable[[Trajectory], Sequence[object]]
"""What is found in a record that must not be there."""


def facts(
    trajectory: Trajectory, night: str, scores: Scores, demonstrators: Iterable[str], remaining: Remaining
) -> dict[str, Any]:
    """The row of one episode, `group_size` apart. Nothing that is unknown is written as 0 or False, but `played` tells.

    A success in which the guards found a hack (`caught`) is none.
    """
    outcome, failure, turns = trajectory.outcome, trajectory.failure, trajectory.turns
    broken = failure is not None and failure.kind == FailureKind.INFRASTRUCTURE
    own = scores.totals.get(trajectory.episode_id, {})
    lengths = [len(result.content) for turn in turns for result in turn.results]
    scored = trajectory.episode_id in scores.scored
    caught = own.get(GUARDS) == 0
    return {
        "episode_id": trajectory.episode_id,
        "group_id": trajectory.group_id,
        "night": night,
        "schema_version": trajectory.schema_version,
        "task_id": trajectory.task.task_id,
        "taskset": trajectory.task.taskset,
        "family": trajectory.task.family,
        "kind": trajectory.task.kind,
        "role": trajectory.task.role,
        "domain": trajectory.task.domain,
        "policy": trajectory.agent.policy,
        "policy_version": trajectory.agent.policy_version,
        "source": "demonstration" if trajectory.agent.policy in demonstrators else "on_policy",
        "attempt": trajectory.attempt,
        "content_hash": trajectory.content_hash,
        "messages_hash": messages_hash(trajectory),
        "hash_matches": trajectory.content_hash == content_hash(trajectory),
        "collected_on": (trajectory.provenance.collected_at or "")[:10] or None,
        "turns": len(turns),
        "steps": sum(len(turn.calls) for turn in turns),
        "parse_errors": sum(call.parse_error is not None for turn in turns for call in turn.calls),
        "calls_answered": broken or all(_answered(trajectory, index) for index in range(len(turns))),
        "longest_observation": max([*lengths, *(len(message.content) for message in trajectory.messages)], default=0),
        "secrets_remaining": len(remaining(trajectory)),
        "success": outcome.success and not caught,
        "outcome_known": broken or outcome.success is not None,
        "outcome_consistent": _consistent(trajectory),
        "truncated": outcome.truncated,
        "infrastructure_failure": broken,
        "played": broken or bool(turns),
        **{name: own.get(name) for name in EPISODE_SCORES},
        "scored": broken or own.get("total") is not None,
        "scores_in_range": trajectory.episode_id not in scores.out_of_range,
        "failure_unscored": not (broken and scored),
        "caught": caught,
    }


def _answered(trajectory: Trajectory, index: int) -> bool:
    """Each call of the turn has one result, in order; the last turn may end the episode with calls left unanswered.

    A result without a call's id is a message between turns, and answers none.
    """
    turn = trajectory.turns[index]
    asked = [call.call_id for call in turn.calls]
    got = [result.call_id for result in turn.results if result.call_id]
    return got == asked or (index == len(trajectory.turns) - 1 and got == asked[: len(got)])


def _consistent(trajectory: Trajectory) -> bool:
    """Success means that all tests passed; counts are never negative, and no more tests pass than there are."""
    passed, total = trajectory.outcome.tests_passed, trajectory.outcome.tests_total
    if passed is None or total is None:
        return True
    if not 0 <= passed <= total:
        return False
    return not trajectory.outcome.success or (total > 0 and passed == total)


def table_of(nights: Mapping[str, tuple[Path, Path]], demonstrators: Iterable[str], remaining: Remaining) -> Columns:
    """The facts of all nights (name to rollouts folder and scores file), sorted by `episode_id`. Raises DataError."""
    rows: list[dict[str, Any]] = []
    known = frozenset(demonstrators)
    for night, (rollouts, scores_file) in nights.items():
        scores = read_scores(scores_file)
        rows.extend(facts(trajectory, night, scores, known, remaining) for trajectory in read_folder(rollouts))
    rows.sort(key=lambda row: (row["episode_id"], row["night"]))
    sizes = Counter(row["group_id"] for row in rows if not row["infrastructure_failure"])
    for row in rows:
        shown = row["source"] == "demonstration"  # its pass rate is nobody's measure
        row["group_size"] = None if shown else sizes[row["group_id"]]
    return {name: [row[name] for row in rows] for name in FIELDS}


def schema() -> "pa.Schema":
    """The Arrow schema of the facts."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(alias)) for name, alias in FIELDS.items()])
