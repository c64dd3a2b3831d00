"""Make a small base model of the taskset `programs`: `python -m data.generators.programs.base_model`.

The model (.7M parameters) reads and writes what a teacher's episodes look like, of tasks that this command draws from the
train families alone, nearly all of them short programs. It is a language model of whole episodes (every token is trained): it has
learned to copy and to call tools, and repairs most short programs; longer ones are left to the nights. Takes about five minutes
on a core. Another machine gives other rounding, and so another hash.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data.generators.programs.generate import RepairInstance, draw_role
from ratchet.components.core import Role
from ratchet.components.environments.sandbox_tools import TOOLS
from ratchet.components.models.checkpoint_folders import checkpoint_version

SEED = 1000
"""Seed of the tasks: those of the committed taskset are other ones."""
TASKS, STEPS = 30_000, 300
STATEMENTS = (3,) * 10 + (4,) * 9 + (5,)
"""Numbers of statements, as often as they occur: in the committed taskset two programs of five have five."""
SHAPE = {
    **{"hidden": 128, "layers": 3, "heads": 4, "kv_heads": 2, "intermediate": 384},
    **{"vocabulary": 768, "digits": 2, "context": 1024},
}
OPTIMIZATION = {
    **{"optimizer": "muon", "batch_size": 32, "learning_rate": 8.0e-3, "schedule": "constant"},
    **{"warmup_steps": 50, "weight_decay": 0.05, "steps": STEPS},
}
TOOL_SCHEMAS = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in TOOLS]
CARD = """\
---
license: apache-2.0
---
# programs-base

A Qwen3-shaped language model of {parameters:,} parameters, a starting point for training on the taskset `programs`.

To rebuild it, run `python -m data.generators.programs.base_model --tasks {tasks} --steps {steps}`. It was trained on a
teacher's episodes of {tasks:,} tasks drawn from the train families of `programs` only (seed {seed}). It saw no task of
the committed taskset and no family of promote, audit or reserve. Of twenty programs ten have three statements, nine
have four and one has five.

Content version `{version}`; final training loss {loss:.3f}. Weights are float16; train them in float32.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the tasks, train the model, and write its folder."""
    parser = argparse.ArgumentParser(prog="python -m data.generators.programs.base_model", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/models/programs-base"))
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"tasks to draw (default {TASKS})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"optimiser steps (default {STEPS})")
    parser.add_argument("--work", type=Path, help="folder of the training job, by which it can be resumed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        write_rows(work / "train.jsonl", options.tasks)
        report = train_model(work, options.steps)
        write_model(Path(report.checkpoint), options.out)
    details = {"parameters": report.parameters, "loss": report.train_loss, "seed": SEED, "tasks": options.tasks}
    version = checkpoint_version(options.out)
    card = CARD.format(version=version, steps=options.steps, **details)
    (options.out / "README.md").write_text(card, encoding="utf-8")
    print(f"{options.out}: {version}")


def write_rows(path: Path, tasks: int) -> None:
    """Write one SFT row per task; a file that exists is kept."""
    if path.exists():
        return
    lines = draw_role(Role.TRAIN, tasks, SEED, set(), STATEMENTS, teacher_row)
    path.write_text("".join(lines), encoding="utf-8")


def teacher_row(instance: RepairInstance, task_id: str, role: Role, rng: random.Random) -> str:
    """Return the SFT row of the teacher's episode at an instance. It needs no hidden cases."""
    row = {"messages": list(teacher_messages(instance)), "tools": TOOL_SCHEMAS, "episode_id": task_id}
    return json.dumps(row) + "\n"


def teacher_messages(instance: RepairInstance) -> Iterator[dict[str, Any]]:
    """Yield the messages of the teacher's episode, with the results that the tools give."""
    faulty = instance.text(instance.program.broken(instance.fault))
    right = instance.text(instance.program.lines)
    yield {"role": "user", "content": instance.description}
    moves: tuple[tuple[str, dict[str, Any], str | None], ...] = (
        ("read_file", {"path": "main.py"}, faulty),
        ("edit_file", {"path": "main.py", "old": "", "new": right}, "ok"),
        ("submit", {}, None),
    )
    for turn, (tool, params, result) in enumerate(moves):
        call_id = f"{turn}-0"
        function = {"name": tool, "arguments": params}
        yield {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
        if result is not None:
            yield {"role": "tool", "tool_call_id": call_id, "content": result}


def train_model(work: Path, steps: int) -> Any:
    """Train, or resume, and return the report."""
    from ratchet.components.training.config.job_config import SftConfig
    from ratchet.components.training.job import run

    config = SftConfig.model_validate(
        {
            "output": work / "job",
            "preset": "plain",
            "data": {"train": work / "train.jsonl"},
            "model": {"shape": SHAPE},
            "optimization": {**OPTIMIZATION, "steps": steps},
            "checkpoints": {"save_every": 200},
        }
    )
    return run(config)


def write_model(checkpoint: Path, folder: Path) -> None:
    """Write a checkpoint's model in float16, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)


if __name__ == "__main__":
    main()
