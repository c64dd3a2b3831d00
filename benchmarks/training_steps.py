"""Training steps beside plain TRL's: the same rows, the same weights to begin with, the same settings, one trainer each.

- *sft*: a whole job of ours, with its stream of metrics, its guards and its heartbeat; TRL's `SFTTrainer` formats and batches the
  same conversations itself (`assistant_only_loss`). Both must find the same losses.
- *sft, weighted*: the same rows, every reply with a weight of its own, which TRL does not know.
- *dpo*: a whole job of ours in its plain preset, and TRL's `DPOTrainer`; the reference is asked before the first step. Same losses.
- *grpo*: the update alone: both are handed the same episodes, and must find the same losses.
- *grpo, step_level*: the same with an advantage for every turn.

A step is timed from its beginning to that of the next one, data and bookkeeping included. Runs alternate, and of each step the
fastest run counts: what else the machine does only ever adds. Part of benchmarks/training.py.
"""

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import Trainer, TrainerCallback

from ratchet.components.core import Message
from ratchet.components.training import job
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.config.shared_sections import ModelShape
from ratchet.components.training.format.chat_rows import tokenize_chat
from ratchet.components.training.grpo.episode_rewards import RewardBreakdown
from ratchet.components.training.grpo.recorded_groups import recorded_tokens
from ratchet.components.training.grpo.rollout_sample import RolloutSample, trl_rollout
from ratchet.components.training.grpo.train_grpo import make_grpo_trainer, trl_arguments
from ratchet.components.training.model_loading import load_start_model
from ratchet.components.training.scratch_model import conversation_text, fit_tokenizer, make_model
from ratchet.components.training.trainer_arguments import prepare_torch, trainer_arguments

SHAPE = ModelShape(hidden=128, layers=3, heads=4, kv_heads=2, intermediate=384, vocabulary=640, context=1024)
WARM_UP = 2
ROWS, TURNS, BATCH, GROUP = 128, 4, 16, 8
WORDS = Path(__file__).read_text(encoding="utf-8").split()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "",
            "parameters": {"type": "object", "properties": {key: {"type": "string"} for key in keys}, "required": keys},
        },
    }
    for name, keys in {"read_file": ["path"], "edit_file": ["path", "old", "new"]}.items()
]


def conversation(number: int) -> list[Message]:
    """An episode of some turns, of lengths that differ."""
    draw = random.Random(number)
    messages: list[Message] = [{"role": "user", "content": _text(draw, 8)}]
    for turn in range(draw.randint(2, TURNS)):
        arguments = {"path": f"part_{number}.py", "old": _text(draw, 3), "new": _text(draw, 3)}
        function = {"name": "edit_file", "arguments": arguments}
        calls = [{"id": f"{turn}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": _text(draw, 6), "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"{turn}", "name": "edit_file", "content": _text(draw, 8)})
    return [*messages, {"role": "assistant", "content": "That is all."}]


def pair(number: int) -> dict[str, Any]:
    """Two ways to go on after the first turn of an episode."""
    draw = random.Random(-number)
    sides = {side: [{"role": "assistant", "content": _text(draw, 10)}] for side in ("chosen", "rejected")}
    return {"prompt": conversation(number)[:3], **sides, "episode_ids": [f"a-{number}", f"b-{number}"]}


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words))


def prepare(folder: Path) -> None:
    """A checkpoint, and rows for each side."""
    chats = [conversation(number) for number in range(ROWS)]
    tokenizer = fit_tokenizer((conversation_text(chat, TOOLS) for chat in chats), SHAPE.vocabulary)
    make_model(SHAPE, tokenizer, 0).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    _write(folder / "pairs.jsonl", [pair(number) for number in range(ROWS)])
    rows = [{"messages": chat, "tools": TOOLS, "episode_id": f"ep-{index}"} for index, chat in enumerate(chats)]
    _write(folder / "rows.jsonl", rows)
    for row in rows:
        for index, message in enumerate(row["messages"]):
            if message["role"] == "assistant":
                message["weight"] = 0.5 + index % 3
    _write(folder / "weighted.jsonl", rows)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Clock(TrainerCallback):  # type: ignore[misc]
    """When each step begins; and what the trainer logged."""

    def __init__(self) -> None:
        self.marks: list[float] = []
        self.logs: list[dict[str, Any]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Note the figures of a step; the summary that the trainer logs at the end has no loss and is left out."""
        if logs and "loss" in logs:
            self.logs.append(logs)

    @property
    def losses(self) -> list[float]:
        """Of each step."""
        return [entry["loss"] for entry in self.logs]

    @property
    def seconds(self) -> Any:
        """Of each step but the first ones and the last."""
        return np.diff(self.marks)[WARM_UP:]

    @property
    def median(self) -> float:
        """Of those seconds."""
        return float(np.median(self.seconds))


def clocked(train: Callable[[], Any]) -> Clock:
    """The clock of whatever trainer `train` starts."""
    clock, whole = Clock(), Trainer.train

    def with_clock(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.add_callback(clock)
        self.args.logging_steps = 1
        return whole(self, *args, **kwargs)

    with mock.patch.object(Trainer, "train", with_clock):
        train()
    return clock


def sft(folder: Path, steps: int, outputs: Iterator[Path], threads: int) -> Mapping[str, Callable[[], Any]]:
    """What trains on the rows, by side."""

    def config(rows: str, **section: Any) -> Any:
        return load_job(
            {
                **_common(folder, steps, next(outputs), threads),
                "method": "sft",
                "data": {"train": str(folder / rows)},
                "sft": section,
            }
        )

    def plain() -> None:
        from trl import SFTConfig, SFTTrainer

        settings = config("rows.jsonl")
        prepare_torch(settings)
        model, tokenizer = load_start_model(settings, (), 1024)
        arguments = SFTConfig(
            **trainer_arguments(settings, steps, validated=False), assistant_only_loss=True, max_length=1024
        )
        SFTTrainer(
            model=model,
            args=arguments,
            train_dataset=_dataset(folder, "rows", ["messages", "tools"]),
            processing_class=tokenizer,
        ).train()

    return {
        "trl": plain,
        "ours": lambda: job.run(config("rows.jsonl")),
        "weighted": lambda: job.run(config("weighted.jsonl", step_weighted_loss=True)),
    }


def dpo(folder: Path, steps: int, outputs: Iterator[Path], threads: int) -> Mapping[str, Callable[[], Any]]:
    """What learns from the same pairs, by side."""

    def config() -> Any:
        data = {"train": str(folder / "pairs.jsonl")}
        return load_job(
            {**_common(folder, steps, next(outputs), threads), "method": "dpo", "preset": "plain", "data": data}
        )

    def plain() -> None:
        from trl import DPOConfig, DPOTrainer

        settings = config()
        prepare_torch(settings)
        model, tokenizer = load_start_model(settings, (), 1024)
        arguments = DPOConfig(
            **trainer_arguments(settings, steps, validated=False), max_length=1024, precompute_ref_log_probs=True
        )
        rows = _dataset(folder, "pairs", ["prompt", "chosen", "rejected"])
        DPOTrainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer).train()

    return {"trl": plain, "ours": lambda: job.run(config())}


def _dataset(folder: Path, name: str, columns: list[str]) -> Any:
    from datasets import load_dataset

    rows = load_dataset(
        "json", data_files=str(folder / f"{name}.jsonl"), split="train", cache_dir=str(folder / "cache")
    )
    return rows.select_columns(columns)


def _common(folder: Path, steps: int, output: Path, threads: int) -> dict[str, Any]:
    return {
        "output": str(output),
        "model": {"base": str(folder / "base"), "precision": "auto" if torch.cuda.is_available() else "float32"},
        "format": {"max_length": 1024},
        "optimization": {"batch_size": BATCH, "steps": steps, "learning_rate": 1e-3, "warmup_steps": 0},
        "checkpoints": {"save_every": 1_000_000},
        "run": {"threads": threads},
    }


def grpo(folder: Path, steps: int, outputs: Iterator[Path], threads: int) -> Mapping[str, Callable[[], Any]]:
    """What learns from the same episodes, by side."""

    def begun(turns: str | None) -> tuple[Any, Any, Any]:
        credit = {"turns": turns} if turns else {}
        settings = load_job(
            {
                **_common(folder, steps, next(outputs), threads),
                "method": "grpo",
                "grpo": {"group_size": GROUP, "credit": credit, "sampling": {"max_episode_tokens": 900}},
            }
        )
        prepare_torch(settings)
        return settings, *load_start_model(settings, (), 1024)

    def ours(turns: str | None = None) -> None:
        settings, model, tokenizer = begun(turns)
        settings.output.mkdir(parents=True)
        trainer = make_grpo_trainer(settings, model, tokenizer, _prompts(), {"total": 1.0})
        trainer.rollout_func = lambda prompts, trainer: trl_rollout(episodes(tokenizer, trainer.state.global_step))
        trainer.train()

    def plain() -> None:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        settings, model, tokenizer = begun(None)
        arguments = {**trainer_arguments(settings, steps, validated=False), **trl_arguments(settings, tokenizer)}

        def rollout(prompts: Any, trainer: Any) -> dict[str, Any]:
            columns = trl_rollout(episodes(tokenizer, trainer.state.global_step))
            return {**columns, "breakdown": [sample.breakdown.reward for sample in columns.pop("sample")]}

        def total(breakdown: list[float], **_: Any) -> list[float]:
            return breakdown

        GRPOTrainer(
            model=model,
            args=GRPOConfig(**arguments),
            train_dataset=Dataset.from_dict({"prompt": _prompts()}),
            processing_class=tokenizer,
            reward_funcs=[total],
            rollout_func=rollout,
        ).train()

    return {"trl": plain, "ours": ours, "step_level": lambda: ours("step_level")}


def _prompts() -> list[str]:
    return [f"t{group}" for group in range(BATCH // GROUP)]


def episodes(tokenizer: Any, step: int) -> list[RolloutSample]:
    """The batch of a step: recorded conversations as if they had just been played, and rewards that differ."""
    samples = []
    for place in range(BATCH):
        chat = conversation(ROWS + step * BATCH + place)
        tokens = recorded_tokens(chat, TOOLS, tokenizer)
        assert tokens is not None
        reward = (place * 7 + step) % 5 / 4
        scores = [(number + place) % 3 / 2 for number in range(max(tokens.turns) + 1)]
        samples.append(RolloutSample("t", "k", "f", tokens, RewardBreakdown(reward, {"total": reward}, scores)))
    return samples


def tokens_of(tokenizer: Any, method: str, steps: int) -> float:
    """Tokens of a mean step, padding apart."""

    def length(chat: list[Message], tools: Any) -> int:
        return len(tokenize_chat(chat, tools, tokenizer).input_ids)

    if method == "sft":
        return BATCH * float(np.mean([length(conversation(number), TOOLS) for number in range(ROWS)]))
    if method == "dpo":
        pairs = [pair(number) for number in range(ROWS)]
        return BATCH * float(
            np.mean([sum(length(row["prompt"] + row[side], None) for side in ("chosen", "rejected")) for row in pairs])
        )
    batches = [[sample.tokens for sample in episodes(tokenizer, step)] for step in range(WARM_UP, steps - 1)]
    return float(np.mean([sum(len(e.prompt_ids) + len(e.completion_ids) for e in batch) for batch in batches]))


def measure(folder: Path, *, steps: int, rounds: int, threads: int) -> dict[str, Any]:
    """By method and side: tokens per second, and the ratio to TRL's. Raises AssertionError where losses are not TRL's."""
    from transformers import AutoTokenizer

    prepare(folder)
    outputs = (folder / f"out-{number}" for number in itertools.count())
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    figures: dict[str, Any] = {}
    for method, make_sides in (("sft", sft), ("dpo", dpo), ("grpo", grpo)):
        sides = make_sides(folder, steps, outputs, threads)
        seconds: dict[str, list[Any]] = {side: [] for side in sides}
        losses: dict[str, list[float]] = {}
        for _ in range(rounds):
            for side, train in sides.items():
                clock = clocked(train)
                seconds[side].append(clock.seconds)
                losses[side] = clock.losses
        np.testing.assert_allclose(
            losses["ours"], losses["trl"], rtol=2e-2 if torch.cuda.is_available() else 1e-4, atol=1e-6
        )
        tokens = tokens_of(tokenizer, method, steps)
        fastest = {side: float(np.min(runs, axis=0).mean()) for side, runs in seconds.items()}
        figures[method] = {
            side: {"tokens_per_second": tokens / duration, "of_trl": fastest["trl"] / duration}
            for side, duration in fastest.items()
        }
    figures["parameters"] = sum(parameter.numel() for parameter in make_model(SHAPE, tokenizer, 0).parameters())
    return figures
