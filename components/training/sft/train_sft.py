"""Supervised fine-tuning of a policy on exported rows; writes a checkpoint and a report."""

from typing import Any

from ..config.job_config import SftConfig
from ..config.trl_options import with_trl_options
from ..exported_rows import PreparedRows, prepare_rows, read_rows
from ..format.training_row import TrainingRow
from ..model_loading import load_start_model
from ..run_trainer import run_trainer
from ..scratch_model import conversation_text
from ..train_report import TrainReport
from ..trainer_arguments import choose_attention, make_callbacks, planned_steps, prepare_torch, trainer_arguments


class SftReport(TrainReport, frozen=True, kw_only=True):
    """`rows`: training rows; a conversation that is long, or whose history the chat template rewrites, counts several
    times. `sequences`: sequences of the dataset, fewer than rows if packed. `left_out`: number of rows and replies that
    were not trained, or not whole, by cause (`thought_not_rendered`: replies whose reasoning the template cannot show).

    `validation_accuracy` (of next tokens) and `validation_perplexity` are measured at `best_step`.
    """

    sequences: int
    left_out: dict[str, int]
    validation_accuracy: float | None
    validation_perplexity: float | None


REPORT = SftReport


def train(config: SftConfig) -> SftReport:
    """Train, or resume from the newest complete checkpoint, and return the report. Raises RatchetError with a one-line
    message.
    """
    rows = read_rows(config.data.train, config.data.sources)
    held_out = read_rows(config.data.validation, None) if config.data.validation else []
    prepare_torch(config)
    texts = (conversation_text(row.messages, row.tools) for row in rows)
    model, tokenizer = load_start_model(config, texts, config.format.max_length)
    choose_attention(config, model)
    prepared = prepare_rows(rows, tokenizer, config, weigh=True)
    validation = prepare_rows(held_out, tokenizer, config, weigh=False).rows if held_out else []
    sequences = _sequences(config, prepared)
    mean = sum(len(row.input_ids) for row in prepared.rows) / len(sequences)
    trainer = _trainer(config, model, tokenizer, prepared, sequences, mean, validation)
    fields = run_trainer(
        config, trainer, tokenizer, rows=len(prepared.rows), tokens_per_step=mean * config.optimization.batch_size
    )
    best = metrics_at_step(trainer, fields["best_step"])
    return SftReport(
        **fields,
        sequences=len(sequences),
        left_out=prepared.left_out,
        validation_accuracy=best.get("eval_mean_token_accuracy"),
        validation_perplexity=best.get("eval_perplexity"),
    )


def _sequences(config: SftConfig, prepared: PreparedRows) -> Any:
    """Return the training dataset, packed by TRL's best-fit decreasing if configured; rows are never cut."""
    from trl import pack_dataset

    from .sft_trainer import rows_dataset

    sequences = rows_dataset(prepared.rows)
    if not config.sft.packing:
        return sequences
    # The default batch size of 1000 would pack each 1000 rows apart from the others.
    return pack_dataset(sequences, config.format.max_length, "bfd", map_kwargs={"batch_size": len(sequences)})


def _trainer(
    config: SftConfig,
    model: Any,
    tokenizer: Any,
    prepared: PreparedRows,
    sequences: Any,
    mean: float,
    validation: list[TrainingRow],
) -> Any:
    """Build the trainer; `mean`: mean length of a sequence in tokens."""
    from trl import SFTConfig

    from ..row_curriculum import run_order
    from ..weighted_batches import RowCollator
    from .sft_trainer import WeightedSFTTrainer, rows_dataset

    batch_size = config.optimization.batch_size
    steps = planned_steps(config, len(sequences), mean)
    lengths = [len(row.input_ids) for row in prepared.rows]
    return WeightedSFTTrainer(
        order=run_order(
            config.sft.curriculum, lengths, prepared.rewards, steps=steps, batch_size=batch_size, seed=config.seed
        ),
        model=model,
        args=SFTConfig(
            **with_trl_options(
                config.trl,
                {
                    **trainer_arguments(config, steps, validated=bool(validation)),
                    "max_length": None,
                    "dataset_kwargs": {"skip_prepare_dataset": True},
                },
            )
        ),
        train_dataset=sequences,
        eval_dataset=rows_dataset(validation) if validation else None,
        processing_class=tokenizer,
        optimizers=(_optimizer(config, model), None),
        # Flash attention separates packed sequences by their position ids, and only within a single row.
        data_collator=RowCollator(
            tokenizer.pad_token_id, flat="flash" in str(getattr(model.config, "_attn_implementation", ""))
        ),
        callbacks=make_callbacks(config, mean * batch_size, validated=bool(validation)),
    )


def _optimizer(config: SftConfig, model: Any) -> Any:
    """Return the optimizer, or None for one that the trainer makes itself."""
    options = config.optimization
    if options.optimizer != "muon":
        return None
    from ..muon_optimizer import MuonWithAdamW

    return MuonWithAdamW(model, options.learning_rate, options.weight_decay)


def metrics_at_step(trainer: Any, step: int) -> dict[str, float]:
    """Return the metrics of the evaluation at optimiser step `step`, or an empty dictionary."""
    result = (entry for entry in trainer.state.log_history if entry["step"] == step and "eval_loss" in entry)
    return next(result, {})
