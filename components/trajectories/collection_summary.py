"""Statistics of a collection of trajectories. Unknown values are counted as unknown, never as zero."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

from ratchet.components.core import Usage

from .trajectory import FailureKind, Trajectory, Turn

MAX_BARS = 10
"""Maximum number of bars of a histogram."""


class Distribution(msgspec.Struct, frozen=True):
    """Distribution of a quantity over `count` episodes: sum, mean, extremes, and quantiles by nearest rank."""

    count: int
    total: float
    mean: float
    least: float
    median: float
    p90: float
    most: float


class HistogramBar(msgspec.Struct, frozen=True):
    """Number of episodes with `least` to `most` steps, both included."""

    least: int
    most: int
    episodes: int


class ToolUsage(msgspec.Struct):
    """Usage of one tool. An error is a result with an exit code other than 0 or with an error of the call.

    `errors`: None where no result in logs of other agents says whether its call failed. `unreadable`: calls that could
    not be parsed. `error_rate`: errors per answered call; None without answered calls, or with unknown errors.
    """

    calls: int = 0
    answered: int = 0
    errors: int | None = 0
    unreadable: int = 0
    error_rate: float | None = None


class CollectionSummary(msgspec.Struct):
    """Statistics of a collection. `success_rate` is that of episodes with a known success; None without any.

    `cut_short`: truncated episodes. `repeated_ids`, `repeated_contents`: episodes beyond the first with their id or
    content hash. `steps`, `seconds`: per episode; `histogram`: of steps. `agents`: keyed by name and policy version.
    """

    episodes: int = 0
    tasks: int = 0
    succeeded: int = 0
    not_succeeded: int = 0
    success_unknown: int = 0
    success_rate: float | None = None
    cut_short: int = 0
    policy_failures: int = 0
    infrastructure_failures: int = 0
    repeated_ids: int = 0
    repeated_contents: int = 0
    turns: int = 0
    steps: Distribution | None = None
    histogram: list[HistogramBar] = []
    tools: dict[str, ToolUsage] = {}
    prompt_tokens: int = 0
    completion_tokens: int = 0
    episodes_with_usage: int = 0
    cost: float | None = None
    seconds: Distribution | None = None
    first_collected: str | None = None
    last_collected: str | None = None
    sources: dict[str, int] = {}
    agents: dict[str, int] = {}
    tasksets: dict[str, int] = {}
    domains: dict[str, int] = {}


def summarize(trajectories: Iterable[Trajectory]) -> CollectionSummary:
    """Return the statistics of a stream; memory per episode is two hashes and two numbers."""
    counting = _Counter()
    for trajectory in trajectories:
        counting.add(trajectory)
    return counting.finished()


class _Counter:
    def __init__(self) -> None:
        self.summary = CollectionSummary()
        self.steps, self.seconds = array("q"), array("d")
        # A list for `fsum`: a running total would depend on the order of the episodes.
        self.costs: list[float] = []
        self.tasks: set[str] = set()
        self.ids: set[str] = set()
        self.contents: set[str] = set()
        self.tools: dict[str, ToolUsage] = {}
        self.errors: dict[str, int] = {}  # of the tools whose results say whether the call failed
        self.counts = {name: Counter[str]() for name in ("sources", "agents", "tasksets", "domains")}

    def add(self, trajectory: Trajectory) -> None:
        summary, task, outcome = self.summary, trajectory.task, trajectory.outcome
        summary.episodes += 1
        summary.succeeded += outcome.success is True
        summary.not_succeeded += outcome.success is False
        summary.success_unknown += outcome.success is None
        summary.cut_short += outcome.truncated
        kind = None if trajectory.failure is None else trajectory.failure.kind
        summary.policy_failures += kind is FailureKind.POLICY
        summary.infrastructure_failures += kind is FailureKind.INFRASTRUCTURE
        summary.repeated_ids += trajectory.episode_id in self.ids
        summary.repeated_contents += trajectory.content_hash in self.contents
        self.ids.add(trajectory.episode_id)
        self.contents.add(trajectory.content_hash)
        self.tasks.add(task.task_id)
        agent = trajectory.agent
        names = (
            trajectory.provenance.source,
            f"{agent.name} {agent.policy_version}".strip(),
            task.taskset,
            task.domain,
        )
        for counter, name in zip(self.counts.values(), names, strict=True):
            counter[name] += 1
        if collected := trajectory.provenance.collected_at:
            summary.first_collected = min(summary.first_collected or collected, collected)
            summary.last_collected = max(summary.last_collected or collected, collected)
        self._turns(trajectory)

    def _turns(self, trajectory: Trajectory) -> None:
        summary, turns, ours = self.summary, trajectory.turns, trajectory.provenance.source == "ratchet"
        summary.turns += len(turns)
        self.steps.append(sum(len(turn.calls) for turn in turns))
        used = [turn.usage for turn in turns if turn.usage is not None] or _reported_usage(trajectory)
        summary.episodes_with_usage += bool(used)
        summary.prompt_tokens += sum(usage.prompt_tokens or 0 for usage in used)
        summary.completion_tokens += sum(usage.completion_tokens or 0 for usage in used)
        self.costs.extend(usage.cost for usage in used if usage.cost is not None)
        seconds = [turn.seconds for turn in turns if turn.seconds is not None]
        if seconds:
            self.seconds.append(math.fsum(seconds))
        for turn in turns:
            self._calls(turn, ours)

    def _calls(self, turn: Turn, ours: bool) -> None:
        answers = {result.call_id: result for result in turn.results}
        for call in turn.calls:
            use = self.tools.setdefault(call.tool, ToolUsage())
            result = answers.get(call.call_id)
            use.calls += 1
            use.unreadable += call.parse_error is not None
            use.answered += result is not None
            if result is not None and (ours or result.exit_code is not None or result.error is not None):
                failed = bool(result.exit_code) or result.error is not None
                self.errors[call.tool] = self.errors.get(call.tool, 0) + failed

    def finished(self) -> CollectionSummary:
        summary = self.summary
        judged = summary.succeeded + summary.not_succeeded
        summary.tasks = len(self.tasks)
        summary.success_rate = summary.succeeded / judged if judged else None
        summary.steps, summary.seconds = distribution(self.steps), distribution(self.seconds)
        summary.histogram = histogram(self.steps)
        summary.cost = math.fsum(self.costs) if self.costs else None
        for name, use in self.tools.items():
            use.errors = self.errors.get(name, None if use.answered else 0)
            use.error_rate = use.errors / use.answered if use.answered and use.errors is not None else None
        summary.tools = dict(sorted(self.tools.items(), key=lambda item: (-item[1].calls, item[0])))
        for name, counter in self.counts.items():
            setattr(summary, name, dict(counter.most_common()))
        return summary


def _reported_usage(trajectory: Trajectory) -> list[Usage]:
    """Return the usage of the whole episode that SWE-agent's logs report, where it was counted; else nothing."""
    info = trajectory.source_extra.get("info")
    stats = info.get("model_stats") if isinstance(info, dict) else None
    if not isinstance(stats, dict):
        return []
    sent, received, cost = map(stats.get, ("tokens_sent", "tokens_received", "instance_cost"))
    usage = Usage(
        sent if isinstance(sent, int) else None,
        received if isinstance(received, int) else None,
        float(cost) if isinstance(cost, int | float) else None,
    )
    return [usage] if usage.prompt_tokens or usage.completion_tokens or usage.cost else []


def distribution(values: Sequence[float]) -> Distribution | None:
    """Return the distribution of `values`; None where there are none."""
    if not values:
        return None
    ordered = sorted(values)
    median, p90 = (ordered[max(math.ceil(share * len(ordered)) - 1, 0)] for share in (0.5, 0.9))
    return Distribution(len(ordered), math.fsum(ordered), fmean(ordered), ordered[0], median, p90, ordered[-1])


def histogram(values: Sequence[int]) -> list[HistogramBar]:
    """Return at most MAX_BARS bars of equal integer width, empty ones included."""
    if not values:
        return []
    least, most = min(values), max(values)
    width = max(math.ceil((most - least + 1) / MAX_BARS), 1)
    counts = Counter((value - least) // width for value in values)
    return [
        HistogramBar(least + bar * width, least + (bar + 1) * width - 1, counts[bar])
        for bar in range((most - least) // width + 1)
    ]
