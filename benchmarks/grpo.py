"""Does GRPO on its own episodes make an agent better? The bundled `repair` taskset, a model of .7M parameters, one core.

A model learns from a teacher's demonstrations until it solves about a quarter of its attempts; then it plays train tasks in
sandboxes, groups of eight, and learns from what succeeded. Before and after, the same unseen instances are played.

    python benchmarks/grpo.py [--out FOLDER] [--base CHECKPOINT] [--steps 40] [--seed 0] [--set grpo.beta=0.01 ...]

Exit code 1 where the interval (95 %, bootstrap over tasks) of the gain in success includes 0. The reward curve stands in
FOLDER/grpo/metrics.jsonl.
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

from components.environments.tasksets import load
from components.evaluation.statistics import bootstrap_ci
from components.protocol import Role
from components.rollouts.collect import collect
from components.rollouts.plan import CollectPlan
from components.sandboxes import SandboxConfig
from components.training import job
from components.training.config import assigned, load_job, merged
from components.trajectories.messages import chat
from components.trajectories.record import Trajectory
from components.trajectories.shards import read_folder

TASKSET = "repair"
DEMONSTRATIONS, HELD_OUT, ATTEMPTS = 1000, 80, 4
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
        {"messages": chat(each), "tools": each.source_extra["tools"], "episode_id": each.episode_id}
        for each in played("teacher", tasks, 1, out / "demonstrations")
        if each.outcome.success
    ]
    data = out / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = {
        "method": "sft",
        "output": str(out / "sft"),
        "seed": seed,
        "data": {"train": str(data)},
        "model": {"shape": SHAPE, "precision": "float32"},
        "optimization": {"batch_size": 32, "learning_rate": 3e-3, "warmup_steps": 20, "steps": 350},
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
            "learning_rate": 2e-4,
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
            "sampling": {"max_new_tokens": NEW_TOKENS, "max_episode_tokens": 640},
            "play": {"taskset": TASKSET, "max_turns": TURNS, "concurrency": 16, "sandbox": SANDBOX.model_dump()},
        },
    }
    return job.run(load_job(merged(config, changes)))


def success(checkpoint: str, tasks: Sequence[str]) -> dict[str, float]:
    """The share of attempts at each task that succeed."""
    found: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for each in played(f"transformers:{checkpoint}", tasks, ATTEMPTS, Path(folder) / "spool"):
            found.setdefault(each.task.task_id, []).append(bool(each.outcome.success))
    return {task: sum(wins) / len(wins) for task, wins in found.items()}


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
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a setting of the job: key=value")
    given = parser.parse_args(arguments)
    tasks = [task.task_id for task in load(TASKSET).tasks(Role.TRAIN)]
    random.Random(given.seed).shuffle(tasks)
    out = given.out or Path(tempfile.mkdtemp(prefix="grpo-"))
    out.mkdir(parents=True, exist_ok=True)
    base = given.base or cold_start(out, tasks[HELD_OUT : HELD_OUT + DEMONSTRATIONS], given.seed)
    prompts = out / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"task_id": task}) + "\n" for task in tasks[HELD_OUT:]))
    begin = time.perf_counter()
    changes = merged({"data": {"train": str(prompts)}}, assigned("grpo", given.changes))
    report = improved(out, base, given.steps, given.seed, changes)
    seconds = time.perf_counter() - begin
    before, after = (success(checkpoint, tasks[:HELD_OUT]) for checkpoint in (base, report.checkpoint))
    gains = np.array([after[task] - before[task] for task in sorted(before)])
    interval = bootstrap_ci(gains.tolist(), seed=given.seed)
    assert interval is not None
    print(f"reward over {report.steps} steps of {report.episodes // report.steps} episodes, in eighths:")
    print("  " + "  ".join(f"{each:.3f}" for each in curve(out / "grpo" / "metrics.jsonl")))
    print(
        f"success on {len(gains)} unseen tasks x {ATTEMPTS}: {np.mean(list(before.values())):.3f} -> "
        f"{np.mean(list(after.values())):.3f}, gain {gains.mean():+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
    )
    print(f"{seconds:.0f} s, {report.tokens_per_second:.0f} tokens/s, {report.lost} attempts lost; {out}")
    return int(interval.low <= 0)


if __name__ == "__main__":
    sys.exit(main())
