"""A policy over a local checkpoint: one batched `generate` call answers the pending turns of all running episodes.

Each row of the batch has a random stream of its own, by the Gumbel-max trick: adding Gumbel noise to log-probabilities and
taking the largest draws exactly from the distribution (Gumbel 1954; Maddison et al. 2014), so that what an episode
draws depends on its seed and turn and not on its neighbours.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from components.protocol import DataError, Policy, PolicyReply, PolicyRequest

from .chat import encode
from .checkpoints import version
from .formats.tool_call import CLOSE, parse_calls
from .sampler import Sampled, Sampling, read_sampled, stop_ids
from .streams import stream_seed

CHUNK = 1 << 14
"""How many random numbers a row draws at a time."""


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


class TransformersPolicy(Policy):
    """Decoding stops at the end of a call: `</tool_call>` or the end of the message.

    Rows of a batch draw from streams of their own, named by the episode's seed and the turn. A batch's size still
    changes the last digit of a float, so equal tokens are promised for equal batches alone. Prompts over
    `max_prompt_tokens` are answered with `stop_reason="context"` and no call.
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
        max_prompt_tokens: int | None = None,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        self.version = version(checkpoint)
        self._sampling = Sampling(temperature, top_p, max_new_tokens)
        self.sampling = self._sampling.as_dict()
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
            self.model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).to(device).eval()
        except (OSError, ValueError, RuntimeError) as error:
            first_line = str(error).splitlines()[0]
            raise DataError(f"checkpoint {checkpoint} cannot be loaded: {first_line}; train it again") from error
        self.tokenizer.padding_side = "left"
        self.tokenizer_hash = _hash(self.tokenizer.backend_tokenizer.to_str())
        self.template_hash = _hash(self.tokenizer.chat_template)
        limit = self.model.config.max_position_embeddings - max_new_tokens
        self.max_prompt_tokens = min(limit, max_prompt_tokens or limit)
        self.stops = stop_ids(self.tokenizer, CLOSE)

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """One reply per request; see Policy."""
        prompts = [self._prompt(request) for request in requests]
        fitting = [i for i, prompt in enumerate(prompts) if len(prompt) <= self.max_prompt_tokens]
        replies = [PolicyReply("", stop_reason="context") for _ in requests]
        if fitting:
            begin = time.perf_counter()
            generated = self._generate([prompts[i] for i in fitting], [requests[i] for i in fitting])
            seconds = (time.perf_counter() - begin) / len(fitting)
            for i, sampled in zip(fitting, generated, strict=True):
                replies[i] = self._reply(requests[i], prompts[i], sampled, seconds)
        return replies

    def _prompt(self, request: PolicyRequest) -> list[int]:
        tools = [tool.as_openai() for tool in request.tools]
        ids, _ = encode(request.messages, tools, self.tokenizer, prompt=True)
        return ids

    def _generate(self, prompts: list[list[int]], requests: list[PolicyRequest]) -> list[Sampled]:
        seeds = [stream_seed(request.seed, request.turn) for request in requests]
        pad = self.tokenizer.pad_token_id
        found: list[Sampled] = draw(self.model, prompts, seeds, self._sampling, stops=self.stops, pad=pad)
        return found

    def _reply(self, request: PolicyRequest, prompt: list[int], sampled: Sampled, seconds: float) -> PolicyReply:
        reply = read_sampled(
            sampled,
            prompt,
            self.tokenizer,
            end=self.tokenizer.eos_token or "",
            stops=self.stops,
            parse=parse_calls,
            turn=request.turn,
            tools=request.tools,
        )
        return msgspec.structs.replace(reply, seconds=seconds)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def draw(
    model: Any,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[int],
    sampling: Sampling,
    *,
    stops: Sequence[int],
    pad: int,
) -> list[Sampled]:
    """One reply to each prompt by a causal model of transformers, as one batch, each row from the stream of its seed."""
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    sampler = SeededSampler(seeds, sampling.temperature, sampling.top_p)
    output = model.generate(
        input_ids=ids,
        attention_mask=mask,
        generation_config=GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=False,
            eos_token_id=list(stops),
            pad_token_id=pad,
            repetition_penalty=1.0,  # a hub model's own configuration may set another
        ),
        logits_processor=LogitsProcessorList([sampler]),
    )[:, width:]
    steps = output.shape[1]
    logprobs = torch.stack(sampler.logprobs[:steps], dim=1).gather(-1, output.unsqueeze(-1)).squeeze(-1)
    stop = torch.isin(output, torch.tensor(stops, device=output.device))
    lengths = torch.where(stop.any(1), stop.int().argmax(1) + 1, torch.tensor(steps, device=output.device))
    rows = zip(output.tolist(), logprobs.tolist(), lengths.tolist(), strict=True)
    return [Sampled(tuple(row[:length]), tuple(scores[:length])) for row, scores, length in rows]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
