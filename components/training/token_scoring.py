"""Log-probabilities of given tokens under a checkpoint, as the trainers compute them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from trl.trainer.utils import add_fused_lm_head

from ratchet.components.models.transformers_policy import load_model

from .config.shared_sections import ModelOptions
from .memory_estimate import HEAD_TOKENS, HEAD_WORDS, PROCESS_BYTES, model_size


class TokenScorer:
    """A checkpoint, or a LoRA adapter on its base, on the CPU in float32, with the output layer of TRL's trainers, which
    holds a tile of logits at a time. `temperature`: what logits are divided by.

    Raises DataError if it cannot be loaded.
    """

    def __init__(self, checkpoint: Path, temperature: float) -> None:
        self._model, self.tokenizer = load_model(checkpoint, "cpu")
        add_fused_lm_head(self._model, temperature=max(temperature, 1e-6))  # 0 is greedy, as in sampling

    def log_probs(self, ids: Sequence[int]) -> list[float]:
        """Return the natural log-probability of each token but the first given those before it, length T - 1."""
        row = torch.tensor([list(ids)])
        with torch.inference_mode():
            values: list[float] = self._model(input_ids=row, labels=row, fused_lm_head=True).log_probs[0].tolist()
        return values


def scoring_memory(base: Path, tokens: int) -> int:
    """Return the bytes of a process that scores a row of `tokens` tokens with a model. Raises DataError."""
    size = model_size(ModelOptions(base=str(base)))
    tile = min(tokens, HEAD_TOKENS) * min(size.vocabulary, HEAD_WORDS)
    layer = tokens * (3 * size.intermediate + 6 * size.hidden)
    return PROCESS_BYTES + 4 * (size.parameters + 4 * tile + layer)
