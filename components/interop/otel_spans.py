"""Trajectories from spans, by OpenTelemetry's conventions for generative AI and by OpenInference.

Model calls (`chat`, `LLM`) are turns and tool calls their results, as in `span_import`. Messages are read from the attributes
(`gen_ai.input.messages`), from the events and log records that they replace (`gen_ai.user.message`, `gen_ai.choice`), from
OpenInference's (`llm.input_messages.0.message.role`), and from OpenLLMetry's numbered ones (`gen_ai.prompt.0.role`).
All spans of a conversation or session are one episode, also those of several traces; without such an id, a trace is.

The result of a tool call is taken from the messages of the next model call. Many programs record texts only if an option is set;
without them the episode has `texts_missing`. Spans state no success: an error of the root span is a failure of the infrastructure,
and evaluations are stored unchanged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .chat_import import to_openai_tools
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, to_text, without_keys, words
from .message_content import load_json
from .provider_messages import bedrock_to_openai_messages, input_messages, output_reply
from .span_import import MlflowSpan, SpanImporter, nanoseconds, read_spans
from .trajectory_draft import TrajectoryDraft

SESSION_KEYS = words(
    "gen_ai.conversation.id session.id langfuse.session.id traceloop.association.properties.session_id "
    "langsmith.metadata.session_id langsmith.metadata.conversation_id langsmith.metadata.thread_id"
)
_KIND_KEYS = words(
    "openinference.span.kind gen_ai.operation.name traceloop.span.kind langfuse.observation.type llm.request.type"
)
_KINDS = dict.fromkeys(words("llm chat text_completion completion generate_content generation"), "CHAT_MODEL")
_KINDS |= {"execute_tool": "TOOL", "invoke_agent": "AGENT"}
_SAMPLING = words("temperature top_p top_k max_tokens max_completion_tokens seed stop_sequences")
_TOOL_INPUTS = "gen_ai.tool.call.arguments tool_arguments input.value tool.parameters traceloop.entity.input"
_TOOL_INPUTS += " langfuse.observation.input gen_ai.prompt"
_TOOL_OUTPUTS = "gen_ai.tool.call.result tool_response output.value traceloop.entity.output langfuse.observation.output"
_TOOL_OUTPUTS += " gen_ai.completion"
_PROMPTS = "input.value gen_ai.prompt langfuse.observation.input"
_SMOLAGENTS_ROLES = {"tool-call": "assistant", "tool-response": "tool"}
_Messages = tuple[list[dict[str, Any]], list[dict[str, Any]]]
_EVALUATIONS = ("gen_ai.evaluation.result", "evaluations", "annotations")


def episodes_of_spans(spans: Iterable[Mapping[str, Any]], source: LogSource | None = None) -> Iterator[Trajectory]:
    """Yield one trajectory per conversation, in the order of their first spans; nothing for spans of other libraries.

    `spans`: as `read_otlp` returns them, in any order; log records among them add the events of their span, and a repeated
    span counts once. `source`: takes images and unreadable parts; without it, such parts are left out.
    """
    source = source or LogSource(Path("spans"), on_bad=lambda part: None)
    for session, group in _group(spans).items():
        converted = [_convert(span) for span in group]
        if any(span is not None for span in converted):
            yield _trajectory(source, session, group, [span for span in converted if span is not None])


def _group(spans: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the spans by session: a span's own id, else that of the nearest span above, else the only one of its trace."""
    unique: dict[tuple[str, str], dict[str, Any]] = {}
    records: list[Mapping[str, Any]] = []
    for span in spans:
        if "body" in span or "eventName" in span:
            records.append(span)
        else:
            unique[_ids(span)] = {**span, "events": as_mappings(span.get("events"))}
    # Batches of records may overtake each other.
    for record in sorted(records, key=lambda record: nanoseconds(record.get("timeUnixNano")) or 0):
        if (owner := unique.get(_ids(record))) is not None:
            owner["events"] = [*owner["events"], _event_of_record(record)]
    own = {ids: _session(span) for ids, span in unique.items()}
    in_trace: dict[str, set[str]] = {}
    for (trace, _), session in own.items():
        in_trace.setdefault(trace, set()).update(filter(None, [session]))
    groups: dict[str, list[dict[str, Any]]] = {}
    for (trace, identity), span in unique.items():
        only = next(iter(in_trace[trace]), "") if len(in_trace[trace]) == 1 else ""
        session, at = own[trace, identity], identity
        for _ in range(100 if not session and not only else 0):  # a damaged trace may have a cycle of parents
            at = to_text(as_mapping(unique.get((trace, at))).get("parentSpanId"))
            if session := own.get((trace, at)):
                break
        groups.setdefault(session or only or trace or identity, []).append(span)
    return groups


def _ids(span: Mapping[str, Any]) -> tuple[str, str]:
    return to_text(span.get("traceId")), to_text(span.get("spanId"))


def _session(span: Mapping[str, Any]) -> str | None:
    return first_text(*(as_mapping(span.get("attributes")).get(key) for key in SESSION_KEYS))


def _event_of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    attributes = as_mapping(record.get("attributes"))
    name = first_text(record.get("eventName"), attributes.get("event.name"))
    return {"name": name or "", "attributes": {**attributes, **as_mapping(record.get("body"))}}


def _convert(span: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a span in MLflow's form, with inputs and outputs in OpenAI's; None where it is none of these conventions."""
    values = dict(as_mapping(span.get("attributes")))
    events = as_mappings(span.get("events")) + as_mappings(
        decode_value(values.get("events"))
    )  # the latter: pydantic-ai's former way
    for event in events:
        if event.get("name") == "gen_ai.client.inference.operation.details":
            values = {**as_mapping(event.get("attributes")), **values}
    kind = first_text(values.get("mlflow.spanType")) or _kind(values)
    name = to_text(span.get("name"))
    # Google's ADK repeats the results of parallel calls, and OpenInference the call by which OpenAI's Agents hand over.
    is_copy = values.get("gen_ai.tool.name") == "(merged tools)"
    is_copy |= kind == "TOOL" and name.startswith("handoff to ") and "tool.name" not in values
    if kind is None or is_copy:
        return None
    inputs: Any = None
    outputs: Any = None
    messages: Callable[[], _Messages] | None = None
    attributes: dict[str, Any] = {"mlflow.spanType": kind}
    if "mlflow.spanType" in values:
        attributes = values
    elif kind == "CHAT_MODEL":
        messages = partial(_messages_of_call, values, events)
        spent = as_mapping(decode_value(values.get("langfuse.observation.usage_details")))
        prompt = _first(values, "gen_ai.usage.input_tokens gen_ai.usage.prompt_tokens llm.token_count.prompt")
        reply = _first(values, "gen_ai.usage.output_tokens gen_ai.usage.completion_tokens llm.token_count.completion")
        attributes["mlflow.chat.tokenUsage"] = {
            "prompt_tokens": _first(spent, "input prompt_tokens input_tokens") if prompt is None else prompt,
            "completion_tokens": _first(spent, "output completion_tokens output_tokens") if reply is None else reply,
        }
        attributes["mlflow.llm.model"] = _first(
            values, "gen_ai.response.model gen_ai.request.model llm.model_name langfuse.observation.model.name"
        )
        attributes["mlflow.llm.cost"] = {"total_cost": _first(values, "llm.cost.total gen_ai.usage.cost")}
    elif kind == "TOOL":
        name = to_text(_first(values, "gen_ai.tool.name tool.name traceloop.entity.name")) or name
        asked, replies = _event_messages(events)  # Strands' tools
        inputs = decode_value(_first(values, _TOOL_INPUTS) or next((each.get("content") for each in asked), None))
        told = [to_text(part.get("text", part)) for reply in replies for part in as_mappings(reply.get("content"))]
        outputs = _first(values, _TOOL_OUTPUTS)
        outputs = "\n".join(told) if told and outputs is None else outputs
        attributes["tool_call_id"] = _first(values, "gen_ai.tool.call.id tool_call.id")
    elif kind == "AGENT":
        agent = _first(values, "gen_ai.agent.name agent.name traceloop.entity.name")
        name = to_text(agent) or name.removeprefix("invoke_agent ")
    status = as_mapping(span.get("status"))
    failed = status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR")
    return {
        "name": name,
        "trace_id": span.get("traceId"),
        "span_id": span.get("spanId"),
        "parent_span_id": span.get("parentSpanId"),
        "start_time": span.get("startTimeUnixNano"),
        "end_time": span.get("endTimeUnixNano"),
        "attributes": attributes,
        "inputs": inputs,
        "outputs": outputs,
        "messages": messages,
        "load": messages and partial(_model_call, values, messages),
        "status": {"code": "ERROR" if failed else "OK", "message": status.get("message") or values.get("error.type")},
        "events": events,
    }


def _kind(values: Mapping[str, Any]) -> str | None:
    for key in _KIND_KEYS:
        if isinstance(named := values.get(key), str):
            return _KINDS.get(named.lower(), "EMBEDDING" if key == "llm.request.type" else named.upper())
    # Before the attribute existed, and in log records without it, a model that was asked is the only mark.
    return "CHAT_MODEL" if "gen_ai.request.model" in values else None


def _first(values: Mapping[str, Any], keys: str) -> Any:
    return next((values[key] for key in keys.split() if values.get(key) is not None), None)


def decode_value(value: Any) -> Any:
    """Return the JSON value of a text that is an object or a list, else the value itself."""
    decoded = load_json(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[") else None
    return value if decoded is None else decoded


def _messages_of_call(values: Mapping[str, Any], events: list[dict[str, Any]]) -> _Messages:
    """Return the messages of a model call's input, and those of its reply."""
    messages = [*_parts_of_system(values), *_messages(decode_value(values.get("gen_ai.input.messages")))]
    replies = list(_messages(decode_value(values.get("gen_ai.output.messages"))))[:1]
    if not messages and not replies:
        messages, replies = _event_messages(events)
    if not messages:
        nested = [as_mapping(item.get("message")) for item in _numbered(values, "llm.input_messages")]
        messages = [_openinference(message) for message in nested] or _numbered(values, "gen_ai.prompt")
    if not replies:
        nested = [as_mapping(item.get("message")) for item in _numbered(values, "llm.output_messages")]
        replies = [_openinference(message) for message in nested] or _numbered(values, "gen_ai.completion")
    if not messages:  # in the form of the provider or the framework
        messages = [dict(message) for message in input_messages(decode_value(_first(values, _PROMPTS)))]
    if (
        not replies
        and (completion := _first(values, "output.value gen_ai.completion langfuse.observation.output")) is not None
    ):
        replies = [output_reply(decode_value(completion))]
    return messages, replies


def _model_call(
    values: Mapping[str, Any], read: Callable[[], _Messages]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the request and the response (None: not recorded) of a model call in the form of OpenAI's API."""
    messages, replies = read()
    prompt = _first(values, _PROMPTS)
    if not messages and isinstance(prompt, str):
        messages = [{"role": "user", "content": prompt}]
    parameters = as_mapping(
        decode_value(_first(values, "llm.invocation_parameters langfuse.observation.model.parameters"))
    )
    parameters |= {key: values[f"gen_ai.request.{key}"] for key in _SAMPLING if f"gen_ai.request.{key}" in values}
    listed = [decode_value(as_mapping(item.get("tool")).get("json_schema")) for item in _numbered(values, "llm.tools")]
    defined = (
        listed
        or _numbered(values, "llm.request.functions")
        or decode_value(values.get("gen_ai.tool.definitions"))
        or as_mapping(decode_value(prompt)).get("tools")
    )
    tools = [tool if "function" in tool else without_keys(tool, "type") for tool in as_mappings(defined)]
    reasons = decode_value(values.get("gen_ai.response.finish_reasons"))
    reason = next(iter(reasons), None) if isinstance(reasons, list) else reasons
    reply = _joined(replies)
    choice = {"message": reply, "finish_reason": reply.pop("finish_reason", None) or reason}
    kept = {key: value for key, value in parameters.items() if key in _SAMPLING}
    return {"messages": messages, "tools": to_openai_tools(tools), **kept}, {"choices": [choice]} if replies else None


def _joined(replies: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one message: OpenInference writes each item of a reply of the Responses API as a message."""
    contents = [part for reply in replies for part in _as_parts(reply.get("content"))]
    calls = [call for reply in replies for call in as_mappings(reply.get("tool_calls"))]
    others = {key: value for reply in replies for key, value in reply.items() if key != "role" and value is not None}
    return others | {"content": contents, "tool_calls": calls}


def _as_parts(content: Any) -> list[Any]:
    decoded = decode_value(content)
    parts = as_mappings(decoded)
    is_parts = all("type" in part or part.keys() == {"text"} for part in parts)
    return parts if parts and is_parts else [] if content is None or content == [] else [content]


def _parts_of_system(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = decode_value(values.get("gen_ai.system_instructions"))
    if isinstance(parts, str):
        return [{"role": "system", "content": parts}]
    return [{"role": "system", "content": [_part(part) for part in as_mappings(parts)]}] if parts else []


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    """Yield messages of the conventions (`parts`) in OpenAI's form, each tool result as a separate message."""
    for message in as_mappings(value):
        parts = as_mappings(message.get("parts"))
        results = [
            (part.get("id"), None if (told := part.get("response", part.get("result"))) is None else to_text(told))
            for part in parts
            if part.get("type") == "tool_call_response"
        ]
        is_reply = message.get("role") == "assistant"  # its results are of tools that ran at the provider
        if not is_reply:
            yield from ({"role": "tool", "tool_call_id": name, "content": text} for name, text in results)
        calls = [part for part in parts if part.get("type") == "tool_call"]
        content = [_part(part) for part in parts if part.get("type") not in ("tool_call", "tool_call_response")]
        if is_reply:
            content += [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
        if content or calls or not parts:
            reason = drop_empty(finish_reason=message.get("finish_reason"))
            asked = [{key: call.get(key) for key in ("id", "name", "arguments")} for call in calls]
            yield {
                "role": message.get("role"),
                "content": content or message.get("content"),
                "tool_calls": asked,
                **reason,
            }


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a message in OpenAI's form."""
    kind, content = part.get("type"), part.get("content")
    if kind in ("text", "reasoning", "thinking"):
        return {"type": kind, "text": to_text(content if content is not None else part.get("text"))}
    if kind == "blob":
        return {"type": "image_url", "image_url": {"url": f"data:{part.get('mime_type')};base64,{to_text(content)}"}}
    return {"type": "image_url", "image_url": {"url": part.get("uri")}} if kind == "uri" else dict(part)


def _event_messages(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages of the input, and the replies, in events by the names of the conventions before 1.37."""
    messages: list[dict[str, Any]] = []
    replies: list[dict[str, Any]] = []
    for event in events:
        fields = as_mapping(event.get("attributes")) or event
        name = to_text(event.get("name") or event.get("event.name"))
        fields = {
            key: decode_value(value)
            for key, value in {**fields, **as_mapping(decode_value(fields.get("gen_ai.event.content")))}.items()
        }
        role = name.removeprefix("gen_ai.").removesuffix(".message")
        if name == "gen_ai.choice":
            message = fields.get("message", fields)
            reply = message if isinstance(message, dict) else {"content": message}
            replies.append({**bedrock_to_openai_messages(reply)[-1], "finish_reason": fields.get("finish_reason")})
        elif name == "gen_ai.content.prompt":
            messages += as_mappings(fields.get("gen_ai.prompt")) or [
                {"role": "user", "content": fields.get("gen_ai.prompt")}
            ]
        elif name == "gen_ai.content.completion":
            replies.append(output_reply(fields.get("gen_ai.completion")))
        elif name == f"gen_ai.{role}.message":
            keys = ("content", "tool_calls", "tool_call_id", "name", "reasoning_content")
            message = {key: fields[key] for key in keys if key in fields}
            call_id = {"tool_call_id": fields.get("id")} if role == "tool" and "id" in fields else {}
            told = {"role": first_text(fields.get("role")) or role, **message, **call_id}
            messages += [dict(each) for each in bedrock_to_openai_messages(told)]
    return messages, replies[:1]


def _openinference(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return an OpenInference message in OpenAI's form."""
    content = message.get("content")
    parts = [as_mapping(item.get("message_content")) for item in as_mappings(message.get("contents"))]
    parts = [part for part in parts if part.get("type") != "tool_use"]  # repeats one of `tool_calls`
    if parts:
        images = [as_mapping(as_mapping(part.get("image")).get("image")).get("url") for part in parts]
        content = [
            {"type": "image_url", "image_url": {"url": url}} if url else {**part, "type": part.get("type") or "text"}
            for part, url in zip(parts, images, strict=True)
        ]
    calls = [as_mapping(item.get("tool_call")) for item in as_mappings(message.get("tool_calls"))]
    kept = {key: message[key] for key in ("tool_call_id", "name", "finish_reason") if key in message}
    role = message.get("role")
    return {**kept, "role": _SMOLAGENTS_ROLES.get(to_text(role), role), "content": content, "tool_calls": calls}


def _numbered(values: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the objects of attributes named `PREFIX.INDEX.NAME…`, in the order of their indices."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        if key.startswith(f"{prefix}."):
            at = tree
            *way, last = key[len(prefix) + 1 :].split(".", 12)
            for name in way:
                inner = at.setdefault(name, {})
                at = inner if isinstance(inner, dict) else {}
            at[last] = value
    return as_mappings(_lists(tree if all(map(_is_index, tree)) else {}) or [])


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(map(_is_index, value)):
        return [_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _lists(inner) for key, inner in value.items()}


def _is_index(key: Any) -> bool:
    return isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 10


def _trajectory(
    source: LogSource, session: str, group: list[dict[str, Any]], converted: list[dict[str, Any]]
) -> Trajectory:
    calls = [span for span in converted if span["messages"]]
    # LlamaIndex marks its wrappers of a model call as such calls, with the source text of Python objects.
    wrappers = [
        span
        for span in calls
        if all(count is None for count in span["attributes"]["mlflow.chat.tokenUsage"].values())
        and span["status"]["code"] == "OK"
        and not span["messages"]()[0]
    ]
    if wrappers and any(span["messages"]()[0] for span in calls):
        for span in wrappers:
            span["attributes"]["mlflow.spanType"] = "CHAIN"
    conversation = import_session("otel", source, session, converted)
    draft = conversation.draft
    evaluations = [
        event for span in group for event in as_mappings(span.get("events")) if event.get("name") in _EVALUATIONS
    ]
    resource = as_mapping(group[0].get("resource"))
    draft.extra.update(
        drop_empty(
            conversation=session,
            traces=sorted({_ids(span)[0] for span in group}),
            resource=resource,
            scopes=sorted({to_text(span.get("scope")) for span in group} - {""}),
            evaluations=evaluations,
            tools=conversation.tools,
            texts_missing=not any(message.content for message in draft.messages)
            and not any(turn.text for turn in draft.turns),
        )
    )
    return conversation.finish(session, first_text(resource.get("service.name")))


def import_session(format: str, source: LogSource, session: str, spans: list[dict[str, Any]]) -> SpanImporter:
    """Return the conversation of a session's spans (in MLflow's form) with outcome and time, as the draft of a record."""
    where = f"session {session}"
    read = read_spans(source, where, spans)
    conversation = SpanImporter(TrajectoryDraft(format), source, where, read)
    draft = conversation.draft
    draft.failure = _root_failure(read)
    draft.outcome = Outcome(terminated=bool(read) and draft.failure is None)
    draft.collected_at = next((span.start_time for span in read if span.start), None)
    return conversation


def _root_failure(spans: list[MlflowSpan]) -> Failure | None:
    """Return the error of the last root span: an earlier request of a session that failed does not end the conversation."""
    ids = {span.span_id for span in spans}
    root = next((span for span in reversed(spans) if span.parent_id not in ids), None)
    if root is None or not root.failed:
        return None
    kind, message = root.error
    return Failure(FailureKind.INFRASTRUCTURE, kind or "Error", message)
