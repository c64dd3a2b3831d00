"""What a step model is trained on: only the logits at the ends of steps, and of these only those with a target."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from .examples import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Collator:
    """Examples to one batch, their windows below each other and right-padded to the longest.

    `input_ids`, `attention_mask` (W, T) int64; `rows`, `columns` (K,) int64: where each end stands; `groups` (K,) int64 and
    `targets` (G,) float32: `targets[groups[k]]` belongs to end k.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """One batch."""
        windows = [window for example in examples for window in example.windows]
        width = max(len(window.input_ids) for window in windows)
        groups: list[int] = []
        targets: list[float] = []
        for example in examples:
            groups += [len(targets) + group for group in example.groups]
            targets += example.targets
        return {
            "input_ids": torch.tensor([_padded(window.input_ids, width, self.pad_token_id) for window in windows]),
            "attention_mask": torch.tensor([_padded([1] * len(window.input_ids), width, 0) for window in windows]),
            "rows": torch.tensor([row for row, window in enumerate(windows) for _ in window.ends], dtype=torch.long),
            "columns": torch.tensor([end for window in windows for end in window.ends], dtype=torch.long),
            "groups": torch.tensor(groups, dtype=torch.long),
            "targets": torch.tensor(targets, dtype=torch.float32),
        }


def pad_of(tokenizer: "PreTrainedTokenizerBase") -> int:
    """The token that fills a batch up; which one is no matter, since it is masked."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0


def _padded(values: list[int], width: int, filler: int) -> list[int]:
    return values + [filler] * (width - len(values))


def read(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits at the ends of a batch, (K,) float32."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    return at_ends(logits, batch)


def at_ends(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Of logits (W, T, 1) those at the ends, (K,) float32. No other position has a gradient."""
    return logits[batch["rows"], batch["columns"], 0].float()


def step_loss(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Binary cross-entropy with soft targets, the mean over ends: -[y ln σ(z) + (1 - y) ln(1 - σ(z))]."""
    return functional.binary_cross_entropy_with_logits(logits, batch["targets"][batch["groups"]])


def totals(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The sum of the contributions tanh(z) of each group, (G,): what the steps of an episode make together."""
    return torch.zeros_like(batch["targets"]).index_add(0, batch["groups"], torch.tanh(logits))


def sum_loss(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The mean squared difference of an episode's summed contributions and its outcome (SPA, Wang et al. 2025)."""
    return functional.mse_loss(totals(logits, batch), batch["targets"])
