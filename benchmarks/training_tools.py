"""The tools of GRPO's rollouts: 16 attempts whose every call takes 50 ms, here and in plain TRL (`environment_factory`).

Both sides make real passes of the same model and say the same words: six calls of a tool, then a last reply. Measured is

- *tool phase*: from the end of one generation to the beginning of the next, so with everything that a side does between them
  (parsing, records, templates), the mean over a step's six;
- *step*: from its beginning to that of the next one: rollout, scoring, update.

With the tool phase that much shorter and all else as in TRL, a step could be so many times as fast as TRL's: the bound. Part of
benchmarks/training.py.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from training_steps import Clock, clocked
from transformers import LogitsProcessor, LogitsProcessorList

from ratchet.components.core import Action, Environment, Role, TaskSpec, TimeStep, ToolResult, ToolSpec
from ratchet.components.core.environment_registry import register
from ratchet.components.rollouts.on_policy import OnPolicyConfig, OnPolicyPlayer
from ratchet.components.tasksets import Taskset, TasksetHead
from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.grpo.episode_rewards import EpisodeRewards
from ratchet.components.training.grpo.episode_rollout import EpisodeRollout
from ratchet.components.training.grpo.task_sampler import TaskSampler
from ratchet.components.training.grpo.train_grpo import make_grpo_trainer, make_policy, trl_arguments
from ratchet.components.training.model_loading import load_start_model
from ratchet.components.training.trainer_arguments import prepare_torch, trainer_arguments

DELAY, ROLLOUTS, GROUP, CALLS = 0.05, 16, 8, 6
CALL = '<tool_call>{"name": "go", "arguments": {}}</tool_call>'
ASKED = "Go on until you are there."


class Waiting(Environment):
    """Each call takes `DELAY` seconds; it ends when the agent calls nothing."""

    tools = (ToolSpec("go", "Go on.", {"type": "object", "properties": {}}),)

    def __init__(self, *, max_steps: int) -> None:
        self.left = max_steps

    def reset(self, *, task: TaskSpec | None = None, seed: int | None = None) -> TimeStep:
        """Begin."""
        return TimeStep(ASKED)

    def step(self, action: Action) -> TimeStep:
        """Wait."""
        time.sleep(DELAY)
        return TimeStep("ok", info={"result": ToolResult(action["call_id"], "ok")})

    def finish(self, reason: str) -> TimeStep:
        """It went well."""
        outcome = {"success": True, "score": 1.0, "tests_passed": 1, "tests_total": 1, "reason": reason}
        return TimeStep("", 1.0, True, info={"outcome": outcome})

    def close(self) -> None:
        """Nothing to release."""


class TrlWaiting:
    """The same as TRL would have it."""

    def reset(self, **row: Any) -> None:
        """Begin."""

    def go(self) -> str:
        """Go on.

        Returns:
            How it went.
        """
        time.sleep(DELAY)
        return "ok"


class WaitingPlayer(OnPolicyPlayer):
    """The player of a collection, with tasks of this environment."""

    def __init__(self) -> None:
        tasks = tuple(
            TaskSpec(f"waiting/{number}", "waiting", f"f{number}", "wait", Role.TRAIN, "generic", ASKED)
            for number in range(ROLLOUTS // GROUP)
        )
        head = TasksetHead("waiting", "1", "generic", {Role.TRAIN: len(tasks)}, environment="benchmark/waiting")
        self.settings = OnPolicyConfig(taskset="waiting", max_turns=CALLS + 1, concurrency=ROLLOUTS)
        self._taskset = Taskset(head, tasks)
        self._tasks = {task.task_id: task for task in tasks}


class Forced(LogitsProcessor):  # type: ignore[misc]
    """Nothing but the next word of a reply can be drawn."""

    def __init__(self, reply: list[int], width: int) -> None:
        self.reply, self.width = reply, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Scores (B, V) of which one token is left."""
        forced_scores = scores.new_full(scores.shape, -float("inf"))
        forced_scores[:, self.reply[min(input_ids.shape[1] - self.width, len(self.reply) - 1)]] = 0.0
        return forced_scores


class Script:
    """Makes a model say replies, one a generation, over and over; knows how long it was silent between them."""

    def __init__(self, model: Any, replies: list[list[int]]) -> None:
        self.silences: list[float] = []
        self._ended: float | None = None
        self._place = itertools.cycle(range(len(replies)))
        self._replies = replies
        self._generate: Callable[..., Any] = model.generate
        model.generate = self._say

    def _say(self, **kwargs: Any) -> Any:
        begun, place = time.perf_counter(), next(self._place)
        if place and self._ended is not None:
            self.silences.append(begun - self._ended)
        forced = Forced(self._replies[place], kwargs["input_ids"].shape[1])
        kwargs["logits_processor"] = LogitsProcessorList([forced, *kwargs.get("logits_processor", ())])
        output = self._generate(**kwargs)
        self._ended = time.perf_counter()
        return output


def config(folder: Path, output: Path, steps: int, threads: int) -> Any:
    """The job of both sides."""
    return load_job(
        {
            "method": "grpo",
            "output": str(output),
            "model": {"base": str(folder / "base"), "precision": "float32"},
            "optimization": {"batch_size": ROLLOUTS, "steps": steps, "learning_rate": 1e-5, "warmup_steps": 0},
            "checkpoints": {"save_every": 1_000_000},
            "run": {"threads": threads},
            "grpo": {
                "group_size": GROUP,
                "reward": {"success": 1.0},
                "signal_window": steps + 1,
                "sampling": {"max_new_tokens": 48, "max_episode_tokens": 640},
            },
        }
    )


def ours(settings: Any) -> tuple[Clock, Script]:
    """Our steps."""
    prepare_torch(settings)
    settings.output.mkdir(parents=True)
    model, tokenizer = load_start_model(settings, (), 1024)
    script = Script(model, [*[tokenizer.encode(CALL)] * CALLS, _last(tokenizer)])
    player = WaitingPlayer()
    task_sampler = TaskSampler(settings.grpo.selection, player.tasks(), settings.seed)
    prompts = [task.task_id for task in player.tasks()]
    trainer = make_grpo_trainer(settings, model, tokenizer, prompts, settings.grpo.reward, task_sampler)
    policy = make_policy(settings, trainer, tokenizer)
    rewards = EpisodeRewards(settings.grpo.reward, settings.grpo.scoring)
    trainer.rollout_func = EpisodeRollout(player, policy, rewards, task_sampler, seed=0, pad=tokenizer.pad_token_id)
    return clocked(lambda: trainer.train()), script


def plain(settings: Any) -> tuple[Clock, Script]:
    """TRL's steps. It stops at the end of a message alone, so that a call is one token longer."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_template

    prepare_torch(settings)
    model, tokenizer = load_start_model(settings, (), 1024)
    tokenizer.response_template = qwen3_template
    script = Script(model, [*[[*tokenizer.encode(CALL), tokenizer.eos_token_id]] * CALLS, _last(tokenizer)])
    arguments = {
        **trainer_arguments(settings, settings.optimization.steps, validated=False),
        **trl_arguments(settings, tokenizer),
    }
    prompts = [[{"role": "user", "content": ASKED}] for _ in range(ROLLOUTS // GROUP)]

    def success(completions: list[Any], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(**arguments),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        reward_funcs=[success],
        environment_factory=TrlWaiting,
    )
    return clocked(lambda: trainer.train()), script


def _last(tokenizer: Any) -> list[int]:
    return [*tokenizer.encode("That is all."), tokenizer.eos_token_id]


def measure(folder: Path, *, steps: int, threads: int) -> dict[str, Any]:
    """Seconds of a tool phase and of a step on each side, and what they come to. `folder` holds `base`."""
    register("benchmark/waiting", Waiting, domain="generic", turns=CALLS + 1)
    figures: dict[str, Any] = {}
    for name, train in (("trl", plain), ("ours", ours)):
        clock, script = train(config(folder, folder / f"tools-{name}", steps, threads))
        assert len(script.silences) == CALLS * steps, f"{name} made {len(script.silences)} tool phases"
        figures[name] = {"phase": float(np.median(script.silences)), "step": float(np.median(clock.seconds))}
    theirs, here = figures["trl"], figures["ours"]
    phases = CALLS * theirs["phase"]
    figures["phase_times"] = theirs["phase"] / here["phase"]
    figures["step_times"] = theirs["step"] / here["step"]
    figures["bound_times"] = theirs["step"] / (theirs["step"] - phases + phases / figures["phase_times"])
    figures["of_bound"] = figures["step_times"] / figures["bound_times"]
    return figures
