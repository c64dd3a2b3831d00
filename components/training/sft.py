"""Supervised fine-tuning through TRL, with a weight per token.

At weights of one the loss is TRL's own: the summed negative log-likelihood of the assistant's tokens over their number.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from trl import SFTTrainer

from .format import IGNORE, TrainingRow
from .curriculum import RunSampler
from .weighting import weighted


class WeightedSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer with Σ w·nll / N in place of Σ nll / N, N the number of trained tokens, where a batch has `loss_weights`.

    An evaluation is exact: the mean over all tokens of the validation rows, however they are batched, as `eval_loss`,
    `eval_perplexity` (its exponential) and `eval_mean_token_accuracy`. `order`: the rows of the whole run, if not random ones.
    """

    def __init__(self, *, order: Sequence[int] | None = None, **arguments: Any) -> None:
        self.order = order
        self._measured: list[torch.Tensor] = []
        super().__init__(**arguments)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of one micro-batch; `num_items_in_batch` counts the trained tokens of the whole batch."""
        weights = inputs.pop("loss_weights", None)
        if not self.model.training:
            model = self._measuring(model)
        if weights is not None:
            model = weighted(model, tokens=weights)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _measuring(self, model: Any) -> Any:
        """The model, whose sums are kept as it is asked: (B, 3) log-likelihoods, hits, tokens of each row."""

        def call(**inputs: Any) -> Any:
            outputs = model(**inputs)
            sums = [each.sum(dim=1).double() for each in (outputs.log_probs, outputs.is_top1, outputs.label_mask)]
            self._measured.append(self.accelerator.gather_for_metrics(torch.stack(sums, dim=1)))
            return outputs

        return call

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """TRL's evaluation, with the exact means."""
        self._measured.clear()
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        likelihood, hits, tokens = torch.cat(self._measured).sum(dim=0).tolist()
        loss = -likelihood / max(tokens, 1)
        self._metrics["eval"]["mean_token_accuracy"] = [hits / max(tokens, 1)]
        output.metrics[f"{metric_key_prefix}_loss"] = loss
        output.metrics[f"{metric_key_prefix}_perplexity"] = math.exp(min(loss, 700.0))
        return output

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return super()._get_train_sampler(train_dataset) if self.order is None else RunSampler(self.order)


class WeightedCollator:
    """Rows to one batch, right-padded to the longest: input_ids, attention_mask, labels (B, T) int64; loss_weights (B, T)."""

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """One batch."""
        width = max(len(row["input_ids"]) for row in rows)

        def padded(name: str, filler: float, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor([[*row[name], *[filler] * (width - len(row[name]))] for row in rows], dtype=dtype)

        return {
            "input_ids": padded("input_ids", self.pad_token_id, torch.long),
            "attention_mask": torch.tensor(
                [[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in rows]
            ),
            "labels": padded("labels", IGNORE, torch.long),
            "loss_weights": padded("weights", 0.0, torch.float32),
        }


def as_dataset(rows: Sequence[TrainingRow]) -> Any:
    """A `datasets.Dataset` of tokenised rows."""
    from datasets import Dataset

    return Dataset.from_dict(
        {
            "input_ids": [row.input_ids for row in rows],
            "labels": [row.labels for row in rows],
            "weights": [row.weights for row in rows],
        }
    )
