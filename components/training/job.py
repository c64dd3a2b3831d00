"""Run one training job: `python -m ratchet.components.training.job CONFIG.json`.

The output folder receives `metrics.jsonl` (a line per logged step), `heartbeat.json` while the job runs, `checkpoint/`
(model, tokenizer, template; `adapter/` too for LoRA) and, written last, `report.json`. A job with a report returns at
once; a killed job resumes from its newest complete checkpoint. A failure leaves `error.json`. If `run.launch` asks for
several processes, this process starts them and waits. Prefect, MLflow and DVC are not imported here.
"""

import contextlib
import functools
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError, RatchetError
from ratchet.components.core.files import write_atomically
from ratchet.components.core.run_context import log_to_stderr

from . import accelerate_launch, gpu_locks, gpu_memory
from .base_model import pin_base_model
from .checkpoint_io import remove_intermediate_checkpoints
from .config.job_config import AnyJob, load_job
from .train_report import TrainReport
from .trainer_arguments import process_count

METHODS = {"sft": "sft.train_sft", "dpo": "dpo.train_dpo", "grpo": "grpo.train_grpo", "prm": "prm.train_prm"}
"""The module of each method. `train(config)` trains or resumes and returns a report of type `REPORT`."""
REPORT, ERROR = "report.json", "error.json"


def run(config: AnyJob) -> TrainReport:
    """Train in this process, write and return the report; return the existing report of a finished job. Raises
    RatchetError with a one-line message.

    When memory runs out, a job in one process continues with half the micro-batch and the same batch size.
    """
    method, count = _method_module(config), process_count()
    from accelerate.utils.memory import clear_device_cache

    from .run_trainer import readable_errors  # brings transformers

    if (report := read_report(config)) is not None:
        # A job that was killed after writing its report has left its checkpoints.
        remove_intermediate_checkpoints(config.output)
        return report
    config = gpu_memory.restore_micro_batch(pin_base_model(config))
    while True:
        try:
            with readable_errors(config.output):  # a model may be too large before the first step
                result: TrainReport = method.train(config)
                if int(os.environ.get("RANK") or 0) == 0:
                    write_atomically(config.output / REPORT, msgspec.json.format(msgspec.json.encode(result)))
                    remove_intermediate_checkpoints(config.output)
                return result
        except gpu_memory.OutOfMemory as error:
            if count > 1:
                raise  # the other processes wait for this one, so the launcher starts all of them again
            message = str(error)
        config = gpu_memory.halve_micro_batch(config, count)
        print(f"{message}; continuing with {config.optimization.micro_batch} rows at a time", file=sys.stderr)
        clear_device_cache(garbage_collection=True)


def read_report(config: AnyJob) -> TrainReport | None:
    """Return the report of a finished job, or None."""
    path = config.output / REPORT
    if not path.is_file():
        return None
    result: TrainReport = msgspec.json.decode(path.read_bytes(), type=_method_module(config).REPORT)
    return result


def _method_module(config: AnyJob) -> Any:
    return importlib.import_module(f"{__package__}.{METHODS[config.method]}")


def main(arguments: Sequence[str]) -> int:
    """Run the job of the configuration file that is the only argument; return 0 or an exit code.

    Errors are printed and, once the configuration has been read, written to `error.json`.
    """
    log_to_stderr()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # its version is pinned, and what is used of it is tested
    # A fork after tokenizers has used its threads may deadlock.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        (path,) = arguments
        config = load_job(Path(path))
    except ValueError:
        return _print_error(ConfigurationError("give one file: python -m ratchet.components.training.job JOB.json"))
    except RatchetError as error:
        return _print_error(error)
    try:
        config.output.mkdir(parents=True, exist_ok=True)
        if accelerate_launch.is_worker():
            run(config)
        elif config.run.launch == "single":
            _run_single(config)
        else:
            return _run_launched(config, Path(path))
    except OSError as error:
        return _record_error(
            config.output, InfrastructureError(f"training in {config.output} stopped: {error}; free space and repeat")
        )
    except RatchetError as error:
        return _record_error(config.output, error)
    return 0


def _run_single(config: AnyJob) -> None:
    """Run in this process, on one reserved GPU if there is any."""
    (config.output / ERROR).unlink(missing_ok=True)
    with gpu_locks.reserve_gpus(gpu_locks.visible_gpus(), 1, waiting=_announce_waiting) as reserved:
        # CUDA reads the variable once, when it starts. With two visible GPUs transformers' trainer would split each batch.
        if reserved:
            os.environ["CUDA_VISIBLE_DEVICES"] = reserved[0]
        run(config)


def _run_launched(config: AnyJob, path: Path) -> int:
    """Run in several processes, again with half the micro-batch while one of them runs out of memory."""
    if (config.output / REPORT).is_file():
        remove_intermediate_checkpoints(config.output)
        return 0
    configuration = accelerate_launch.configuration_path(config.run.launch)
    visible = gpu_locks.visible_gpus()
    count = accelerate_launch.launched_processes(configuration, len(visible))
    config = gpu_memory.restore_micro_batch(config)
    with gpu_locks.reserve_gpus(
        visible, 0 if accelerate_launch.runs_on_cpus(configuration) else count, waiting=_announce_waiting
    ) as reserved:
        while True:
            # Workers write it with mode "x", so that the first failure is kept: remove that of an earlier attempt.
            (config.output / ERROR).unlink(missing_ok=True)
            code = accelerate_launch.launch_job(configuration, path, count, reserved)
            failure = _read_error(config.output) if code else {}
            if not failure.get("out_of_memory"):
                return int(failure.get("exit_code", code))
            config = gpu_memory.halve_micro_batch(config, count)


@functools.cache
def _announce_waiting() -> None:
    """Print that the job waits for a GPU; the cache makes further calls do nothing."""
    print("every GPU that may be used is in use; waiting for one", file=sys.stderr, flush=True)


def _read_error(output: Path) -> dict[str, Any]:
    """Return the failure that a worker recorded; empty if it was killed before, or while it wrote."""
    try:
        return msgspec.json.decode((output / ERROR).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}


def _print_error(error: RatchetError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _record_error(output: Path, error: RatchetError) -> int:
    """Write `error.json`, unless another process has: the first failure causes the others."""
    _print_error(error)
    record: dict[str, Any] = {"message": str(error), "exit_code": error.exit_code}
    if isinstance(error, gpu_memory.OutOfMemory):
        record["out_of_memory"] = True
    with contextlib.suppress(OSError), (output / ERROR).open("x") as file:
        file.write(json.dumps(record))
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
