"""Metrics of an agent over all its tasks, or by kind, family and role: rates with intervals, means, quantiles and
pass@k.

`success_rate` and other figures of success are means over *tasks*; costs are means over *episodes*. Attempts without a
known outcome are excluded from both.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from statistics import quantiles

import msgspec

from ratchet.components.core import DataError
from ratchet.components.statistics.bootstrap import rate_estimate
from ratchet.components.statistics.proportions import cons_at_k, pass_at_k, pass_hat_k
from ratchet.components.statistics.result_types import Estimate

from .agent_results import AgentResult, TaskAttempt, TaskResult, known_mean
from .paired_comparison import task_mean

EPISODE_MEASURES: dict[str, Callable[[TaskAttempt], float | None]] = {
    "reward": attrgetter("reward"),
    "turns": attrgetter("turns"),
    "steps": attrgetter("steps"),
    "tokens": attrgetter("tokens"),
    "completion_tokens": attrgetter("completion_tokens"),
    "cost": attrgetter("cost"),
    "seconds": attrgetter("seconds"),
    "seconds_per_turn": lambda attempt: (
        attempt.seconds / attempt.turns if attempt.seconds is not None and attempt.turns else None
    ),
}
"""Figures of an episode that get quantiles. Latency is `seconds` (the policy's own) and `seconds_per_turn`."""


class Quantiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quantiles of a figure over `n` episodes, by linear interpolation (Hyndman & Fan 1996, type 7)."""

    n: int
    mean: float
    p5: float
    p25: float
    median: float
    p75: float
    p95: float


class AttemptsAtK(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Success within k attempts, as means over the `tasks` with at least k known outcomes.

    `pass_at`: at least one of k succeeds (Chen et al. 2021); `pass_hat`: all do (Yao et al. 2024); `cons`: the majority
    does, a tie counted half. All are unbiased over the attempts made.
    """

    k: int
    tasks: int
    pass_at: float
    pass_hat: float
    cons: float


class AgentSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Means over the episodes with a known outcome; `success_rate` is the mean over tasks. None where nothing is known.

    `pass_any`, `pass_all`: shares of tasks solved in at least one and in every attempt with a known outcome. `steps`
    are tool calls; `invalid_call_rate` is the share of calls that could not be parsed or executed. `causes` counts
    failed episodes by cause; `infrastructure` and `unknown` count the episodes left out, `lost_causes` by cause.
    `majority_vote`: mean success of the most frequent answer, over the tasks that are solved by an answer.
    `unsafe_rate`: share of the inspected episodes with a hack or an unsafe action. `quantiles`: by the names of
    EPISODE_MEASURES. `by_k`: from k = 1 to the most attempts at a task.
    """

    tasks: int
    families: int
    episodes: int
    infrastructure: int
    unknown: int
    success_rate: float | None
    pass_any: float | None
    pass_all: float | None
    truncation_rate: float | None
    invalid_call_rate: float | None
    mean_turns: float | None
    mean_steps: float | None
    mean_prompt_tokens: float | None
    mean_completion_tokens: float | None
    mean_cost: float | None
    mean_seconds: float | None
    causes: dict[str, int]
    lost_causes: dict[str, int]
    mean_reward: float | None = None
    mean_tokens: float | None = None
    unsafe_rate: float | None = None
    majority_vote: float | None = None
    quantiles: dict[str, Quantiles] = {}
    by_k: tuple[AttemptsAtK, ...] = ()

    @property
    def prompt_and_completion(self) -> float | None:
        """Mean tokens of an episode, prompts and completions together; None where either is unknown."""
        prompt, completion = self.mean_prompt_tokens, self.mean_completion_tokens
        return None if prompt is None or completion is None else prompt + completion

    @property
    def lost_rate(self) -> float | None:
        """The share of all episodes that were left out."""
        lost_episodes = self.infrastructure + self.unknown
        return lost_episodes / (self.episodes + lost_episodes) if self.episodes + lost_episodes else None


def summarise_tasks(tasks: Sequence[TaskResult]) -> AgentSummary:
    """Return the metrics of some tasks."""
    everything = [attempt for task in tasks for attempt in task.attempts]
    counted = [attempt for attempt in everything if attempt.success is not None]
    lost_attempts = [attempt for attempt in everything if attempt.success is None]
    rates = [task.success_rate for task in tasks if task.success_rate is not None]
    steps = sum(attempt.steps for attempt in counted)
    return AgentSummary(
        tasks=len(tasks),
        families=len({task.family for task in tasks}),
        episodes=len(counted),
        infrastructure=sum(attempt.infrastructure for attempt in lost_attempts),
        unknown=sum(not attempt.infrastructure for attempt in lost_attempts),
        success_rate=known_mean(rates),
        pass_any=known_mean([float(rate > 0) for rate in rates]),
        pass_all=known_mean([float(rate == 1) for rate in rates]),
        truncation_rate=known_mean([float(attempt.truncated) for attempt in counted]),
        invalid_call_rate=sum(attempt.invalid_calls for attempt in counted) / steps if steps else None,
        mean_turns=known_mean([attempt.turns for attempt in counted]),
        mean_steps=known_mean([attempt.steps for attempt in counted]),
        mean_prompt_tokens=known_mean([attempt.prompt_tokens for attempt in counted]),
        mean_completion_tokens=known_mean([attempt.completion_tokens for attempt in counted]),
        mean_cost=known_mean([attempt.cost for attempt in counted]),
        mean_seconds=known_mean([attempt.seconds for attempt in counted]),
        causes=_count_causes(attempt.cause for attempt in counted if not attempt.success),
        lost_causes=_count_causes(attempt.cause for attempt in lost_attempts),
        mean_reward=known_mean([attempt.reward for attempt in counted]),
        mean_tokens=known_mean([attempt.tokens for attempt in counted]),
        unsafe_rate=known_mean([float(attempt.unsafe > 0) for attempt in counted if attempt.unsafe is not None]),
        majority_vote=known_mean([task.majority_vote for task in tasks]),
        quantiles={
            name: distribution
            for name, figure in EPISODE_MEASURES.items()
            if (distribution := known_quantiles([figure(attempt) for attempt in counted])) is not None
        },
        by_k=success_by_k(tasks),
    )


def summarise_agent(result: AgentResult, role: str | None = None) -> AgentSummary:
    """Return the metrics of one role, or of all tasks."""
    return summarise_tasks(result.of(role))


def breakdown(result: AgentResult, by: str, role: str | None = None) -> dict[str, AgentSummary]:
    """Return the metrics by `kind`, `family` or `role`, sorted by name. Raises DataError for another `by`."""
    if by not in ("kind", "family", "role"):
        raise DataError(f"cannot break results down by '{by}'; choose kind, family or role")
    groups: dict[str, list[TaskResult]] = defaultdict(list)
    for task in result.of(role):
        groups[getattr(task, by)].append(task)
    return {key: summarise_tasks(groups[key]) for key in sorted(groups)}


def success_by_k(tasks: Sequence[TaskResult]) -> tuple[AttemptsAtK, ...]:
    """Return the success within k attempts for k from 1 to the most known outcomes at any task."""
    counts = Counter((len(outcomes), sum(outcomes)) for task in tasks if (outcomes := task.known))
    return tuple(_success_at_k(k, counts) for k in range(1, max((n for n, _ in counts), default=0) + 1))


def _success_at_k(k: int, counts: Counter[tuple[int, int]]) -> AttemptsAtK:
    """Return the figures for one k; `counts` holds the number of tasks with c successes in n attempts, by (n, c)."""
    # Tasks that lost attempts drop out as k grows: figures of different k may be about different tasks.
    enough = {(n, c): times for (n, c), times in counts.items() if n >= k}
    tasks = sum(enough.values())

    def over_tasks(estimate: Callable[[int, int, int], float]) -> float:
        return sum(times * estimate(n, c, k) for (n, c), times in enough.items()) / tasks

    return AttemptsAtK(k, tasks, over_tasks(pass_at_k), over_tasks(pass_hat_k), over_tasks(cons_at_k))


def known_quantiles(values: Sequence[float | None]) -> Quantiles | None:
    """Return the quantiles of the known values; None without one."""
    present = sorted(value for value in values if value is not None)
    if not present:
        return None
    if len(present) == 1:  # statistics.quantiles needs two values
        return Quantiles(1, *[present[0]] * 6)
    # 20 groups: 19 cuts at 5 %, 10 %, … 95 %; "inclusive" is numpy's linear interpolation.
    cuts = quantiles(present, n=20, method="inclusive")
    return Quantiles(len(present), sum(present) / len(present), cuts[0], cuts[4], cuts[9], cuts[14], cuts[18])


def _count_causes(causes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(causes).items()))


class AgentOverview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Success and reward as means over tasks, with intervals that resample whole families, and metrics by kind and
    family.
    """

    success: Estimate
    reward: Estimate
    summary: AgentSummary
    by_kind: dict[str, AgentSummary]
    by_family: dict[str, AgentSummary]


def agent_overview(result: AgentResult, role: str | None = None, *, seed: int = 0) -> AgentOverview:
    """Return the overview of one role, or of all tasks; `seed` is that of the bootstrap."""
    tasks = result.of(role)
    rates = [(rate, task.family) for task in tasks if (rate := task.success_rate) is not None]
    rewards = [(reward, task.family) for task in tasks if (reward := task_mean(task, "reward")) is not None]
    return AgentOverview(
        success=rate_estimate([rate for rate, _ in rates], [family for _, family in rates], seed=seed),
        reward=rate_estimate([reward for reward, _ in rewards], [family for _, family in rewards], seed=seed),
        summary=summarise_agent(result, role),
        by_kind=breakdown(result, "kind", role),
        by_family=breakdown(result, "family", role),
    )
