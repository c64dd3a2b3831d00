"""How close a collection comes to the ideal, and what its loop costs per step. One run, one table of ratios.

- *many at once*: a policy that takes 50 ms an answer and tools that take 50 ms a call; 64 episodes of 8 turns, 32 at once.
  Ideal: every one of 32 lanes plays its two episodes of 8 x 100 ms without a pause. The other row is a loop that plays one
  episode after another, as most harnesses begin; it is played over fewer episodes, since each takes as long as the last.
- *uneven*: the same amount of work, but every eighth episode has 22 turns: what lock-step or cohorts with a tail would
  wait for. Ideal: the busiest lane that no schedule avoids (the list schedule's bound: work / lanes + longest episode).
- *overhead*: an environment and a policy that do nothing; the whole loop and the recorder, per step, the record made and
  encoded included. Once with a policy that reads nothing of the conversation, and once with one that reads its last
  message. Flatness: a step of 2,000 against a step of 50.

    python benchmarks/rollouts.py [--json] [--quick]

Exit code 1 where a bar is missed: 85 % of the ideal, 20 microseconds a step, twice the cost at 2,000 steps.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from verdict import conclude

from ratchet.components.core import (
    Action,
    Environment,
    Policy,
    PolicyReply,
    PolicyRequest,
    Role,
    TaskSpec,
    TimeStep,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from ratchet.components.rollouts.collection_plan import PlannedEpisode
from ratchet.components.rollouts.collection_progress import CollectionProgress
from ratchet.components.rollouts.episode_runner import Episode, EpisodeSettings
from ratchet.components.rollouts.independent_play import play_independently
from ratchet.components.rollouts.rollout_spool import EpisodeJournal
from ratchet.components.trajectories.trajectory import Agent

DELAY = 0.05
EPISODES, TURNS, CONCURRENCY = 64, 8, 32
BAR_IDEAL, BAR_MICROSECONDS, BAR_FLAT = 0.85, 20.0, 2.0
TOOLS = (ToolSpec("go", "Go on.", {"type": "object", "properties": {}}),)


class Counting(Environment):
    """Ends at its task's number of steps; a step takes `delay` seconds."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.left = 0

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """One tool."""
        return TOOLS

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Begin."""
        assert task is not None
        self.left = task.metadata["steps"]
        return TimeStep("go")

    def step(self, action: Action) -> TimeStep:
        """Count down."""
        if self.delay:
            time.sleep(self.delay)
        self.left -= 1
        result = ToolResult(action["call_id"], "ok")
        if self.left:
            return TimeStep("ok", info={"result": result})
        outcome = {"success": True, "score": 1.0, "tests_passed": 1, "tests_total": 1, "reason": "passed"}
        return TimeStep("ok", 1.0, True, info={"result": result, "outcome": outcome})

    def finish(self, reason: str) -> TimeStep:
        """Nothing here ends early."""
        raise AssertionError(reason)

    def close(self) -> None:
        """Nothing to release."""


class Going(Policy):
    """Calls the tool, after `delay` seconds; `reads` the conversation's last message first, or nothing."""

    name, version = "going", "1"

    def __init__(self, delay: float = 0.0, *, reads: bool = False) -> None:
        self.sampling = {}
        self.delay = delay
        self.reads = reads

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """One call each."""
        if self.delay:
            time.sleep(self.delay)
        if self.reads:
            assert requests[0].messages[-1]["content"]
        return [PolicyReply("", (ToolCall(f"{request.turn}-0", "go"),)) for request in requests]


def planned(steps: Sequence[int]) -> list[PlannedEpisode]:
    """An episode of each of those lengths."""
    return [
        PlannedEpisode(
            TaskSpec(f"t{i}", "counting", "f", "k", Role.TRAIN, "generic", "count", metadata={"steps": length}),
            0,
            i,
            f"ep-{i}",
            f"gr-{i}",
        )
        for i, length in enumerate(steps)
    ]


def settings(delay: float) -> EpisodeSettings:
    """Episodes without a limit on turns."""
    return EpisodeSettings(
        lambda: Counting(delay), Agent("going", "going", "1"), sys.maxsize, concurrency=CONCURRENCY, retries=0
    )


def collected(steps: Sequence[int], delay: float) -> float:
    """Seconds that a collection of those episodes takes, its journal included."""
    episodes = planned(steps)
    with tempfile.TemporaryDirectory() as folder:
        journal = EpisodeJournal(Path(folder) / "journal.jsonl")

        def keep(episode: Episode) -> None:
            assert episode.trajectory is not None
            journal.append(episode.trajectory, episode.recorder.tokens)

        begin = time.perf_counter()
        unplayed = play_independently(
            episodes,
            Going(delay),
            settings(delay),
            progress=CollectionProgress(total=len(episodes)),
            save=keep,
            on_tick=lambda: None,
        )
        seconds = time.perf_counter() - begin
        assert not unplayed and len(journal.ids) == len(episodes)
    return seconds


def one_by_one(steps: Sequence[int], delay: float) -> float:
    """Seconds that the plain loop takes, one episode after another, keeping no record."""
    policy = Going(delay)
    begin = time.perf_counter()
    for episode in planned(steps):
        environment = Counting(delay)
        step = environment.reset(task=episode.task, seed=episode.seed)
        messages: list[dict[str, Any]] = [{"role": "user", "content": step.observation}]
        turn = 0
        while not step.done:
            request = PolicyRequest(episode.episode_id, episode.task.task_id, turn, episode.seed, messages, TOOLS)
            (call,) = policy.act([request])[0].calls
            step = environment.step({"tool": call.tool, "params": call.arguments, "call_id": call.call_id})
            messages.append({"role": "tool", "content": step.observation})
            turn += 1
    return time.perf_counter() - begin


def step_cost(steps: int, repeats: int, *, reads: bool) -> float:
    """Microseconds of the loop and the recorder per step, the least of `repeats` episodes; what the world takes is taken off."""
    (episode,) = planned([steps])
    encoder = msgspec.json.Encoder()
    policy = Going(reads=reads)
    costs = []
    for _ in range(repeats):
        gc.collect()
        played = Episode(episode, settings(0.0), policy)
        begin = time.thread_time()
        played.run()
        assert played.trajectory is not None
        encoder.encode(played.trajectory)
        costs.append(time.thread_time() - begin)
    return (min(costs) - min(bare(episode, steps) for _ in range(repeats))) / steps * 1e6


def bare(episode: PlannedEpisode, steps: int) -> float:
    """Seconds of processor that policy and environment alone take."""
    environment, policy = Counting(0.0), Going()
    request = PolicyRequest("ep", "t", 0, 0, (), TOOLS)
    begin = time.thread_time()
    environment.reset(task=episode.task)
    for _ in range(steps):
        (call,) = policy.act((request,))[0].calls
        environment.step({"tool": call.tool, "params": call.arguments, "call_id": call.call_id})
    return time.thread_time() - begin


def calm(measure: Callable[[], float], tries: int) -> tuple[float, float]:
    """The least and the median of so many measurements: other work on the machine only ever adds."""
    measurements = sorted(measure() for _ in range(tries))
    return measurements[0], statistics.median(measurements)


def measure(quick: bool) -> dict[str, Any]:
    """Every figure. Seconds, microseconds, and ratios."""
    tries, repeats = (1, 3) if quick else (3, 15)
    even = [TURNS] * EPISODES
    ideal = -(-EPISODES // CONCURRENCY) * TURNS * 2 * DELAY
    best, median = calm(lambda: collected(even, DELAY), tries)
    naive_episodes = 2 if quick else 4
    naive = one_by_one(even[:naive_episodes], DELAY) / naive_episodes * EPISODES
    uneven = [22 if i % 8 == 7 else 6 for i in range(EPISODES)]
    bound = sum(uneven) * 2 * DELAY / CONCURRENCY + max(uneven) * 2 * DELAY
    uneven_best, uneven_median = calm(lambda: collected(uneven, DELAY), tries)
    costs = {
        reads: {steps: step_cost(steps, repeats, reads=reads) for steps in (50, 400, 2000)} for reads in (False, True)
    }
    return {
        "many_at_once": {
            "ideal_seconds": ideal,
            "seconds": best,
            "median_seconds": median,
            "of_ideal": ideal / best,
            "median_of_ideal": ideal / median,
            "one_by_one_seconds": naive,
            "times_one_by_one": naive / best,
        },
        "uneven": {
            "bound_seconds": bound,
            "seconds": uneven_best,
            "median_seconds": uneven_median,
            "of_bound": bound / uneven_best,
        },
        "overhead_microseconds_per_step": {
            name: {
                **{str(steps): cost for steps, cost in costs[reads].items()},
                "2000 / 50": costs[reads][2000] / costs[reads][50],
            }
            for name, reads in (("reads nothing", False), ("reads the last message", True))
        },
        "threads_left": threading.active_count() - 1,
    }


def table(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    many, uneven = figures["many_at_once"], figures["uneven"]
    lines = [
        f"{EPISODES} episodes of {TURNS} turns, policy and tools of {DELAY * 1000:.0f} ms each, {CONCURRENCY} at once",
        "| | seconds | of the ideal |",
        "|---|---|---|",
        f"| ideal | {many['ideal_seconds']:.2f} | 100 % |",
        f"| this collection, best (median) | {many['seconds']:.2f} ({many['median_seconds']:.2f}) "
        f"| {many['of_ideal']:.1%} ({many['median_of_ideal']:.1%}) |",
        f"| one episode after another | {many['one_by_one_seconds']:.1f} | {many['of_ideal'] / many['times_one_by_one']:.1%} |",
        f"| uneven lengths (6 and 22 turns) | {uneven['seconds']:.2f} | {uneven['of_bound']:.1%} of work / lanes + longest |",
        "",
        "| loop and recorder, microseconds a step | 50 steps | 400 | 2,000 | 2,000 / 50 |",
        "|---|---|---|---|---|",
    ]
    for name, costs in figures["overhead_microseconds_per_step"].items():
        cells = " | ".join(f"{costs[key]:.1f}" for key in ("50", "400", "2000"))
        lines.append(f"| policy {name} | {cells} | {costs['2000 / 50']:.2f} |")
    return "\n".join(lines)


def missed(figures: dict[str, Any]) -> list[str]:
    """The bars that were missed, a line each."""
    many, costs = figures["many_at_once"], figures["overhead_microseconds_per_step"]
    lines = []
    if many["of_ideal"] < BAR_IDEAL:
        lines.append(f"{many['of_ideal']:.1%} of the ideal; the bar is {BAR_IDEAL:.0%}")
    for name, cost in costs.items():
        worst = max(cost[key] for key in ("50", "400", "2000"))
        if worst > BAR_MICROSECONDS:
            lines.append(f"policy {name}: {worst:.1f} microseconds a step; the bar is {BAR_MICROSECONDS:.0f}")
        if cost["2000 / 50"] > BAR_FLAT:
            lines.append(f"policy {name}: a step of 2,000 costs {cost['2000 / 50']:.2f} of 50; the bar is {BAR_FLAT:g}")
    return lines


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="once instead of three times")
    arguments = parser.parse_args()
    figures = measure(arguments.quick)
    return conclude(figures, table, missed(figures), as_json=arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
