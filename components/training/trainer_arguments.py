"""Arguments, callbacks and torch settings that every training job shares."""

import importlib.util
import math
import os
from typing import Any

from ratchet.components.core import ConfigurationError, DataError

from .checkpoint_io import intermediate_checkpoint_folder
from .config.job_config import JobConfig
from .gpu_memory import micro_batch
from .model_loading import uses_bfloat16
from .train_report import lower_is_better


def process_count() -> int:
    """Return the number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def process_index() -> int:
    """Return the number of this process among those that train together; 0 plays and writes."""
    return int(os.environ.get("RANK") or 0)


def planned_steps(config: JobConfig, rows: int, tokens: float, updates: int = 1) -> int:
    """Return the number of optimiser steps of a job with `rows` rows of `tokens` input tokens on average. `updates`:
    optimiser steps on each batch of an epoch.

    Raises DataError if the configuration names neither steps, epochs nor a token budget.
    """
    options = config.optimization
    limits = [options.steps] if options.steps else []
    if options.token_budget:
        limits.append(max(1, round(options.token_budget / (tokens * options.batch_size))))
    if options.epochs:
        limits.append(max(1, math.ceil(options.epochs * math.ceil(rows / options.batch_size) * updates)))
    if not limits:
        raise DataError("optimization has neither steps nor token_budget nor epochs; set one of them")
    return min(limits)


def trainer_arguments(config: JobConfig, steps: int, *, validated: bool) -> dict[str, Any]:
    """Return the keyword arguments of TrainingArguments for `steps` optimiser steps. `validated`: whether there is a
    validation set, which early stopping by an evaluation metric needs.
    """
    import torch

    options, keep = config.optimization, config.checkpoints
    stopping = validated and keep.patience is not None
    return {
        "output_dir": str(intermediate_checkpoint_folder(config.output)),
        **_batch_arguments(config),
        **_optimizer_argument(config),
        "learning_rate": options.learning_rate,
        "lr_scheduler_type": {"constant": "constant_with_warmup"}.get(options.schedule, options.schedule),
        "warmup_steps": options.warmup_steps,
        "weight_decay": options.weight_decay,
        "max_grad_norm": options.max_grad_norm,
        "adam_beta2": 0.95,
        "max_steps": steps,
        "eval_strategy": "steps" if validated else "no",
        "eval_steps": keep.evaluate_every,
        "save_strategy": "steps",
        "save_steps": keep.evaluate_every if stopping else keep.save_every,
        "save_total_limit": 2,
        **_best_model_arguments(config, stopping),
        "logging_steps": 20,
        "logging_nan_inf_filter": False,  # the default logs a NaN loss as the mean of earlier ones, and hides it
        "include_num_input_tokens_seen": "no",
        "seed": config.seed,
        "data_seed": config.seed,
        "report_to": "none",
        "disable_tqdm": True,
        "bf16": uses_bfloat16(config.model.precision),
        **_checkpointing_argument(config),
        "use_cpu": not torch.cuda.is_available(),
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
    }


def _checkpointing_argument(config: JobConfig) -> dict[str, bool]:
    """Return the argument for gradient checkpointing, which TRL turns on by default."""
    from transformers import TrainingArguments

    # transformers 5.23 renamed it and warns of the old name; older versions know only that.
    names = ("activation_checkpointing", "gradient_checkpointing")
    name = next(item for item in names if item in TrainingArguments.__dataclass_fields__)
    return {name: config.model.gradient_checkpointing}


def _optimizer_argument(config: JobConfig) -> dict[str, str]:
    """Return the argument for an optimizer other than the default. Raises ConfigurationError without its package."""
    if config.optimization.optimizer != "adamw_8bit":
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigurationError("optimizer: adamw_8bit needs the package bitsandbytes; install it, or set adamw")
    return {"optim": "adamw_8bit"}


def _batch_arguments(config: JobConfig) -> dict[str, int]:
    """Return batch sizes per process and accumulation steps. Raises ConfigurationError if the batch cannot be divided."""
    # The global batch stays the same on any number of processes: the same run, only faster.
    count, batch = process_count(), config.optimization.batch_size
    if batch % count:
        raise ConfigurationError(f"batch_size {batch} cannot be dealt to {count} processes; take a multiple of {count}")
    # A configured micro_batch may exceed the share of one process.
    size = min(micro_batch(config, count), batch // count)
    if batch % (count * size):
        raise ConfigurationError(
            f"batch_size {batch} cannot be dealt to {count} processes; take a multiple of {count * size}"
        )
    return {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": batch // (count * size),
        "per_device_eval_batch_size": 4 * size,
    }


def _best_model_arguments(config: JobConfig, stopping: bool) -> dict[str, Any]:
    if not stopping:
        return {"load_best_model_at_end": False}
    figure = config.checkpoints.best_by
    return {
        "load_best_model_at_end": True,
        "metric_for_best_model": f"eval_{figure}",
        "greater_is_better": not lower_is_better(figure),
    }


def make_callbacks(config: JobConfig, tokens_per_step: float, *, validated: bool) -> list[Any]:
    """Return the metrics writer, the check for non-finite numbers and, with `patience`, early stopping by a validation
    set or by a training metric. Training loss cannot stop a job: it keeps falling.

    `tokens_per_step`: mean input tokens of an optimiser step, 0 if unknown beforehand; `validated`: whether there is a
    validation set.
    """
    from .trainer_callbacks import CandidateWriter, EarlyStopping, FiniteCheck, MetricsWriter, WindowEarlyStopping

    keep = config.checkpoints
    result: list[Any] = [MetricsWriter(config.output / "metrics.jsonl", tokens_per_step), FiniteCheck()]
    if validated and keep.patience:
        result.append(EarlyStopping(keep.patience, keep.best_by))
    elif keep.patience and keep.best_by != "loss":
        # Before FiniteCheck, which checks the weights whenever a save was requested.
        result.insert(0, WindowEarlyStopping(keep.best_by, keep.evaluate_every, keep.patience))
    return [*result, CandidateWriter(config)] if keep.candidates else result


def prepare_torch(config: JobConfig) -> None:
    """Set the number of CPU threads, if configured, and all random seeds."""
    import torch
    from transformers import set_seed

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    set_seed(config.seed)


FLASH_PACKAGES = {"flash_attention_3": "flash-attn-3", "flash_attention_2": "flash-attn"}
"""The package that each flash attention of transformers needs; the faster first."""


def choose_attention(config: JobConfig, model: Any) -> None:
    """Switch the model to the attention of `model.attention`; with `auto`, to one that trains faster than the default on
    this hardware. Raises ConfigurationError for one that lacks its package or device, or that the model does not have.
    """
    name = config.model.attention
    if name == "auto":
        if (fastest := _fastest_attention(config, model)) is not None:
            model.set_attn_implementation(fastest)
        return
    if reason := _missing_for_attention(config, name):
        raise ConfigurationError(f"model.attention: {name} {reason}, or set auto")
    try:
        model.set_attn_implementation(name)
    except (ValueError, ImportError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigurationError(f"model.attention: {name} is not for this model: {first_line}; set auto") from error


def _fastest_attention(config: JobConfig, model: Any) -> str | None:
    import torch

    if not torch.cuda.is_available():
        # PyTorch's fused attention on a CPU is four times slower backwards in bfloat16 than plain matrix products.
        return "eager" if uses_bfloat16(config.model.precision) else None
    # Other methods also run the model outside autocast, where float32 weights give float32 queries: no flash attention.
    if config.method != "sft" or not getattr(model, "_supports_flash_attn", False):
        return None
    return next((name for name in FLASH_PACKAGES if _missing_for_attention(config, name) is None), None)


def _missing_for_attention(config: JobConfig, name: str) -> str | None:
    """Return what an attention implementation needs and this job or machine lacks; None if nothing."""
    import torch
    from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

    if name in ("eager", "sdpa"):
        return None
    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU, and there is none; set sdpa"
    if name not in FLASH_PACKAGES:
        return None
    if not uses_bfloat16(config.model.precision):
        return "computes in bfloat16 alone; set model.precision: bfloat16"
    there = is_flash_attn_3_available() if name == "flash_attention_3" else is_flash_attn_2_available()
    return None if there else f"needs the package {FLASH_PACKAGES[name]}; install it"
