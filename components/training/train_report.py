"""The report of a training job, and the checks of its losses."""

import math
from typing import Any

import msgspec

from ratchet.components.core import DataError

from .base_model import BaseModelInfo
from .checkpoint_io import newest_checkpoint
from .config.job_config import JobConfig

LOWER = 0.95
"""A loss is lower than another if it is less than this share of it."""


class TrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a job. `tokens`: input tokens without padding, of all steps; `seconds` and `tokens_per_second`: of the
    process that finished the job; `train_loss`: last logged loss; `converged`: see `has_converged`.

    `best_step`: step of the evaluation that chose the model (`checkpoints.best_by`, with patience), else of the lowest
    loss, or the last step if there was none; `validation_loss`: loss of that evaluation. `micro_batch`: rows in memory
    at a time when the job ended; `base`: the base model, None for one from scratch; `adapter`: folder of the LoRA
    adapter, if any.
    """

    steps: int
    tokens: int
    rows: int
    seconds: float
    tokens_per_second: float
    parameters: int
    trained_parameters: int | None = None
    train_loss: float
    validation_loss: float | None
    best_step: int
    converged: bool
    checkpoint: str
    adapter: str | None = None
    micro_batch: int | None = None
    base: BaseModelInfo | None = None


def has_converged(losses: list[float], patience: int, train_loss: float) -> bool:
    """Return whether these rows have taught what they can: the last `patience` of the validation losses lowered the best
    earlier one by less than 5 %, and the training loss is 5 % below the best of all.

    Where the training loss is as high, the job is on a plateau: nothing is overfitted yet, and more steps may still help.
    """
    before = losses[:-patience]
    if not before:
        return False
    best = min(losses)
    return best > LOWER * min(before) and train_loss < LOWER * best


def final_loss(trainer: Any, mean_loss: float) -> float:
    """Return the last logged training loss, or `mean_loss` for a job too short to log one.

    Raises DataError if either of the two is not finite.
    """
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    for loss in (*losses[-1:], mean_loss):
        if not math.isfinite(loss):
            raise non_finite_error("loss", loss, trainer.args.output_dir, trainer.state.global_step)
    return losses[-1] if losses else mean_loss


def non_finite_error(name: str, value: float, saved: str, step: int) -> DataError:
    """Return the error for a NaN or infinite metric called `name`. `saved`: the folder of checkpoints, of which the
    newest complete one is named.
    """
    checkpoint = newest_checkpoint(saved)
    hint = f"; the newest good checkpoint is {checkpoint}" if checkpoint else ""
    return DataError(f"the {name} became {value} by step {step}; lower the learning rate{hint}")


def lower_is_better(metric: str) -> bool:
    """Return whether an evaluation metric improves as it falls: true of names that end in `loss` or `perplexity`."""
    return metric.endswith(("loss", "perplexity"))


def best_evaluation(evaluations: list[dict[str, Any]], config: JobConfig) -> dict[str, Any]:
    """Return the best of the logged evaluations by `checkpoints.best_by`, with patience and if it was logged, else by
    the loss; of equal ones the first.
    """
    options = config.checkpoints
    metric = options.best_by if options.patience and f"eval_{options.best_by}" in evaluations[0] else "loss"
    sign = 1.0 if lower_is_better(metric) else -1.0
    return min(evaluations, key=lambda entry: sign * float(entry[f"eval_{metric}"]))


def report_fields(
    config: JobConfig, trainer: Any, *, rows: int, tokens: int, seconds: float, train_loss: float
) -> dict[str, Any]:
    """Return the fields of TrainReport for a finished trainer, except `tokens_per_second`, `adapter`, `micro_batch` and
    `base`.
    """
    state = trainer.state
    patience = config.checkpoints.patience
    metrics = {"eval_loss", f"eval_{config.checkpoints.best_by}"} if patience else {"eval_loss"}
    evaluations = [entry for entry in state.log_history if metrics & entry.keys()]
    best = best_evaluation(evaluations, config) if evaluations else {"step": state.global_step}
    losses = [entry["eval_loss"] for entry in evaluations if "eval_loss" in entry]
    parameters = list(trainer.model.parameters())
    return {
        "steps": state.global_step,
        "tokens": tokens,
        "rows": rows,
        "seconds": seconds,
        "parameters": sum(item.numel() for item in parameters),
        "trained_parameters": sum(item.numel() for item in parameters if item.requires_grad),
        "train_loss": train_loss,
        "validation_loss": best.get("eval_loss"),
        "best_step": best["step"],
        "converged": bool(patience) and has_converged(losses, patience or 1, train_loss),
        "checkpoint": str(config.output / "checkpoint"),
    }
