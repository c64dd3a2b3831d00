"""Batches of rows: padded, or packed, with a weight per token where a row has any."""

from collections.abc import Sequence
from typing import Any

import torch

from .format import IGNORE


class RowCollator:
    """Rows to one batch, right-padded to the longest: `input_ids`, `attention_mask` (B, T) int64, `labels` (B, T) int64.

    Rows with `weights` give `loss_weights` (B, T) float32 too. Rows with `lengths` are packs, of sequences that long: they have
    `position_ids` (B, T) in place of a mask, which begin at 0 with each sequence, and no label where one begins. `flat` puts all
    packs of a batch into one row, as flash attention asks for.
    """

    def __init__(self, pad_token_id: int, *, flat: bool = False) -> None:
        self.pad_token_id = pad_token_id
        self.flat = flat

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """One batch."""
        packed = "lengths" in rows[0]
        if packed and self.flat:
            rows = [{name: [value for row in rows for value in row[name]] for name in rows[0]}]
        batch = {
            "input_ids": padded([row["input_ids"] for row in rows], self.pad_token_id),
            "labels": padded([row["labels"] for row in rows], IGNORE),
        }
        if packed:
            positions = [[place for length in row["lengths"] for place in range(length)] for row in rows]
            batch["position_ids"] = counted(positions)
            batch["labels"][batch["position_ids"] == 0] = IGNORE
        else:
            batch["attention_mask"] = padded([[1] * len(row["input_ids"]) for row in rows], 0)
        if "weights" in rows[0]:
            batch["loss_weights"] = padded([row["weights"] for row in rows], 0.0)
        return batch


def padded(values: Sequence[Sequence[float]], filler: float) -> torch.Tensor:
    """(B, T): rows filled up on their right to the longest. int64, or float32 for a filler that is no whole number."""
    width = max(len(row) for row in values)
    dtype = torch.long if isinstance(filler, int) else torch.float32
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in values], dtype=dtype)


def counted(positions: Sequence[list[int]]) -> torch.Tensor:
    """(B, T) int64: positions, and the padding behind them counted from 0 on, as a sequence of its own that nothing attends to."""
    width = max(len(row) for row in positions)
    return torch.tensor([[*row, *range(width - len(row))] for row in positions], dtype=torch.long)
