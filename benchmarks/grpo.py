"""Does GRPO on its own episodes make an agent better? The bundled `repair` taskset, a model of .7M parameters, one core.

A model learns from a teacher's demonstrations; then it plays some train tasks in sandboxes, again and again, groups of eight, and
learns from what succeeded and nothing else. Before and after, those tasks are played, and others that it was never trained on.

    python benchmarks/grpo.py [--out FOLDER] [--base CHECKPOINT] [--steps 48] [--seed 0] [--set grpo.beta=0.01 ...]

Exit code 1 where the interval (95 %, bootstrap over tasks) of the gain in success on the played tasks includes 0. The reward curve
stands in FOLDER/grpo/metrics.jsonl.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ratchet.components.core import Role
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.statistics.bootstrap import difference_estimate
from ratchet.components.tasksets import load_taskset
from ratchet.components.training import job
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.config.overrides import merge_values, parse_assignments
from ratchet.components.trajectories.chat_messages import chat_messages
from ratchet.components.trajectories.shards import read_folder
from ratchet.components.trajectories.trajectory import Trajectory

TASKSET = "repair"
DEMONSTRATIONS, PLAYED, HELD_OUT, ATTEMPTS = 800, 48, 48, 4
TURNS, NEW_TOKENS = 4, 72
SHAPE = {"hidden": 128, "layers": 3, "heads": 4, "kv_heads": 2, "intermediate": 384, "vocabulary": 640, "context": 1024}
SANDBOX = SandboxConfig(backend="local")


def played(policy: str, tasks: Sequence[str], attempts: int, folder: Path) -> list[Trajectory]:
    """Every attempt of a policy at those tasks."""
    plan = CollectPlan(
        taskset=TASKSET,
        policy=policy,
        task_ids=tuple(tasks),
        attempts=attempts,
        workers=1,
        model_threads=1,
        max_turns=TURNS,
        max_new_tokens=NEW_TOKENS,
        temperature=1.0,
        sandbox=SANDBOX,
    )
    collect(plan, folder)
    return list(read_folder(folder))


def cold_start(out: Path, tasks: Sequence[str], seed: int) -> str:
    """A model that has seen the teacher, and not for long; its checkpoint."""
    rows = [
        {
            "messages": chat_messages(trajectory),
            "tools": trajectory.source_extra["tools"],
            "episode_id": trajectory.episode_id,
        }
        for trajectory in played("teacher", tasks, 1, out / "demonstrations")
        if trajectory.outcome.success
    ]
    data = out / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = {
        "method": "sft",
        "output": str(out / "sft"),
        "seed": seed,
        "data": {"train": str(data)},
        "model": {"shape": SHAPE, "precision": "float32"},
        "optimization": {"batch_size": 32, "learning_rate": 3e-3, "warmup_steps": 20, "steps": 600},
        "run": {"threads": 1},
    }
    return job.run(load_job(config)).checkpoint


def improved(out: Path, base: str, steps: int, seed: int, changes: dict[str, Any]) -> Any:
    """GRPO from a checkpoint; its report."""
    config = {
        "method": "grpo",
        "output": str(out / "grpo"),
        "seed": seed,
        "model": {"base": base, "precision": "float32"},
        "optimization": {
            "batch_size": 64,
            "learning_rate": 1e-4,
            "schedule": "constant",
            "warmup_steps": 2,
            "weight_decay": 0.0,
            "steps": steps,
        },
        "checkpoints": {"save_every": 20},
        "run": {"threads": 1},
        "grpo": {
            "group_size": 8,
            "reward": {"success": 1.0, "outcome": 0.0, "process": 0.0},
            "sampling": {"max_new_tokens": NEW_TOKENS, "max_episode_tokens": 640, "temperature": 1.2},
            "play": {"taskset": TASKSET, "max_turns": TURNS, "concurrency": 16, "sandbox": SANDBOX.model_dump()},
        },
    }
    return job.run(load_job(merge_values(config, changes)))


def success(checkpoint: str, tasks: Sequence[str]) -> dict[str, float]:
    """The share of attempts at each task that succeed."""
    wins_by_task: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for trajectory in played(f"transformers:{checkpoint}", tasks, ATTEMPTS, Path(folder) / "spool"):
            wins_by_task.setdefault(trajectory.task.task_id, []).append(bool(trajectory.outcome.success))
    return {task: sum(wins) / len(wins) for task, wins in wins_by_task.items()}


def curve(metrics: Path, parts: int = 8) -> list[float]:
    """The mean reward of each part of a run."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    rewards = [line["reward"] for line in lines if "reward" in line]
    return [float(np.mean(part)) for part in np.array_split(rewards, min(parts, len(rewards)))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--base", help="a checkpoint to begin with, in place of the demonstrations")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a setting of the job: key=value")
    options = parser.parse_args(arguments)
    tasks = [task.task_id for task in load_taskset(TASKSET).tasks(Role.TRAIN)]
    random.Random(options.seed).shuffle(tasks)
    out = options.out or Path(tempfile.mkdtemp(prefix="grpo-"))
    out.mkdir(parents=True, exist_ok=True)
    trained, unseen, rest = tasks[:PLAYED], tasks[PLAYED : PLAYED + HELD_OUT], tasks[PLAYED + HELD_OUT :]
    base = options.base or cold_start(out, rest[:DEMONSTRATIONS], options.seed)
    prompts = out / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"task_id": task}) + "\n" for task in trained))
    begin = time.perf_counter()
    changes = merge_values({"data": {"train": str(prompts)}}, parse_assignments("grpo", options.changes))
    report = improved(out, base, options.steps, options.seed, changes)
    seconds = time.perf_counter() - begin
    print(f"reward over {report.steps} steps of {report.episodes // report.steps} episodes, in eighths:")
    print("  " + "  ".join(f"{reward:.3f}" for reward in curve(out / "grpo" / "metrics.jsonl")))
    lowest = [
        gain(name, part, base, report.checkpoint, options.seed)
        for name, part in (("played", trained), ("unseen", unseen))
    ]
    print(f"{seconds:.0f} s, {report.tokens_per_second:.0f} tokens/s, {report.lost} attempts lost; {out}")
    return int(lowest[0] <= 0)


def gain(name: str, tasks: Sequence[str], base: str, checkpoint: str, seed: int) -> float:
    """Print what training did for some tasks; the lower end of the interval of the gain."""
    before, after = success(base, tasks), success(checkpoint, tasks)
    gains = [after[task] - before[task] for task in tasks]
    interval = difference_estimate(gains, tasks, seed=seed).interval
    assert interval is not None
    was, now = (np.mean(list(rates.values())) for rates in (before, after))
    print(
        f"success on {len(tasks)} {name} tasks x {ATTEMPTS}: {was:.3f} -> {now:.3f}, "
        f"gain {np.mean(gains):+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
    )
    return interval.low


if __name__ == "__main__":
    sys.exit(main())
