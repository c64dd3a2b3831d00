"""Asks one policy on behalf of many requests at once: in batches where the policy answers those, within the event loop where the
model is behind a server, in threads otherwise.

The number of requests that wait is bounded: more are refused, so that clients come back later.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ratchet.components.core import (
    ConfigurationError,
    InfrastructureError,
    Message,
    Policy,
    PolicyReply,
    PolicyRequest,
    TokenTrace,
)
from ratchet.components.core.http_requests import RequestFault

from ..openai_policy import OpenAIPolicy
from ..sampled_policy import SampledPolicy

BATCH_WAIT = 0.002
"""Seconds that a batch waits for the requests of other sessions."""


class SampledPrefix(NamedTuple):
    """Token ids that end with a sampled `reply`, and the messages that follow it in the next request."""

    ids: tuple[int, ...]
    reply: Message
    following: Sequence[Message]


class _Waiting(NamedTuple):
    request: PolicyRequest
    prefix: SampledPrefix | None
    future: asyncio.Future[PolicyReply]


class PolicyQueue:
    """Requests to one policy, which the caller closes. Use it within one event loop.

    `concurrency`: requests in work at once, of which a lock-step policy makes batches; `waiting`: those beyond them.
    """

    def __init__(self, policy: Policy, *, concurrency: int = 256, waiting: int = 1024) -> None:
        self.policy = policy
        self._batched = policy.lockstep
        self._room = concurrency + waiting
        self._concurrency = concurrency
        self._pool = ThreadPoolExecutor(1 if self._batched else concurrency, thread_name_prefix="gateway-policy")
        self._slots = asyncio.Semaphore(concurrency)
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self.pending = 0

    async def ask(self, request: PolicyRequest, prefix: SampledPrefix | None) -> PolicyReply:
        """Return the policy's reply. Raises RequestFault: 429 if too many wait, 400 for a prompt that is too long or that
        the template refuses, 502 for a model that cannot be reached.
        """
        if self.pending >= self._room:
            raise RequestFault("the gateway is busy; try again", 429, "rate_limit_exceeded", wait=1)
        self.pending += 1
        try:
            reply = await (self._ask_in_batch(request, prefix) if self._batched else self._ask_alone(request, prefix))
        except ConfigurationError as error:
            raise RequestFault(str(error)) from error
        except InfrastructureError as error:
            raise RequestFault(str(error), 502, "server_error") from error
        finally:
            self.pending -= 1
        if reply.stop_reason == "context":
            raise RequestFault(
                "prompt is too long: it exceeds the model's context length; shorten the conversation",
                kind="context_length_exceeded",
            )
        return reply

    async def _ask_alone(self, request: PolicyRequest, prefix: SampledPrefix | None) -> PolicyReply:
        async with self._slots:
            # A thread for each request, and its way back, cost more than all else that the gateway does for a turn.
            if isinstance(self.policy, OpenAIPolicy) and (answer := await self.policy.act_in_loop(request)) is not None:
                return answer
            return await self._in_thread(request, prefix)

    async def _in_thread(self, request: PolicyRequest, prefix: SampledPrefix | None) -> PolicyReply:
        (reply,) = await asyncio.get_running_loop().run_in_executor(self._pool, self._act, [(request, prefix)])
        return reply

    async def _ask_in_batch(self, request: PolicyRequest, prefix: SampledPrefix | None) -> PolicyReply:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, prefix, loop.create_future())
        self._waiting.append(waiting)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._play_batches())
        return await waiting.future

    async def _play_batches(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(BATCH_WAIT)
            # A cancelled request (its client went away) is not sampled.
            self._waiting = [one for one in self._waiting if not one.future.done()]
            limit = self._waiting[0].request.max_new_tokens if self._waiting else None
            batch = [one for one in self._waiting if one.request.max_new_tokens == limit][: self._concurrency]
            taken = set(map(id, batch))
            self._waiting = [one for one in self._waiting if id(one) not in taken]
            if not batch:
                continue
            asked = [(one.request, one.prefix) for one in batch]
            results: Sequence[PolicyReply | BaseException]
            try:
                results = await loop.run_in_executor(self._pool, self._act, asked)
            except Exception:  # one by one, so that one request's conversation fails no other request
                results = [(await asyncio.gather(self._in_thread(*each), return_exceptions=True))[0] for each in asked]
            for one, result in zip(batch, results, strict=True):
                if one.future.done():
                    continue
                if isinstance(result, BaseException):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)

    def _act(self, batch: Sequence[tuple[PolicyRequest, SampledPrefix | None]]) -> list[PolicyReply]:
        requests, policy = [request for request, _ in batch], self.policy
        if not isinstance(policy, SampledPolicy):
            return policy.act(requests)
        prompts = []
        for request, prefix in batch:
            continued = prefix and policy.continued_prompt(*prefix, request.tools)
            prompts.append(continued or policy.prompt(request))
        return policy.reply_to(requests, prompts)

    async def count(self, request: PolicyRequest) -> int | None:
        """Return the number of tokens of a prompt; None for a policy without a tokenizer. Raises RequestFault."""
        if not isinstance(self.policy, SampledPolicy):
            return None
        try:
            ids = await asyncio.get_running_loop().run_in_executor(self._pool, self.policy.prompt, request)
        except ConfigurationError as error:
            raise RequestFault(str(error)) from error
        return len(ids)

    def cut_at(self, stop: str, trace: TokenTrace | None) -> TokenTrace | None:
        """Return a reply's tokens up to its first `stop`; None for a policy without a tokenizer."""
        return self.policy.cut_at(stop, trace) if trace is not None and isinstance(self.policy, SampledPolicy) else None

    async def close(self) -> None:
        """Start no further request."""
        if isinstance(self.policy, OpenAIPolicy):
            await self.policy.close_in_loop()
        self._pool.shutdown(wait=False, cancel_futures=True)
