"""Messages and replies of model calls as any provider or framework writes them, in the form of OpenAI's Chat Completions.

Read are OpenAI's two protocols, Anthropic, Gemini, Bedrock's Converse and LangChain's objects.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .chat_import import is_message
from .log_values import as_mapping, as_mappings, as_str, to_text, words


def input_messages(value: Any, depth: int = 4) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in the input of a model call, in OpenAI's form. `depth`: levels of nesting searched."""
    if isinstance(value, str):
        yield {"role": "user", "content": value}
    elif isinstance(value, list):
        for message in value:
            if isinstance(message, list) and depth:  # LangChain's batches
                yield from input_messages(message, depth - 1)
            elif isinstance(message, Mapping) and isinstance(message.get("parts"), list):
                yield from gemini_to_openai_messages(message)
            elif isinstance(message, Mapping):
                yield from bedrock_to_openai_messages(
                    to_openai_message(message) if not is_message(message) else message
                )
    elif isinstance(value, Mapping):
        system = value.get("system") or value.get("instructions") or gemini_config(value).get("system_instruction")
        if system:
            parts = gemini_to_openai_messages(system) if isinstance(system, Mapping) else [{"content": system}]
            yield from ({**part, "role": "system"} for part in parts)
        for name in ("messages", "input", "prompt", "prompts", "contents", "question", "query"):
            if value.get(name) and depth:
                yield from input_messages(value[name], depth - 1)
                return
        if is_message(value):
            yield value


def to_openai_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a LangChain message (`type`: human, ai, tool) or Gemini content (`parts`) to OpenAI's form; others stay."""
    roles = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "tool": "tool", "system": "system"}
    if isinstance(message.get("parts"), list):
        return gemini_to_openai_messages(message)[-1]
    if isinstance(message.get("kwargs"), Mapping):  # as LangChain serialises its objects
        message = message["kwargs"]
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in roles or "content" not in message:
        return message
    metadata = as_mapping(message.get("usage_metadata"))
    return {
        **{key: field for key, field in message.items() if key not in ("type", "additional_kwargs")},
        "role": roles[kind],
        **({"usage_metadata": metadata} if metadata else {}),
    }


def gemini_to_openai_messages(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert a `content` of Gemini to messages of OpenAI's form, at least one: each function response is one."""
    contents: list[Any] = []
    calls, results = [], []
    for part in as_mappings(message.get("parts")):
        call = part.get("function_call") or part.get("functionCall")
        answer = part.get("function_response") or part.get("functionResponse")
        if isinstance(call, Mapping):
            calls.append({"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")})
        elif isinstance(answer, Mapping):
            identity = {"tool_call_id": answer["id"]} if answer.get("id") else {}
            result = {"role": "tool", "name": answer.get("name"), "content": to_text(answer.get("response"))}
            results.append(result | identity)
        elif isinstance(part.get("text"), str):
            contents.append({"type": "thinking" if part.get("thought") is True else "text", "text": part["text"]})
    if results and not contents and not calls:
        return results
    role = "assistant" if message.get("role") == "model" else "user"
    return [*results, {"role": role, "content": contents, "tool_calls": calls}]


def gemini_config(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `config` of a request by Google's SDK, which has the system's instruction, tools and sampling; else {}."""
    config = as_mapping(inputs.get("config"))
    return config if "contents" in inputs else {}


def output_reply(value: Any) -> dict[str, Any]:
    """Return the first reply in the output of a model call of any provider, as an OpenAI message without role.

    An output without a known field becomes text; an empty output gives {}.
    """
    while isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, str):
        return {"content": value}
    if not isinstance(value, Mapping):
        return {} if value is None else {"content": to_text(value)}
    for name in ("choices", "candidates", "generations", "messages", "output", "message", "content"):
        if name in value and (reply := _reply_field(name, value)):
            return reply
    if "text" in value or "completion" in value:
        return {"content": value.get("text", value.get("completion"))}
    if value.get("tool_calls"):
        return {"content": "", "tool_calls": value["tool_calls"]}
    return {"content": to_text(value)} if value else {}


_REPLY_FIELDS = words("content tool_calls reasoning_content function_call")


def _reply_field(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    content = value[name]
    if name in ("content", "message") and not isinstance(content, Mapping):
        if name == "message":
            return {"content": content}
        return {key: value[key] for key in _REPLY_FIELDS if key in value}
    first = content[-1 if name == "messages" else 0] if isinstance(content, list) and content else content
    while isinstance(first, list) and first:
        first = first[0]
    if not isinstance(first, Mapping):
        return {"content": first} if isinstance(first, str) else {}
    if name == "output" and isinstance(content, list):
        return _responses(content)
    inner = first.get("message", first.get("content") if name in ("candidates", "content") else None)
    if isinstance(inner, Mapping):
        first = inner
    return {
        key: field for key, field in to_openai_message(bedrock_to_openai_messages(first)[-1]).items() if key != "role"
    }


def bedrock_to_openai_messages(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Convert a message of Bedrock's Converse API, or Anthropic's with tool results, to messages of OpenAI's form: each tool
    result is one. Others stay.
    """
    parts = as_mappings(message.get("content"))
    uses = [as_mapping(part["toolUse"]) for part in parts if "toolUse" in part]
    results = [as_mapping(part["toolResult"]) for part in parts if "toolResult" in part]
    blocks = [part for part in parts if part.get("type") == "tool_result" and message.get("role") == "user"]
    if not uses and not results and not blocks:
        return [message]
    messages: list[Mapping[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": result.get("toolUseId"),
            "content": "\n".join(
                to_text(part.get("text", part.get("json", part))) for part in as_mappings(result.get("content"))
            ),
            **({"status": "error"} if result.get("status") == "error" else {}),
        }
        for result in results
    ]
    messages += [block | {"role": "tool", "tool_call_id": block.get("tool_use_id")} for block in blocks]
    rest = [part for part in parts if not {"toolUse", "toolResult"} & part.keys() and part not in blocks]
    if rest or uses:
        calls = [{"id": use.get("toolUseId"), "name": use.get("name"), "arguments": use.get("input")} for use in uses]
        messages.append({**message, "content": rest, "tool_calls": calls})
    return messages


def _responses(items: Iterable[Any]) -> dict[str, Any]:
    """Convert the items of OpenAI's Responses API to one message."""
    content, calls, thoughts = [], [], []
    for item in items:
        if not isinstance(item, Mapping):
            continue
        if item.get("type") == "function_call":
            calls.append(item)
        elif item.get("type") == "reasoning":
            thoughts.append({**item, "type": "reasoning"})
        elif item.get("content"):
            content.extend(item["content"] if isinstance(item["content"], list) else [item["content"]])
    return {"content": [*thoughts, *content], "tool_calls": calls}


def stop_reason(value: Any) -> str | None:
    """Return the stop reason in the output of a model call, else None."""
    holder = as_mapping(value)
    for name in ("choices", "candidates"):
        listed = holder.get(name)
        holder = as_mapping(listed[0]) if isinstance(listed, list) and listed else holder
    reasons = (holder.get(key) for key in ("finish_reason", "finishReason", "stop_reason", "stopReason"))
    return as_str(next(filter(None, reasons), None))
