"""Policy sampled by vLLM whose prompts are rendered here, byte for byte as in training.

`VllmSampler` sends and receives token ids over vLLM's HTTP API; no text is tokenised on the way.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, PolicyReply, PolicyRequest
from ratchet.components.core.errors import first_line

from . import adapter_loading, checkpoint_folders
from .chat_completion import FAILED_FINISH_REASONS, decode_json
from .checkpoint_folders import is_adapter
from .endpoint import ContextExceeded, Endpoint, MalformedAnswer, ModelUnavailable, RequestRefused
from .http_client import ModelClient
from .model_server import ModelServer
from .policy_config import VllmConfig
from .sampled_policy import Sampled, SampledPolicy, SamplingParameters, stop_ids
from .server_probe import engine_python
from .tool_call_formats import CLOSE
from .vllm_options import check_vllm_options, vllm_command_line


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    """The used part of a `/completions` response."""

    choices: list[_Choice] | None = None


class VllmSampler:
    """Samples from the endpoint's model. Each row is a separate request with its own seed.

    Log-probabilities are those of the sampled distribution: with `top_p`, normalised over the kept tokens. Before the
    first draw the server is checked for `--logprobs-mode processed_logprobs` and rejected without it. Only `stops` end
    a reply, regardless of the checkpoint's generation configuration.
    """

    def __init__(self, endpoint: Endpoint, stops: Sequence[int]) -> None:
        self.stops = list(stops)
        self.model = endpoint.model
        self.client = ModelClient(endpoint)
        self._adapters: list[str] = []

    @cached_property
    def context_length(self) -> int:
        """Maximum tokens of prompt and reply together. Raises ConfigurationError for a server other than vLLM."""
        models = adapter_loading.list_models(self.client)
        limits = [item.max_model_len for item in models if item.max_model_len]
        if not limits:
            raise ConfigurationError(
                f"the server at {self.client.config.base_url} does not tell its context; it must be a vLLM server"
            )
        self._require_processed(models[0].id)
        return min(limits)

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Return one completion per prompt; see Sampler. Raises ModelUnavailable, RequestRefused, ConfigurationError."""
        _ = self.context_length  # its first use checks the server's log-probability mode
        bodies = [self._body(prompt, seed, sampling) for prompt, seed in zip(prompts, seeds, strict=True)]
        if len(bodies) == 1:
            return [self._ask(bodies[0])]
        with ThreadPoolExecutor(max(1, min(len(bodies), self.client.config.concurrency))) as pool:
            return list(pool.map(self._ask, bodies))

    def load(self, name: str, folder: Path, *, keep: int = 0) -> None:
        """Load the adapter in `folder` under `name`, sample from it from now on, and unload those loaded before but the
        last `keep`, from which requests in flight may still be sampled. A name must never be reused for other weights.
        """
        if name in self._adapters[-1:]:
            return
        adapter_loading.load_adapter(self.client, name, folder)
        self.model = name
        self._adapters.append(name)
        while len(self._adapters) > keep + 1:
            adapter_loading.unload_adapter(self.client, self._adapters.pop(0))

    def close(self) -> None:
        """Cancel requests in flight. Idempotent."""
        self.client.close()

    def _body(self, prompt: Sequence[int], seed: int, sampling: SamplingParameters) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed,
            "stop_token_ids": self.stops,
            "logprobs": 0,
            "return_token_ids": True,
            # A checkpoint's generation_config.json would otherwise set these behind our back.
            **{"ignore_eos": True, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
        }

    def _ask(self, body: dict[str, Any]) -> Sampled:
        def read(answer: bytes) -> Sampled:
            return _sampled(answer, body["prompt"])

        try:
            return self.client.post(f"{self.client.config.base_url}/completions", body, read)
        except ContextExceeded as error:
            raise RequestRefused(
                f"a prompt of {len(body['prompt'])} tokens and {body['max_tokens']} new ones exceed the server's context; "
                "lower the episode's tokens, or start the server with a longer --max-model-len"
            ) from error

    def _require_processed(self, model: str) -> None:
        """Check the log-probability mode: with a single allowed token it must be 0, unless the server reports the raw
        distribution.
        """
        only = self.stops[0]
        body = self._body([only], 0, SamplingParameters(1.0, 1.0, 1)) | {"model": model, "allowed_token_ids": [only]}
        if abs(self._ask(body).logprobs[0]) > 1e-3:
            raise ConfigurationError(
                f"the server at {self.client.config.base_url} tells log-probabilities of what it does not draw from; start it with "
                "--logprobs-mode processed_logprobs, as `ratchet serve` does"
            )


def _sampled(answer: bytes, prompt: list[int]) -> Sampled:
    """Parse the completion in a response. Raises MalformedAnswer."""
    choices = decode_json(answer, _Completion).choices
    if not choices:
        raise MalformedAnswer("its answer has no choices")
    choice = choices[0]
    if choice.finish_reason in FAILED_FINISH_REASONS:
        raise MalformedAnswer("it broke off the generation")
    logprobs = (choice.logprobs.token_logprobs if choice.logprobs else None) or []
    ids = choice.token_ids
    if not ids or len(ids) != len(logprobs):
        raise MalformedAnswer("its answer has no token ids with log-probabilities: is it a vLLM server?")
    if choice.prompt_token_ids not in (None, prompt):
        raise MalformedAnswer("it read another prompt than it was sent")
    present = tuple(item for item in logprobs if item is not None)
    if len(present) != len(ids):
        raise MalformedAnswer("its answer leaves out a log-probability")
    return Sampled(tuple(ids), present)


class VllmPolicy(SampledPolicy):
    """Policy sampled by vLLM, on the server at `config.base_url` or on one that the constructor starts and `close`
    stops.

    Its version is the checkpoint's, as with `TransformersPolicy`: the engine does not change the policy.

    Raises ConfigurationError for a server of another model, ModelUnavailable, DataError for a broken checkpoint.
    """

    name = "vllm"

    def __init__(
        self, config: VllmConfig, *, temperature: float = 0.8, top_p: float = 1.0, max_new_tokens: int = 96
    ) -> None:
        version = checkpoint_folders.checkpoint_version(config.checkpoint)
        tokenizer = _tokenizer(config.checkpoint)
        self._server = _started(config)
        self._keep_log = config.log is not None
        base_url = self._server.base_url if self._server else config.base_url
        assert base_url is not None
        self._sampler: VllmSampler | None = None
        try:
            self._sampler = VllmSampler(config.endpoint(base_url, version), stop_ids(tokenizer, CLOSE))
            if self._server is None:
                _require(self._sampler, version, config.checkpoint)
            super().__init__(
                self._sampler, tokenizer, SamplingParameters(temperature, top_p, max_new_tokens), version=version
            )
        except BaseException:
            self.close()
            raise

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return one reply per request; see Policy. Raises ModelUnavailable, with the cause from the log of a server
        started here.
        """
        try:
            return super().act(requests)
        except ModelUnavailable:
            if self._server is not None:
                self._keep_log = True
                self._server.check()
            raise

    def close(self) -> None:
        """Cancel requests in flight and stop the server if it was started here. Idempotent. A log without errors is
        removed.
        """
        if self._sampler is not None:
            self._sampler.close()
        if self._server is not None:
            self._server.stop()
            if not self._keep_log:
                self._server.log.unlink(missing_ok=True)


def _started(config: VllmConfig) -> ModelServer | None:
    if config.base_url is not None:
        return None
    python = config.python or engine_python("vllm")
    check_vllm_options(config.options, python)
    return ModelServer(
        config.checkpoint,
        python=python,
        log=config.log,
        arguments=vllm_command_line(config.options),
        on_progress=lambda line: print(line, file=sys.stderr, flush=True),
    ).start()


def _require(sampler: VllmSampler, version: str, checkpoint: Path) -> None:
    """Make the server serve the checkpoint: adapters are loaded, other models must match what it was started with."""
    names = [item.id for item in adapter_loading.list_models(sampler.client)]
    if version in names:
        return
    if is_adapter(checkpoint):
        sampler.load(version, checkpoint)
        return
    raise ConfigurationError(
        f"the server at {sampler.client.config.base_url} serves {', '.join(names) or 'nothing'} and not {version} ({checkpoint}); "
        "start one with `ratchet serve`"
    )


def _tokenizer(checkpoint: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(checkpoint_folders.tokenizer_folder(checkpoint))
    except (OSError, ValueError) as error:
        raise DataError(
            f"the tokenizer of {checkpoint} cannot be loaded: {first_line(error)}; train it again"
        ) from error
