"""Training job of a step model: trains it on episodes and labels, and writes a checkpoint and a report."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from ratchet.components.core import DataError
from ratchet.components.rewards.calibration.labelled_scores import auroc
from ratchet.components.training.config.job_config import PrmConfig

from ..config.trl_options import with_trl_options
from ..run_trainer import run_trainer
from ..train_report import TrainReport
from ..trainer_arguments import choose_attention, make_callbacks, prepare_torch, trainer_arguments
from .episode_windows import frame_pattern, text_pieces
from .step_examples import MAX_WINDOWS, StepCorpus, StepExample, make_examples, read_corpus, split_families
from .step_model import (
    StepCollator,
    pad_token,
    start_step_model,
    step_logits,
    step_loss,
    sum_loss,
    summed_contributions,
)
from .step_model_card import StepModelCard, save_step_model

GOOD_STEP = 0.5
"""Targets and scores of at least this count as good."""


def brier(scores: Sequence[float], targets: Sequence[float]) -> float:
    """Return the Brier score: the mean squared difference between scores and targets."""
    return sum((score - target) ** 2 for score, target in zip(scores, targets, strict=True)) / len(scores)


def accuracy(scores: Sequence[float], targets: Sequence[float]) -> float:
    """Return the share of steps whose score and target are both at least GOOD_STEP, or both below it."""
    right = sum((score >= GOOD_STEP) == (target >= GOOD_STEP) for score, target in zip(scores, targets, strict=True))
    return right / len(scores)


class PrmTrainer(Trainer):  # type: ignore[misc]
    """Trainer of step models whose evaluation weights every held-out step equally.

    `summed`: train contributions that sum to each episode's outcome; otherwise each step has its own target.
    """

    def __init__(self, *, summed: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.summed = summed

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Return the loss of one batch."""
        logits = step_logits(model, inputs)
        loss = sum_loss(logits, inputs) if self.summed else step_loss(logits, inputs)
        return (loss, {"logits": logits}) if return_outputs else loss

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return loss, Brier score, accuracy and, if both classes occur, AUROC of the held-out steps, or with `summed`
        of the sums of episodes. Keys begin with `metric_key_prefix`.
        """
        self.model.eval()
        scores, targets, losses = [], [], []
        with torch.no_grad():
            for batch in self.get_eval_dataloader(eval_dataset):
                batch = self._prepare_inputs(batch)
                with self.compute_loss_context_manager():
                    logits = step_logits(self.model, batch)
                result, batch_targets, loss = self._measured(logits, batch)
                scores += result.tolist()
                targets += batch_targets.tolist()
                losses += loss.tolist()
        metrics = {"loss": sum(losses) / len(losses), "brier": brier(scores, targets)}
        metrics["accuracy"] = accuracy(scores, targets)
        if (found_auroc := auroc(scores, targets)) is not None:
            metrics["auroc"] = found_auroc
        named = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        self.log(named)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, named)
        return named

    def _measured(
        self, logits: torch.Tensor, batch: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return scores, targets and losses of a batch, one each per step or episode."""
        if self.summed:
            sums = summed_contributions(logits, batch)
            return sums, batch["targets"], (sums - batch["targets"]) ** 2
        targets = batch["targets"][batch["groups"]]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return torch.sigmoid(logits), targets, losses


class PrmReport(TrainReport, frozen=True, kw_only=True):
    """`rows`: number of training examples; `labelled`: number of their targets; the metrics are those of held-out
    steps, None without any.

    `left_out`: number of excluded episodes by cause. `judge`: name under which the model's judgements are recorded.
    """

    episodes: int
    labelled: int
    held_out_episodes: int
    held_out_labelled: int
    auroc: float | None
    brier: float | None
    accuracy: float | None
    left_out: dict[str, int]
    judge: str


REPORT = PrmReport


def train(config: PrmConfig) -> PrmReport:
    """Train, or resume from the newest complete checkpoint, and return the report. Raises RatchetError with a one-line
    message.
    """
    corpus = read_corpus(config)
    learned, held_out = split_families(
        [trajectory.task for trajectory, _ in corpus.episodes], config.data.held_out, config.seed
    )
    prepare_torch(config)
    # A tokenizer from scratch is fitted on training episodes alone.
    episodes = (corpus.episodes[index][0] for index in learned)
    texts = (piece.text for trajectory in episodes for piece in text_pieces(trajectory, frame_pattern(())))
    model, tokenizer = start_step_model(config, texts)
    choose_attention(config, model)
    rows = _examples(corpus, learned, tokenizer, config)
    validation = _examples(corpus, held_out, tokenizer, config)
    trainer = _trainer(config, model, tokenizer, rows, validation)
    metrics: dict[str, float] = {}
    cards: list[StepModelCard] = []

    def write(trainer: Any) -> None:
        if validation:
            metrics.update({name.removeprefix("eval_"): value for name, value in trainer.evaluate().items()})
        card = StepModelCard(
            objective=config.prm.objective,
            of_success=config.prm.objective != "value" or not config.data.labels,
            max_length=config.format.max_length,
            figures=metrics,
            replies=config.prm.replies,
            tasksets=tuple(sorted({corpus.episodes[index][0].task.taskset for index in learned})),
        )
        cards.append(save_step_model(config.output / "checkpoint", card, trainer.model, tokenizer))

    tokens = _mean_tokens(rows) * config.optimization.batch_size
    fields = run_trainer(config, trainer, tokenizer, rows=len(rows), tokens_per_step=tokens, save=write)
    fields["validation_loss"] = metrics.get("loss")
    return PrmReport(
        **fields,
        episodes=len(learned),
        labelled=sum(len(row.targets) for row in rows),
        held_out_episodes=len(held_out),
        held_out_labelled=sum(len(row.targets) for row in validation),
        auroc=metrics.get("auroc"),
        brier=metrics.get("brier"),
        accuracy=metrics.get("accuracy"),
        left_out=_count_left_out(corpus, len(rows) + len(validation), config),
        judge=cards[0].judge,
    )


def _count_left_out(corpus: StepCorpus, used: int, config: PrmConfig) -> dict[str, int]:
    """Count the episodes that were neither trained nor evaluated on, by cause."""
    long = len(corpus.episodes) - used if config.prm.objective == "sum_decomposition" else 0
    return {**corpus.left_out, f"longer than {MAX_WINDOWS} windows": long} if long else corpus.left_out


def _examples(corpus: StepCorpus, chosen: Sequence[int], tokenizer: Any, config: PrmConfig) -> list[StepExample]:
    result = make_examples((corpus.episodes[index] for index in chosen), tokenizer, config)
    if chosen and not result:
        raise DataError(
            f"none of {len(chosen)} episodes can be learned from as a whole within max_length {config.format.max_length}; raise it"
        )
    return result


def _trainer(
    config: PrmConfig, model: Any, tokenizer: Any, rows: list[StepExample], validation: list[StepExample]
) -> Any:
    validated = bool(validation)
    return PrmTrainer(
        summed=config.prm.objective == "sum_decomposition",
        model=model,
        args=TrainingArguments(
            **with_trl_options(config.trl, trainer_arguments(config, config.optimization.steps, validated=validated))
        ),
        train_dataset=rows,
        eval_dataset=validation or None,
        processing_class=tokenizer,
        data_collator=StepCollator(pad_token(tokenizer)),
        callbacks=make_callbacks(config, _mean_tokens(rows) * config.optimization.batch_size, validated=validated),
    )


def _mean_tokens(rows: Sequence[StepExample]) -> float:
    return sum(row.tokens for row in rows) / len(rows)
