"""Run a trainer from the newest complete checkpoint to the end, write the result and return the fields of its report.

Intermediate checkpoints stay until the report exists (see `job`), so a job that is killed in between repeats no step.
Failures are reported in one line and leave earlier checkpoints intact.
"""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ratchet.components.core import ConfigurationError, InfrastructureError, RatchetError

from . import base_model
from .checkpoint_io import checkpoint_step, newest_checkpoint, write_checkpoint
from .config.job_config import JobConfig
from .gpu_memory import OutOfMemory, is_out_of_memory
from .heartbeat import Heartbeat
from .train_report import final_loss, report_fields
from .trainer_callbacks import HeartbeatCallback, PreemptionCallback

DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_FULL_MESSAGES = (
    "no space left",
    "file too large",
    "disk quota",
    "file write failed",
    "unexpected pos",
    "pytorchstreamwriter",
)
"""Fragments of the errors that safetensors and torch raise on a full disk."""


def run_trainer(
    config: JobConfig,
    trainer: Any,
    tokenizer: Any,
    *,
    rows: int,
    tokens_per_step: float,
    save: Callable[[Any], None] | None = None,
) -> dict[str, Any]:
    """Train, resuming from the newest complete checkpoint, write `checkpoint/` and return the fields of TrainReport.

    `rows`: training rows, for the report; `tokens_per_step`: mean input tokens of an optimiser step; `save`: given the
    trainer, writes the result in place of a causal language model with its tokenizer. Raises RatchetError with a
    one-line message.
    """
    with Heartbeat(config.output, config.run.heartbeat_seconds) as heartbeat, readable_errors(config.output):
        saved = newest_checkpoint(config.output)
        seconds, mean_loss = _train(trainer, heartbeat, saved)
        loss = final_loss(trainer, mean_loss)
        steps = trainer.state.global_step
        tokens = round(tokens_per_step * steps)
        fields = report_fields(config, trainer, rows=rows, tokens=tokens, seconds=seconds, train_loss=loss)
        # `seconds` are those of this process, so its speed counts only the steps since the checkpoint it resumed from.
        new_steps = steps - (checkpoint_step(saved) if saved else 0)
        fields["tokens_per_second"] = tokens_per_step * new_steps / max(seconds, 1e-9)
        heartbeat.phase("writing the checkpoint")
        adapter = write_checkpoint(config, trainer, tokenizer, save)
    size = trainer.args.per_device_train_batch_size
    return {**fields, "adapter": adapter, "micro_batch": size, "base": base_model.read_base_model_info(config.output)}


class AlreadyTrained(Exception):
    """The checkpoint to resume from is the last one of the run."""


class ResumeCallback(TrainerCallback):  # type: ignore[misc]
    """Restore state that trainers do not save, and end a job that had already made its last step.

    transformers makes at least one step of a resumed epoch before it checks whether to stop. Add this callback last:
    callbacks that stop a job early must run before it.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore counters and paths. Raises AlreadyTrained if no step is left."""
        counted = [entry["num_tokens"] for entry in state.log_history if "num_tokens" in entry]
        if counted and hasattr(self._trainer, "_total_train_tokens"):
            # TRL's SFT and DPO trainers count from 0 again in a resumed job.
            self._trainer._total_train_tokens = int(counted[-1])
        best = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
        if state.best_model_checkpoint is None and best.is_dir():
            # transformers forgets the path if the output folder has been moved.
            state.best_model_checkpoint = str(best)
        if state.global_step and (state.global_step >= state.max_steps or control.should_training_stop):
            raise AlreadyTrained


def _train(trainer: Any, heartbeat: Heartbeat, saved: str | None) -> tuple[float, float]:
    """Train from a checkpoint; return the seconds and the mean loss of the steps made."""
    begin = time.perf_counter()
    updates = getattr(trainer.args, "num_iterations", 1)  # GRPO's, on one batch of episodes
    with PreemptionCallback(trainer.args.world_size, updates) as preempted:
        # After transformers' own DefaultFlowCallback, at index 0, and before the callbacks that read the control flags.
        trainer.callback_handler.callbacks.insert(1, preempted)
        trainer.add_callback(HeartbeatCallback(heartbeat))
        trainer.add_callback(ResumeCallback(trainer))
        heartbeat.phase("training")
        try:
            mean_loss: float = trainer.train(resume_from_checkpoint=saved).training_loss
        except AlreadyTrained:
            mean_loss = 0.0
            _finish_trained(trainer)
    preempted.check(trainer.state.global_step)
    return time.perf_counter() - begin, mean_loss


def _finish_trained(trainer: Any) -> None:
    """Bring a trainer that had nothing left to train into the state after `train`, with the best model loaded."""
    if trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None:
        trainer._load_best_model()
    trainer.is_in_train = False
    trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)


@contextlib.contextmanager
def readable_errors(output: Path) -> Iterator[None]:
    """As a context manager, convert exceptions about memory to OutOfMemory, about a full disk to InfrastructureError and
    about a missing package to ConfigurationError, with a one-line message; others pass unchanged. `output`: the job's
    output folder.
    """
    try:
        yield
    except RatchetError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f"the memory did not suffice: {next(iter(str(error).splitlines()), '')}") from error
        if is_disk_full(error):
            saved = newest_checkpoint(output)
            hint = f": the job resumes from step {checkpoint_step(saved)}" if saved else ""
            raise InfrastructureError(
                f"nothing more can be written to {output} ({next(iter(str(error).splitlines()), '')}); free space and run the "
                f"same command again{hint}"
            ) from error
        if isinstance(error, ImportError):
            first_line = next(iter(str(error).splitlines()), "")
            raise ConfigurationError(f"the job asks for a package that is missing: {first_line}") from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """Return whether an exception reports a full disk or quota, as raised by Python, torch or safetensors."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_CODES:
        return True
    return any(sign in str(error).lower() for sign in DISK_FULL_MESSAGES)
