"""One training job in a process of its own: `python -m components.training.job CONFIG.json`.

Into its output folder go `metrics.jsonl` (a line per logged step), `checkpoint/` (model, tokenizer, template) and
`report.json`, the last thing written. A job whose report stands returns at once; a killed one goes on from its last saved
step. A failure leaves one line in `error.json`. No Prefect, MLflow or DVC is imported here.
"""

import contextlib
import json
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from components.protocol import DataError, InfrastructureError, RatchetError

from .config import TrainConfig
from .format import TrainingRow
from .rows import SftRow, prepare, read_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


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


def run(config: TrainConfig) -> TrainReport:
    """Train, or return the report of the finished job. Raises RatchetError with one clear line."""
    finished = config.output / "report.json"
    if finished.is_file():
        return msgspec.json.decode(finished.read_bytes(), type=TrainReport)
    config.output.mkdir(parents=True, exist_ok=True)
    (config.output / "error.json").unlink(missing_ok=True)
    rows = read_rows(config.train, config.sources)
    held_out = read_rows(config.validation, None) if config.validation else []
    report = _train(config, rows, held_out)
    temporary = finished.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    temporary.replace(finished)
    return report


def _train(config: TrainConfig, rows: list[SftRow], held_out: list[SftRow]) -> TrainReport:
    import torch
    from transformers import set_seed

    if config.threads:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    model, tokenizer = _start(config, rows)
    if bfloat16(config.precision) and not torch.cuda.is_available():
        # PyTorch's fused attention on a CPU is four times slower backwards in bfloat16 than plain matrix products.
        model.set_attn_implementation("eager")
    train = prepare(rows, tokenizer, weighted=config.weighted, max_length=config.max_length)
    validation = prepare(held_out, tokenizer, weighted=False, max_length=config.max_length) if held_out else []
    trainer = _trainer(config, model, tokenizer, train, validation)
    begin = time.perf_counter()
    trainer.train(resume_from_checkpoint=_last_saved(config.output))
    seconds = time.perf_counter() - begin
    return _finish(config, trainer, tokenizer, train, seconds)


def _start(config: TrainConfig, rows: list[SftRow]) -> tuple[Any, "PreTrainedTokenizerFast"]:
    """The model and tokenizer to train: those of the base, or new ones."""
    import torch

    if config.base is not None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from components.policies.checkpoints import check

        check(config.base)
        try:
            model = AutoModelForCausalLM.from_pretrained(config.base, dtype=torch.float32)
            return model, AutoTokenizer.from_pretrained(config.base)
        except (OSError, ValueError, RuntimeError) as error:
            line = str(error).splitlines()[0]
            raise DataError(f"checkpoint {config.base} cannot be loaded: {line}; use another one") from error
    from .model import make_model
    from .tokenizer import conversation_text, fit_tokenizer

    texts = (conversation_text(row.messages, row.tools) for row in rows)
    tokenizer = fit_tokenizer(texts, config.shape.vocabulary)
    return make_model(config.shape, tokenizer, config.seed), tokenizer


def planned_steps(config: TrainConfig, train: list[TrainingRow]) -> int:
    """The steps that the configuration asks for; a token budget counts input tokens without padding."""
    mean = sum(len(row.input_ids) for row in train) / len(train)
    by_budget = max(1, round(config.token_budget / (mean * config.batch_size))) if config.token_budget else None
    limits = [limit for limit in (config.steps, by_budget) if limit is not None]
    if not limits:
        raise DataError("the training configuration has neither steps nor token_budget; set one of them")
    return min(limits)


def _trainer(
    config: TrainConfig, model: Any, tokenizer: Any, train: list[TrainingRow], validation: list[TrainingRow]
) -> Any:
    import torch
    from transformers import EarlyStoppingCallback
    from trl import SFTConfig

    from .metrics import MetricsWriter
    from .sft import WeightedCollator, WeightedSFTTrainer, as_dataset

    stopping = bool(validation and config.patience)
    arguments = SFTConfig(
        output_dir=str(config.output / "saved"),
        per_device_train_batch_size=config.batch_size,
        per_device_eval_batch_size=4 * config.batch_size,
        learning_rate=config.learning_rate,
        lr_scheduler_type={"constant": "constant_with_warmup"}.get(config.schedule, config.schedule),
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        adam_beta2=0.95,
        max_steps=planned_steps(config, train),
        eval_strategy="steps" if validation else "no",
        eval_steps=config.evaluate_every,
        save_strategy="steps",
        save_steps=config.evaluate_every if stopping else config.save_every,
        save_total_limit=2,
        load_best_model_at_end=stopping,
        metric_for_best_model="eval_loss" if stopping else None,
        logging_steps=20,
        include_num_input_tokens_seen="no",
        seed=config.seed,
        data_seed=config.seed,
        report_to="none",
        disable_tqdm=True,
        bf16=bfloat16(config.precision),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=False,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
    )
    callbacks: list[Any] = [MetricsWriter(config.output / "metrics.jsonl", mean_tokens(train) * config.batch_size)]
    if stopping:
        callbacks.append(EarlyStoppingCallback(early_stopping_patience=config.patience))
    return WeightedSFTTrainer(
        model=model,
        args=arguments,
        train_dataset=as_dataset(train),
        eval_dataset=as_dataset(validation) if validation else None,
        processing_class=tokenizer,
        data_collator=WeightedCollator(tokenizer.pad_token_id),
        callbacks=callbacks,
    )


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


def mean_tokens(rows: list[TrainingRow]) -> float:
    """Mean input tokens of a row."""
    return sum(len(row.input_ids) for row in rows) / len(rows)


def _last_saved(output: Path) -> str | None:
    """The newest whole checkpoint of a killed job; half-written ones have no trainer_state.json."""
    saved = sorted((output / "saved").glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    whole = [path for path in saved if (path / "trainer_state.json").is_file()]
    return str(whole[-1]) if whole else None


def _finish(config: TrainConfig, trainer: Any, tokenizer: Any, train: list[TrainingRow], seconds: float) -> TrainReport:
    state = trainer.state
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
    evaluations = [(entry["eval_loss"], entry["step"]) for entry in state.log_history if "eval_loss" in entry]
    if losses and not math.isfinite(losses[-1]):
        raise DataError(f"the loss became {losses[-1]} at step {state.global_step}; lower the learning rate")
    best_loss, best_step = min(evaluations) if evaluations else (None, state.global_step)
    checkpoint = config.output / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    trainer.model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    shutil.rmtree(config.output / "saved", ignore_errors=True)
    tokens = round(mean_tokens(train) * config.batch_size * state.global_step)
    return TrainReport(
        steps=state.global_step,
        tokens=tokens,
        rows=len(train),
        seconds=seconds,
        tokens_per_second=tokens / max(seconds, 1e-9),
        parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
        train_loss=losses[-1] if losses else math.nan,
        validation_loss=best_loss,
        best_step=best_step,
        converged=bool(config.patience) and converged([loss for loss, _ in evaluations], config.patience or 1),
        checkpoint=str(checkpoint),
    )


def main(path: str) -> int:
    """Run the job of a configuration file; 0, or the error's exit code with its one line in `error.json`."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    config = TrainConfig.load(Path(path))
    try:
        run(config)
    except OSError as error:
        return _failed(
            config, InfrastructureError(f"training in {config.output} stopped: {error}; free space and repeat")
        )
    except RatchetError as error:
        return _failed(config, error)
    return 0


def _failed(config: TrainConfig, error: RatchetError) -> int:
    print(f"error: {error}", file=sys.stderr)
    with contextlib.suppress(OSError):
        (config.output / "error.json").write_text(json.dumps({"message": str(error), "exit_code": error.exit_code}))
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
