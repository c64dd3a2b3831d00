"""Supervised fine-tuning of a policy: exported rows in, a checkpoint and a report out."""

from typing import Any

from .config import SftConfig
from .fit import fit
from .format import TrainingRow
from .models import start
from .rows import prepare, read_rows
from .tokenizer import conversation_text
from .trainer import TrainReport, callbacks, fit_attention, planned_steps, prepare_torch, trainer_arguments

REPORT = TrainReport


def train(config: SftConfig) -> TrainReport:
    """Train from the newest whole checkpoint on, or from the start. Raises RatchetError with one clear line."""
    rows = read_rows(config.data.train, config.data.sources)
    held_out = read_rows(config.data.validation, None) if config.data.validation else []
    prepare_torch(config)
    texts = (conversation_text(row.messages, row.tools) for row in rows)
    model, tokenizer = start(config, texts, config.format.max_length)
    fit_attention(config, model)
    train = prepare(rows, tokenizer, weighted=config.sft.weighted, max_length=config.format.max_length)
    validation = prepare(held_out, tokenizer, weighted=False, max_length=config.format.max_length) if held_out else []
    trainer = _trainer(config, model, tokenizer, train, validation)
    tokens = mean_tokens(train) * config.optimization.batch_size
    return TrainReport(**fit(config, trainer, tokenizer, rows=len(train), tokens_per_step=tokens))


def _trainer(
    config: SftConfig, model: Any, tokenizer: Any, train: list[TrainingRow], validation: list[TrainingRow]
) -> Any:
    from trl import SFTConfig

    from .sft import WeightedCollator, WeightedSFTTrainer, as_dataset

    validated = bool(validation)
    return WeightedSFTTrainer(
        model=model,
        args=SFTConfig(
            **trainer_arguments(config, planned_steps(config, len(train), mean_tokens(train)), validated=validated),
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
