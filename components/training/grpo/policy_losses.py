"""Losses of policy optimisation over flat tokens, as pure functions.

A batch is M trained tokens of several sequences, end to end: `log_probs` (M,) under the trained policy, `old_log_probs`
(M,) under the policy that sampled them, `advantages` (M,), and `sequences` (M,), the number of the sequence of each
token, from 0. Every function returns one value per token, (M,); they are summed by the weights of `loss_weights`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch

from ..config.method_sections import CorrectionMode, GrpoOptions, LossName

Level = Literal["token", "sequence"]


def sequence_sums(values: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
    """Return for each token the sum of `values` over its sequence."""
    count = int(sequences.max()) + 1 if len(sequences) else 0
    return values.new_zeros(count).index_add(0, sequences, values)[sequences]


def policy_ratio(log_ratio: torch.Tensor, sequences: torch.Tensor, level: Level) -> torch.Tensor:
    """Return the ratio of the policies. `log_ratio`: log-probability under the trained policy minus the old one's.

    `token`: each token's own ratio (PPO, Schulman et al. 2017, arXiv:1707.06347; GRPO, Shao et al. 2024,
    arXiv:2402.03300). `sequence`: the geometric mean over the sequence (GSPO, Zheng et al. 2025, arXiv:2507.18071), in
    the form of GSPO-token (eq. 14): its gradient is each token's own, so that the tokens of a sequence may have
    advantages of their own. With equal ones the gradient is that of GSPO.
    """
    if level == "token":
        return torch.exp(log_ratio)
    mean = sequence_sums(log_ratio, sequences) / sequence_sums(torch.ones_like(log_ratio), sequences)
    return torch.exp(mean.detach() + log_ratio - log_ratio.detach())


def clipped_surrogate(ratio: torch.Tensor, advantages: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Return PPO's loss, -min(r A, clip(r, 1 - low, 1 + high) A); DAPO's clip-higher is `high` above `low` (Yu et al.
    2025, arXiv:2503.14476).
    """
    return -torch.min(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def cispo(log_probs: torch.Tensor, ratio: torch.Tensor, advantages: torch.Tensor, cap: float) -> torch.Tensor:
    """Return the loss of CISPO, -sg(min(r, cap)) A log p: no token loses its gradient (MiniMax-M1, arXiv:2506.13585)."""
    return -ratio.clamp(max=cap).detach() * advantages * log_probs


def correction_weights(
    log_ratio: torch.Tensor, sequences: torch.Tensor, mode: CorrectionMode, low: float | None, high: float | None
) -> torch.Tensor:
    """Return constant importance weights from the sampling policy to the current one. `log_ratio`: log-probability under
    the current policy minus the sampler's.

    Weights are p / q of a token, or of its whole sequence (the product of its tokens'). `truncate` limits them to
    [`low`, `high`]: truncated importance sampling (TIS, Ionides 2008, "Truncated Importance Sampling"; for samplers of
    language models Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"). `mask`
    sets those outside to 0: masked importance sampling (over sequences, Liu et al. 2025, "When Speed Kills Stability").
    Modes and results are those of TRL's `vllm_importance_sampling_mode`.
    """
    log_ratio = log_ratio.detach()
    if mode == "none":
        return torch.ones_like(log_ratio)
    level, _, kind = mode.partition("_")
    weights = torch.exp(sequence_sums(log_ratio, sequences) if level == "sequence" else log_ratio)
    if kind == "truncate":
        return weights.clamp(min=low, max=high)
    outside = (weights < (0.0 if low is None else low)) | (weights > (torch.inf if high is None else high))
    return weights.masked_fill(outside, 0.0)


def loss_weights(loss: LossName, lengths: Sequence[int], max_tokens: int) -> list[float]:
    """Return the weight of a token of each of the S sequences of a step. `lengths`: trained tokens of each; `max_tokens`:
    the most that a sequence can have.

    `grpo`: equal sequences, 1 / (S L) in a sequence of L tokens (arXiv:2402.03300). `dapo`, `cispo`, `bnpo`: equal
    tokens, 1 over the number of all tokens (arXiv:2503.14476). `dr_grpo`: 1 / (S max_tokens), so that length has no
    influence (Dr. GRPO, Liu et al. 2025, arXiv:2503.20783).
    """
    count = max(1, len(lengths))
    if loss == "grpo":
        return [1.0 / (count * max(1, length)) for length in lengths]
    return [1.0 / (count * max_tokens if loss == "dr_grpo" else max(1, sum(lengths)))] * len(lengths)


class TokenTerms(NamedTuple):
    """Terms of a loss, each (M,). `values`: to be weighted and summed; `ratio`: of the surrogate; `low`, `high`: whether
    clipping removed the token's gradient; `correction`: importance weights.
    """

    values: torch.Tensor
    ratio: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    correction: torch.Tensor


def policy_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    sequences: torch.Tensor,
    options: GrpoOptions,
) -> TokenTerms:
    """Return the terms of the loss that `options` name: `loss`, `importance`, `clip`, `clip_high`, `correction`.

    Without a correction, ratio and clipping refer to the sampling policy. With one they refer to the current policy,
    and the constant weights of `correction_weights` lead there from the sampling policy: the decoupled objective
    (Hilton et al. 2022, arXiv:2110.00641; AReaL, Fu et al. 2025, arXiv:2505.24298) at one update per batch, where the
    ratio is 1 and only its gradient counts.
    """
    correction = options.correction
    mode: CorrectionMode = "none" if correction is None else correction.mode
    weights = torch.ones_like(log_probs)
    reference = old_log_probs
    if correction is not None and mode != "none":
        reference = log_probs.detach()
        weights = correction_weights(
            log_probs - old_log_probs, sequences, mode, correction.clip_min, correction.clip_max
        )
    ratio = policy_ratio(log_probs - reference, sequences, options.importance)
    if options.loss == "cispo":
        assert options.upper_clip is not None
        values = cispo(log_probs, ratio, advantages, options.upper_clip)
        high = ratio > options.upper_clip  # capped: its gradient stays
        return TokenTerms(values * weights, ratio, torch.zeros_like(high), high, weights)
    upper = options.clip if options.upper_clip is None else options.upper_clip
    values = clipped_surrogate(ratio, advantages, options.clip, upper)
    low, high = (ratio < 1 - options.clip) & (advantages < 0), (ratio > 1 + upper) & (advantages > 0)
    return TokenTerms(values * weights, ratio, low, high, weights)
