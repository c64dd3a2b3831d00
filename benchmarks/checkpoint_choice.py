"""Which SFT checkpoint does GRPO make most of: that with the highest pass@k, the lowest validation loss, or the last one?

    python benchmarks/checkpoint_choice.py [--seeds 0 1 2] [--all] [--k 32] [--steps 48] [--out FOLDER]

The model of `benchmarks/grpo.py` learns from a teacher's demonstrations, longer than it needs, and every save is kept. Each of
them plays train tasks that it was never shown (pass@1 and pass@k, Chen et al. 2021), and has a loss on held-out demonstrations.
GRPO then begins from each chosen one (with --all from every one: then the rank correlation of each figure with the outcome is
printed, as in Kang et al. 2025, arXiv:2510.01624). The outcome is the success on tasks that neither stage nor choice has played.

About twenty minutes a seed on one idle core, and twice that with --all; started again with the same --out it goes on where it
stood. The unit is the seed: with few of them a difference says little, and each seed's is printed. Exit code 1 where pass@k is
worse than another rule, by an interval (95 %, bootstrap over seeds, or over tasks where there is one seed) that excludes 0.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from grpo import SHAPE, TASKSET, improved, played

from ratchet.components.core import DataError, Role
from ratchet.components.statistics.bootstrap import difference_estimate
from ratchet.components.statistics.proportions import pass_at_k
from ratchet.components.tasksets import load_taskset
from ratchet.components.training import job
from ratchet.components.training.checkpoint_io import candidate_folder
from ratchet.components.training.config.job_config import load_job
from ratchet.components.trajectories.chat_messages import chat_messages

RULES = {
    "pass@k": ("pass_at_k", 1),
    "validation loss": ("validation_loss", -1),
    "pass@1": ("pass_at_1", 1),
    "last": ("step", 1),
}
"""Figure of each rule, and whether it should be high (1) or low (-1); of equal ones the earliest is chosen."""
FINAL_ATTEMPTS = 4


def learn(out: Path, tasks: Sequence[str], options: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Train on demonstrations of tasks, a tenth of them held out; return step, checkpoint and validation loss of each save."""
    rows = [
        {"messages": chat_messages(item), "tools": item.source_extra["tools"], "episode_id": item.episode_id}
        for item in played("teacher", tasks, 1, out / "demonstrations")
        if item.outcome.success
    ]
    held_out = max(1, len(rows) // 10)
    files = {"validation": rows[:held_out], "train": rows[held_out:]}
    for name, part in files.items():
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    every = max(1, options.sft_steps // options.saves)
    config = {
        "method": "sft",
        "output": str(out / "sft"),
        "seed": seed,
        "data": {name: str(out / f"{name}.jsonl") for name in files},
        "model": {"shape": SHAPE, "precision": "float32"},
        "optimization": {"batch_size": 32, "learning_rate": 3e-3, "warmup_steps": 20, "steps": every * options.saves},
        "checkpoints": {"save_every": every, "evaluate_every": every, "candidates": True},
        "run": {"threads": 1},
    }
    job.run(load_job(config))
    lines = [json.loads(line) for line in (out / "sft" / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["eval_loss"] for line in lines if "eval_loss" in line}
    steps = [every * number for number in range(1, options.saves + 1)]
    return [
        {
            "step": step,
            "checkpoint": str(candidate_folder(out / "sft", step) / "checkpoint"),
            "validation_loss": losses[step],
        }
        for step in steps
    ]


def successes(checkpoint: str, tasks: Sequence[str], attempts: int, folder: Path) -> dict[str, list[bool]]:
    """Return the outcomes of a checkpoint's attempts by task."""
    wins: dict[str, list[bool]] = {task: [] for task in tasks}
    for item in played(f"transformers:{checkpoint}", tasks, attempts, folder):
        wins[item.task.task_id].append(bool(item.outcome.success))
    return wins


def chosen(candidates: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the candidate that each rule chooses."""
    return {rule: max(candidates, key=lambda item: sign * item[name]) for rule, (name, sign) in RULES.items()}


def measure(out: Path, options: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Measure one seed; return its candidates, with the success of each task after GRPO where it was run."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = [task.task_id for task in load_taskset(TASKSET).tasks(Role.TRAIN)]
    random.Random(seed).shuffle(tasks)
    judged, trained, final, rest = np.split(np.array(tasks, dtype=object), np.cumsum([options.tasks] * 3))
    candidates = learn(out, list(rest[: options.demonstrations]), options, seed)
    (prompts := out / "prompts.jsonl").write_text("".join(json.dumps({"task_id": task}) + "\n" for task in trained))
    for item in candidates:
        wins = successes(item["checkpoint"], list(judged), options.k, out / f"judged-{item['step']}").values()
        item["pass_at_1"], item["pass_at_k"] = (
            float(np.mean([pass_at_k(len(own), sum(own), k) for own in wins])) for k in (1, options.k)
        )
    begun = candidates if options.all else list({item["step"]: item for item in chosen(candidates).values()}.values())
    for item in begun:
        folder = out / f"grpo-{item['step']}"
        try:
            result = improved(
                folder, item["checkpoint"], options.steps, seed, {"data": {"train": str(prompts)}}
            ).checkpoint
        except DataError as error:  # nothing but groups that fail, or succeed, altogether
            print(f"seed {seed}, step {item['step']}: GRPO learned nothing, {error}")
            result = item["checkpoint"]
        wins_after = successes(result, list(final), FINAL_ATTEMPTS, folder / "final")
        item["after"] = [float(np.mean(own)) for own in wins_after.values()]
        show(seed, item)
    return candidates


def show(seed: int, item: dict[str, Any]) -> None:
    """Print the figures of a checkpoint that GRPO began from."""
    print(
        f"seed {seed}, step {item['step']:>5}: loss {item['validation_loss']:.4f}, pass@1 {item['pass_at_1']:.3f}, "
        f"pass@k {item['pass_at_k']:.3f}, after GRPO {np.mean(item['after']):.3f}",
        flush=True,
    )


def compare(by_seed: Sequence[Sequence[dict[str, Any]]]) -> int:
    """Print what each rule chose and made, and the lead of pass@k over the others; return the exit code."""
    choices = [chosen(candidates) for candidates in by_seed]
    worse = False
    for rule in RULES:
        steps = ", ".join(str(choice[rule]["step"]) for choice in choices)
        after = [float(np.mean(choice[rule]["after"])) for choice in choices]
        line = f"{rule:<16} steps {steps}: {np.mean(after):.3f} after GRPO"
        if rule != "pass@k":
            gains = [np.array(choice["pass@k"]["after"]) - np.array(choice[rule]["after"]) for choice in choices]
            leads = [float(own.mean()) for own in gains]
            values = leads if len(leads) > 1 else gains[0].tolist()
            interval = difference_estimate(values, range(len(values))).interval
            assert interval is not None
            worse |= interval.high < 0
            by_seed_text = " ".join(f"{lead:+.3f}" for lead in leads)
            line += f"; pass@k leads by {np.mean(leads):+.3f} [{interval.low:+.3f}, {interval.high:+.3f}], by seed {by_seed_text}"
        print(line)
    return int(worse)


def correlate(candidates: Sequence[dict[str, Any]]) -> None:
    """Print the rank correlation of each figure of a checkpoint with what GRPO made of it."""
    from scipy.stats import spearmanr

    after = [float(np.mean(item["after"])) for item in candidates]
    for name, sign in dict(RULES.values()).items():
        rho = spearmanr([sign * item[name] for item in candidates], after).statistic
        print(f"rank correlation of {name} with the outcome: {rho:+.2f} over {len(after)} checkpoints")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--all", action="store_true", help="GRPO from every save, not from the chosen ones alone")
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--tasks", type=int, default=40, help="to choose by; as many for GRPO, and to measure on")
    parser.add_argument("--demonstrations", type=int, default=800)
    parser.add_argument("--sft-steps", type=int, default=900)
    parser.add_argument("--saves", type=int, default=6)
    parser.add_argument("--steps", type=int, default=48, help="of GRPO")
    parser.add_argument("--quick", action="store_true", help="the smallest form, which measures nothing")
    options = parser.parse_args(arguments)
    if options.quick:
        options.demonstrations, options.sft_steps, options.saves, options.k, options.tasks, options.steps = (
            20,
            4,
            2,
            2,
            3,
            1,
        )
    out = options.out or Path(tempfile.mkdtemp(prefix="checkpoint-choice-"))
    by_seed = [measure(out / f"seed-{seed}", options, seed) for seed in options.seeds]
    if options.all:
        for candidates in by_seed:
            correlate(candidates)
    (out / "results.json").write_text(json.dumps(by_seed, indent=1) + "\n")
    return compare(by_seed)


if __name__ == "__main__":
    sys.exit(main())
