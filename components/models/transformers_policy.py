"""Policy over a local checkpoint: one batched `generate` call answers the pending turns of all running episodes.

Each row of the batch has its own random stream, by the Gumbel-max trick: adding Gumbel noise to log-probabilities and
taking the largest samples exactly from the distribution (Gumbel 1954; Maddison et al. 2014). What an episode samples
therefore depends on its seed and turn, not on its neighbours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from ratchet.components.core import DataError
from ratchet.components.core.errors import first_line

from . import checkpoint_folders
from .checkpoint_folders import is_adapter, read_adapter
from .sampled_policy import Sampled, SampledPolicy, SamplingParameters, stop_ids
from .tool_call_formats import CLOSE

CHUNK = 1 << 14
"""Noise values generated at once per row; at least those of one step."""


class SeededSampler(LogitsProcessor):  # type: ignore[misc]
    """Logits processor that perturbs scores so that greedy search samples; records log-probabilities. For one batch.

    `seeds`: one per row of the batch. `temperature` 0 leaves the search greedy.

    After `generate`, `logprobs` is a list of float32 tensors (B,), one per new token: natural log-probability of the
    sampled token at `temperature`, before `top_p` truncation. (Keeping whole distributions would exhaust GPU memory.)
    """

    def __init__(self, seeds: Sequence[int], temperature: float, top_p: float = 1.0) -> None:
        self.seeds = list(seeds)
        self.temperature = temperature
        self.top_p = top_p
        self.logprobs: list[torch.Tensor] = []
        self._generators: list[torch.Generator] = []
        self._noise: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Map scores (B, V) to perturbed scores (B, V)."""
        logprobs = torch.log_softmax(scores.float() / max(self.temperature, 1e-6), dim=-1)
        perturbed = logprobs
        if self.temperature > 0:
            perturbed = self._truncate(logprobs) + self._next_noise(scores.shape[-1], scores.device)
        self.logprobs.append(logprobs.gather(-1, perturbed.argmax(-1, keepdim=True)).squeeze(-1))
        return perturbed

    def _truncate(self, logprobs: torch.Tensor) -> torch.Tensor:
        if self.top_p >= 1:
            return logprobs
        ordered, index = logprobs.sort(dim=-1, descending=True)
        before = ordered.exp().cumsum(dim=-1) - ordered.exp()
        return ordered.masked_fill(before >= self.top_p, -torch.inf).gather(-1, index.argsort(dim=-1))

    def _next_noise(self, vocabulary: int, device: torch.device) -> torch.Tensor:
        """Return the next (B, V) standard Gumbel noise; generated in chunks, because a draw per row and step is slow."""
        if not self._noise:
            # On the scores' own device: a vocabulary of 150k pieces would else be drawn and carried over for every token.
            self._generators = self._generators or [torch.Generator(device).manual_seed(seed) for seed in self.seeds]
            steps = max(1, CHUNK // vocabulary)
            rows = [
                torch.empty(steps, vocabulary, device=device).exponential_(generator=generator)
                for generator in self._generators
            ]
            self._noise = list(torch.stack(rows, dim=1).log_().neg_().unbind(0))[::-1]
        return self._noise.pop()


class LocalSampler:
    """Samples from a causal language model in this process. `stops`: token ids that end a reply; `pad`: padding id."""

    def __init__(self, model: Any, stops: Sequence[int], pad: int) -> None:
        self.model = model
        self.stops = list(stops)
        self.context_length: int = model.config.get_text_config().max_position_embeddings
        self._pad = pad

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Return one completion per prompt; see Sampler."""
        completions: list[Sampled] = sample_batch(self.model, prompts, seeds, sampling, stops=self.stops, pad=self._pad)
        return completions


class TransformersPolicy(SampledPolicy):
    """A checkpoint, or a LoRA adapter on its base. Decoding ends at `</tool_call>` or at the end of the message.

    The batch size can change the last digit of a float, so equal tokens are guaranteed only for equal batches.
    `device`: by default CUDA if available. `threads`: CPU threads of torch in the whole process (None: unchanged).
    """

    name = "transformers"
    lockstep = True

    def __init__(
        self,
        checkpoint: Path,
        *,
        temperature: float = 0.8,
        top_p: float = 1.0,
        max_new_tokens: int = 96,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        version = checkpoint_folders.checkpoint_version(checkpoint)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.model, tokenizer = load_model(checkpoint, device)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        super().__init__(
            LocalSampler(self.model, stop_ids(tokenizer, CLOSE), pad),
            tokenizer,
            SamplingParameters(temperature, top_p, max_new_tokens),
            version=version,
        )


def load_model(checkpoint: Path, device: str) -> tuple[Any, Any]:
    """Return the model in float32 (an adapter merged into its base) and the tokenizer, padding left. Raises
    DataError if they cannot be loaded.
    """
    base = read_adapter(checkpoint).base if is_adapter(checkpoint) else checkpoint
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint_folders.tokenizer_folder(checkpoint))
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if base != checkpoint:
            model.load_adapter(str(checkpoint))
            for module in model.modules():
                if hasattr(module, "merge") and hasattr(module, "base_layer"):
                    module.merge()
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise DataError(f"checkpoint {checkpoint} cannot be loaded: {first_line(error)}; train it again") from error
    tokenizer.padding_side = "left"
    return model.to(device).eval(), tokenizer


@torch.inference_mode()  # type: ignore[untyped-decorator]
def sample_batch(
    model: Any,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[int],
    sampling: SamplingParameters,
    *,
    stops: Sequence[int],
    pad: int,
) -> list[Sampled]:
    """Return one sampled reply per prompt, in order, from one batch. Each prompt has its own seed and random stream.

    `stops`: token ids that end a reply; `pad`: id that pads prompts on the left.
    """
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    sampler = SeededSampler(seeds, sampling.temperature, sampling.top_p)
    configuration = GenerationConfig(
        max_new_tokens=sampling.max_new_tokens,
        do_sample=False,
        eos_token_id=list(stops),
        pad_token_id=pad,
        repetition_penalty=1.0,  # a hub model's own configuration may set another
        use_cache=True,
    )
    output = model.generate(
        input_ids=ids,
        attention_mask=mask,
        generation_config=configuration,
        logits_processor=LogitsProcessorList([sampler]),
        past_key_values=_shared_prefill(model, ids, mask, pad),
    )[:, width:]
    steps = output.shape[1]
    logprobs = torch.stack(sampler.logprobs[:steps], dim=1)
    stop = torch.isin(output, torch.tensor(stops, device=output.device))
    lengths = torch.where(stop.any(1), stop.int().argmax(1) + 1, torch.tensor(steps, device=output.device))
    rows = zip(output.tolist(), logprobs.tolist(), lengths.tolist(), strict=True)
    return [Sampled(tuple(row[:length]), tuple(scores[:length])) for row, scores, length in rows]


def _shared_prefill(model: Any, ids: torch.Tensor, mask: torch.Tensor, pad: int) -> Any:
    """Return the cache of all prompt tokens but the last, computed once for equal rows; None if all rows differ.

    The attempts of a task begin with equal prompts, and often read the same file: most of a prefill is otherwise repeated.
    """
    _, first, source = np.unique(torch.cat([ids, mask], 1).cpu(), axis=0, return_index=True, return_inverse=True)
    if len(first) == len(ids) or ids.shape[1] == 1:
        return None
    cache = model.generate(
        input_ids=ids[first, :-1],
        attention_mask=mask[first, :-1],
        generation_config=GenerationConfig(
            max_new_tokens=1, do_sample=False, pad_token_id=pad, use_cache=True, return_dict_in_generate=True
        ),
    ).past_key_values
    cache.reorder_cache(torch.from_numpy(source).to(ids.device))
    return cache
