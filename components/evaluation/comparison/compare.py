"""Two agents on the same tasks with the same seeds: where the second is better, by how much, and how surely. What decides."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from ..metrics import AgentResult
from ..statistics import Estimate, difference_estimate, permutation_test, rate_estimate
from .pairing import TaskPair, check_same_tasks, paired


class AgentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is compared."""

    name: str
    policy: str
    policy_version: str

    @classmethod
    def of(cls, result: AgentResult) -> "AgentRef":
        """The agent of a result."""
        return cls(result.name, result.policy, result.policy_version)


class KindRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The comparison within one kind of task. No test: many kinds would need a correction, the intervals are for reading."""

    kind: str
    a: Estimate
    b: Estimate
    difference: Estimate


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
    check_same_tasks(a, b, role)
    found = paired(a, b, role)
    pairs = found.pairs
    success_a, success_b, difference = estimates(pairs, level, n_resamples, seed)
    test = permutation_test(
        [pair.b for pair in pairs],
        [pair.a for pair in pairs],
        clusters=[pair.family for pair in pairs],
        alternative="greater",
        n_resamples=n_resamples,
        level=level,
        seed=seed,
    )
    won, lost_to, tied = counts(pairs)
    return Comparison(
        a=AgentRef.of(a),
        b=AgentRef.of(b),
        role=role,
        n_tasks=len(pairs),
        n_families=len({pair.family for pair in pairs}),
        k=found.k,
        success_a=success_a,
        success_b=success_b,
        difference=difference,
        p_value=test.p_value,
        exact=test.exact,
        won=won,
        lost_to=lost_to,
        tied=tied,
        lost=found.lost,
        lost_tasks=found.lost_tasks,
        by_kind=kind_rows(pairs, level, n_resamples, seed),
        pairs=tuple(pairs),
    )


def counts(pairs: Sequence[TaskPair]) -> tuple[int, int, int]:
    """How many tasks b won, lost, and tied."""
    won = sum(pair.b > pair.a for pair in pairs)
    lost = sum(pair.b < pair.a for pair in pairs)
    return won, lost, len(pairs) - won - lost


def estimates(
    pairs: Sequence[TaskPair], level: float, n_resamples: int, seed: int
) -> tuple[Estimate, Estimate, Estimate]:
    """The means of a and of b and of their difference over the tasks, with intervals that resample families."""
    families = [pair.family for pair in pairs]
    before, after = [pair.a for pair in pairs], [pair.b for pair in pairs]
    differences = [pair.b - pair.a for pair in pairs]
    return (
        rate_estimate(before, families, level=level, n_resamples=n_resamples, seed=seed),
        rate_estimate(after, families, level=level, n_resamples=n_resamples, seed=seed),
        difference_estimate(differences, families, level=level, n_resamples=n_resamples, seed=seed),
    )


def kind_rows(pairs: Sequence[TaskPair], level: float, n_resamples: int, seed: int) -> tuple[KindRow, ...]:
    """The same within each kind, by its name."""
    groups: dict[str, list[TaskPair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.kind].append(pair)
    return tuple(KindRow(kind, *estimates(groups[kind], level, n_resamples, seed)) for kind in sorted(groups))
