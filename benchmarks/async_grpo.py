"""Asynchronous GRPO against synchronous: episodes a second, and reward after equally many episodes.

A model of 60k parameters learns to write vowels; its tokens are really sampled and really trained. Time is simulated where a GPU
and sandboxes would spend it, equally for both trainers and with sleeps that leave the processor free:

- the engine generates `--tokens-per-second` for each reply, however many it generates at once (continuous batching);
- starting a sandbox and grading a reply take log-normal times (`--tool-median` seconds, `--tool-sigma`), drawn anew for each.

    python benchmarks/async_grpo.py [--steps 24] [--staleness 0 1 2 4 8] [--out FOLDER]

Exit code 1 where, at a staleness of at most 2, throughput is below 1.5 times that of synchronous training, or the last
quarter's reward is lower by more than two standard errors. Throughput counts from the beginning of the second step to that of
the last.
"""

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml
from training_steps import clocked

from ratchet.components.core import (
    Environment,
    Policy,
    PolicyReply,
    PolicyRequest,
    Role,
    TaskSpec,
    TimeStep,
    ToolResult,
    ToolSpec,
    register,
)
from ratchet.components.rollouts.on_policy import OnPolicyPlayer
from ratchet.components.training import job
from ratchet.components.training.config.job_config import load_job
from ratchet.components.trajectories.trajectory import Trajectory

ENVIRONMENT = "benchmark/vowels"
TASKS, BATCH, GROUP, NEW_TOKENS = 32, 32, 4, 24
DRAWS = random.Random(0)
LEAST_SPEED_UP, ALLOWED_STALENESS = 1.5, 2


class Vowels(Environment):
    """One reply an episode. Start and grading sleep for `median` seconds times a log-normal factor."""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """Return no tools: a reply is the answer."""
        return ()

    def __init__(self, *, max_steps: int, median: float = 0.3, sigma: float = 1.0) -> None:
        self.median, self.sigma = median, sigma

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Return the task's description, after the time that a sandbox takes to start."""
        assert task is not None
        self._sleep()
        return TimeStep(task.description)

    def step(self, action: dict[str, Any]) -> TimeStep:
        """Do nothing."""
        return TimeStep("", info={"result": ToolResult(action["call_id"], "")})

    def finish(self, reason: str) -> TimeStep:
        """Return the end of the episode, after the time that tests take."""
        self._sleep()
        return TimeStep("", 0.0, False, True, {"outcome": {"success": True, "reason": reason}})

    def _sleep(self) -> None:
        time.sleep(DRAWS.lognormvariate(math.log(self.median), self.sigma))


class Engine(Policy):
    """A policy whose replies take as long as an engine of that speed would need, the longest of a call being the last."""

    def __init__(self, policy: Policy, tokens_per_second: float) -> None:
        self.name, self.version, self.sampling, self.lockstep = (
            policy.name,
            policy.version,
            policy.sampling,
            policy.lockstep,
        )
        self._policy, self._speed = policy, tokens_per_second

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return the policy's replies when the engine would have them."""
        begin = time.monotonic()
        replies = self._policy.act(requests)
        tokens = max(((reply.usage and reply.usage.completion_tokens) or 0 for reply in replies), default=0)
        time.sleep(max(0.0, begin + tokens / self._speed - time.monotonic()))
        return replies


class SimulatedPlayer(OnPolicyPlayer):
    """The product's player, over a simulated engine and simulated tools."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._speed = settings.pop("tokens_per_second")
        super().__init__(settings)

    def play(self, policy: Policy, attempts: Any) -> Any:
        """See OnPolicyPlayer."""
        return super().play(Engine(policy, self._speed), attempts)

    def stream(self, policy: Policy) -> Any:
        """See OnPolicyPlayer."""
        return super().stream(Engine(policy, self._speed))


def vowels(trajectory: Trajectory) -> float:
    """The share of vowels in the reply: the reward."""
    text = trajectory.turns[0].text
    return sum(letter in "aeiou" for letter in text) / max(8, len(text))


def write_taskset(folder: Path) -> Path:
    """A taskset of tasks that differ in their number alone."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {
        "name": "vowels",
        "version": "1",
        "domain": "generic",
        "counts": {"train": TASKS},
        "environment": ENVIRONMENT,
    }
    (folder / "taskset.yaml").write_text(yaml.safe_dump({**head, "split_by": "instance"}))
    rows = [
        TaskSpec(f"t{n}", "vowels", "f", "k", Role.TRAIN, "generic", f"task {n}", test_command="true")
        for n in range(TASKS)
    ]
    (folder / "train.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    return folder


def make_base(folder: Path) -> Path:
    """A model from scratch whose tokenizer knows letters and syllables."""
    from ratchet.components.training.config.shared_sections import ModelShape
    from ratchet.components.training.scratch_model import fit_tokenizer, make_model

    syllables = [f"{first}{second}" for first in "bcdfghklmnprst" for second in "aeiou"]
    tokenizer = fit_tokenizer((" ".join(np.random.default_rng(n).permutation(syllables)) for n in range(30)), 400)
    model = make_model(
        ModelShape(hidden=64, layers=2, heads=2, kv_heads=1, intermediate=128, context=1024), tokenizer, 0
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Measured(msgspec.Struct, frozen=True):
    """`speed`: episodes a second; `reward`, `error`: mean of the last quarter of the steps and its standard error."""

    speed: float
    reward: float
    error: float
    first: float
    staleness: float


def run(out: Path, base: Path, taskset: Path, options: argparse.Namespace, staleness: int | None) -> Measured:
    """Train one job; `staleness` None is the synchronous trainer."""
    grpo: dict[str, Any] = {
        "group_size": GROUP,
        "reward": {"async_grpo:vowels": 1.0},
        "player": "async_grpo:SimulatedPlayer",
        "play": {
            "taskset": str(taskset),
            "concurrency": BATCH * (1 + (staleness or 0)),  # every admitted episode plays
            "tokens_per_second": options.tokens_per_second,
        },
        "sampling": {"max_new_tokens": NEW_TOKENS, "max_episode_tokens": 64},
    }
    if staleness is not None:
        grpo["asynchronous"] = {"max_staleness": staleness}
    name = "synchronous" if staleness is None else f"staleness-{staleness}"
    values = {
        "method": "grpo",
        "output": str(out / name),
        "seed": options.seed,
        "model": {"base": str(base), "precision": "float32"},
        "optimization": {
            "batch_size": BATCH,
            "learning_rate": 1e-3,
            "schedule": "constant",
            "warmup_steps": 0,
            "weight_decay": 0.0,
            "steps": options.steps,
        },
        "checkpoints": {"save_every": 10**6},
        "run": {"threads": 1},
        "grpo": grpo,
    }
    begins = clocked(lambda: job.run(load_job(values))).marks
    lines = [json.loads(line) for line in (out / name / "metrics.jsonl").read_text().splitlines()]
    rewards = [line["reward"] for line in lines if line.get("reward") is not None]
    ages = [line["sample/token_staleness"] for line in lines if line.get("sample/token_staleness") is not None]
    last = rewards[-max(2, len(rewards) // 4) :]
    return Measured(
        (len(begins) - 2) * BATCH / (begins[-1] - begins[1]),
        statistics.fmean(last),
        statistics.stdev(last) / math.sqrt(len(last)),
        rewards[0],
        statistics.fmean(ages) if ages else 0.0,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, and return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2, 4, 8])
    parser.add_argument("--tokens-per-second", type=float, default=50.0)
    parser.add_argument("--tool-median", type=float, default=0.3)
    parser.add_argument("--tool-sigma", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    times = {"median": options.tool_median, "sigma": options.tool_sigma}
    register(ENVIRONMENT, "async_grpo:Vowels", domain="generic", **times)
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder)
        base, taskset = make_base(out / "base"), write_taskset(out / "tasks")
        plain = run(out, base, taskset, options, None)
        print(
            f"{'trainer':<14}{'episodes/s':>11}{'speed-up':>10}{'first reward':>14}{'last reward':>18}{'token staleness':>17}"
        )
        print_row("synchronous", plain, plain)
        missed = False
        for staleness in options.staleness:
            measured = run(out, base, taskset, options, staleness)
            print_row(f"staleness {staleness}", measured, plain)
            if 0 < staleness <= ALLOWED_STALENESS:
                worse = plain.reward - measured.reward > 2 * math.hypot(plain.error, measured.error)
                missed |= measured.speed / plain.speed < LEAST_SPEED_UP or worse
    return int(missed)


def print_row(name: str, measured: Measured, plain: Measured) -> None:
    """Print one line of the table."""
    reward, ratio = f"{measured.reward:.3f} +- {measured.error:.3f}", measured.speed / plain.speed
    print(
        f"{name:<14}{measured.speed:>11.2f}{ratio:>9.2f}x{measured.first:>14.3f}{reward:>18}"
        f"{measured.staleness:>17.2f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
