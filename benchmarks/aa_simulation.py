"""How often is a challenger promoted that is no better? A/A comparisons through the real promotion rule.

Both agents have the same success rate on average, but each is better at some families and worse at others: their effects
vary by family with mean zero, as two trainings of equal worth do. Tests that take tasks for independent fail here; the last
column shows it. `symmetric`: normal family effects. `skewed`: a few families improve much, the rest get a little worse.

    python benchmarks/aa_simulation.py [--comparisons 1000] [--seed 0]
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from components.evaluation.metrics import AgentResult, Attempt, TaskResult
from components.evaluation.promotion import PromotionRule, TasksetRef, decide

Floats = NDArray[np.float64]
LIMIT = 0.035
TASKSET = TasksetRef("simulated", "1", "none", "instance")


def family_sizes(tasks: int, families: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The family of each task, unequal in size: each family has one, the rest fall where they fall (Dirichlet shares)."""
    shares = rng.dirichlet(np.full(families, 2.0))
    return np.concatenate([np.arange(families), rng.choice(families, size=tasks - families, p=shares)])


def family_effects(shape: str, families: int, spread: float, rng: np.random.Generator) -> Floats:
    """One effect a family, in success probability, with expectation zero and standard deviation `spread`."""
    if shape == "symmetric":
        return rng.normal(0.0, spread, families)
    return spread * (rng.exponential(1.0, families) - 1.0)


def simulate(
    shape: str, seed: int, tasks: int = 120, families: int = 60, k: int = 4, spread: float = 0.15
) -> tuple[AgentResult, AgentResult]:
    """Two agents of equal expected success; task difficulties are shared, family effects are each agent's own."""
    rng = np.random.default_rng(seed)
    family = family_sizes(tasks, families, rng)
    difficulty = rng.uniform(0.4, 0.6, tasks)
    shift = family_effects(shape, families, spread, rng)
    chances = (difficulty, np.clip(difficulty + shift[family], 0.0, 1.0))
    first, second = (rng.random((tasks, k)) < chance[:, None] for chance in chances)
    return agent("champion", first, family), agent("challenger", second, family)


def agent(name: str, wins: NDArray[np.bool_], family: NDArray[np.int64]) -> AgentResult:
    """An agent's result from a matrix of successes (tasks, attempts)."""
    rows = tuple(
        TaskResult(
            task_id=f"t{number:04d}",
            task_hash="h",
            family=f"f{family[number]}",
            kind="any",
            role="promote",
            attempts=tuple(Attempt(attempt=j, seed=j, success=bool(win), steps=3) for j, win in enumerate(row)),
        )
        for number, row in enumerate(wins)
    )
    return AgentResult(name, "simulated", name, rows)


def naive_p(champion: AgentResult, challenger: AgentResult) -> float:
    """One-sided paired t test that takes every task for independent."""
    from scipy import stats

    rates = [[task.rate for task in result.tasks] for result in (challenger, champion)]
    return float(stats.ttest_rel(*rates, alternative="greater").pvalue)


def run(shape: str, comparisons: int, seed: int, rule: PromotionRule, **size: float) -> Iterator[tuple[bool, bool]]:
    """For each comparison: was the challenger promoted, and would the naive test have done so?"""
    for number in range(comparisons):
        champion, challenger = simulate(shape, seed + number, **size)  # type: ignore[arg-type]
        decision = decide(champion, challenger, None, TASKSET, rule, seed=number)
        yield decision.verdict == "promote", naive_p(champion, challenger) < rule.alpha


def main() -> int:
    """Print a table; exit 1 where a rate with symmetric effects is above LIMIT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rule = PromotionRule(n_resamples=2_000)
    print(f"{arguments.comparisons} A/A comparisons a row, alpha {rule.alpha}, limit {LIMIT}")
    print("| family effects | tasks | families | promoted | tasks taken as independent | seconds |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    for shape, tasks, families in (
        ("symmetric", 120, 60),
        ("symmetric", 120, 20),
        ("symmetric", 120, 8),
        ("skewed", 120, 60),
    ):
        start = time.perf_counter()
        outcomes = list(run(shape, arguments.comparisons, arguments.seed, rule, tasks=tasks, families=families))
        promoted, naive = (sum(column) / len(outcomes) for column in zip(*outcomes, strict=True))
        worst = max(worst, promoted) if shape == "symmetric" else worst
        seconds = time.perf_counter() - start
        print(f"| {shape} | {tasks} | {families} | {promoted:.1%} | {naive:.1%} | {seconds:.0f} |")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
