"""Answers in OpenAI Chat Completions, OpenAI Responses and Anthropic Messages, whole or as the events of a stream.

A policy returns whole replies, so a stream holds each text and each call in one piece, in the events of its protocol.
"""

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from ratchet.components.core import ToolCall
from ratchet.components.core.http_requests import RequestFault


class ChatAnswer(msgspec.Struct, frozen=True):
    """One reply in the common form. `stop`: stop, length, tool_calls, or stop_sequence with the text in `stop_text`.

    `custom_tools`: see ChatRequest. `created`: Unix time in seconds.
    """

    id: str
    model: str
    text: str
    calls: tuple[ToolCall, ...]
    stop: str
    prompt_tokens: int
    completion_tokens: int
    thought: str | None = None
    stop_text: str | None = None
    custom_tools: frozenset[str] = frozenset()
    usage_chunk: bool = False
    created: int = msgspec.field(default_factory=lambda: int(time.time()))


Event = tuple[str | None, Any]
"""Name of a stream's event (None for none) and its data."""


def encode_event(event: Event) -> bytes:
    """Return an event as the bytes of a text/event-stream."""
    name, data = event
    line = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    return (b"event: " + name.encode() + b"\n" if name else b"") + b"data: " + line + b"\n\n"


def _arguments(call: ToolCall) -> str:
    return msgspec.json.encode(call.arguments).decode()


# OpenAI Chat Completions


def completion(answer: ChatAnswer) -> dict[str, Any]:
    """Return a `chat.completion`."""
    message = {"role": "assistant", "content": answer.text or None, "refusal": None, **_chat_parts(answer)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _chat_stop(answer)}
    return {**_chat_head(answer, "chat.completion"), "choices": [choice], "usage": _chat_usage(answer)}


def completion_events(answer: ChatAnswer) -> Iterator[Event]:
    """Yield the chunks of a `chat.completion`, and [DONE]."""
    head = _chat_head(answer, "chat.completion.chunk")
    # One part in each chunk, as OpenAI sends them: some clients ignore the calls of a chunk that also has text.
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    parts = _chat_parts(answer)
    if "reasoning_content" in parts:
        deltas.append({"reasoning_content": parts["reasoning_content"]})
    if answer.text:
        deltas.append({"content": answer.text})
    for index, call in enumerate(parts.get("tool_calls", ())):
        function = call["function"]
        deltas.append({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    for delta in deltas:
        yield None, {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _chat_stop(answer)}
    yield None, {**head, "choices": [end]}
    if answer.usage_chunk:
        yield None, {**head, "choices": [], "usage": _chat_usage(answer)}
    yield None, "[DONE]"


def _chat_head(answer: ChatAnswer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def _chat_stop(answer: ChatAnswer) -> str:
    return "stop" if answer.stop == "stop_sequence" else answer.stop


def _chat_parts(answer: ChatAnswer) -> dict[str, Any]:
    parts: dict[str, Any] = {"reasoning_content": answer.thought} if answer.thought else {}
    if answer.calls:
        parts["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.tool, "arguments": _arguments(call)}}
            for call in answer.calls
        ]
    return parts


def _chat_usage(answer: ChatAnswer) -> dict[str, int]:
    prompt, new = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


# OpenAI Responses


def response(answer: ChatAnswer, status: str = "completed") -> dict[str, Any]:
    """Return a `response`; in the status `in_progress` it has no output yet."""
    cut = answer.stop == "length"
    done = status == "completed"
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": "incomplete" if done and cut else status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if done and cut else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": _items(answer) if done else [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": _response_usage(answer) if done else None,
    }


def response_events(answer: ChatAnswer) -> Iterator[Event]:
    """Yield the events of a streamed `response`."""
    numbers = iter(range(1 << 30))

    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, "sequence_number": next(numbers), **fields}

    yield event("response.created", response=response(answer, "in_progress"))
    yield event("response.in_progress", response=response(answer, "in_progress"))
    for index, item in enumerate(_items(answer)):
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            part = item["content"][0]
            text = {**place, "content_index": 0, "logprobs": []}
            begun, empty = {**item, "content": [], "status": "in_progress"}, {**part, "text": ""}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event("response.content_part.added", **place, content_index=0, part=empty)
            yield event("response.output_text.delta", **text, delta=part["text"])
            yield event("response.output_text.done", **text, text=part["text"])
            yield event("response.content_part.done", **place, content_index=0, part=part)
        elif item["type"] == "reasoning":
            yield event("response.output_item.added", output_index=index, item={**item, "summary": []})
        else:
            field = "arguments" if item["type"] == "function_call" else "input"
            kind = "function_call_arguments" if field == "arguments" else "custom_tool_call_input"
            begun = {**item, field: "", "status": "in_progress"}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event(f"response.{kind}.delta", **place, delta=item[field])
            yield event(f"response.{kind}.done", **place, name=item["name"], **{field: item[field]})
        yield event("response.output_item.done", output_index=index, item=item)
    kind = "response.incomplete" if answer.stop == "length" else "response.completed"
    yield event(kind, response=response(answer))


def _items(answer: ChatAnswer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thought:
        summary = [{"type": "summary_text", "text": answer.thought}]
        items.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": summary})
    if answer.text or not answer.calls:
        content = [{"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}]
        message = {"type": "message", "id": f"msg_{answer.id}", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    for index, call in enumerate(answer.calls):
        item = {"id": f"fc_{answer.id}_{index}", "call_id": call.call_id, "name": call.tool, "status": "completed"}
        if call.tool in answer.custom_tools:
            items.append({"type": "custom_tool_call", **item, "input": str(call.arguments.get("input", ""))})
        else:
            items.append({"type": "function_call", **item, "arguments": _arguments(call)})
    return items


def _response_usage(answer: ChatAnswer) -> dict[str, Any]:
    prompt, new = answer.prompt_tokens, answer.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": new,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + new,
    }


# Anthropic Messages

ANTHROPIC_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "stop_sequence": "stop_sequence",
}


def message(answer: ChatAnswer) -> dict[str, Any]:
    """Return a `message`."""
    usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens}
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": _blocks(answer),
        "stop_reason": ANTHROPIC_STOPS[answer.stop],
        "stop_sequence": answer.stop_text,
        "usage": usage,
    }


def message_events(answer: ChatAnswer) -> Iterator[Event]:
    """Yield the events of a streamed `message`."""

    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}

    whole = message(answer)
    opening: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None}
    usage = {**whole["usage"], "output_tokens": 0}
    yield event("message_start", message={**whole, **opening, "usage": usage})
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        elif block["type"] == "thinking":
            empty, delta = {**block, "thinking": ""}, {"type": "thinking_delta", "thinking": block["thinking"]}
        else:
            text = msgspec.json.encode(block["input"]).decode()
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": text}
        yield event("content_block_start", index=index, content_block=empty)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    yield event("message_delta", delta=end, usage=whole["usage"])
    yield event("message_stop")


def _blocks(answer: ChatAnswer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.thought:
        blocks.append({"type": "thinking", "thinking": answer.thought, "signature": ""})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    uses = [
        {"type": "tool_use", "id": call.call_id, "name": call.tool, "input": call.arguments} for call in answer.calls
    ]
    return blocks + uses


WRITERS = {
    "chat/completions": (completion, completion_events),
    "responses": (response, response_events),
    "messages": (message, message_events),
}
"""Writers of whole answers and of streams, by the path after `/v1/`."""


def models(own: str, asked: str) -> dict[str, Any]:
    """Return the list of models, or the one that is `asked` for, in the form of both OpenAI's and Anthropic's API.

    A request may name any model, so that each exists; `own` is the one that answers.
    """
    name = asked or own
    openai = {"id": name, "object": "model", "created": 0, "owned_by": "ratchet"}
    model = {**openai, "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    if asked:
        return model
    return {"object": "list", "data": [model], "has_more": False, "first_id": name, "last_id": name}


ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
}


def error_body(protocol: str, fault: RequestFault) -> dict[str, Any]:
    """Return the error in the form of a protocol."""
    if protocol.startswith("messages"):
        kind = "rate_limit_error" if fault.status == 429 else "api_error" if fault.status >= 500 else fault.kind
        kind = ANTHROPIC_ERRORS.get(fault.status, kind)
        return {"type": "error", "error": {"type": kind, "message": str(fault), "details": {"error_code": fault.kind}}}
    code = None if fault.kind == "invalid_request_error" else fault.kind
    return {"error": {"message": str(fault), "type": fault.kind, "param": None, "code": code}}


def stream_error(protocol: str, fault: RequestFault) -> Event:
    """Return the event that ends a stream that has begun."""
    body = error_body(protocol, fault)
    if protocol == "responses":
        fields = {"type": "error", "sequence_number": 0, "code": fault.kind, "message": str(fault), "param": None}
        return "error", fields
    return ("error", body) if protocol == "messages" else (None, body)
