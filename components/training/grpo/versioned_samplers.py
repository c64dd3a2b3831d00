"""Samplers whose weights change while episodes are played: each reply carries the version of its weights.

`BatchingSampler` samples from a model in this process. Threads of many episodes ask it; one thread of its own samples
their requests in batches and replaces the weights between two batches, so that no batch mixes versions and no thread
reads weights while they change. `ServedSampler` passes each request to a vLLM server, which batches by itself.
"""

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.errors import first_line
from ratchet.components.models.sampled_policy import Sampled, Sampler, SamplingParameters
from ratchet.components.models.vllm_policy import VllmSampler

CLOSE_SECONDS = 30.0
GATHER_SECONDS = 0.005
"""How long the first request of a batch waits for others: episodes that end a turn together are sampled together."""


class VersionedSampler(Sampler, Protocol):
    """A sampler whose `sample` is called by many threads. A reply has the version of the weights that it began with."""

    def publish(self, version: int) -> None:
        """Sample every request that arrives from now on with the weights that were transferred last, or newer ones."""

    def busy_seconds(self) -> float:
        """Return for how long the running batch has been sampled; 0 if there is none."""

    def close(self) -> None:
        """End all requests with an InfrastructureError. Idempotent."""


class _Request(msgspec.Struct, eq=False):
    prompt: Sequence[int]
    seed: int
    sampling: SamplingParameters
    reply: Future[Sampled]


class BatchingSampler:
    """Joins requests into batches of at most `size`. `model`: the module that `sampler` samples from; no other code may
    use it.
    """

    def __init__(self, sampler: Sampler, model: Any, size: int) -> None:
        self.stops, self.context_length = sampler.stops, sampler.context_length
        self._sampler, self._model, self._size = sampler, model, size
        self._version = 0
        self._staged: Mapping[str, Any] | None = None
        self._published: tuple[int, Mapping[str, Any] | None] | None = None
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._began: float | None = None
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self._thread.start()

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Return one completion per prompt, see Sampler. Raises InfrastructureError if the model fails or is closed."""
        requests = [_Request(prompt, seed, sampling, Future()) for prompt, seed in zip(prompts, seeds, strict=True)]
        with self._changed:
            if self._closed:
                raise InfrastructureError("the sampler is closed")
            self._waiting.extend(requests)
            self._changed.notify()
        return [request.reply.result() for request in requests]

    def stage(self, weights: Mapping[str, Any]) -> None:
        """Hold weights by parameter name for `publish`. The sampler keeps the tensors themselves."""
        with self._changed:
            self._staged = weights

    def publish(self, version: int) -> None:
        """See VersionedSampler: the weights are replaced before the next batch."""
        with self._changed:
            # Published weights that no batch has taken yet must not get lost.
            unused = self._published[1] if self._published else None
            self._published = version, self._staged if self._staged is not None else unused
            self._staged = None

    def busy_seconds(self) -> float:
        """See VersionedSampler."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def close(self) -> None:
        """See VersionedSampler. Waits for the running batch: Python aborts if it exits while a thread is inside torch."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            requests = list(self._waiting)
            self._waiting.clear()
        for request in requests:
            request.reply.set_exception(InfrastructureError("the sampler is closed"))
        self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        while batch := self._next_batch():
            self._began = time.monotonic()
            try:
                self._update()
                replies = self._sampler.sample(
                    [request.prompt for request in batch], [request.seed for request in batch], batch[0].sampling
                )
                _check_finite(replies, self._version)
            except (InfrastructureError, ConfigurationError) as error:
                self._fail(batch, error)
            except Exception as error:  # a request without an answer would hang its episode
                self._fail(batch, InfrastructureError(f"sampling failed: {type(error).__name__}: {first_line(error)}"))
            else:
                for request, reply in zip(batch, replies, strict=True):
                    request.reply.set_result(msgspec.structs.replace(reply, version=self._version))
            self._began = None

    def _next_batch(self) -> list[_Request]:
        """Wait for requests with equal parameters. Empty: closed."""
        with self._changed:
            while not (self._waiting or self._closed):
                self._changed.wait()
            self._changed.wait_for(lambda: len(self._waiting) >= self._size or self._closed, GATHER_SECONDS)
            batch: list[_Request] = []
            while self._waiting and len(batch) < self._size:
                if batch and self._waiting[0].sampling != batch[0].sampling:
                    break
                batch.append(self._waiting.popleft())
        return batch

    def _update(self) -> None:
        """Replace the weights if newer ones are published."""
        with self._changed:
            published, self._published = self._published, None
        if published is not None:
            version, weights = published
            if weights is not None:
                parameters = dict(self._model.named_parameters())
                for name, tensor in weights.items():
                    parameters[name].data = tensor
            self._version = version

    def _fail(self, batch: Sequence[_Request], error: BaseException) -> None:
        for request in batch:
            request.reply.set_exception(error)


def _check_finite(replies: Sequence[Sampled], version: int) -> None:
    if not all(math.isfinite(item) for reply in replies for item in reply.logprobs):
        raise ConfigurationError(
            f"the weights of version {version} sample log-probabilities that are not finite; lower "
            "optimization.learning_rate, and resume from the checkpoint before"
        )


class ServedSampler:
    """Samples from a vLLM server. A reply that spans an update of the weights has the version that it began with."""

    def __init__(self, server: VllmSampler) -> None:
        self.stops, self.server = server.stops, server
        self._version = 0

    @property
    def context_length(self) -> int:
        """Context length of the server."""
        return self.server.context_length

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Return one completion per prompt; see VllmSampler."""
        version = self._version
        replies = self.server.sample(prompts, seeds, sampling)
        return [msgspec.structs.replace(reply, version=version) for reply in replies]

    def publish(self, version: int) -> None:
        """See VersionedSampler."""
        self._version = version

    def busy_seconds(self) -> float:
        """Return 0: each request has its own time limit."""
        return 0.0

    def close(self) -> None:
        """See VersionedSampler."""
        with contextlib.suppress(TimeoutError):
            self.server.close()
