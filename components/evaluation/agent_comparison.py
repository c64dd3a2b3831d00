"""Comparison of two agents for reading: two-sided tests, Bayesian probabilities, tasks with different success rates, and
a table of failure causes.

Promotion rests on `paired_comparison.compare_paired` instead, which refuses different seeds and tasks. All tests are
over families; where they disagree, trust the permutation test of the mean.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import gt
from typing import Any

import msgspec

from ratchet.components.statistics.bayes import DifferencePosterior, bayes_groups, bayes_paired
from ratchet.components.statistics.bootstrap import clustered_standard_error
from ratchet.components.statistics.permutation import permutation_test
from ratchet.components.statistics.proportions import mcnemar
from ratchet.components.statistics.rank_tests import wilcoxon
from ratchet.components.statistics.result_types import Estimate, Interval, TestResult, few_families_remark
from ratchet.components.trajectories.notebook_tables import NotebookTable, html_table

from .agent_results import AgentResult, TaskAttempt, TaskResult
from .paired_comparison import (
    AgentRef,
    KindComparison,
    Measure,
    PairedBy,
    TaskPair,
    compare_kinds,
    count_wins,
    pair_tasks,
    paired_estimates,
    shared_attempts,
    tasks_by_id,
)


class FlippedAttempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One episode of each agent at the same task.

    `attempt`: number of a's attempt. `seed`: the seed of both episodes; None where they differ. `a_cause`, `b_cause`:
    why the episode failed; empty for a success.
    """

    attempt: int
    seed: int | None
    a_episode: str
    b_episode: str
    a_success: bool
    b_success: bool
    a_cause: str = ""
    b_cause: str = ""


class TaskFlip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task that b solves more often than a (`won`) or less often, with both rates.

    `attempts`: pairs of episodes, first those in which the agent with the higher rate succeeds and the other fails.
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
        """The rate of b minus that of a."""
        return self.b - self.a


def flips(a: AgentResult, b: AgentResult, role: str | None = None) -> tuple[TaskFlip, ...]:
    """Return the tasks of a role (None: all) at which the success rates differ, those with the largest absolute
    difference first, then by task id.

    Raises DataError where the agents share no task with a known outcome.
    """
    left, right = tasks_by_id(a, role), tasks_by_id(b, role)
    pairing = pair_tasks(a, b, role)
    task_flips = [
        TaskFlip(
            task_id=pair.task_id,
            family=pair.family,
            kind=pair.kind,
            role=left[pair.task_id].role,
            won=pair.b > pair.a,
            a=pair.a,
            b=pair.b,
            attempts=_flipped_attempts(left[pair.task_id], right[pair.task_id], pair.b > pair.a),
        )
        for pair in pairing.pairs
        if pair.a != pair.b
    ]
    return tuple(sorted(task_flips, key=lambda flip: (-abs(flip.difference), flip.task_id)))


def _flipped_attempts(left: TaskResult, right: TaskResult, won: bool) -> tuple[FlippedAttempt, ...]:
    pairs = [
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
        for one, other in _pair_episodes(left, right, won)
    ]
    return tuple(sorted(pairs, key=lambda pair: (_reading_order(pair, won), pair.attempt)))


def _pair_episodes(left: TaskResult, right: TaskResult, won: bool) -> Iterable[tuple[TaskAttempt, TaskAttempt]]:
    """Pair attempts by number where all seeds agree; else the failures of one agent with the successes of the other."""
    pairs = shared_attempts(left, right)
    if all(one.seed == other.seed for one, other in pairs):
        return [(one, other) for one, other in pairs if one.success is not None and other.success is not None]
    mine = sorted(
        (attempt for attempt in left.attempts if attempt.success is not None),
        key=lambda attempt: attempt.success is won,
    )
    theirs = sorted(
        (attempt for attempt in right.attempts if attempt.success is not None),
        key=lambda attempt: attempt.success is not won,
    )
    return zip(mine, theirs, strict=False)


def _reading_order(attempt: FlippedAttempt, won: bool) -> int:
    """Return 0 for attempts that differ in the task's direction, 1 for equal outcomes, 2 for the opposite direction."""
    if attempt.a_success == attempt.b_success:
        return 1
    return 0 if attempt.b_success is won else 2


MAX_PAIRS = 5
"""Pairs of episodes in a report."""
MIN_MINORITY = 2
"""Places reserved for losses among wins, or for wins among losses."""


def most_informative_flips(flips: Iterable[TaskFlip], count: int = MAX_PAIRS) -> tuple[TaskFlip, ...]:
    """Return at most `count` flips for a report, first those that `won`, then the others.

    Kinds of tasks take turns, and each kind keeps the given order. For the rarer of wins and losses up to MIN_MINORITY
    of the `count` flips are reserved. Only tasks are chosen whose first attempt differs in the same direction as their
    success rates.
    """
    candidates = [flip for flip in flips if flip.attempts and _is_visible(flip)]
    wins, losses = (
        take_turns([flip for flip in candidates if flip.won is side], lambda flip: flip.kind) for side in (True, False)
    )
    many, few = (wins, losses) if len(wins) >= len(losses) else (losses, wins)
    # A report of wins alone would hide what the challenger unlearned.
    few = few[: max(count - len(many), min(MIN_MINORITY, count))]
    many = many[: count - len(few)]
    return (*many, *few) if len(wins) >= len(losses) else (*few, *many)


def _is_visible(flip: TaskFlip) -> bool:
    first = flip.attempts[0]
    return first.b_success is flip.won and first.a_success is not flip.won


def take_turns(flips: Sequence[TaskFlip], group: Callable[[TaskFlip], Hashable]) -> list[TaskFlip]:
    """Return the first flip of each group, then the second of each, and so on, otherwise in the order given."""
    counts: Counter[Hashable] = Counter()
    turns: list[tuple[int, TaskFlip]] = []
    for flip in flips:
        turns.append((counts[group(flip)], flip))
        counts[group(flip)] += 1
    return [flip for _, flip in sorted(turns, key=lambda turn: turn[0])]


SOLVED = "solved"
OTHER_CAUSES = "other causes"
MAX_CAUSES = 6
"""Causes with a row each; rarer ones are merged."""


class CauseConfusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contingency table of outcomes: `counts[i][j]` attempts ended in `causes[i]` for a and in `causes[j]` for b.

    `causes`: `solved`, then causes of failure, most frequent first; rare ones are merged as `other causes`. Attempts
    without a known outcome of both agents are left out.
    """

    a: str
    b: str
    causes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """Number of attempts in the table."""
        return sum(map(sum, self.counts))


def cause_confusion(a: AgentResult, b: AgentResult, role: str | None = "promote") -> CauseConfusion:
    """Return the table of outcomes of the attempts that both agents made, matched by task id and attempt number."""
    left, right = _attempt_outcomes(a, role), _attempt_outcomes(b, role)
    pairs = Counter((left[key], right[key]) for key in left.keys() & right.keys())
    frequency: Counter[str] = Counter()
    for (mine, theirs), count in pairs.items():
        frequency[mine] += count
        frequency[theirs] += count
    ranked = sorted((cause for cause in frequency if cause != SOLVED), key=lambda cause: (-frequency[cause], cause))
    causes = [SOLVED, *ranked] if len(ranked) <= MAX_CAUSES + 1 else [SOLVED, *ranked[:MAX_CAUSES], OTHER_CAUSES]
    place = {cause: number for number, cause in enumerate(causes)}
    counts = [[0] * len(causes) for _ in causes]
    for (mine, theirs), count in pairs.items():
        counts[place.get(mine, len(causes) - 1)][place.get(theirs, len(causes) - 1)] += count
    return CauseConfusion(a.name, b.name, tuple(causes), tuple(map(tuple, counts)))


def _attempt_outcomes(result: AgentResult, role: str | None) -> dict[tuple[str, int], str]:
    return {
        (task.task_id, attempt.attempt): SOLVED if attempt.success else attempt.cause or "unknown"
        for task in result.of(role)
        for attempt in task.attempts
        if attempt.success is not None
    }


ROPE = 0.01
"""Half-width of the region of practical equivalence: one point."""
LEVEL = 0.95
"""Confidence of the intervals."""


class TestRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Result of one two-sided test.

    `about`: the tested quantity in words; the null hypothesis is that the agents do not differ in it. `families`: number
    of task families in the test. `exact`: the p-value is exact, not an approximation.
    """

    __test__ = False

    name: str
    about: str
    statistic: float | None
    p_value: float
    effect_size: float | None
    interval: Interval | None
    families: int
    exact: bool


class KindPosterior(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Posterior of the difference at one kind of task, partially pooled over the kinds."""

    kind: str
    posterior: DifferencePosterior


class AgentComparison(NotebookTable, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of `compare_agents`.

    - `by`: the compared figure. `k`: planned attempts per task. `difference`: b - a, a mean over tasks. `p_value`:
      two-sided, of the permutation test.
    - `posterior`: probabilities that b is better, practically equal (within `rope`) and worse; None with fewer than two
      families, and where all have the same difference. `kinds`: the same for each kind of task with a positive standard
      error, partially pooled and therefore without a correction for multiple comparisons.
    - `won`, `lost_to`, `tied`: numbers of tasks at which b is better, worse, equal.
    - `unshared`: number of tasks that only one agent played. `lost`: number of pairs of attempts without a known
      outcome. `lost_tasks`: number of tasks without a pair of known outcomes.
    """

    a: AgentRef
    b: AgentRef
    role: str | None
    by: Measure
    paired_by: PairedBy
    n_tasks: int
    n_families: int
    k: int
    mean_a: Estimate
    mean_b: Estimate
    difference: Estimate
    p_value: float
    tests: tuple[TestRow, ...]
    posterior: DifferencePosterior | None
    won: int
    lost_to: int
    tied: int
    lost: int
    lost_tasks: int
    unshared: int
    by_kind: tuple[KindComparison, ...]
    kinds: tuple[KindPosterior, ...]
    flips: tuple[TaskFlip, ...]

    @property
    def row(self) -> dict[str, Any]:
        """The comparison in one dictionary: both means, the difference b - a with its interval, and the p-value."""
        interval = self.difference.interval
        return {
            "a": self.a.name,
            "b": self.b.name,
            "by": self.by,
            "tasks": self.n_tasks,
            "families": self.n_families,
            "attempts": self.k,
            "mean_a": self.mean_a.value,
            "mean_b": self.mean_b.value,
            "difference": self.difference.value,
            "low": interval and interval.low,
            "high": interval and interval.high,
            "p_value": self.p_value,
            "won": self.won,
            "lost": self.lost_to,
            "tied": self.tied,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary per two-sided test."""
        return list(map(msgspec.structs.asdict, self.tests))

    def _repr_html_(self) -> str:
        tests = [{"test": test.name, "about": test.about, "p_value": test.p_value} for test in self.tests]
        title, remark = f"{self.b.name} against {self.a.name}", few_families_remark(self.n_families)
        return html_table(title, [self.row], remark) + html_table("Two-sided tests", tests)


def compare_agents(
    a: AgentResult,
    b: AgentResult,
    role: str | None = None,
    *,
    by: Measure = "success",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> AgentComparison:
    """Compare b with a on the tasks of a role (None: all) that both agents have.

    `seed`: of the resampling. Raises DataError where the agents share no task with a known value, or a task id names
    two tasks.
    """
    pairing = pair_tasks(a, b, role, by)
    pairs, families = pairing.pairs, [pair.family for pair in pairing.pairs]
    mean_a, mean_b, difference = paired_estimates(pairs, LEVEL, n_resamples, seed)
    tests = _two_sided_tests(pairs, families, n_resamples, seed)
    won, lost_to, tied = count_wins(pairs)
    return AgentComparison(
        a=AgentRef.of(a),
        b=AgentRef.of(b),
        role=role,
        by=by,
        paired_by=pairing.paired_by,
        n_tasks=len(pairs),
        n_families=len(set(families)),
        k=pairing.k,
        mean_a=mean_a,
        mean_b=mean_b,
        difference=difference,
        p_value=tests[0].p_value,
        tests=tests,
        posterior=bayes_paired(
            [pair.b for pair in pairs], [pair.a for pair in pairs], clusters=families, rope=ROPE, level=LEVEL
        ),
        won=won,
        lost_to=lost_to,
        tied=tied,
        lost=pairing.lost,
        lost_tasks=pairing.lost_tasks,
        unshared=pairing.unshared,
        by_kind=compare_kinds(pairs, LEVEL, n_resamples, seed),
        kinds=_kind_posteriors(pairs),
        flips=flips(a, b, role) if by == "success" else (),
    )


def _two_sided_tests(
    pairs: Sequence[TaskPair], families: Sequence[str], n_resamples: int, seed: int
) -> tuple[TestRow, ...]:
    """Test the mean over tasks by permutation, and the families' means by Wilcoxon's and McNemar's tests, which assume
    independence.
    """
    after, before = [pair.b for pair in pairs], [pair.a for pair in pairs]
    mean = permutation_test(after, before, clusters=families, n_resamples=n_resamples, level=LEVEL, seed=seed)
    groups: dict[str, list[TaskPair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.family].append(pair)
    means_a = [sum(pair.a for pair in own) / len(own) for own in groups.values()]
    means_b = [sum(pair.b for pair in own) / len(own) for own in groups.values()]
    behind, ahead = sum(map(gt, means_a, means_b)), sum(map(gt, means_b, means_a))
    return (
        _test_row("permutation", "the mean over tasks, families exchanged whole", mean),
        _test_row("wilcoxon", "the ranks of the families' differences", wilcoxon(means_b, means_a)),
        _test_row("mcnemar", f"families ahead ({ahead}) and behind ({behind})", mcnemar(behind, ahead)),
    )


def _kind_posteriors(pairs: Sequence[TaskPair]) -> tuple[KindPosterior, ...]:
    groups: dict[str, list[TaskPair]] = defaultdict(list)
    for pair in pairs:
        groups[pair.kind].append(pair)
    effects: list[tuple[str, float, float]] = []
    for kind, own in sorted(groups.items()):
        differences = [pair.b - pair.a for pair in own]
        # A kind of one family has no standard error, one without any variation has 0: neither can be pooled.
        if error := clustered_standard_error(differences, [pair.family for pair in own]):
            effects.append((kind, sum(differences) / len(differences), error))
    posteriors = bayes_groups(
        [mean for _, mean, _ in effects], [error for _, _, error in effects], rope=ROPE, level=LEVEL
    )
    return tuple(KindPosterior(kind, posterior) for (kind, _, _), posterior in zip(effects, posteriors, strict=True))


def _test_row(name: str, about: str, test: TestResult) -> TestRow:
    return TestRow(
        name, about, test.statistic, test.p_value, test.effect_size, test.interval, test.families, test.exact
    )
