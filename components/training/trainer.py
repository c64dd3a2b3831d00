"""What every training job shares: its arguments for transformers' trainer, its report, and where a killed one goes on."""

import math
import shutil
from pathlib import Path
from typing import Any

import msgspec

from components.protocol import DataError

from .config import JobConfig


class TrainReport(msgspec.Struct, frozen=True):
    """What a job did. `tokens` counts input tokens, padding apart; `converged`: see the function."""

    steps: int
    tokens: int
    rows: int
    seconds: float
    tokens_per_second: float
    parameters: int
    train_loss: float
    validation_loss: float | None
    best_step: int
    converged: bool
    checkpoint: str


def trainer_arguments(config: JobConfig, steps: int, *, validated: bool) -> dict[str, Any]:
    """The keywords of TrainingArguments for a job of so many steps; early stopping needs `validated`."""
    import torch

    stopping = validated and config.checkpoints.patience is not None
    return {
        "output_dir": str(config.output / "saved"),
        "per_device_train_batch_size": config.optimization.batch_size,
        "per_device_eval_batch_size": 4 * config.optimization.batch_size,
        "learning_rate": config.optimization.learning_rate,
        "lr_scheduler_type": {"constant": "constant_with_warmup"}.get(
            config.optimization.schedule, config.optimization.schedule
        ),
        "warmup_steps": config.optimization.warmup_steps,
        "weight_decay": config.optimization.weight_decay,
        "adam_beta2": 0.95,
        "max_steps": steps,
        "eval_strategy": "steps" if validated else "no",
        "eval_steps": config.checkpoints.evaluate_every,
        "save_strategy": "steps",
        "save_steps": config.checkpoints.evaluate_every if stopping else config.checkpoints.save_every,
        "save_total_limit": 2,
        "load_best_model_at_end": stopping,
        "metric_for_best_model": "eval_loss" if stopping else None,
        "logging_steps": 20,
        "logging_nan_inf_filter": False,  # else a loss that is no number is logged as the mean of those before it
        "include_num_input_tokens_seen": "no",
        "seed": config.seed,
        "data_seed": config.seed,
        "report_to": "none",
        "disable_tqdm": True,
        "bf16": bfloat16(config.model.precision),
        "use_cpu": not torch.cuda.is_available(),
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
    }


def callbacks(config: JobConfig, tokens_per_step: float, *, validated: bool) -> list[Any]:
    """The stream of metrics and, with `patience` and a validation set, early stopping."""
    from transformers import EarlyStoppingCallback

    from .metrics import MetricsWriter

    found: list[Any] = [MetricsWriter(config.output / "metrics.jsonl", tokens_per_step)]
    if validated and config.checkpoints.patience:
        found.append(EarlyStoppingCallback(early_stopping_patience=config.checkpoints.patience))
    return found


def prepare_torch(config: JobConfig) -> None:
    """Threads and random seeds of a job."""
    import torch
    from transformers import set_seed

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    set_seed(config.seed)


def fit_attention(config: JobConfig, model: Any) -> None:
    """The attention that trains fastest on this hardware."""
    import torch

    if bfloat16(config.model.precision) and not torch.cuda.is_available():
        # PyTorch's fused attention on a CPU is four times slower backwards in bfloat16 than plain matrix products.
        model.set_attn_implementation("eager")


def bfloat16(precision: str) -> bool:
    """Whether to compute in bfloat16 (weights stay float32): where asked, or where the hardware multiplies in it."""
    import torch

    if precision == "auto":
        if torch.cuda.is_available():
            return bool(torch.cuda.is_bf16_supported())
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return precision == "bfloat16"


def converged(losses: list[float], patience: int) -> bool:
    """Whether the last `patience` evaluations lowered the best validation loss by less than 5 %."""
    before = losses[:-patience]
    return bool(before) and min(losses) > 0.95 * min(before)


def final_loss(trainer: Any, mean_loss: float) -> float:
    """The last logged loss, or the mean of a job too short to log one. Raises DataError for a loss that is no number."""
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    for loss in (*losses[-1:], mean_loss):
        if not math.isfinite(loss):
            raise DataError(f"the loss became {loss} by step {trainer.state.global_step}; lower the learning rate")
    return losses[-1] if losses else mean_loss


def report_fields(
    config: JobConfig, trainer: Any, *, rows: int, tokens: int, seconds: float, train_loss: float
) -> dict[str, Any]:
    """The fields of TrainReport for a trainer that has come to its end after so many input tokens."""
    state = trainer.state
    evaluations = [(entry["eval_loss"], entry["step"]) for entry in state.log_history if "eval_loss" in entry]
    best_loss, best_step = min(evaluations) if evaluations else (None, state.global_step)
    return {
        "steps": state.global_step,
        "tokens": tokens,
        "rows": rows,
        "seconds": seconds,
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "train_loss": train_loss,
        "validation_loss": best_loss,
        "best_step": best_step,
        "converged": bool(config.checkpoints.patience)
        and converged([loss for loss, _ in evaluations], config.checkpoints.patience or 1),
        "checkpoint": str(config.output / "checkpoint"),
    }


def last_saved(output: Path) -> str | None:
    """The newest whole checkpoint of a killed job; half-written ones have no trainer_state.json."""
    saved = sorted((output / "saved").glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    whole = [path for path in saved if (path / "trainer_state.json").is_file()]
    return str(whole[-1]) if whole else None


def forget_saved(output: Path) -> None:
    """Remove what a job saved on its way."""
    shutil.rmtree(output / "saved", ignore_errors=True)
