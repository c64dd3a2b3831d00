"""Sampling with a random stream per row: the Gumbel-max trick inside one batched `generate` call.

Adding Gumbel noise to log-probabilities and taking the largest draws exactly from the distribution (Gumbel 1954;
Maddison et al. 2014). Each row's noise comes from a generator of its own, so that what an episode draws
depends on its seed and turn and not on its neighbours in the batch.
"""

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor

CHUNK = 1 << 14


class SeededSampler(LogitsProcessor):  # type: ignore[misc]
    """Turns scores into perturbed scores, of which greedy search takes the largest; keeps the log-probabilities.

    `logprobs` after `generate`: a list of float32 tensors (B, V), natural logarithm, one per new token, at `temperature`
    and before `top_p` cuts the tail.
    """

    def __init__(self, seeds: Sequence[int], temperature: float, top_p: float = 1.0) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.temperature = temperature
        self.top_p = top_p
        self.logprobs: list[torch.Tensor] = []
        self._noise: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores (B, V) to perturbed scores (B, V)."""
        logprobs = torch.log_softmax(scores.float() / max(self.temperature, 1e-6), dim=-1)
        self.logprobs.append(logprobs)
        if self.temperature == 0:
            return logprobs
        return self._truncate(logprobs) + self._next_noise(scores.shape[-1]).to(scores.device)

    def _truncate(self, logprobs: torch.Tensor) -> torch.Tensor:
        if self.top_p >= 1:
            return logprobs
        ordered, index = logprobs.sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(dim=-1) - ordered.exp()
        return ordered.masked_fill(before >= self.top_p, -torch.inf).gather(-1, index.argsort(dim=-1))

    def _next_noise(self, vocabulary: int) -> torch.Tensor:
        """The next (B, V) of standard Gumbel noise; drawn some steps ahead, since a draw per row and step is slow."""
        if not self._noise:
            steps = max(1, CHUNK // vocabulary)
            rows = [torch.empty(steps, vocabulary).exponential_(generator=each) for each in self.generators]
            self._noise = list(torch.stack(rows, dim=1).log_().neg_().unbind(0))[::-1]
        return self._noise.pop()
