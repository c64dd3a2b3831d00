"""Requests of OpenAI Chat Completions, OpenAI Responses and Anthropic Messages, read into one form: `ChatRequest`.

The messages are those of `ratchet.components.core.Message`. What no policy can honour (images, several choices) is refused with
a sentence, never ignored. A schema for the answer is put into the prompt, and a call may be demanded: the policy is not made
to follow. `temperature` and `top_p` are the gateway's: what is recorded must come from the distribution that the policy's
version and sampling describe.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ratchet.components.core import Message, ToolSpec
from ratchet.components.core.http_requests import RequestFault
from ratchet.components.core.task_spec import FREE_PARAMETERS

MAX_DEPTH = 64
"""Deepest nesting of a request's JSON."""
MAX_BRACKETS = 1 << 20
"""Objects and lists of a request's JSON, counted with the brackets in its texts. The parser lets no other thread run."""
MAX_MESSAGES = 10_000
"""Messages of a request."""


class ChatRequest(msgspec.Struct, frozen=True):
    """One request in the common form. `max_tokens`: None for the policy's limit. `stop`: texts that end the reply.

    `custom_tools`: names of tools of the Responses API whose only parameter is free text. `previous`: id of the response or
    message whose conversation `messages` continues; `form` is then not in them yet. `form`: the words that ask for a schema.
    `instructions`: whether the first message is for this request alone. `all_tools`: those that the request defines; `tools`:
    those of them that its `choice` leaves. `usage_chunk`: a stream of Chat Completions ends with the token counts.
    """

    model: str
    messages: list[Message]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    custom_tools: frozenset[str] = frozenset()
    previous: str | None = None
    form: str = ""
    instructions: bool = False
    all_tools: tuple[ToolSpec, ...] = ()
    choice: Any = None
    usage_chunk: bool = False


def decode_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body. Raises RequestFault."""
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise RequestFault(f"the body has more than {MAX_BRACKETS:,} brackets; send less at once")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestFault(f"the body is no JSON: {error}") from error
    except RecursionError as error:
        raise RequestFault(f"the body is nested deeper than {MAX_DEPTH} levels") from error
    if not isinstance(value, dict):
        raise RequestFault("the body is no JSON object")
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise RequestFault(f"the body is nested deeper than {MAX_DEPTH} levels")


def _field(body: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestFault(f"`{name}` must be of type {kind.__name__}")
    return value


def _limit(body: Mapping[str, Any], *names: str) -> int | None:
    limit = next((value for name in names if (value := _field(body, name, int)) is not None), None)
    if limit is not None and limit < 1:
        raise RequestFault(f"`{names[-1]}` must be at least 1")
    return limit


def _objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    values = _field(body, name, list, [])
    if not all(isinstance(value, dict) for value in values):
        raise RequestFault(f"`{name}` must be a list of objects")
    return list(values)


TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "summary_text")


def _text(content: Any, where: str) -> str:
    """Return the text of a content: a string, or a list of parts. Raises RequestFault for a part that is no text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestFault(f"{where}: the content must be text or a list of parts")
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if kind not in TEXT_PARTS or not isinstance(text, str):
            raise RequestFault(
                f"{where}: a part of type '{kind}' cannot be read; the policies of this gateway read text"
            )
        texts.append(text)
    return "\n".join(texts)


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """Return one call of an assistant's message; arguments that are no JSON object are kept under `input`."""
    if not isinstance(name, str) or not name:
        raise RequestFault("a call in the messages names no tool")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments.encode()) if arguments.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            arguments = {"input": arguments}
    if not isinstance(arguments, dict):
        arguments = {"input": arguments}
    return {"id": str(call_id), "type": "function", "function": {"name": name, "arguments": arguments}}


def _assistant(content: str, calls: list[dict[str, Any]]) -> Message:
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _tool(name: Any, description: Any, parameters: Any) -> ToolSpec:
    if not isinstance(name, str) or not name:
        raise RequestFault("a tool has no name")
    if parameters is not None and not isinstance(parameters, dict):
        raise RequestFault(f"tool '{name}': its parameters must be a JSON Schema")
    return ToolSpec(name, description if isinstance(description, str) else "", parameters or FREE_PARAMETERS)


CLIENT_TOOLS = ("apply_patch", "bash", "computer", "local_shell", "memory", "shell", "text_editor")
"""Beginnings of the types of tools that a client carries out, and whose schema only their provider's models know."""


def _unknown_tool(tool: Mapping[str, Any]) -> RequestFault:
    kind = str(tool.get("type"))[:40]
    return RequestFault(f"a tool of type '{kind}' cannot be offered, since it has no schema; send it as a function")


def with_choice(tools: Iterable[ToolSpec], choice: Any) -> tuple[ToolSpec, ...]:
    """Return the tools that may be called. Whether the policy calls one is its own decision, also where a call is demanded.

    Raises RequestFault for a choice of none of them.
    """
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind == "none":
        return ()
    if kind in (None, "auto", "required", "any"):
        return tuple(tools)
    allowed = [choice]
    if kind == "allowed_tools":
        allowed = _objects(_field(choice, "allowed_tools", dict, choice), "tools")
    names = {name for name in map(_chosen_name, allowed) if isinstance(name, str)}
    chosen = tuple(tool for tool in tools if tool.name in names)
    if not chosen:
        raise RequestFault("tool_choice names no tool of the request; name one of `tools`, or send auto")
    return chosen


def _chosen_name(choice: Any) -> str | None:
    inner = choice.get("function") or choice.get("custom") or choice if isinstance(choice, dict) else {}
    return inner.get("name") if isinstance(inner, dict) else None


_UNREAD = {
    "functions": "send `tools`",
    "function_call": "send `tools`",
    "conversation": "send the messages, or `previous_response_id`",
    "prompt": "send its text as `instructions`",
    "logprobs": "they are recorded with the episode",
    "top_logprobs": "they are recorded with the episode",
}
"""Fields that would change what a model reads or what a client gets, and what to do instead."""


def _check_common(body: Mapping[str, Any]) -> None:
    if (_field(body, "n", int) or 1) != 1:
        raise RequestFault("`n` must be 1: send one request per sample")
    for name, instead in _UNREAD.items():
        if body.get(name):
            raise RequestFault(f"`{name}` is not read here; {instead}")


def _format_words(form: Any) -> str:
    """Return the words that ask for an answer of a schema, which are those of OpenAI's Harmony format; "" without a schema.

    Whether the policy follows it is its own decision. A demand for JSON without a schema is in the client's prompt.
    """
    form = {} if form is None else form
    if not isinstance(form, dict):
        raise RequestFault("the format of the answer must be an object")
    kind = form.get("type", "text")
    if kind in ("text", "json_object"):
        return ""
    if kind != "json_schema":
        raise RequestFault(f"a format '{str(kind)[:40]}' of the answer is not supported; ask for text or a JSON Schema")
    asked = form.get("json_schema") or form
    schema = asked.get("schema") if isinstance(asked, dict) else None
    if not isinstance(schema, dict):
        raise RequestFault("the format of the answer has no `schema`; send a JSON Schema")
    lines = ["# Response Formats", f"## {asked.get('name') or 'answer'}"]
    if asked.get("description"):
        lines.append(f"// {asked['description']}")
    return "\n\n".join([*lines, msgspec.json.encode(schema).decode()])


def with_format(messages: list[Message], words: str) -> list[Message]:
    """Return the messages with `words` at the end of the system message, which is made if there is none."""
    if not words:
        return messages
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{words}"}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]


def without_format(messages: list[Message], words: int) -> list[Message]:
    """Return the messages from before `with_format`; `words`: the number of characters that it added but for blank lines."""
    if not words:
        return messages
    content = (messages[0]["content"] or "")[:-words].removesuffix("\n\n")
    return [*([{**messages[0], "content": content}] if content else []), *messages[1:]]


def _with_offer(request: ChatRequest, tools: Iterable[ToolSpec], choice: Any, form: Any) -> ChatRequest:
    """Return the request with its tools and its format. Where it continues a conversation, they are joined to that later."""
    words, tools = _format_words(form), tuple(tools)
    return msgspec.structs.replace(
        request,
        messages=request.messages if request.previous else with_format(request.messages, words),
        tools=with_choice(tools, choice) if tools or not request.previous else (),
        form=words,
        all_tools=tools,
        choice=choice,
    )


def _stop(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name)
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise RequestFault(f"`{name}` must be a text or a list of texts")
    return tuple(texts)


def read_completions(body: dict[str, Any]) -> ChatRequest:
    """Read a request of OpenAI Chat Completions. Raises RequestFault."""
    _check_common(body)
    messages: list[Message] = []
    for number, message in enumerate(_objects(body, "messages")):
        role, where = message.get("role"), f"messages[{number}]"
        content = _text(message.get("content"), where)
        if role in ("system", "developer", "user"):
            messages.append({"role": "user" if role == "user" else "system", "content": content})
        elif role == "assistant":
            calls = _objects(message, "tool_calls")
            functions = [_field(call, "function", dict, {}) for call in calls]
            read = [
                _call(call.get("id"), function.get("name"), function.get("arguments"))
                for call, function in zip(calls, functions, strict=True)
            ]
            messages.append(_assistant(content, read))
        elif role in ("tool", "function"):
            call_id = message.get("tool_call_id", message.get("name"))
            messages.append({"role": "tool", "tool_call_id": str(call_id), "content": content})
        else:
            raise RequestFault(f"{where}: unknown role {str(role)[:40]!r}")
    tools = []
    for tool in _objects(body, "tools"):
        if tool.get("type", "function") != "function":
            raise _unknown_tool(tool)
        function = _field(tool, "function", dict, {})
        tools.append(_tool(function.get("name"), function.get("description"), function.get("parameters")))
    request = ChatRequest(
        model=_field(body, "model", str, ""),
        messages=_checked(messages),
        max_tokens=_limit(body, "max_completion_tokens", "max_tokens"),
        stop=_stop(body, "stop"),
        stream=_field(body, "stream", bool, False),
        usage_chunk=bool(_field(body, "stream_options", dict, {}).get("include_usage")),
    )
    return _with_offer(request, tools, body.get("tool_choice"), body.get("response_format"))


def read_responses(body: dict[str, Any]) -> ChatRequest:
    """Read a request of OpenAI Responses. Raises RequestFault.

    Tools of the server (web search and others) are not offered to the policy; a `custom` tool is offered with one text
    parameter, `input`.
    """
    _check_common(body)
    instructions = _text(body.get("instructions"), "instructions")
    messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _objects(body, "input")
    for number, item in enumerate(items):
        _add_item(messages, item, f"input[{number}]")
    tools, custom = [], set()
    for tool in _objects(body, "tools"):
        kind = tool.get("type")
        if kind == "function":
            tools.append(_tool(tool.get("name"), tool.get("description"), tool.get("parameters")))
        elif kind == "custom":
            schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
            tools.append(_tool(tool.get("name"), tool.get("description"), schema))
            custom.add(tools[-1].name)
        elif str(kind).startswith(CLIENT_TOOLS):
            raise _unknown_tool(tool)
    previous = _field(body, "previous_response_id", str)
    request = ChatRequest(
        model=_field(body, "model", str, ""),
        messages=_checked(messages) if messages or not previous else [],
        max_tokens=_limit(body, "max_output_tokens"),
        stream=_field(body, "stream", bool, False),
        custom_tools=frozenset(custom),
        previous=previous,
        instructions=bool(instructions),
    )
    return _with_offer(request, tools, body.get("tool_choice"), _field(body, "text", dict, {}).get("format"))


def _add_item(messages: list[Message], item: dict[str, Any], where: str) -> None:
    """Append an item of the Responses API; the text and the calls of one reply, which are items, become one message."""
    kind = item.get("type", "message")
    last = messages[-1] if messages else None
    if kind == "message":
        role, content = item.get("role"), _text(item.get("content"), where)
        if role == "assistant":
            # Some clients send the calls first.
            if last is not None and last["role"] == "assistant" and not last["content"]:
                messages[-1] = {**last, "content": content}
            else:
                messages.append(_assistant(content, []))
        elif role in ("system", "developer", "user"):
            messages.append({"role": "user" if role == "user" else "system", "content": content})
        else:
            raise RequestFault(f"{where}: unknown role {str(role)[:40]!r}")
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments") if kind == "function_call" else {"input": item.get("input")}
        call = _call(item.get("call_id"), item.get("name"), arguments)
        if last is not None and last["role"] == "assistant":
            last.setdefault("tool_calls", []).append(call)  # in place: a copy for each of many calls takes minutes
        else:
            messages.append(_assistant("", [call]))
    elif kind in ("function_call_output", "custom_tool_call_output"):
        content = _text(item.get("output"), where)
        messages.append({"role": "tool", "tool_call_id": str(item.get("call_id")), "content": content})
    elif kind != "reasoning":
        raise RequestFault(
            f"{where}: an item of type {str(kind)[:40]!r} cannot be read; send messages, calls and outputs"
        )


def read_anthropic(body: dict[str, Any]) -> ChatRequest:
    """Read a request of Anthropic Messages. Raises RequestFault."""
    messages: list[Message] = []
    if system := _text(body.get("system"), "system"):
        messages.append({"role": "system", "content": system})
    for number, message in enumerate(_objects(body, "messages")):
        role, where, content = message.get("role"), f"messages[{number}]", message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else _objects(message, "content")
        if role == "assistant":
            uses = [part for part in parts if part.get("type") == "tool_use"]
            texts = [part for part in parts if part.get("type") not in ("tool_use", "thinking", "redacted_thinking")]
            calls = [_call(use.get("id"), use.get("name"), use.get("input")) for use in uses]
            messages.append(_assistant(_text(texts, where), calls))
        elif role in ("user", "system"):
            messages += _user_messages(role, parts, where)
        else:
            raise RequestFault(f"{where}: unknown role {str(role)[:40]!r}")
    form = _field(body, "output_config", dict, {}).get("format") or body.get("output_format")
    tools = []
    for tool in _objects(body, "tools"):
        kind = tool.get("type") or "custom"
        if kind == "custom":
            tools.append(_tool(tool.get("name"), tool.get("description"), tool.get("input_schema")))
        elif str(kind).startswith(CLIENT_TOOLS):
            raise _unknown_tool(tool)
    request = ChatRequest(
        model=_field(body, "model", str, ""),
        messages=_checked(messages),
        max_tokens=_limit(body, "max_tokens"),
        stop=_stop(body, "stop_sequences"),
        stream=_field(body, "stream", bool, False),
        previous=_thread(body),
    )
    return _with_offer(request, tools, body.get("tool_choice"), form)


def _thread(body: Mapping[str, Any]) -> str | None:
    """Return the message that a thread continues: such a request has only what follows that message."""
    thread = _field(body, "thread", dict, {})
    return _field(thread, "previous_message_id", str) if thread.get("type") == "continue" else None


def _user_messages(role: str, parts: list[dict[str, Any]], where: str) -> list[Message]:
    results: list[Message] = [
        {"role": "tool", "tool_call_id": str(part.get("tool_use_id")), "content": _text(part.get("content"), where)}
        for part in parts
        if part.get("type") == "tool_result"
    ]
    texts = [part for part in parts if part.get("type") != "tool_result"]
    return [*results, *([{"role": role, "content": _text(texts, where)}] if texts or not results else [])]


def _checked(messages: list[Message]) -> list[Message]:
    if not messages:
        raise RequestFault("the request has no messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestFault(f"the request has more than {MAX_MESSAGES:,} messages; shorten the conversation", 413)
    return messages


READERS: dict[str, Callable[[dict[str, Any]], ChatRequest]] = {
    "chat/completions": read_completions,
    "responses": read_responses,
    "messages": read_anthropic,
}
"""Readers of the protocols, by the path after `/v1/`."""
