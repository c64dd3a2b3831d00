"""Policy behind an OpenAI-compatible server: vLLM, `transformers serve`, or any provider.

Contains the request body for each kind of server, the conversion of messages to the API's format, and the parsing of
answers.
"""

import re
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import (
    DataError,
    Message,
    Policy,
    PolicyReply,
    PolicyRequest,
    TokenTrace,
    ToolCall,
    ToolSpec,
    Usage,
)

from .adapter_loading import list_models
from .chat_completion import (
    Completion,
    CompletionChoice,
    CompletionFunction,
    TokenCounts,
    decode_json,
    read_completion,
    split_thought,
)
from .chat_template import break_tokens
from .checkpoint_folders import tokenizer_folder
from .context_truncation import BYTES_PER_TOKEN, TruncatedConversation, estimate_tokens, message_bytes, truncate
from .control_tokens import COMMON_TOKENS, special_tokens
from .endpoint import ContextExceeded, Price, RequestRefused
from .http_client import ModelClient
from .loop_client import LoopModelClient
from .policy_config import OpenAIConfig
from .sampled_policy import stream_seed
from .tool_call_formats import FORMATS, ToolCallFormat
from .tool_call_notations import arguments_of, to_json_line, unparsed_call

STOPS = {None: "stop", "stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}


def parse_answer(
    answer: Completion, form: ToolCallFormat, turn: int, tools: Sequence[ToolSpec], price: Price | None
) -> PolicyReply:
    """Parse a validated completion into a reply. A refused or filtered answer becomes a reply without calls.

    `form`: notation of tool calls in the text. `turn`: index that the call ids begin with. Without `price` or token
    counts the cost is None.
    """
    assert answer.choices
    choice = answer.choices[0]
    message = choice.message
    thought, content = split_thought(message.text)
    thought = message.reasoning or message.reasoning_content or thought
    stop = STOPS.get(choice.finish_reason, choice.finish_reason or "stop")
    calls: tuple[ToolCall, ...] = ()
    if message.refusal:
        text, stop = message.refusal, "refusal"
    elif stop == "content_filter":
        text = content.strip()
    elif message.tool_calls:
        text = content.strip()
        calls = tuple(_native_call(call.function, f"{turn}-{i}") for i, call in enumerate(message.tool_calls))
    else:
        text, calls = form.parse(content, turn, tools)
    counts = answer.usage or TokenCounts()
    prompt, completion = counts.prompt_tokens, counts.completion_tokens
    cost = None if price is None or prompt is None or completion is None else price.of(prompt, completion)
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cost=cost)
    return PolicyReply(text, calls, thought or None, stop, usage, _trace(answer, choice))


def _native_call(function: CompletionFunction, call_id: str) -> ToolCall:
    raw = to_json_line({"name": function.name, "arguments": function.arguments})
    if not function.name:
        return unparsed_call(call_id, raw, "the call names no tool")
    if isinstance(function.arguments, dict) or not function.arguments:
        return ToolCall(call_id, function.name, function.arguments or {}, raw)
    arguments = arguments_of(function.arguments)
    if isinstance(arguments, str):
        return unparsed_call(call_id, raw, f"the arguments of {function.name} are no JSON object: {arguments}")
    return ToolCall(call_id, function.name, arguments, raw)


def _trace(answer: Completion, choice: CompletionChoice) -> TokenTrace | None:
    """Return token ids with their log-probabilities; None unless the server returned both with equal lengths."""
    prompt, completion = answer.prompt_token_ids, choice.token_ids
    content = choice.logprobs.content if choice.logprobs else None
    if prompt is None or completion is None or content is None or len(content) != len(completion):
        return None
    logprobs = tuple(item.logprob for item in content if item.logprob is not None)
    return TokenTrace(tuple(prompt), tuple(completion), logprobs) if len(logprobs) == len(completion) else None


def api_messages(
    messages: Sequence[Message],
    form: ToolCallFormat,
    tools: Sequence[ToolSpec],
    specials: re.Pattern[str],
    *,
    strict: bool,
) -> list[Message]:
    """Convert messages to the API's format. Control tokens (`specials`) in any message are broken up so that they stay
    text. If `form` is a text notation, its instructions become the system message, calls and results become text.

    `strict`: for the API's own fields, a result whose call could not be parsed becomes a user message, because APIs
    reject a result without a call.
    """
    safe_messages = break_tokens(messages, specials)
    if form.write is not None and form.instructions is not None:
        return _as_text(safe_messages, form, form.instructions(tools))
    call_ids = {call["id"] for message in safe_messages for call in message.get("tool_calls", ())}
    return [_in_fields(message, call_ids if strict else None) for message in safe_messages]


def _in_fields(message: Message, call_ids: set[str] | None) -> Message:
    if message["role"] == "tool" and call_ids is not None and message.get("tool_call_id") not in call_ids:
        return {"role": "user", "content": message["content"]}
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else to_json_line(arguments)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**message, "tool_calls": calls}


def _as_text(messages: Iterable[Message], form: ToolCallFormat, instructions: str) -> list[Message]:
    """Write calls and results as text: results become user messages, and consecutive messages of one role are joined."""
    assert form.write is not None
    text_messages: list[Message] = [{"role": "system", "content": instructions}]
    for message in messages:
        role, content = message["role"], message["content"] or ""
        if role == "assistant":
            calls = [
                (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
            ]
            content = form.write(content, calls)
        elif role == "tool":
            role, content = "user", f"Observation ({message.get('name') or 'unreadable call'}):\n{content}"
        if text_messages[-1]["role"] == role:
            text_messages[-1] = {"role": role, "content": f"{text_messages[-1]['content']}\n\n{content}"}
        else:
            text_messages.append({"role": role, "content": content})
    return text_messages


class RequestBuilder:
    """Builds request bodies for one policy. `sampling` holds temperature, top_p and max_new_tokens."""

    def __init__(self, config: OpenAIConfig, sampling: dict[str, Any]) -> None:
        self.config = config
        self.sampling = sampling
        self._format = FORMATS[config.format]
        self._specials = special_tokens(tokenizer_folder(config.checkpoint)) if config.checkpoint else COMMON_TOKENS
        # `transformers serve` decodes greedily, whatever the temperature, unless a generation configuration asks to sample.
        own = config.checkpoint if config.server == "transformers" else None
        self._generation = None if own is None else _generation_config(own)

    def body(self, request: PolicyRequest, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the complete request body for one turn."""
        body: dict[str, Any] = {
            **self.prompt(messages, request.tools),
            "temperature": self.sampling["temperature"],
            "top_p": self.sampling["top_p"],
            "max_completion_tokens": min(self.sampling["max_new_tokens"], request.max_new_tokens or sys.maxsize),
            "seed": stream_seed(request.seed, request.turn) >> 32,
        }
        if "tools" in body:
            body["tool_choice"] = "auto" if self.config.format == "native" else "none"
        if self._format.stop:
            body["stop"] = list(self._format.stop)
        if self.config.logprobs:
            body["logprobs"] = True
        if self.config.server == "vllm":
            # A checkpoint's generation_config.json would otherwise set these behind our back.
            body |= {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
            body |= {"skip_special_tokens": self.config.format == "native", "return_token_ids": self.config.logprobs}
        if self._generation is not None and self.sampling["temperature"] > 0:
            body["generation_config"] = msgspec.json.encode(
                {**self._generation, "do_sample": True, "top_k": 0}
            ).decode()
        return {key: value for key, value in {**body, **self.config.extra_body}.items() if value is not None}

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """Return the part of the body that determines the prompt: model, messages, tools."""
        strict = self.config.format == "native"
        converted = api_messages(messages, self._format, tools, self._specials, strict=strict)
        prompt: dict[str, Any] = {"model": self.config.model, "messages": converted}
        if tools and self._format.write is None:
            prompt["tools"] = [tool.as_openai() for tool in tools]
        return prompt


def _generation_config(checkpoint: Path) -> dict[str, Any]:
    """Return the checkpoint's generation configuration, above all its end tokens. Raises DataError."""
    path = checkpoint / "generation_config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; use another checkpoint") from error


REFITS = 3
"""How many times a conversation is shortened further after the server rejected it as too long."""
FRAME_TOKENS = 64
"""Upper bound on the tokens that a chat template adds to one message."""


class _Tokens(msgspec.Struct):
    """Response of `/tokenize`."""

    count: int


class OpenAIPolicy(Policy):
    """Stateless policy: every request carries its whole conversation.

    `act` is thread-safe. Several requests are sent in parallel, within the configured limit, which shrinks while the
    server is overloaded. A conversation that is too long is shortened by `context_truncation.truncate`; if that is not
    possible, the reply has `stop_reason="context"` and no call. Sampling parameters in `config` take precedence over
    the arguments. Log-probabilities are passed on as the server reports them: for vLLM they describe the sampled
    distribution only with `--logprobs-mode processed_logprobs`, which `ModelServer` sets.
    """

    def __init__(
        self, config: OpenAIConfig, *, temperature: float = 0.8, top_p: float = 1.0, max_new_tokens: int = 96
    ) -> None:
        self.config = config
        # A checkpoint may be served under its path; its version names it.
        self.name = "openai" if config.checkpoint else f"openai:{config.model}"
        self.version = config.version
        self.sampling = {
            "temperature": temperature if config.temperature is None else config.temperature,
            "top_p": config.top_p or top_p,
            "max_new_tokens": config.max_new_tokens or max_new_tokens,
            **({"extra_body": config.extra_body} if config.extra_body else {}),
        }
        self.client = ModelClient(config)
        self._loop_client: LoopModelClient | None = None
        self._format = FORMATS[config.format]
        self._request_builder = RequestBuilder(config, self.sampling)
        self._url = f"{config.base_url}/chat/completions"
        self._window = config.context_window
        self._window_known = config.context_window is not None or config.server != "vllm"
        self._window_lock = threading.Lock()

    @property
    def statistics(self) -> dict[str, float]:
        """Return the counters requests, retries, overloads, results_condensed, results_dropped and context_stops
        (turns that did not fit the context), and limit, the current concurrency limit.
        """
        return {**self.client.counts, "limit": self.client.limiter.aimd.limit}

    def act(self, requests: Sequence[PolicyRequest]) -> list[PolicyReply]:
        """Return one reply per request, in order. Raises ModelUnavailable, RequestRefused, ConfigurationError."""
        if len(requests) == 1:
            return [self._play_turn(requests[0])]
        with ThreadPoolExecutor(max(1, min(len(requests), self.config.concurrency))) as pool:
            return list(pool.map(self._play_turn, requests))

    async def act_in_loop(self, request: PolicyRequest) -> PolicyReply | None:
        """Return the reply to one request within the running event loop, without a thread. None if the conversation has to be
        measured or shortened first, which `act` does. All calls must be within one loop, where `close_in_loop` ends it.
        """
        begin = time.perf_counter()
        budget = self._budget() if self._window_known else 0
        if budget is not None and not self._certainly_fits(request, budget):
            return None
        if self._loop_client is None:
            self._loop_client = LoopModelClient(self.config)
            self._loop_client.counts = self.client.counts
        body = self._request_builder.body(request, request.messages)
        try:
            answer = await self._loop_client.post(self._url, body, read_completion)
        except ContextExceeded:
            return None
        return msgspec.structs.replace(self._parse(answer, request), seconds=time.perf_counter() - begin)

    async def close_in_loop(self) -> None:
        """Close the connections of `act_in_loop`."""
        client, self._loop_client = self._loop_client, None
        if client is not None:
            await client.close()

    def close(self) -> None:
        """Cancel requests in flight. Idempotent."""
        self.client.close()

    def _play_turn(self, request: PolicyRequest) -> PolicyReply:
        begin = time.perf_counter()
        budget = self._budget()
        for _ in range(REFITS + 1):
            fitted = self._fit(request, budget)
            if not fitted.fits:
                break
            try:
                reply = self._ask(request, fitted.messages)
            except ContextExceeded as error:
                budget = self._reduced_budget(self._count(fitted.messages, request.tools), error)
                continue
            self.client.counts["results_condensed"] += len(fitted.condensed)
            self.client.counts["results_dropped"] += len(fitted.dropped)
            return msgspec.structs.replace(reply, seconds=time.perf_counter() - begin)
        self.client.counts["context_stops"] += 1
        return PolicyReply("", stop_reason="context", seconds=time.perf_counter() - begin)

    def _ask(self, request: PolicyRequest, messages: Sequence[Message]) -> PolicyReply:
        body = self._request_builder.body(request, messages)
        return self._parse(self.client.post(self._url, body, read_completion), request)

    def _parse(self, answer: Completion, request: PolicyRequest) -> PolicyReply:
        return parse_answer(answer, self._format, request.turn, request.tools, self.config.price)

    def _fit(self, request: PolicyRequest, budget: int | None) -> TruncatedConversation:
        if budget is None or self._certainly_fits(request, budget):
            return TruncatedConversation(tuple(request.messages))
        return truncate(request.messages, budget, lambda messages: self._count(messages, request.tools))

    def _certainly_fits(self, request: PolicyRequest, budget: int) -> bool:
        """Return whether the prompt fits even with one token per byte, so that counting can be skipped."""
        upper_bound = sum(message_bytes(message) + FRAME_TOKENS for message in request.messages)
        return upper_bound + 2 * _tools_bytes(request.tools) + FRAME_TOKENS <= budget

    def _count(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
        """Return the prompt's token count: exact from a vLLM server, estimated otherwise."""
        if self.config.server != "vllm":
            return estimate_tokens(messages) + round(_tools_bytes(tools) / BYTES_PER_TOKEN)
        template = {key: self.config.extra_body[key] for key in TEMPLATE_KEYS if key in self.config.extra_body}
        body = {**self._request_builder.prompt(messages, tools), **template}
        return self.client.post(f"{self.config.root}/tokenize", body, lambda answer: decode_json(answer, _Tokens).count)

    def _budget(self) -> int | None:
        """Return the token budget of the prompt; None while the model's context size is unknown."""
        if not self._window_known:
            with self._window_lock:
                if not self._window_known:
                    listed = list_models(self.client)
                    self._window = next((m.max_model_len for m in listed if m.id == self.config.model), None)
                    self._window_known = True
        if self._window is None:
            return None
        budget = self._window - int(self.sampling["max_new_tokens"])
        if budget <= 0:
            raise RequestRefused(
                f"max_new_tokens {self.sampling['max_new_tokens']} leaves nothing of the context of {self._window} tokens "
                f"for a prompt; lower it"
            )
        return budget

    def _reduced_budget(self, counted: int, refusal: ContextExceeded) -> int:
        """Return a smaller budget, in the units of `_count`, from the server's message about a prompt counted as
        `counted`.
        """
        limit, prompt_tokens = refusal.limit or self._window, refusal.prompt_tokens
        room = limit - int(self.sampling["max_new_tokens"]) if limit else None
        if room is not None and prompt_tokens and 0 < room < prompt_tokens:
            return int(counted * room / prompt_tokens * 0.95)
        return min(int(counted * 0.75), room or counted)


TEMPLATE_KEYS = ("chat_template", "chat_template_kwargs", "add_generation_prompt")


def _tools_bytes(tools: Sequence[ToolSpec]) -> int:
    return sum(len(msgspec.json.encode(tool.as_openai())) for tool in tools)
