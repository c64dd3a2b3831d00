"""A training job under FSDP or ZeRO as configured here, on two CPU processes: `torchrun ... sharded_job.py JOB.json`.

accelerate shards for accelerators alone: on CPUs it would make whole copies without a word. All else of FSDP and of
DeepSpeed runs there.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ratchet.components.training import accelerate_launch, job


def run_sharded(config: Any, launch: str = "fsdp") -> None:
    """Run the job to its end, each process holding half of the model. `launch`: as in `run.launch`."""
    (written := config.output.with_suffix(".json")).write_text(config.model_dump_json())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", __file__]
    ended = subprocess.run(
        [*command, str(written)], capture_output=True, text=True, timeout=400, env=_environment(written, launch)
    )
    assert ended.returncode == 0, ended.stderr[-4000:]


def _environment(written: Path, launch: str) -> dict[str, str]:
    """What accelerate sets for the processes of our own configuration."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    command = accelerate_launch.launch_command(accelerate_launch.configuration_path(launch), written, 2)
    arguments = command[command.index("accelerate.commands.launch") + 1 :]
    args, settings, has_precision = _validate_launch_command(launch_command_parser().parse_args(arguments))
    ours = {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        accelerate_launch.WORKER_VARIABLE: "1",
    }
    if launch == "fsdp":
        theirs: dict[str, str] = prepare_multi_gpu_env(args)
        ours["ACCELERATE_USE_CPU"] = "true"
    else:
        fields = [*settings.deepspeed_config, *(["mixed_precision"] if has_precision else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)  # as its `launch_command` does
        _, theirs = prepare_deepspeed_cmd_env(args)
        ours["DS_ACCELERATOR"] = "cpu"
    return theirs | ours | {"PYTHONPATH": os.pathsep.join(sys.path)}


def _shard_on_cpus() -> None:
    """Have accelerate begin as on GPUs."""
    from accelerate.state import AcceleratorState, DistributedType, PartialState

    begin = AcceleratorState.__init__

    def sharded(self: Any, *given: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        begin(self, *given, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.fsdp_plugin = fsdp_plugin
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = sharded


def _allow_deepspeed_on_cpus() -> None:
    """Have accelerate begin as on GPUs: it ignores DeepSpeed where the arguments ask for the CPU, and has no backend."""
    from accelerate.state import DistributedType, PartialState

    from ratchet.components.training.sft import train_sft

    arguments = train_sft.trainer_arguments
    train_sft.trainer_arguments = lambda *given, **named: arguments(*given, **named) | {"use_cpu": False}
    PartialState._prepare_backend = lambda *given, **named: ("gloo", DistributedType.MULTI_CPU)


if __name__ == "__main__":
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        _allow_deepspeed_on_cpus()
    else:
        _shard_on_cpus()
    sys.exit(job.main(sys.argv[1:]))
