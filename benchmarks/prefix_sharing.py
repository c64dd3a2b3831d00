"""A step of GRPO with shared prefixes beside the padded one: time, loss and gradients, over the share of common tokens.

Both sides are Ratchet's trainer on the same made episodes and the same weights: groups of attempts of equal length, so
that the padded side computes no padding. The share is the part of each attempt that its whole group has in common: the
prompt. A step counts from its beginning to that of the next one, in wall seconds on a GPU and in CPU seconds of the
process elsewhere, which what else the machine does changes least. Runs alternate, and the fastest step of each side
counts.

The last row is work of the host while a GPU waits: 16 attempts of 4096 tokens folded into a prefix tree, by TRL's `TreeRow`
and by ours, in CPU milliseconds.

    python benchmarks/prefix_sharing.py [--quick] [--json]

Exits with 1 if a step at 80 % is not at least twice as fast, a gradient is further than 1e-5 from the padded one, or the
tree is not folded five times as fast as by TRL.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.experimental.async_grpo.packing import TreeRow
from verdict import conclude

from ratchet.components.training.config.job_config import load_job
from ratchet.components.training.config.shared_sections import ModelShape
from ratchet.components.training.grpo.episode_rewards import RewardBreakdown
from ratchet.components.training.grpo.rollout_sample import EpisodeTokens, RolloutSample, trl_rollout
from ratchet.components.training.grpo.train_grpo import make_grpo_trainer
from ratchet.components.training.prefix_tree import PrefixTree
from ratchet.components.training.scratch_model import fit_tokenizer, make_model
from ratchet.components.training.trainer_arguments import prepare_torch

SHAPE = ModelShape(hidden=256, layers=4, heads=4, kv_heads=2, intermediate=768, vocabulary=640, context=1024)
GROUP, LENGTH = 8, 256
SHARES = (0.0, 0.5, 0.8, 0.95)
BAR_SPEED, BAR_GRADIENT, BAR_SHARE, BAR_FOLDING = 2.0, 1e-5, 0.8, 5.0


class StepClock(TrainerCallback):  # type: ignore[misc]
    """Times of the steps, the first gradients and the losses of one run."""

    def __init__(self) -> None:
        self.marks: list[float] = []
        self.losses: list[float] = []
        self.gradients: dict[str, torch.Tensor] = {}

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter() if torch.cuda.is_available() else time.process_time())

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        """Keep the gradients of the first step."""
        if not self.gradients:
            self.gradients = {name: item.grad.clone() for name, item in model.named_parameters()}

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        """Note the loss."""
        self.losses += [logs["loss"]] if "loss" in logs else []

    @property
    def seconds(self) -> list[float]:
        """Durations of the steps but the first, which warms up, and the last."""
        return [after - before for before, after in zip(self.marks[1:], self.marks[2:], strict=False)]


def episodes(share: float, length: int, groups: int) -> list[RolloutSample]:
    """Made attempts of `length` tokens, of which each group shares the first `share`; half of the rest is the policy's."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> list[int]:
        return torch.randint(5, 250, (count,), generator=generator).tolist()

    result = []
    for group in range(groups):
        prompt = draw(max(1, round(share * length)))
        for place in range(GROUP):
            completion = draw(length - len(prompt))
            turns = [0 if 4 * index < 2 * len(completion) else -1 for index in range(len(completion))]
            tokens = EpisodeTokens(prompt, completion, [-1.0] * len(completion), turns)
            reward = place % 3 / 2
            breakdown = RewardBreakdown(reward, {"total": reward}, [reward])
            result.append(RolloutSample(f"t{group}", "k", "f", tokens, breakdown))
    return result


def run(folder: Path, batch: list[RolloutSample], steps: int, *, shared: bool) -> StepClock:
    """Train `steps` steps on the same batch."""
    config = load_job(
        {
            "method": "grpo",
            "output": str(folder / f"out-{time.monotonic_ns()}"),
            "model": {"base": str(folder / "base"), "precision": "float32"},
            "optimization": {"batch_size": len(batch), "steps": steps, "max_grad_norm": 0, "warmup_steps": 0},
            "checkpoints": {"save_every": 1_000_000},
            "run": {"threads": 2},
            "grpo": {"group_size": GROUP, "share_prefixes": shared, "sampling": {"max_episode_tokens": 1024}},
        }
    )
    prepare_torch(config)
    config.output.mkdir()
    model = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    prompts = [f"t{group}" for group in range(len(batch) // GROUP)]
    trainer = make_grpo_trainer(config, model, tokenizer, prompts, {"total": 1.0})
    trainer.rollout_func = lambda prompts, trainer: trl_rollout(batch)
    clock = StepClock()
    trainer.add_callback(clock)
    trainer.train()
    return clock


def measure(quick: bool) -> dict[str, dict[str, float]]:
    """Figures by share."""
    shares, length, steps, rounds = ((BAR_SHARE,), LENGTH, 4, 1) if quick else (SHARES, LENGTH, 4, 2)
    result = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = fit_tokenizer([" ".join(f"word{number}" for number in range(2000))], SHAPE.vocabulary)
        make_model(SHAPE, tokenizer, 0).save_pretrained(folder / "base")
        tokenizer.save_pretrained(folder / "base")
        for share in shares:
            batch = episodes(share, length, groups=1)
            runs: dict[bool, list[StepClock]] = {False: [], True: []}
            for _ in range(rounds):
                for shared, clocks in runs.items():
                    clocks.append(run(folder, batch, steps, shared=shared))
            result[f"{share:g}"] = compare(*runs.values())
    batch = episodes(BAR_SHARE, 4096, groups=2)
    result["folding"] = {"trl_ms": folding(TreeRow, batch), "ms": folding(PrefixTree, batch)}
    return result


def folding(make_tree: Any, batch: list[RolloutSample]) -> float:
    """CPU milliseconds of folding a batch into a tree and packing it; the fastest of five."""
    samples = [
        {
            "input_ids": np.array(item.tokens.prompt_ids + item.tokens.completion_ids),
            "completion_mask": np.array([0] * len(item.tokens.prompt_ids) + list(item.tokens.mask)),
            "old_log_probs": np.array([0.0] * len(item.tokens.prompt_ids) + item.tokens.logprobs, np.float32),
            "advantage": 0.0,
            "group_id": item.task_id,
        }
        for item in batch
    ]
    times = []
    for _ in range(5):
        begin, tree = time.process_time(), make_tree()
        for sample in samples:
            tree.add(sample)
        tree.pack()
        times.append(time.process_time() - begin)
    return 1000 * min(times)


def compare(plain: list[StepClock], shared: list[StepClock]) -> dict[str, float]:
    """Figures of one share: the fastest step of each side, and the distance of losses and gradients."""
    fastest = [min(second for clock in clocks for second in clock.seconds) for clocks in (plain, shared)]
    gradients = plain[0].gradients
    far = max((shared[0].gradients[name] - value).abs().max().item() for name, value in gradients.items())
    losses = max(abs(one - other) for one, other in zip(plain[0].losses, shared[0].losses, strict=True))
    return {
        "plain_seconds": fastest[0],
        "shared_seconds": fastest[1],
        "times_faster": fastest[0] / fastest[1],
        "largest_gradient": max(value.abs().max().item() for value in gradients.values()),
        "gradient_distance": far,
        "loss_distance": losses,
    }


def table(figures: dict[str, dict[str, float]]) -> str:
    """The figures for a person."""
    lines = [
        "| share of common tokens | padded, s | shared, s | times faster | gradients differ by | losses differ by |",
        "|---|---|---|---|---|---|",
    ]
    for share, row in shares(figures).items():
        lines.append(
            f"| {float(share):.0%} | {row['plain_seconds']:.2f} | {row['shared_seconds']:.2f} | {row['times_faster']:.2f} "
            f"| {row['gradient_distance']:.0e} | {row['loss_distance']:.0e} |"
        )
    tree = figures["folding"]
    return "\n".join([*lines, "", f"Folding 16 attempts: TRL {tree['trl_ms']:.1f} ms, here {tree['ms']:.2f} ms."])


def shares(figures: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The figures of training steps, by share."""
    return {name: row for name, row in figures.items() if name != "folding"}


def missed(figures: dict[str, dict[str, float]]) -> list[str]:
    """The bars that were missed, a line each."""
    lines = [
        f"gradients at a share of {share} differ by {row['gradient_distance']:.1e}; the bar is {BAR_GRADIENT:.0e}"
        for share, row in shares(figures).items()
        if not row["gradient_distance"] <= BAR_GRADIENT
    ]
    times = figures[f"{BAR_SHARE:g}"]["times_faster"]
    folded = figures["folding"]["trl_ms"] / figures["folding"]["ms"]
    return [
        *lines,
        *([f"folded {folded:.1f} times as fast as by TRL; the bar is {BAR_FOLDING:g}"] if folded < BAR_FOLDING else []),
        *([f"{times:.2f} times faster at {BAR_SHARE:.0%}; the bar is {BAR_SPEED:g}"] if times < BAR_SPEED else []),
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="one share, once")
    arguments = parser.parse_args()
    figures = measure(arguments.quick)
    return conclude(figures, table, missed(figures), as_json=arguments.json)


if __name__ == "__main__":
    raise SystemExit(main())
