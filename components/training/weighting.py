"""Weights on a model's log-probabilities, put between the model and a loss of TRL's: the loss stays TRL's own.

TRL's SFT and DPO ask the model for the log-probability of each next token and make their loss of those alone. What is multiplied
here is therefore all that a weighted loss needs, and TRL's normalisation, metrics and gradient accumulation hold for it too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .format import IGNORE


def weighted(
    model: Callable[..., Any], *, tokens: torch.Tensor | None = None, rows: torch.Tensor | None = None
) -> Callable[..., Any]:
    """The model with weighted `log_probs` (B, T - 1), its other outputs as they are.

    `tokens` (B, T) multiply them: the weight of each token of the input, of which the first is never predicted. `rows` (B,)
    multiply their gradient alone, so that a loss which is a mean over rows gives the gradient of the weighted mean, and its value
    stays the plain one.
    """

    def call(**inputs: Any) -> Any:
        outputs = model(**inputs)
        found = outputs.log_probs
        if tokens is not None:
            found = found * tokens[:, 1:].to(found)
        if rows is not None:
            found = found.detach() + rows[:, None].to(found) * (found - found.detach())
        outputs.log_probs = found
        return outputs

    return call


def is_plain(labels: Sequence[int], weights: Sequence[float]) -> bool:
    """Whether every trained token weighs 1, so that weights would change nothing."""
    return all(weight == 1.0 for label, weight in zip(labels, weights, strict=True) if label != IGNORE)
