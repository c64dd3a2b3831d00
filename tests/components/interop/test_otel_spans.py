"""Spans of OpenTelemetry's conventions, OpenInference and OpenLLMetry give the same episode of the same conversation."""

import base64
import json
import tracemalloc

import pytest
from episodes import make_episode
from log_files import FIXTURES

from ratchet.components.core import DataError, ToolCall, ToolResult
from ratchet.components.interop.log_source import LogSource
from ratchet.components.interop.otel_spans import episodes_of_spans
from ratchet.components.interop.otlp_decoding import read_otlp
from ratchet.components.interop.reader_registry import detect_format, read_log
from ratchet.components.interop.trajectory_writers import get_writer, line_encoder
from ratchet.components.trajectories.trajectory import Turn

LOGS = FIXTURES / "otel"
QUESTION = [("system", "You know weather."), ("user", "Weather in Bern?")]


def span(name, attributes, at=1, **more):
    ids = {"traceId": "a" * 32, "spanId": f"{at:016x}", "parentSpanId": ""}
    times = {"startTimeUnixNano": at * 10**9, "endTimeUnixNano": (at + 1) * 10**9}
    return {**ids, **times, "name": name, "attributes": attributes, **more}


def chat(messages, reply, at=1, **more):
    def part(role, text):
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.input.messages": json.dumps([part(*each) for each in messages]),
        "gen_ai.output.messages": json.dumps([{**part("assistant", reply), "finish_reason": "stop"}]),
        **more.pop("attributes", {}),
    }
    return span("chat small", attributes, at, **more)


def otlp(spans, resource=None):
    def pairs(values):
        return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]

    written = [{**each, "attributes": pairs(each["attributes"])} for each in spans]
    scopes = [{"scope": {"name": "test"}, "spans": written}]
    return {"resourceSpans": [{"resource": {"attributes": pairs(resource or {})}, "scopeSpans": scopes}]}


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda path: path.name)
def test_each_instrumentation_gives_the_same_conversation(path):
    assert detect_format(LogSource(path)) == "otel"
    (found,) = read_log(path)
    assert [(message.role, message.content) for message in found.messages] == QUESTION
    first, second = found.turns
    assert [(call.call_id, call.tool, call.arguments) for call in first.calls] == [
        ("call_1", "get_weather", {"city": "Bern"})
    ]
    (result,) = first.results
    assert result.call_id == "call_1" and json.loads(result.content) == {"degrees": 21}
    assert (second.text, second.calls) == ("It is 21 degrees in Bern.", ())
    assert [(turn.usage.prompt_tokens, turn.usage.completion_tokens) for turn in found.turns] == [(11, 7), (11, 7)]
    assert found.agent.policy_version == "small-2026"
    assert found.outcome.success is None
    assert (
        found.source_extra.get("tools", [{"function": {"name": "get_weather"}}])[0]["function"]["name"] == "get_weather"
    )


def test_langfuses_own_attributes_are_read():
    attributes = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "small"}
    attributes |= {
        "langfuse.observation.input": '[{"role": "user", "content": "q"}]',
        "langfuse.observation.output": "a",
    }
    (found,) = episodes_of_spans(
        [span("chat", attributes | {"langfuse.observation.usage_details": '{"input": 3, "output": 2}'})]
    )
    assert [message.content for message in found.messages] == ["q"]
    assert (found.turns[0].text, found.turns[0].usage.prompt_tokens, found.agent.policy_version) == ("a", 3, "small")


def test_the_traces_of_a_conversation_are_one_episode():
    first = chat([("user", "One?")], "Two.", attributes={"gen_ai.conversation.id": "talk"})
    history = [("user", "One?"), ("assistant", "Two."), ("user", "And then?")]
    second = chat(history, "Three.", at=5, attributes={"session.id": "talk"}) | {"traceId": "b" * 32}
    (found,) = episodes_of_spans([second, first])
    assert [turn.text for turn in found.turns] == ["Two.", "Three."]
    assert [result.content for result in found.turns[0].results] == ["And then?"]
    assert found.source_extra["traces"] == ["a" * 32, "b" * 32]


def test_a_trace_with_several_conversations_is_as_many_episodes():
    spans = [chat([("user", name)], name, at, attributes={"session.id": name}) for at, name in ((1, "x"), (3, "y"))]
    assert [found.turns[0].text for found in episodes_of_spans(spans)] == ["x", "y"]


def test_spans_below_one_with_a_conversation_belong_to_it():
    roots = [span(name, {"session.id": name}, at) for at, name in ((1, "x"), (2, "y"))]
    child = chat([("user", "q")], "a", 3, parentSpanId=roots[1]["spanId"])
    (found,) = episodes_of_spans([*roots, child])
    assert (
        found.episode_id
        == next(episodes_of_spans([chat([("user", "q")], "b", attributes={"session.id": "y"})])).episode_id
    )


def test_a_repeated_span_counts_once():
    each = chat([("user", "q")], "a")
    (found,) = episodes_of_spans([each, dict(each)])
    assert len(found.turns) == 1


def test_spans_of_other_libraries_are_no_episode():
    assert not list(episodes_of_spans([span("GET /", {"http.request.method": "GET"})]))


def test_the_result_of_a_tool_is_what_the_model_was_given():
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
    asked = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call]}])}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c"}
    tool["gen_ai.tool.call.result"] = "all 10,000 lines"
    shown = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "first lines"}]}
    given = {"gen_ai.input.messages": json.dumps([{"role": "assistant", "parts": [call]}, shown])}
    spans = [
        chat([("user", "q")], "", 1, attributes=asked),
        span("execute_tool look", tool, 2),
        chat([], "ok", 4, attributes=given),
    ]
    (found,) = episodes_of_spans(spans)
    assert [result.content for result in found.turns[0].results] == ["first lines"]
    assert len(found.turns) == 2


def conversation(spans):
    """The turns of the only episode of spans: calls, results by the id of their call, text."""
    (found,) = episodes_of_spans(spans)
    return found, [
        ([(call.call_id, call.arguments) for call in turn.calls], [each[:2] for each in results_of(turn)], turn.text)
        for turn in found.turns
    ]


def results_of(turn):
    return [(result.call_id, result.content, result.error) for result in turn.results]


def test_langsmiths_spans_have_langchains_messages_and_join_by_the_thread():
    def message(kind, content, **more):
        return {"lc": 1, "type": "constructor", "id": [], "kwargs": {"type": kind, "content": content, **more}}

    def call(at, messages, reply):
        prompt, completion = {"messages": [messages]}, {"generations": [[{"message": reply}]]}
        return model_call(at, **{"gen_ai.prompt": prompt, "gen_ai.completion": completion})

    def model_call(at, operation="chat", **values):
        texts = {key: json.dumps(value) for key, value in values.items()}
        named = {"gen_ai.operation.name": operation, "langsmith.metadata.thread_id": "talk"}
        return span("ChatOpenAI", named | texts, at) | {"traceId": f"{at:032x}"}

    asked = [message("system", "Be brief."), message("human", "Look.")]
    reply = message("ai", "", tool_calls=[{"id": "c", "name": "look", "args": {"at": "a"}}])
    answer = {"output": {"type": "tool", "content": "found", "tool_call_id": "c", "status": "success"}}
    tool = model_call(2, "execute_tool", **{"gen_ai.prompt": {"at": "a"}, "gen_ai.completion": answer})
    tool["attributes"] |= {"gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c"}
    shown = message("tool", "found", tool_call_id="c")
    found, turns = conversation([call(1, asked, reply), tool, call(3, [*asked, reply, shown], message("ai", "Yes."))])
    assert [message.role for message in found.messages] == ["system", "user"]
    assert turns == [([("c", {"at": "a"})], [("c", "found")], ""), ([], [], "Yes.")]


def test_strands_events_have_bedrocks_blocks():
    def event(name, **attributes):
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
        return {"name": f"gen_ai.{name}", "attributes": texts}

    use = {"toolUse": {"toolUseId": "c", "name": "look", "input": {"at": "a"}}}
    shown = {"toolResult": {"toolUseId": "c", "status": "error", "content": [{"text": "absent"}]}}
    asked = event("user.message", content=[{"text": "Look."}])
    history = [asked, event("assistant.message", content=[use]), event("tool.message", content=[shown])]
    chat_of = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small"}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c"}
    told = event("choice", message=[{"text": "absent"}])
    spans = [
        span("chat", chat_of, 1, events=[asked, event("choice", message=[use], finish_reason="tool_use")]),
        span("execute_tool look", tool, 2, events=[event("tool.message", content={"at": "a"}), told]),
        span("chat", chat_of, 3, events=[*history, event("choice", message=[{"text": "No."}])]),
    ]
    found, turns = conversation(spans)
    assert [message.content for message in found.messages] == ["Look."]
    assert turns == [([("c", {"at": "a"})], [("c", "absent")], ""), ([], [], "No.")]
    assert conversation([spans[0], spans[1]])[1] == turns[:1]
    assert conversation([spans[0], spans[2]])[1] == turns
    assert results_of(next(episodes_of_spans([spans[0], spans[2]])).turns[0]) == [("c", "absent", "absent")]


def test_langfuses_usage_tools_and_sampling_are_read_in_openais_names_and_definitions_are_no_results():
    def generation(at, request, reply, **more):
        named = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "small"}
        texts = {"input": json.dumps(request), "output": json.dumps(reply), **more}
        return span("chat", named | {f"langfuse.observation.{key}": text for key, text in texts.items()}, at)

    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    asked, reply = {"role": "user", "content": "Look."}, {"role": "assistant", "content": "I cannot."}
    usage = {
        "usage_details": '{"prompt_tokens": 9, "completion_tokens": 2}',
        "model.parameters": '{"temperature": 0.5}',
    }
    (found,) = episodes_of_spans([generation(1, {"messages": [asked], "tools": [tool]}, reply, **usage)])
    assert (found.turns[0].usage.prompt_tokens, found.turns[0].usage.completion_tokens) == (9, 2)
    assert (found.source_extra["tools"], found.agent.sampling) == ([tool], {"temperature": 0.5})
    definition = {"role": "tool", "content": tool}
    again = [asked, definition, reply, {"role": "user", "content": "Try."}, definition]
    (found,) = episodes_of_spans([generation(1, [asked, definition], reply), generation(2, again, reply)])
    assert [message.content for message in found.messages] == ["Look."]
    assert [result.content for turn in found.turns for result in turn.results] == ["Try."]
    assert found.source_extra["tools"] == [tool]


def test_openinferences_blocks_do_not_repeat_the_calls_and_smolagents_history_is_no_new_message():
    def messages(direction, *listed):
        return {
            f"llm.{direction}_messages.{index}.message.{key}": value
            for index, message in enumerate(listed)
            for key, value in message.items()
        }

    call = "tool_calls.0.tool_call"
    reply = {
        "role": "assistant",
        f"{call}.id": "c",
        f"{call}.function.name": "look",
        f"{call}.function.arguments": "{}",
    }
    block = {"contents.0.message_content.type": "tool_use", "contents.0.tool_call.id": "c"}
    asked = {"role": "user", "content": "Look."}
    shown = [{"role": "tool-call", "content": "Calling tools"}, {"role": "tool-response", "content": "Observation"}]
    kind = {"openinference.span.kind": "LLM"}
    spans = [
        span("llm", kind | messages("input", asked) | messages("output", reply | block), 1),
        span("look", {"openinference.span.kind": "TOOL", "output.value": "found"}, 2),
        span(
            "llm",
            kind | messages("input", asked, *shown) | messages("output", {"role": "assistant", "content": "Yes."}),
            3,
        ),
    ]
    assert conversation(spans)[1] == [([("c", {})], [("c", "found")], ""), ([], [], "Yes.")]


def test_the_spans_that_mlflow_exports_are_read_in_its_own_form():
    def quoted(at, **values):
        return span("Completions", {f"mlflow.{key}": json.dumps(value) for key, value in values.items()}, at)

    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "a"}'}}
    asked = {"messages": [{"role": "user", "content": "Look."}], "model": "small"}
    reply = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    spent = {"chat.tokenUsage": {"input_tokens": 9, "output_tokens": 2}}
    model = quoted(1, spanType="CHAT_MODEL", spanInputs=asked, spanOutputs=reply, **spent)
    tool = quoted(2, spanType="TOOL", spanInputs={"at": "a"}, spanOutputs="found") | {"name": "look"}
    found, turns = conversation([model, tool])
    assert turns == [([("c", {"at": "a"})], [("c", "found")], "")]
    assert (found.turns[0].usage.prompt_tokens, found.agent.policy_version) == (9, "small")


def test_wrappers_of_model_calls_with_objects_for_messages_are_no_turns_and_a_decorators_arguments_are_unwrapped():
    kind = {"openinference.span.kind": "LLM", "input.value": '{"messages": ["ChatMessage(role=USER)"]}'}
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    reply = {f"{call}.id": "c", f"{call}.function.name": "look", f"{call}.function.arguments": '{"at": "a"}'}
    asked = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Look."}
    spans = [
        span("prepare", kind, 1),
        span("chat", kind, 2),
        span("chat", kind | asked | reply, 3, parentSpanId=f"{2:016x}"),
        span("look", {"openinference.span.kind": "TOOL", "input.value": '{"args": [], "kwargs": {"at": "b"}}'}, 4),
    ]
    found, turns = conversation(spans)
    assert [message.content for message in found.messages] == ["Look."]
    assert turns[0][0] == [("c", {"at": "a"})]
    found, turns = conversation([spans[1], spans[3]])
    assert [message.content for message in found.messages] == [kind["input.value"]]
    assert turns[1][0][0][1] == {"at": "b"}


def test_the_copy_of_parallel_results_that_googles_kit_adds_is_no_call():
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)"}
    (found,) = episodes_of_spans([chat([("user", "q")], "a"), span("execute_tool (merged)", tool, 3)])
    assert [turn.text for turn in found.turns] == ["a"]


def test_an_error_of_the_last_root_is_no_failure_of_the_policy():
    (found,) = episodes_of_spans([chat([("user", "q")], "", status={"code": 2, "message": "overloaded"})])
    assert (found.failure.kind, found.failure.message) == ("infrastructure", "overloaded")
    assert not found.outcome.terminated


def test_an_episode_says_that_its_texts_were_not_recorded():
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small"}
    (found,) = episodes_of_spans([span("chat small", attributes)])
    assert found.source_extra["texts_missing"] is True


def test_downloads_of_tempo_and_jaeger_and_rows_of_phoenix_are_the_same_conversation(tmp_path):
    now = 1_790_000_000
    parent = span("turn", {"gen_ai.operation.name": "invoke_agent"}, now)
    wanted = [parent, chat([("user", "q")], "a", at=now + 1, parentSpanId=parent["spanId"])]
    tempo = otlp(wanted, {"service.name": "shop"})
    tempo["batches"] = tempo.pop("resourceSpans")
    for each in tempo["batches"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            each[key] = base64.b64encode(bytes.fromhex(each[key])).decode()
    jaeger = {"processes": {"p": {"serviceName": "shop"}}, "spans": [jaeger_span(each) for each in wanted]}
    columns = [
        {
            "context.trace_id": each["traceId"],
            "context.span_id": each["spanId"],
            "name": each["name"],
            "start_time": each["startTimeUnixNano"] // 10**6,
            "end_time": each["endTimeUnixNano"] // 10**6,
            "attributes.openinference.span.kind": "LLM",
            "attributes.llm.model_name": "small",
            "attributes.llm.input_messages": [{"message.role": "user", "message.content": "q"}],
            "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "a"}],
            "attributes.llm.tools": None,
        }
        for each in wanted[1:]
    ]
    call = wanted[1]
    row = {"name": "chat", "context": {"trace_id": call["traceId"], "span_id": call["spanId"]}, "span_kind": "LLM"}
    texts = {"llm.model_name": "small", "input.value": "q", "output.value": "a"}
    times = {"start_time": "2026-09-21T13:33:21+00:00", "end_time": "2026-09-21T13:33:22+00:00"}
    page = {"data": [{**row, **times, "attributes": texts}], "next_cursor": None}
    downloads = {"tempo": tempo, "jaeger": {"data": [jaeger]}, "data frame": columns, "page": page}
    for name, value in downloads.items():
        path = tmp_path / name
        path.write_text(json.dumps(value))
        assert detect_format(LogSource(path)) == "otel"
        (found,) = read_log(path)
        assert [message.content for message in found.messages] == ["q"], name
        assert [(turn.text, turn.seconds) for turn in found.turns] == [("a", 1.0)], name
        assert found.source_extra["traces"] == ["a" * 32], name
        assert found.provenance.collected_at.startswith("2026-09-21T"), name
        assert found.agent.policy_version == "small", name


def jaeger_span(each):
    return {
        "traceID": each["traceId"],
        "spanID": each["spanId"],
        "operationName": each["name"],
        "references": [{"refType": "CHILD_OF", "traceID": each["traceId"], "spanID": each["parentSpanId"]}],
        "startTime": each["startTimeUnixNano"] // 1000,
        "duration": 10**6,
        "tags": [{"key": key, "type": "string", "value": text} for key, text in each["attributes"].items()],
        "logs": [],
        "processID": "p",
    }


@pytest.mark.slow  # imports OpenTelemetry
def test_json_and_protocol_buffers_are_the_same_spans():
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    wanted = chat([("user", "q")], "a", attributes={"gen_ai.usage.input_tokens": 7, "list": ["a", "b"], "share": 0.5})
    with provider.get_tracer("test").start_as_current_span("chat small", attributes=wanted["attributes"]) as sent:
        sent.add_event("gen_ai.user.message", {"content": "q"})
    body = encode_spans(exporter.get_finished_spans()).SerializeToString()
    (found,) = read_otlp(body, "application/x-protobuf")
    assert found["attributes"] == wanted["attributes"]
    assert found["traceId"] == f"{sent.get_span_context().trace_id:032x}"
    assert (found["resource"], found["scope"], found["events"][0]["attributes"]) == (
        {"service.name": "shop"},
        "test",
        {"content": "q"},
    )
    text = {**found, "attributes": {key: value for key, value in found["attributes"].items() if isinstance(value, str)}}
    (same,) = read_otlp(
        json.dumps(otlp([text | {"events": []}], found["resource"])).encode(), "application/json; charset=utf-8"
    )
    assert {key: same[key] for key in text if key != "events"} == {key: text[key] for key in text if key != "events"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b'{"resourceSpans": [', "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"\x0a\xff", "application/x-protobuf"),
        (b"{}", "text/html"),
    ],
)
def test_an_unreadable_request_is_one_clear_error(body, kind):
    with pytest.raises(DataError) as error:
        read_otlp(body, kind)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "value", [None, 1, [], {}, "x", [{}], {"intValue": "9" * 99}, {"kvlistValue": {"values": [None]}}]
)
def test_values_of_a_wrong_type_are_left_out(value):
    body = {
        "resourceSpans": [
            {"resource": value, "scopeSpans": [{"spans": [value, {"attributes": value, "events": value}]}]}
        ]
    }
    list(episodes_of_spans(read_otlp(json.dumps(body).encode(), "application/json")))


def test_numbered_attributes_are_read_in_order_and_hostile_ones_end():
    deep = ".".join(["0"] * 100_000)
    attributes = {
        "openinference.span.kind": "LLM",
        f"llm.input_messages.{deep}": "x",
        "llm.output_messages.999999999.message.role": "x",
    }
    attributes |= {f"llm.input_messages.{index}.message.content": str(index) for index in (10, 2)}
    list(episodes_of_spans([span("llm", attributes)]))
    del attributes[f"llm.input_messages.{deep}"]
    (found,) = episodes_of_spans([span("llm", attributes)])
    assert [message.content for message in found.messages] == ["2", "10"]


class TestWriter:
    def test_a_written_episode_is_read_again(self, tmp_path):
        calls = (ToolCall("c1", "look", {"at": "a.py"}), ToolCall("c2", "look", {}))
        results = (ToolResult("c1", "text"), ToolResult("c2", "", error="absent"))
        turns = [Turn(0, "agent", "I look.", "It may be here.", calls, results), Turn(1, "agent", "Done.")]
        path = tmp_path / "spans.jsonl"
        path.write_bytes(line_encoder("otel")(make_episode(turns=turns)))
        (found,) = read_log(path)
        assert [(turn.text, turn.thought, turn.calls) for turn in found.turns] == [
            (turn.text, turn.thought, turn.calls) for turn in turns
        ]
        assert [(result.call_id, result.content) for turn in found.turns for result in turn.results] == [
            ("c1", "text"),
            ("c2", ""),
        ]

    def test_the_outcome_of_others_spans_is_not_believed(self):
        (found,) = episodes_of_spans([chat([("user", "q")], "a", attributes={"ratchet.success": True})])
        assert found.outcome.success is None

    @pytest.mark.slow  # imports OpenTelemetry
    def test_opentelemetrys_own_schema_takes_every_written_field(self):
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

        row = get_writer("otel").row(make_episode())
        parsed = ParseDict(row, TracesData())
        assert len(parsed.resource_spans[0].scope_spans[0].spans) == len(
            row["resourceSpans"][0]["scopeSpans"][0]["spans"]
        )


def calling(*calls):
    parts = [{"type": "tool_call", "id": name, "name": tool, "arguments": at} for name, tool, at in calls]
    return {"role": "assistant", "parts": parts}


def answers(*results):
    return {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": name, "response": text} for name, text in results],
    }


def asking(role, text):
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def model_call(at, messages, reply, **more):
    """A span of a model call; `reply`: a message, or None for a call that failed."""
    values = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(messages)}
    if reply is None:
        more["status"] = {"code": 2, "message": "429"}
    else:
        values["gen_ai.output.messages"] = json.dumps([reply])
    return span("chat", values, at, **more)


def tool_call(at, tool, result, call_id=None, inputs=None, **more):
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.result": result}
    values |= {"gen_ai.tool.call.id": call_id, "gen_ai.tool.call.arguments": inputs and json.dumps(inputs)}
    return span("tool", {key: value for key, value in values.items() if value is not None}, at, **more)


def under(name, at, *spans, **more):
    """Spans below one of an agent."""
    agent = span(name, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}, at, **more)
    return [agent, *({**each, "parentSpanId": agent["spanId"]} for each in spans)]


def told(spans):
    """The results of each turn, as (call id, text); a message has the call id ""."""
    (found,) = episodes_of_spans(spans)
    return [[(result.call_id, result.content) for result in turn.results] for turn in found.turns]


ASKED = [asking("system", "Be short."), asking("user", "Look.")]


@pytest.mark.parametrize("has_tool_spans", [False, True])
def test_ids_of_calls_that_are_repeated_in_each_reply_do_not_mix_their_results(has_tool_spans):
    first, second = (calling(("call_0", "look", {"at": place})) for place in "ab")
    history = [*ASKED, first, answers(("call_0", "one")), second, answers(("call_0", "two"))]
    spans = [
        model_call(1, ASKED, first),
        model_call(3, history[:4], second),
        model_call(5, history, asking("assistant", ".")),
    ]
    if has_tool_spans:
        spans += [tool_call(2, "look", "raw 1", "call_0"), tool_call(4, "look", "raw 2", "call_0")]
    assert told(spans) == [[("call_0", "one")], [("call_0", "two")], []]


def test_a_tool_span_answers_the_call_that_it_names_also_beside_an_equal_one():
    spans = [model_call(1, ASKED, calling(("1", "look", {"at": 1}), ("2", "look", {"at": 1})))]
    spans += [tool_call(2, "look", "of 2", "2", {"at": 1}), tool_call(3, "look", "of 1", "1", {"at": 1})]
    assert told(spans) == [[("2", "of 2"), ("1", "of 1")]]


def test_a_result_counts_once_when_a_subagent_took_many_turns_before_the_model_was_given_it():
    asked = calling(("r", "research", {}))
    pages = [model_call(10 + at, ASKED, asking("assistant", str(at))) for at in range(60)]
    research = under("B", 4, *pages, parentSpanId=f"{3:016x}")
    last = model_call(100, [*ASKED, asked, answers(("r", "found"))], asking("assistant", "."))
    spans = [*under("A", 1, model_call(2, ASKED, asked), tool_call(3, "research", "found", "r"), last), *research]
    assert [pair for results in told(spans) for pair in results if pair[0]] == [("r", "found")]


def test_a_model_call_that_failed_and_is_tried_again_is_no_turn_and_repeats_no_message():
    history = [*ASKED, asking("assistant", "Where?"), asking("user", "There.")]
    spans = [model_call(1, ASKED, None), model_call(2, ASKED, asking("assistant", "Where?"))]
    spans += [model_call(3, history, None), model_call(4, history, asking("assistant", "I see."))]
    assert told(spans) == [[("", "There.")], []]
    (found,) = episodes_of_spans([*spans, model_call(6, history, None)])
    assert len(found.turns) == 3 and found.source_extra["turns"]["2"]["error"]["message"] == "429"
    assert [error["message"] for error in found.source_extra["turns"]["1"]["failed_calls"]] == ["429"]


def test_a_history_that_was_compacted_adds_its_summary_and_not_the_instructions_again():
    spans = [
        model_call(1, ASKED, asking("assistant", "Long.")),
        model_call(2, [ASKED[0], asking("user", "So far: long.")], asking("assistant", ".")),
    ]
    assert told(spans) == [[("", "So far: long.")], []]


def test_a_conversation_that_is_handed_to_another_agent_is_not_repeated():
    transfer = calling(("h", "to_b", {}))
    given = [asking("system", "You are B."), ASKED[1], transfer, answers(("h", "done"))]
    spans = [*under("A", 1, model_call(2, ASKED, transfer), tool_call(3, "to_b", "done", "h"))]
    spans += under("B", 4, model_call(5, given, asking("assistant", "B here.")))
    assert told(spans) == [[("h", "done"), ("", "You are B.")], []]
    # As OpenInference writes it for OpenAI's Agents, beside the call.
    marked = {"openinference.span.kind": "TOOL", "input.value": "A", "output.value": "B"}
    assert told([*spans, span("handoff to B", marked, 3, spanId=f"{9:016x}")]) == told(spans)


def test_agents_of_one_name_that_run_at_once_are_not_mixed():
    first, second = (under("B", at, parentSpanId=f"{1:016x}", endTimeUnixNano=99 * 10**9) for at in (2, 3))
    calls = [
        model_call(4, ASKED, asking("assistant", "1")),
        model_call(5, [ASKED[0], asking("user", "Again.")], asking("assistant", "2")),
    ]
    calls = [call | {"parentSpanId": above["spanId"]} for call, (above,) in zip(calls, (first, second), strict=True)]
    later = under("B", 100, model_call(101, ASKED, asking("assistant", "3")), parentSpanId=f"{1:016x}")
    (found,) = episodes_of_spans([*under("A", 1), *first, *second, *calls, *later])
    assert [turn.agent_id for turn in found.turns] == ["B", "B#2", "B"]


def test_a_tool_within_the_same_tool_and_a_tool_tried_again_are_no_turns_of_their_own():
    spans = [
        model_call(1, ASKED, calling(("c", "look", {}))),
        tool_call(2, "look", "no", "c"),
        tool_call(3, "look", "yes", "c"),
    ]
    spans += [tool_call(4, "look", '{"content": "yes"}', parentSpanId=f"{3:016x}")]  # of the client of an MCP server
    assert told(spans) == [[("c", "yes")]]


def test_the_calls_of_an_agent_below_a_tool_are_turns_also_within_a_span_of_a_model():
    spans = [model_call(1, ASKED, asking("assistant", "A.")), tool_call(2, "ask", "B.", parentSpanId=f"{1:016x}")]
    spans += [model_call(3, ASKED, asking("assistant", "B."), parentSpanId=f"{2:016x}")]
    (found,) = episodes_of_spans(spans)
    assert [turn.text for turn in found.turns] == ["A.", "", "B."]


def test_a_reply_with_the_result_of_a_tool_at_the_provider_keeps_its_text_and_its_call():
    parts = calling(("w", "search", {}))["parts"] + answers(("w", "a page"))["parts"]
    reply = {"role": "assistant", "parts": [*parts, {"type": "text", "content": "It is so."}]}
    assert conversation([model_call(1, ASKED, reply)])[1] == [([("w", {})], [("w", "a page")], "It is so.")]


def test_anthropics_result_is_not_added_to_that_of_the_tool_span():
    def message(at, request, content):
        values = {
            "input.value": json.dumps({"messages": request}),
            "output.value": json.dumps({"role": "assistant", "content": content}),
        }
        return span("messages", {"openinference.span.kind": "LLM", **values}, at)

    asked, use = {"role": "user", "content": "Look."}, [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "seen"}]}
    spans = [message(1, [asked], use), tool_call(2, "look", "raw", "c")]
    spans += [message(3, [asked, {"role": "assistant", "content": use}, result], [{"type": "text", "text": "."}])]
    assert told(spans) == [[("c", "seen")], []]


def test_log_records_that_overtook_each_other_are_read_in_the_order_of_their_times():
    def record(at, name, **body):
        return {**owner, "timeUnixNano": str(at), "eventName": f"gen_ai.{name}", "attributes": {}, "body": body}

    owner = span("chat", {"gen_ai.operation.name": "chat"})
    records = [
        record(3, "choice", message={"content": "a"}),
        record(2, "user.message", content="q"),
        record(1, "system.message", content="s"),
    ]
    (found,) = episodes_of_spans([owner, *records])
    assert [message.content for message in found.messages] == ["s", "q"] and found.turns[0].text == "a"


def test_the_messages_of_a_long_conversation_are_read_one_call_at_a_time():
    history, spans = list(ASKED), []
    for at in range(60):
        reply = calling((str(at), "look", {"at": "x" * 50}))
        spans.append(model_call(at + 1, history, reply))
        history += [reply, answers((str(at), "seen " * 20))]
    tracemalloc.start()
    (found,) = episodes_of_spans(spans)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.turns) == 60 and peak < 1 << 20  # bytes


def test_the_attributes_of_links_are_plain_and_a_number_that_is_none_stays_text():
    link = {"traceId": "b" * 32, "attributes": [{"key": "n", "value": {"intValue": "--5"}}]}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"links": [link]}]}]}]}).encode()
    (read,) = read_otlp(body, "application/json")
    assert read["links"] == [{"traceId": "b" * 32, "attributes": {"n": "--5"}}]
