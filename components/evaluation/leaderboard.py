"""Leaderboard: many agents ranked on the tasks that all of them have, with every pairwise comparison.

All agents are measured on their shared tasks, so that each difference is paired; other tasks are left out and counted.
A task's value is the mean over the attempts that have one. Groups of agents that do not differ significantly share a
letter.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from itertools import combinations
from math import ceil
from string import ascii_lowercase
from typing import TypeVar

import msgspec

from ratchet.components.core import DataError
from ratchet.components.statistics.bootstrap import difference_estimate, rate_estimate
from ratchet.components.statistics.multiple_testing import holm
from ratchet.components.statistics.numerics import rounded_differences
from ratchet.components.statistics.permutation import paired_p_values
from ratchet.components.statistics.result_types import Estimate

from .agent_metrics import summarise_tasks
from .agent_results import AgentResult, TaskResult
from .paired_comparison import Measure, check_same_hash, task_mean, tasks_by_id

AgentName = TypeVar("AgentName", bound=Hashable)


def compact_letters(names: Sequence[AgentName], apart: Collection[tuple[AgentName, AgentName]]) -> dict[AgentName, str]:
    """Return the letters of each name: two names share a letter exactly if they do not differ (Piepho 2004,
    doi:10.1198/1061860043515).

    `apart`: the pairs that differ significantly, in either order. Groups are lettered in the order of `names`;
    after z come a1, b1 …
    """
    columns: list[frozenset[AgentName]] = [frozenset(names)]
    # Insert and absorb: a column that holds both names becomes two columns, each without one of them.
    for one, other in apart:
        joint = [column for column in columns if one in column and other in column]
        unaffected = [column for column in columns if column not in joint]
        split = [column - {name} for column in joint for name in (one, other)]
        different = list(dict.fromkeys([*unaffected, *split]))
        columns = [column for column in different if column and not any(column < larger for larger in different)]
    place = {name: number for number, name in enumerate(names)}
    ordered = sorted(columns, key=lambda column: sorted(place[name] for name in column))
    return {name: "".join(_letter(number) for number, column in enumerate(ordered) if name in column) for name in names}


def _letter(number: int) -> str:
    turn, place = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[place] + (str(turn) if turn else "")


CORRECTION = "Holm over all pairs, each by a two-sided permutation test over families"
LEVEL = 0.95
"""Confidence of the intervals."""
DRAWS_PER_COMPARISON = 20
"""Draws of a permutation test per multiple of what its smallest corrected p-value needs."""


class LeaderboardRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One agent. Equal values share a `rank`, and the next rank counts them all (1, 2, 2, 4).

    `best_rank` and `worst_rank`: the ranks that the significant differences allow, jointly for all agents at confidence
    1 - alpha (Mogstad et al. 2024, doi:10.1093/restud/rdad006). Agents without a letter of `group` in common differ
    significantly. `win_rate`: share of (other agent, task) pairs with a higher value, ties counted half; None for a
    single agent. `left_out`: tasks that not all agents have; `lost`: attempts at the shared tasks with an unknown
    value.
    """

    rank: int
    best_rank: int
    worst_rank: int
    name: str
    policy: str
    policy_version: str
    value: Estimate
    group: str
    win_rate: float | None
    success: float | None
    steps: float | None
    tokens: float | None
    cost: float | None
    seconds: float | None
    lost: int
    left_out: int


class PairwiseComparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two agents, `a` the higher ranked: `difference` is a - b; `won`, `lost` and `tied` count tasks for a."""

    a: str
    b: str
    difference: Estimate
    p_value: float
    corrected: float
    significant: bool
    won: int
    lost: int
    tied: int

    @property
    def win_rate(self) -> float:
        """The share of tasks that a won, ties counted half."""
        return (self.won + self.tied / 2) / (self.won + self.lost + self.tied)


class Leaderboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Agents from the best to the worst (`places`), and the comparison of every two (`duels`).

    `alpha`: family-wise level of the comparisons; `level`: confidence of the intervals.
    """

    by: Measure
    role: str | None
    n_tasks: int
    n_families: int
    alpha: float
    level: float
    correction: str
    places: tuple[LeaderboardRow, ...]
    duels: tuple[PairwiseComparison, ...]

    def wins(self) -> tuple[tuple[float | None, ...], ...]:
        """Return the win matrix: at [i][j] the share of tasks at which row i beats row j, ties counted half; None on
        the diagonal.
        """
        win_rates = {(duel.a, duel.b): duel.win_rate for duel in self.duels}
        win_rates |= {(duel.b, duel.a): 1 - duel.win_rate for duel in self.duels}
        names = [place.name for place in self.places]
        return tuple(tuple(win_rates.get((one, other)) for other in names) for one in names)


def leaderboard(
    results: Sequence[AgentResult],
    role: str | None = "promote",
    *,
    by: Measure = "success",
    alpha: float = 0.05,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Leaderboard:
    """Rank agents on the tasks of a role (None: all) that every agent has.

    Raises DataError without an agent, for two of one name, where a task id names two tasks, and where no task has a
    known value for all.

    >>> options = {"tasks": 2, "k": 1, "role": "promote"}
    >>> results = [ratchet.evaluate_agent(name, "orders", **options).result for name in ("teacher", "clumsy")]
    >>> ratchet.leaderboard(results).places[0].name
    'teacher'
    """
    if not results:
        raise DataError("a leaderboard needs at least one agent; evaluate some first")
    twice = [name for name, times in Counter(result.name for result in results).items() if times > 1]
    if twice:
        raise DataError(f"two agents are called {min(twice)}; give each a different name")
    shared, values = _shared_tasks(results, role, by)
    tasks = list(shared[results[0].name].values())
    families = [task.family for task in tasks]
    estimates = {
        name: rate_estimate(own, families, level=LEVEL, n_resamples=n_resamples, seed=seed)
        for name, own in values.items()
    }
    order = sorted(results, key=lambda result: (-(estimates[result.name].value or 0.0), result.name))
    names = [result.name for result in order]
    duels = _pairwise_comparisons(names, families, values, alpha, n_resamples, seed)
    letters = compact_letters(names, [(duel.a, duel.b) for duel in duels if duel.significant])
    places = tuple(
        _leaderboard_row(result, shared[result.name], estimates, duels, letters[result.name], len(result.of(role)))
        for result in order
    )
    return Leaderboard(by, role, len(tasks), len(set(families)), alpha, LEVEL, CORRECTION, places, duels)


def _shared_tasks(
    results: Sequence[AgentResult], role: str | None, by: Measure
) -> tuple[dict[str, dict[str, TaskResult]], dict[str, list[float]]]:
    """Return each agent's tasks that all agents have with a known value, by task id, and the values in that order."""
    played = {result.name: tasks_by_id(result, role) for result in results}
    first, own = next(iter(played.items()))
    means = {name: {task_id: task_mean(task, by) for task_id, task in tasks.items()} for name, tasks in played.items()}
    common = sorted(
        task_id for task_id in own if all(task_means.get(task_id) is not None for task_means in means.values())
    )
    if not common:
        raise DataError(
            f"no task was played by all of {', '.join(played)} with a known {by}; evaluate them on the same taskset with the "
            "same seed"
        )
    for name, tasks in played.items():
        for task_id in common:
            check_same_hash(first, own[task_id], name, tasks[task_id])
    values = {
        name: [value for task_id in common if (value := task_means[task_id]) is not None]
        for name, task_means in means.items()
    }
    return {name: {task_id: tasks[task_id] for task_id in common} for name, tasks in played.items()}, values


def _pairwise_comparisons(
    names: Sequence[str],
    families: Sequence[str],
    values: dict[str, list[float]],
    alpha: float,
    n_resamples: int,
    seed: int,
) -> tuple[PairwiseComparison, ...]:
    """Return every pair in the order of the leaderboard, with Holm's correction over all of them."""
    import numpy as np

    couples = list(combinations(names, 2))
    if not couples:
        return ()
    arrays = {name: np.array(values[name]) for name in names}
    rows = np.array([rounded_differences(arrays[one], arrays[other]) for one, other in couples])
    # A sampled p-value is at least 2 / (draws + 1): with too few draws no pair could survive the correction.
    draws = max(n_resamples, ceil(DRAWS_PER_COMPARISON * len(couples) / alpha))
    p_values = paired_p_values(rows, families, n_resamples=draws, seed=seed)
    duels = []
    for (one, other), row, p, corrected in zip(couples, rows, p_values, holm(p_values), strict=True):
        difference = difference_estimate(row, families, level=LEVEL, n_resamples=n_resamples, seed=seed)
        wins, losses = int((row > 0).sum()), int((row < 0).sum())
        ties = len(row) - wins - losses
        duels.append(PairwiseComparison(one, other, difference, p, corrected, corrected < alpha, wins, losses, ties))
    return tuple(duels)


def _leaderboard_row(
    result: AgentResult,
    tasks: dict[str, TaskResult],
    estimates: dict[str, Estimate],
    duels: Sequence[PairwiseComparison],
    group: str,
    played: int,
) -> LeaderboardRow:
    own = [duel for duel in duels if result.name in (duel.a, duel.b)]
    above = sum(duel.significant and duel.b == result.name for duel in own)
    below = sum(duel.significant and duel.a == result.name for duel in own)
    higher = sum((other.value or 0.0) > (estimates[result.name].value or 0.0) for other in estimates.values())
    rates = [duel.win_rate if duel.a == result.name else 1 - duel.win_rate for duel in own]
    figures = summarise_tasks(list(tasks.values()))
    return LeaderboardRow(
        rank=1 + higher,
        best_rank=1 + above,
        worst_rank=len(estimates) - below,
        name=result.name,
        policy=result.policy,
        policy_version=result.policy_version,
        value=estimates[result.name],
        group=group,
        win_rate=sum(rates) / len(rates) if rates else None,
        success=figures.success_rate,
        steps=figures.mean_steps,
        tokens=figures.prompt_and_completion,
        cost=figures.mean_cost,
        seconds=figures.mean_seconds,
        lost=figures.infrastructure + figures.unknown,
        left_out=played - len(tasks),
    )
