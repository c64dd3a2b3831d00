"""Two agents on the same tasks with the same seeds: where the second is better, by how much, and how surely."""

from collections import defaultdict

import msgspec

from components.protocol import DataError

from .metrics import AgentResult, TaskResult
from .statistics import Estimate, difference_estimate, permutation_test, rate_estimate


class AgentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is compared."""

    name: str
    policy: str
    policy_version: str


class KindRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The comparison within one kind of task. No test: many kinds would need a correction, the intervals are for reading."""

    kind: str
    a: Estimate
    b: Estimate
    difference: Estimate


class TaskPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The success rates of both agents at one task, over the attempts that count for both."""

    task_id: str
    family: str
    kind: str
    a: float
    b: float


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `compare` found. `difference` is b - a; `p_value` is one-sided for b better than a.

    `k` attempts a task were planned; `lost` pairs of attempts counted for neither agent because one of the two has no
    known outcome, and `lost_tasks` tasks have no pair left. `won`, `lost_to` count the tasks where b's rate is above, below a's.
    """

    a: AgentRef
    b: AgentRef
    role: str | None
    n_tasks: int
    n_families: int
    k: int
    success_a: Estimate
    success_b: Estimate
    difference: Estimate
    p_value: float
    exact: bool
    won: int
    lost_to: int
    tied: int
    lost: int
    lost_tasks: int
    by_kind: tuple[KindRow, ...]
    pairs: tuple[TaskPair, ...] = ()


def compare(
    a: AgentResult,
    b: AgentResult,
    role: str | None = "promote",
    *,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Pair `a` (the one that holds the place) with `b` (the one that wants it), attempt by attempt.

    An attempt counts when both agents have a known outcome for it. Raises DataError in one line where the tasks, their
    hashes or the seeds differ, or no pair is left: such agents cannot be compared.
    """
    left, right = _by_id(a, role), _by_id(b, role)
    _check_tasks(a, b, left, right, role)
    paired = [_pair(left[task_id], right[task_id]) for task_id in sorted(left)]
    pairs = [pair for pair, _, _ in paired if pair is not None]
    if not pairs:
        raise DataError(
            f"{a.name} and {b.name} share no attempt with a known outcome; look at the infrastructure failures"
        )
    families = [pair.family for pair in pairs]
    before, after = [pair.a for pair in pairs], [pair.b for pair in pairs]
    success_a, success_b, difference = _estimates(pairs, level, n_resamples, seed)
    test = permutation_test(before, after, clusters=families, n_resamples=n_resamples, level=level, seed=seed)
    return Comparison(
        a=_ref(a),
        b=_ref(b),
        role=role,
        n_tasks=len(pairs),
        n_families=len(set(families)),
        k=max(planned for _, _, planned in paired),
        success_a=success_a,
        success_b=success_b,
        difference=difference,
        p_value=test.p_value,
        exact=test.exact,
        won=sum(pair.b > pair.a for pair in pairs),
        lost_to=sum(pair.b < pair.a for pair in pairs),
        tied=sum(pair.b == pair.a for pair in pairs),
        lost=sum(lost for _, lost, _ in paired),
        lost_tasks=len(paired) - len(pairs),
        by_kind=_by_kind(pairs, level, n_resamples, seed),
        pairs=tuple(pairs),
    )


def _ref(result: AgentResult) -> AgentRef:
    return AgentRef(result.name, result.policy, result.policy_version)


def _by_id(result: AgentResult, role: str | None) -> dict[str, TaskResult]:
    return {task.task_id: task for task in result.of(role)}


def _check_tasks(
    a: AgentResult, b: AgentResult, left: dict[str, TaskResult], right: dict[str, TaskResult], role: str | None
) -> None:
    which = f"{role} tasks" if role else "tasks"
    if not left or not right:
        raise DataError(f"{(a if not left else b).name} has played no {which}; evaluate it first")
    missing = sorted(set(left) ^ set(right))
    if missing:
        where = b.name if missing[0] in left else a.name
        raise DataError(
            f"{len(missing)} {which} were not played by both agents (first: {missing[0]}, absent from {where}); "
            "evaluate both on the same taskset"
        )
    for task_id, task in left.items():
        if task.task_hash != right[task_id].task_hash:
            raise DataError(
                f"task {task_id} is {task.task_hash} for {a.name} and {right[task_id].task_hash} for {b.name}; "
                "evaluate both on the same version of the taskset"
            )


def _pair(left: TaskResult, right: TaskResult) -> tuple[TaskPair | None, int, int]:
    """The pair of rates, how many pairs of attempts were lost, and how many attempts were planned."""
    mine = {attempt.attempt: attempt for attempt in left.attempts}
    theirs = {attempt.attempt: attempt for attempt in right.attempts}
    for number in mine.keys() & theirs.keys():
        if mine[number].seed != theirs[number].seed:
            raise DataError(
                f"task {left.task_id}, attempt {number}: seeds {mine[number].seed} and {theirs[number].seed} differ; "
                "evaluate both agents with the same seed"
            )
    planned = mine.keys() | theirs.keys()
    won: list[tuple[bool, bool]] = []
    for number in mine.keys() & theirs.keys():
        first, second = mine[number].success, theirs[number].success
        if first is not None and second is not None:
            won.append((first, second))
    if not won:
        return None, len(planned), len(planned)
    a = sum(first for first, _ in won) / len(won)
    b = sum(second for _, second in won) / len(won)
    return TaskPair(left.task_id, left.family, left.kind, a, b), len(planned) - len(won), len(planned)


def _estimates(pairs: list[TaskPair], level: float, n_resamples: int, seed: int) -> tuple[Estimate, Estimate, Estimate]:
    families = [pair.family for pair in pairs]
    before, after = [pair.a for pair in pairs], [pair.b for pair in pairs]
    differences = [pair.b - pair.a for pair in pairs]
    return (
        rate_estimate(before, families, level=level, n_resamples=n_resamples, seed=seed),
        rate_estimate(after, families, level=level, n_resamples=n_resamples, seed=seed),
        difference_estimate(differences, families, level=level, n_resamples=n_resamples, seed=seed),
    )


def _by_kind(pairs: list[TaskPair], level: float, n_resamples: int, seed: int) -> tuple[KindRow, ...]:
    groups: dict[str, list[TaskPair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.kind].append(pair)
    return tuple(KindRow(kind, *_estimates(groups[kind], level, n_resamples, seed)) for kind in sorted(groups))
