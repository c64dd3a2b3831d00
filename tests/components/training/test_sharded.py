"""FSDP and ZeRO as configured here, on two CPU processes: each holds half of the state, and they train what one trains."""

import importlib.util
import json

import pytest

pytest.importorskip("trl")
pytestmark = [pytest.mark.slow, pytest.mark.long]

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from sharded_job import run_sharded  # noqa: E402
from small_model import make_checkpoint  # noqa: E402

from ratchet.components.training import job  # noqa: E402


def written(config):
    return sorted(str(path.relative_to(config.output)) for path in config.output.rglob("*"))


def figures(config):
    lines = [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


NO_DEEPSPEED = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs the package deepspeed")


@pytest.mark.parametrize("way", ["whole", "adapters"])
@pytest.mark.parametrize(
    "launch", ["fsdp", pytest.param("zero2", marks=NO_DEEPSPEED), pytest.param("zero3", marks=NO_DEEPSPEED)]
)
def test_steps_in_parts_are_the_steps_of_the_whole(sft, tmp_path, launch, way):
    """AdamW's steps are about 1e-4 long: a gradient of another sign would show at 2e-4."""
    settings = {"steps": 3, "save_every": 1, "warmup_steps": 0, "schedule": "constant", "learning_rate": 1e-4}
    if way == "adapters":
        settings |= {
            "base": make_checkpoint(tmp_path / "base"),
            "max_length": 512,
            "lora": {"r": 4},
            "gradient_checkpointing": True,
        }
    job.run(alone := sft("alone", **settings))
    run_sharded(parts := sft("parts", **settings), launch)
    for ours, theirs in zip(figures(parts), figures(alone), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)
    assert written(parts) == written(alone), "each weight once, and nothing else"
    ours, theirs = (load_file(each.output / "checkpoint" / "model.safetensors") for each in (parts, alone))
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in theirs)
