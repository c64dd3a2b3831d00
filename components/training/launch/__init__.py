"""Launch: a job in several processes, by configurations of accelerate that stand beside this file, or by one of your own.

`ddp`: a copy of the model on each GPU. `fsdp`, `zero3`: the model, its gradients and its optimizer in parts. `zero2`: gradients and
optimizer in parts. The ZeRO ones need the package deepspeed. Arithmetic and weights are those of the job, not of these files.
"""

import difflib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import yaml

from components.protocol import ConfigurationError

FOLDER = Path(__file__).parent
MARK = "RATCHET_TRAINING_WORKER"
"""Set for what we launch: accelerate tells nothing to a process that it starts alone, and that must not launch again."""


def known() -> list[str]:
    """The names of the configurations that stand here."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def is_worker() -> bool:
    """Whether this process was started by a launcher, ours or somebody's."""
    return MARK in os.environ or "WORLD_SIZE" in os.environ


def configuration(launch: str) -> Path:
    """The file of a name, or of a path. Raises ConfigurationError that names the nearest."""
    path = Path(launch)
    if path.suffix not in (".yaml", ".yml"):
        path = FOLDER / f"{launch}.yaml"
        if launch not in known():
            close = difflib.get_close_matches(launch, [*known(), "single"], n=1)
            hint = (
                f"did you mean '{close[0]}'?"
                if close
                else f"known: single, {', '.join(known())}, or a path to a YAML file"
            )
            raise ConfigurationError(f"run.launch: no configuration '{launch}'; {hint}")
    return path


def settings(path: Path) -> dict[str, object]:
    """What a configuration says. Raises ConfigurationError for a file that is none, or whose library is not installed."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path} is no configuration of accelerate: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or "distributed_type" not in found:
        raise ConfigurationError(f"{path} is no configuration of accelerate: it names no distributed_type")
    if found["distributed_type"] == "MULTI_CPU":  # that one starts a single process where there is no MPI
        raise ConfigurationError(
            f"{path}: for several processes on CPUs say distributed_type: MULTI_GPU and use_cpu: true"
        )
    if found["distributed_type"] == "DEEPSPEED" and importlib.util.find_spec("deepspeed") is None:
        raise ConfigurationError(
            f"{path.stem} needs the package deepspeed, which is not installed; install it, or take fsdp"
        )
    return found


def processes(path: Path, gpus: int) -> int:
    """How many processes a configuration starts: one for each GPU here, or as many as it says where it runs on CPUs."""
    found = settings(path)
    if found.get("use_cpu"):
        said = found.get("num_processes")
        return said if isinstance(said, int) else 1
    if gpus < 2:
        raise ConfigurationError(
            f"run.launch {path.stem} is for several GPUs, and {gpus} can be used; set it to single"
        )
    return gpus


def command(path: Path, job: Path, count: int) -> list[str]:
    """The command line that starts a job in `count` processes."""
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(path)]
    return [*launcher, "--num_processes", str(count), "-m", "components.training.job", str(job)]


def run(path: Path, job: Path, count: int, gpus: list[str]) -> int:
    """Run a job in `count` processes to its end; the launcher's exit code."""
    environment = {**os.environ, MARK: "1", **({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {})}
    return subprocess.run(command(path, job, count), env=environment, check=False).returncode
