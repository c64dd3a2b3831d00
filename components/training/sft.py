"""Supervised fine-tuning through TRL, with a weight per token.

At weights of one the loss is TRL's own: the summed negative log-likelihood of the assistant's tokens over their number.
"""

from collections.abc import Sequence
from typing import Any

import torch
from trl import SFTTrainer

from .format import IGNORE, TrainingRow


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


class WeightedSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer with Σ w·nll / N in place of Σ nll / N, N the number of trained tokens."""

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """The loss of one micro-batch; `num_items_in_batch` counts the trained tokens of the whole batch."""
        weights = inputs.pop("loss_weights")[:, 1:]
        outputs = model(**inputs, use_cache=False, fused_lm_head=True)
        count = outputs.label_mask.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
        loss = -(outputs.log_probs * weights).sum() / count.clamp(min=1)
        return (loss, outputs) if return_outputs else loss


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
