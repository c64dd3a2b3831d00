"""DPO training job: trains a policy on exported pairs and writes a checkpoint and a report."""

import copy
from collections.abc import Callable
from typing import Any

from ratchet.components.core import ConfigurationError
from ratchet.components.training.config.job_config import DpoConfig
from ratchet.components.training.heartbeat import Heartbeat

from ..config.trl_options import with_trl_options
from ..model_loading import has_adapters, load_start_model
from ..run_trainer import readable_errors, run_trainer
from ..sft.train_sft import metrics_at_step
from ..train_report import TrainReport
from ..trainer_arguments import choose_attention, make_callbacks, planned_steps, prepare_torch, trainer_arguments
from .dpo_pairs import PreparedPairs, prepare_pairs, read_pairs


class DpoReport(TrainReport, frozen=True, kw_only=True):
    """`rows`: pairs trained on; `left_out`: number of excluded pairs by cause.

    `validation_accuracy`: share of validation pairs whose chosen side gained more log-probability over the reference
    than the rejected side; `validation_margin`: mean difference of these gains, times beta. Both are measured at
    `best_step`.
    """

    left_out: dict[str, int]
    validation_accuracy: float | None
    validation_margin: float | None


REPORT = DpoReport


def train(config: DpoConfig) -> DpoReport:
    """Train, or resume from the newest complete checkpoint, and return the report. Raises RatchetError with a one-line
    message.
    """
    _check_config(config)
    rows = read_pairs(config.data.train, config.dpo.level)
    held_out = read_pairs(config.data.validation, config.dpo.level) if config.data.validation else []
    prepare_torch(config)
    model, tokenizer = load_start_model(config, (), config.format.max_length)
    choose_attention(config, model)
    prepared = prepare_pairs(rows, tokenizer, config, weigh=True)
    validation = prepare_pairs(held_out, tokenizer, config, weigh=False) if held_out else None
    mean = sum(pair.tokens for pair in prepared.pairs) / len(prepared.pairs)
    with Heartbeat(config.output, config.run.heartbeat_seconds) as heartbeat, readable_errors(config.output):
        trainer = _trainer(
            config, model, tokenizer, prepared, validation, mean, lambda: heartbeat.phase("asking the reference")
        )
    tokens = mean * config.optimization.batch_size
    fields = run_trainer(config, trainer, tokenizer, rows=len(prepared.pairs), tokens_per_step=tokens)
    best = metrics_at_step(trainer, fields["best_step"])
    return DpoReport(
        **fields,
        left_out=prepared.left_out,
        validation_accuracy=best.get("eval_rewards/accuracies"),
        validation_margin=best.get("eval_rewards/margins"),
    )


def _check_config(config: DpoConfig) -> None:
    """Raise ConfigurationError for options that DPO cannot use, or a missing base model."""
    if config.model.base is None:
        raise ConfigurationError("dpo needs model.base: a policy that can act already")
    if config.data.sources is not None:
        raise ConfigurationError("data.sources has no meaning for pairs, whose sides are of two episodes; remove it")
    if config.format.chunk_long_trajectories:
        raise ConfigurationError("format.chunk_long_trajectories has no meaning for dpo: a pair is whole; remove it")


def _trainer(
    config: DpoConfig,
    model: Any,
    tokenizer: Any,
    prepared: PreparedPairs,
    validation: PreparedPairs | None,
    mean: float,
    on_reference_batch: Callable[[], None],
) -> Any:
    """Build the trainer; `mean`: mean length of a pair in tokens; `on_reference_batch`: called for each batch of reference
    log-probabilities.
    """
    from trl import DPOConfig

    from ..row_curriculum import run_order
    from .dpo_pairs import PairCollator, pairs_dataset
    from .dpo_trainer import PairTrainer

    options, batch_size = config.dpo, config.optimization.batch_size
    steps = planned_steps(config, len(prepared.pairs), mean)
    lengths = [pair.tokens for pair in prepared.pairs]
    in_memory = not options.precompute and not has_adapters(model)
    return PairTrainer(
        reference=config.output / "reference",
        on_reference_batch=on_reference_batch,
        order=run_order(
            options.curriculum, lengths, prepared.margins, steps=steps, batch_size=batch_size, seed=config.seed
        ),
        model=model,
        ref_model=copy.deepcopy(model) if in_memory else None,
        args=DPOConfig(
            **with_trl_options(
                config.trl,
                {
                    **trainer_arguments(config, steps, validated=validation is not None),
                    "max_length": None,
                    "beta": options.beta,
                    "loss_type": [options.loss],
                    "label_smoothing": options.label_smoothing,
                    "precompute_ref_log_probs": options.precompute,
                },
            )
        ),
        train_dataset=pairs_dataset(prepared.pairs),
        eval_dataset=pairs_dataset(validation.pairs) if validation else None,
        processing_class=tokenizer,
        data_collator=PairCollator(tokenizer.pad_token_id),
        callbacks=make_callbacks(config, mean * batch_size, validated=validation is not None),
    )
