"""A job that was killed goes on exactly: 20 steps straight, and 20 with an end between them, give the same bits."""

import json
import os
import signal

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.slow

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from ratchet.components.core import InfrastructureError  # noqa: E402
from ratchet.components.training import job, trainer_arguments  # noqa: E402
from ratchet.components.training.checkpoint_io import checkpoint_step, newest_checkpoint  # noqa: E402

LORA = {"r": 4, "dropout": 0.2}


class Stop(TrainerCallback):
    """Ends a job at one step, as the world does."""

    def __init__(self, step, how):
        self.step, self.how = step, how

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            if self.how == "kill":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)


def weights(config):
    return load_file(config.output / "checkpoint" / "model.safetensors")


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def logged(config):
    """What was measured at each step; how long it took is not the same twice."""
    lines = [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]
    return [{name: line.get(name) for name in ("step", "loss", "eval_loss", "learning_rate")} for line in lines]


@pytest.mark.parametrize(
    ("stopped", "how", "changes"),
    [
        pytest.param(14, "kill", {"micro_batch": 2}, id="killed in an epoch"),
        pytest.param(7, "signal", {}, id="asked to end"),
        pytest.param(13, "kill", {"lora": LORA}, id="adapters with dropout", marks=pytest.mark.long),
        pytest.param(17, "kill", {"patience": 9}, id="the best is kept", marks=pytest.mark.long),
    ],
)
def test_defect_24_twenty_steps_are_ten_and_ten_more_to_the_bit(sft, base, monkeypatch, stopped, how, changes):
    settings = {"steps": 20, "save_every": 5, "evaluate_every": 5, **changes}
    if "lora" in changes:
        settings |= {"base": base, "max_length": 512}
    if "patience" in changes:
        settings["validation"] = sft().data.train
    straight = sft("straight", **settings)
    job.run(straight)
    config = sft("stopped", **settings)
    usual = trainer_arguments.make_callbacks
    with monkeypatch.context() as patched:
        patched.setattr(
            "ratchet.components.training.sft.train_sft.make_callbacks",
            lambda *a, **k: [*usual(*a, **k), Stop(stopped, how)],
        )
        with pytest.raises(KeyboardInterrupt if how == "kill" else InfrastructureError):
            job.run(config)
    assert not (config.output / "report.json").exists() and not (config.output / "checkpoint").exists()
    saved = checkpoint_step(newest_checkpoint(config.output))
    assert saved == (stopped // 5 * 5 if how == "kill" else stopped + 1), "a signal saves at the end of the step"
    job.run(config)
    assert_same_bits(weights(config), weights(straight))
    if how == "kill":
        assert logged(config) == logged(straight)


def test_a_resumed_job_does_not_run_a_finished_step_again(sft, monkeypatch):
    config = sft(steps=10, save_every=5)
    usual, seen = trainer_arguments.make_callbacks, []

    class Count(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            seen.append(state.global_step)

    for stop in (Stop(7, "kill"), Stop(0, "kill")):
        with monkeypatch.context() as patched:
            patched.setattr(
                "ratchet.components.training.sft.train_sft.make_callbacks",
                lambda *a, stop=stop, **k: [*usual(*a, **k), Count(), stop],
            )
            if stop.step:
                with pytest.raises(KeyboardInterrupt):
                    job.run(config)
            else:
                job.run(config)
    assert seen == [1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10]
    assert not (config.output / "saved").exists()
