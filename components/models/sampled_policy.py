"""Policies over a `Sampler`: prompts are rendered here, with the template used in training, and sampled as token ids.

A `Sampler` maps token ids to token ids; the model may be local or on a server. Each turn of each episode has its own
random seed, so that what a policy samples does not depend on other episodes in the batch.

`SampledPolicy` renders the whole conversation anew for each turn. `TokenExactPolicy`, for training, keeps the token ids
of every episode, so that each prompt contains the earlier replies exactly as they were sampled:

    prompt(t) = prompt(t-1) + ids sampled at t-1 + ids of the environment's new messages

The ids of an episode then form one sequence that a single forward pass can score, and nothing is tokenised twice.
"""

import contextlib
import hashlib
import itertools
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ratchet.components.core import (
    ConfigurationError,
    Message,
    Policy,
    PolicyReply,
    PolicyRequest,
    TokenTrace,
    ToolSpec,
    Usage,
)

from .chat_template import encode, render
from .template_continuation import Continuation, end_of_reply
from .tool_call_formats import Parse, parse_calls, parse_llama_or_mistral

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


class SamplingParameters(msgspec.Struct, frozen=True):
    """Sampling parameters. `max_new_tokens` applies to one reply."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 96


class Sampled(msgspec.Struct, frozen=True):
    """One sampled completion: token ids including the stop token, and the log-probability of each.

    Log-probabilities are natural logarithms at the sampling temperature: before `top_p` truncation from `LocalSampler`,
    after it from `VllmSampler`. `version`: number of the weights, where they change during an episode.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int = 0


class Sampler(Protocol):
    """Interface of token samplers. A reply ends with, and includes, the first sampled token of `stops`."""

    @property
    def stops(self) -> Sequence[int]:
        """Token ids that end a reply."""

    @property
    def context_length(self) -> int:
        """Maximum number of tokens of prompt and reply together."""

    def sample(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingParameters
    ) -> list[Sampled]:
        """Return one completion per prompt, in order, each from the random stream of its own seed.

        Raises InfrastructureError if the model cannot be reached.
        """


def stop_ids(tokenizer: Any, close: str) -> list[int]:
    """Return the sorted token ids that end a message, with that of `close`, the closing tag of a tool call, if it is a
    single token.
    """
    ids = {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(close)}
    with contextlib.suppress(ConfigurationError):  # a template that marks no end of a reply
        ids.add(end_of_reply(tokenizer)[1])
    return sorted(id for id in ids if id is not None and id != tokenizer.unk_token_id)


def parse_sampled(
    sampled: Sampled,
    prompt: Sequence[int],
    tokenizer: Any,
    *,
    end: str,
    stops: Sequence[int],
    parse: Parse,
    turn: int,
    tools: Sequence[ToolSpec] = (),
) -> PolicyReply:
    """Parse sampled ids into a reply: text, tool calls, and tokens.

    `end`: text of the end token to remove from the reply's end ("" for none). `stops`: token ids that end a reply;
    without one of them at the end, `stop_reason` is "length". `turn`: index that the call ids begin with.
    """
    # `<tool_call>` is a special token of many tokenizers: without those the parser would find no call.
    text: str = tokenizer.decode(sampled.ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    content, calls = parse(text.removesuffix(end) if end else text, turn, tools)
    return PolicyReply(
        text=content,
        calls=calls,
        stop_reason="stop" if sampled.ids and sampled.ids[-1] in stops else "length",
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(sampled.ids)),
        tokens=TokenTrace(tuple(prompt), sampled.ids, sampled.logprobs, version=sampled.version),
    )


def stream_seed(seed: int, turn: int) -> int:
    """Return the random seed (63 bits) of one turn of one episode."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{turn}".encode(), digest_size=8).digest(), "big") >> 1


def sample_replies(
    sampler: Sampler,
    sampling: SamplingParameters,
    requests: Sequence[PolicyRequest],
    prompts: Sequence[Sequence[int]],
    fitting: Sequence[bool],
    read: Callable[[int, Sampled], PolicyReply],
) -> list[PolicyReply]:
    """Sample the requests whose prompt fits, as one batch, and return a reply to each request, in order.

    `fitting`: whether each prompt fits into the context; a request whose prompt does not gets `stop_reason="context"`
    and no call. `read(i, sampled)` converts the completion of request `i` into a reply.
    """
    replies = [PolicyReply("", stop_reason="context") for _ in requests]
    chosen = [i for i, fits in enumerate(fitting) if fits]
    if not chosen:
        return replies
    begin = time.perf_counter()
    seeds = [stream_seed(requests[i].seed, requests[i].turn) for i in chosen]
    drawn = sampler.sample([prompts[i] for i in chosen], seeds, sampling)
    seconds = (time.perf_counter() - begin) / len(chosen)
    for i, sampled in zip(chosen, drawn, strict=True):
        replies[i] = msgspec.structs.replace(read(i, sampled), seconds=seconds)
    return replies


class SampledPolicy(Policy):
    """Stateless policy over a sampler: every request carries its whole conversation. Decoding ends at the sampler's
    `stops`.

    The random stream of a turn is derived from the episode's seed and the turn index. A prompt that leaves no room for
    a reply gets `stop_reason="context"` and no call. Thread-safe if the sampler is.
    """

    def __init__(
        self, sampler: Sampler, tokenizer: "PreTrainedTokenizerBase", sampling: SamplingParameters, *, version: str
    ) -> None:
        self.version = version
        self.sampling = msgspec.structs.asdict(sampling)
        self.sampler = sampler
        self.tokenizer = tokenizer
        self.tokenizer_hash, self.template_hash = fingerprints(tokenizer)
        self.max_prompt_tokens = sampler.context_length - sampling.max_new_tokens
        if self.max_prompt_tokens <= 0:
            raise ConfigurationError(
                f"max_new_tokens {sampling.max_new_tokens} leaves nothing of the context of {sampler.context_length} tokens "
                "for a prompt; lower it"
            )
        self._sampling = sampling
        self._ends = _ends(tokenizer)
        self._parse = tool_call_parser(tokenizer)
        self._continuation: Continuation | None = None
        self._lock = threading.Lock()  # fast tokenizers raise "Already borrowed" when two threads use one

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return one reply per request; see Policy."""
        return self.reply_to(requests, [self.prompt(request) for request in requests])

    def reply_to(self, requests: Sequence[PolicyRequest], prompts: Sequence[list[int]]) -> list[PolicyReply]:
        """Return one reply per request, sampled from the token ids of its prompt, in order. The first request's
        `max_new_tokens` limits all replies of the batch.
        """
        limit = min(self._sampling.max_new_tokens, requests[0].max_new_tokens or self._sampling.max_new_tokens)
        fitting = [len(prompt) <= self.max_prompt_tokens for prompt in prompts]
        return sample_replies(
            self.sampler, msgspec.structs.replace(self._sampling, max_new_tokens=limit), requests, prompts, fitting,
            lambda i, sampled: self._reply(requests[i], prompts[i], sampled),
        )  # fmt: skip

    def prompt(self, request: PolicyRequest) -> list[int]:
        """Return the token ids of the conversation, rendered as a whole. Raises ConfigurationError."""
        tools = [tool.as_openai() for tool in request.tools]
        with self._lock:
            ids, _ = encode(request.messages, tools, self.tokenizer, prompt=True)
        return ids

    def continued_prompt(
        self, ids: Sequence[int], reply: Message, following: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[int] | None:
        """Return the prompt that contains `ids`, which end with a sampled `reply`, exactly as they were sampled, and then
        the messages `following` it. None if the template renders earlier replies differently later.
        """
        with self._lock:
            try:
                self._continuation = self._continuation or Continuation(self.tokenizer)
                ended = bool(ids) and ids[-1] == self._continuation.end_id
                listed = [tool.as_openai() for tool in tools]
                return [*ids, *self._continuation.ids(reply, following, listed, ended=ended)]
            except ConfigurationError:
                return None

    def cut_at(self, stop: str, trace: TokenTrace) -> TokenTrace:
        """Return the trace up to the token that completes the first `stop`, which a server would have sampled last."""
        ids, logprobs = trace.completion_ids, trace.logprobs

        def holds_stop(end: int) -> bool:
            return stop in self.tokenizer.decode(ids[:end], clean_up_tokenization_spaces=False)

        with self._lock:
            end = bisect_left(range(len(ids)), True, key=holds_stop)
        return msgspec.structs.replace(trace, completion_ids=ids[:end], logprobs=logprobs[:end])

    def _reply(self, request: PolicyRequest, prompt: list[int], sampled: Sampled) -> PolicyReply:
        with self._lock:
            return parse_sampled(
                sampled,
                prompt,
                self.tokenizer,
                end=self._ends.get(sampled.ids[-1], "") if sampled.ids else "",
                stops=self.sampler.stops,
                parse=self._parse,
                turn=request.turn,
                tools=request.tools,
            )


def tool_call_parser(tokenizer: "PreTrainedTokenizerBase") -> Parse:
    """Return the parser for the notation in which the tokenizer's chat template writes tool calls."""
    name, arguments = "look", {"at": "here"}
    tool_call = {"id": "0-0", "type": "function", "function": {"name": name, "arguments": arguments}}
    conversation: list[Message] = [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": "", "tool_calls": [tool_call]},
    ]
    tools = [{"type": "function", "function": {"name": name, "description": "", "parameters": {"type": "object"}}}]
    try:
        parsed = parse_calls(render(conversation, tools, tokenizer, prompt=False), 0)[1]
    except ConfigurationError:  # the template refuses a reply with a call
        return parse_calls
    return (
        parse_calls
        if any((call.tool, call.arguments) == (name, arguments) for call in parsed)
        else parse_llama_or_mistral
    )


def fingerprints(tokenizer: "PreTrainedTokenizerBase") -> tuple[str, str]:
    """Return hashes of the tokenizer and of its chat template: 16 hex digits of SHA-256 each."""
    return _hash(tokenizer.backend_tokenizer.to_str()), _hash(str(tokenizer.chat_template))


def _ends(tokenizer: "PreTrainedTokenizerBase") -> dict[int, str]:
    """Return the tokens that end a message and are not part of its text: the tokenizer's end token and the template's."""
    ends = {tokenizer.eos_token_id: tokenizer.eos_token} if tokenizer.eos_token else {}
    try:
        text, token = end_of_reply(tokenizer)
    except ConfigurationError:  # the template ends replies without a special token
        return ends
    return {**ends, token: text}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Episode(msgspec.Struct):
    """A running episode: `ids` of the prompt and all replies so far, and the number of `messages` that they cover.

    `opening`: length of the first prompt in tokens; `ended`: whether the last reply was sampled with its end token.
    """

    ids: list[int]
    messages: int
    opening: int
    ended: bool = False


class TokenExactPolicy(Policy):
    """Policy for training that keeps the token ids of each episode until `forget`. `version` names the sampler's
    weights; update the attribute when they change, between batches.

    `opening`: attribute; None, or a function from an episode's first request to the messages to sample from instead,
    such as ones with a hint. An episode whose next reply would not fit into the sampler's context, or into
    `max_episode_tokens` (None: no limit) after its first prompt, gets `stop_reason="context"` and no call. Raises
    ConfigurationError for a template that renders earlier replies differently later.
    """

    name = "token-exact"
    lockstep = True

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: "PreTrainedTokenizerFast",
        sampling: SamplingParameters,
        *,
        version: str,
        max_episode_tokens: int | None = None,
    ) -> None:
        self.version = version
        self.sampling = msgspec.structs.asdict(sampling)
        self.tokenizer_hash, self.template_hash = fingerprints(tokenizer)
        self._sampler = sampler
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._frame = Continuation(tokenizer)
        self._max_episode_tokens = max_episode_tokens
        self._parse = tool_call_parser(tokenizer)
        self._episodes: dict[str, _Episode] = {}
        self.opening: Callable[[PolicyRequest], Sequence[Message]] | None = None

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return one reply per request; see Policy."""
        episodes = [self._continue_episode(request) for request in requests]
        return sample_replies(
            self._sampler, self._sampling, requests, [episode.ids for episode in episodes], [*map(self._fits, episodes)],
            lambda i, sampled: self._reply(requests[i], episodes[i], sampled),
        )  # fmt: skip

    def forget(self) -> None:
        """Drop the token ids of all episodes; call it at the end of each batch."""
        self._episodes.clear()

    def close(self) -> None:
        """Release the sampler's resources."""
        close = getattr(self._sampler, "close", None)
        if close is not None:
            close()

    def _continue_episode(self, request: PolicyRequest) -> _Episode:
        """Append the environment's messages since the last reply. A new or restarted episode is rendered from scratch."""
        tools = [tool.as_openai() for tool in request.tools]
        episode = self._episodes.get(request.episode_id)
        if episode is None or request.turn == 0:
            messages = request.messages if self.opening is None else self.opening(request)
            ids, _ = encode(messages, tools, self._tokenizer, prompt=True)
            episode = _Episode(list(ids), len(request.messages), len(ids))
            self._episodes[request.episode_id] = episode
            return episode
        reply, *results = itertools.islice(request.messages, episode.messages, None)
        episode.ids += self._frame.ids(reply, results, tools, ended=episode.ended)
        episode.messages = len(request.messages)
        return episode

    def _fits(self, episode: _Episode) -> bool:
        room = self._sampler.context_length - len(episode.ids)
        if self._max_episode_tokens is not None:
            room = min(room, self._max_episode_tokens - (len(episode.ids) - episode.opening))
        return room >= self._sampling.max_new_tokens

    def _reply(self, request: PolicyRequest, episode: _Episode, sampled: Sampled) -> PolicyReply:
        reply = parse_sampled(
            sampled,
            episode.ids,
            self._tokenizer,
            end=self._frame.end,
            stops=self._sampler.stops,
            parse=self._parse,
            turn=request.turn,
            tools=request.tools,
        )
        episode.ids += sampled.ids
        episode.ended = bool(sampled.ids) and sampled.ids[-1] == self._frame.end_id
        return reply
