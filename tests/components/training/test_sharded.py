"""FSDP as it is configured here, on two CPU processes: each holds half of the model, and they train what one process trains."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.long

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from small_model import make_checkpoint  # noqa: E402

from components.training import job, launch  # noqa: E402

WORKER = Path(__file__).parents[2] / "helpers" / "sharded_job.py"


def environment(config, written):
    """What accelerate sets for the processes of our own configuration."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    command = launch.command(launch.configuration("fsdp"), written, 2)
    arguments = command[command.index("accelerate.commands.launch") + 1 :]
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    return prepare_multi_gpu_env(args) | {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", launch.MARK: "1"}


def start(config):
    (written := config.output.with_suffix(".json")).write_text(config.model_dump_json())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(WORKER)]
    path = os.pathsep.join(sys.path)
    ended = subprocess.run(
        [*command, str(written)],
        capture_output=True,
        text=True,
        timeout=400,
        env={**environment(config, written), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr


def written(config):
    return sorted(str(path.relative_to(config.output)) for path in config.output.rglob("*"))


def figures(config):
    lines = [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


@pytest.mark.parametrize("way", ["whole", "adapters"])
def test_steps_in_parts_are_the_steps_of_the_whole(sft, tmp_path, way):
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
    start(parts := sft("parts", **settings))
    for ours, theirs in zip(figures(parts), figures(alone), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)
    assert written(parts) == written(alone), "each weight once, and nothing else"
    ours, theirs = (load_file(each.output / "checkpoint" / "model.safetensors") for each in (parts, alone))
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in theirs)
