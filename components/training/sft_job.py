"""Supervised fine-tuning of a policy: exported rows in, a checkpoint and a report out."""

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.protocol import DataError

from .config import SftConfig
from .format import TrainingRow
from .rows import SftRow, prepare, read_rows
from .trainer import (
    TrainReport,
    callbacks,
    final_loss,
    fit_attention,
    forget_saved,
    last_saved,
    prepare_torch,
    report_fields,
    trainer_arguments,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

REPORT = TrainReport


def train(config: SftConfig) -> TrainReport:
    """Train from the newest whole checkpoint on, or from the start. Raises RatchetError with one clear line."""
    rows = read_rows(config.data.train, config.data.sources)
    held_out = read_rows(config.data.validation, None) if config.data.validation else []
    prepare_torch(config)
    model, tokenizer = _start(config, rows)
    fit_attention(config, model)
    train = prepare(rows, tokenizer, weighted=config.sft.weighted, max_length=config.format.max_length)
    validation = prepare(held_out, tokenizer, weighted=False, max_length=config.format.max_length) if held_out else []
    trainer = _trainer(config, model, tokenizer, train, validation)
    begin = time.perf_counter()
    mean_loss = trainer.train(resume_from_checkpoint=last_saved(config.output)).training_loss
    seconds = time.perf_counter() - begin
    return _finish(config, trainer, tokenizer, train, seconds, mean_loss)


def _start(config: SftConfig, rows: list[SftRow]) -> tuple[Any, "PreTrainedTokenizerFast"]:
    """The model and tokenizer to train: those of the base, or new ones."""
    import torch

    if config.model.base is not None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from components.policies.checkpoints import check

        check(Path(config.model.base))
        try:
            model = AutoModelForCausalLM.from_pretrained(config.model.base, dtype=torch.float32)
            return model, AutoTokenizer.from_pretrained(config.model.base)
        except (OSError, ValueError, RuntimeError) as error:
            line = str(error).splitlines()[0]
            raise DataError(f"checkpoint {config.model.base} cannot be loaded: {line}; use another one") from error
    from .model import make_model
    from .tokenizer import conversation_text, fit_tokenizer

    texts = (conversation_text(row.messages, row.tools) for row in rows)
    tokenizer = fit_tokenizer(texts, config.model.shape.vocabulary)
    return make_model(config.model.shape, tokenizer, config.seed), tokenizer


def planned_steps(config: SftConfig, train: list[TrainingRow]) -> int:
    """The steps that the configuration asks for; a token budget counts input tokens without padding."""
    mean = sum(len(row.input_ids) for row in train) / len(train)
    by_budget = (
        max(1, round(config.optimization.token_budget / (mean * config.optimization.batch_size)))
        if config.optimization.token_budget
        else None
    )
    limits = [limit for limit in (config.optimization.steps, by_budget) if limit is not None]
    if not limits:
        raise DataError("the training configuration has neither steps nor token_budget nor epochs; set one of them")
    return min(limits)


def _trainer(
    config: SftConfig, model: Any, tokenizer: Any, train: list[TrainingRow], validation: list[TrainingRow]
) -> Any:
    from trl import SFTConfig

    from .sft import WeightedCollator, WeightedSFTTrainer, as_dataset

    validated = bool(validation)
    return WeightedSFTTrainer(
        model=model,
        args=SFTConfig(
            **trainer_arguments(config, planned_steps(config, train), validated=validated),
            gradient_checkpointing=False,  # TRL's own default recomputes every layer, which a small model has no need of
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=as_dataset(train),
        eval_dataset=as_dataset(validation) if validation else None,
        processing_class=tokenizer,
        data_collator=WeightedCollator(tokenizer.pad_token_id),
        callbacks=callbacks(config, mean_tokens(train) * config.optimization.batch_size, validated=validated),
    )


def mean_tokens(rows: list[TrainingRow]) -> float:
    """Mean input tokens of a row."""
    return sum(len(row.input_ids) for row in rows) / len(rows)


def _finish(
    config: SftConfig, trainer: Any, tokenizer: Any, train: list[TrainingRow], seconds: float, mean_loss: float
) -> TrainReport:
    loss = final_loss(trainer, mean_loss)
    checkpoint = config.output / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    trainer.model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    forget_saved(config.output)
    tokens = round(mean_tokens(train) * config.optimization.batch_size * trainer.state.global_step)
    return TrainReport(
        **report_fields(config, trainer, rows=len(train), tokens=tokens, seconds=seconds, train_loss=loss)
    )
