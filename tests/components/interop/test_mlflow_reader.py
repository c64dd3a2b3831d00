"""MLflow's traces: model calls are turns, tool spans their results, and OK is no success."""

import json

import pytest
from log_files import FIXTURES

from ratchet.components.core import DataError
from ratchet.components.interop.log_source import LogSource
from ratchet.components.interop.reader_registry import detect_format, read_log

LOGS = FIXTURES / "mlflow"


def records(name, **options):
    return list(read_log(LOGS / name, "mlflow", **options))


def one(tmp_path, value, **options):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(value))
    (found,) = read_log(path, "mlflow", **options)
    return found


def span(name, kind, inputs=None, outputs=None, *, at=1, **more):
    attributes = {
        "mlflow.spanType": json.dumps(kind),
        "mlflow.spanInputs": json.dumps(inputs),
        "mlflow.spanOutputs": json.dumps(outputs),
    }
    return {
        "name": name,
        "span_id": f"{name}-{at}",
        "start_time_unix_nano": at,
        "end_time_unix_nano": at + 1,
        "attributes": attributes,
        **more,
    }


def chat(*messages):
    return {"messages": [{"role": role, "content": text} for role, text in messages]}


def answer(text, *calls):
    made = [{"id": name, "function": {"name": tool, "arguments": "{}"}} for name, tool in calls]
    return {"choices": [{"message": {"role": "assistant", "content": text, "tool_calls": made}}]}


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda path: path.name)
def test_it_is_known_by_its_content(path):
    assert detect_format(LogSource(path)) == "mlflow"


class TestSchema3:
    def test_model_calls_are_turns_and_the_tool_span_is_the_result_of_its_call(self):
        (found,) = records("trace-v3.json")
        assert [(message.role, message.content) for message in found.messages] == [
            ("system", "You know weather."),
            ("user", "Weather?"),
        ]
        turn, last = found.turns
        assert (turn.calls[0].tool, turn.calls[0].arguments, turn.calls[0].call_id) == (
            "get_weather",
            {"city": "Oslo"},
            "call_w",
        )
        # The text as the model was given it; the exit code is the span's.
        assert [(result.call_id, result.content, result.exit_code) for result in turn.results] == [
            ("call_w", "{'sky': 'rain'}", 0)
        ]
        assert last.text == "It rains." and last.results == ()

    def test_usage_cost_time_and_end_of_each_call(self):
        turn, last = records("trace-v3.json")[0].turns
        assert (turn.usage.prompt_tokens, turn.usage.completion_tokens, turn.usage.cost) == (40, 12, 0.002)
        assert (turn.seconds, turn.stop_reason, last.usage.prompt_tokens, last.stop_reason) == (
            1.5,
            "tool_calls",
            60,
            "stop",
        )

    def test_agent_model_tools_and_identity(self):
        found = records("trace-v3.json")[0]
        assert (found.agent.name, found.agent.policy_version, found.agent.sampling) == (
            "weather_agent",
            "gpt-5-mini",
            {"temperature": 0.1},
        )
        assert {turn.agent_id for turn in found.turns} == {"weather_agent"}
        assert found.source_extra["tools"][0]["function"]["name"] == "get_weather"
        assert found.provenance.collected_at == "2026-01-05T12:00:00Z" and found.task.taskset == "weather_agent"
        assert found.source_extra["spans"] == {"AGENT": 1, "TOOL": 1, "CHAT_MODEL": 2}

    def test_ok_is_no_success_and_a_judges_yes_is_kept_as_it_is(self):
        found = records("trace-v3.json")[0]
        assert (found.outcome.success, found.outcome.score, found.outcome.terminated, found.failure) == (
            None,
            None,
            True,
            None,
        )
        assert found.source_extra["assessments"][0]["feedback"] == {"value": "yes"}


class TestSchema2AndOthers:
    def test_langchains_messages_and_a_tool_that_broke(self):
        first = records("traces.jsonl")[0]
        assert first.messages[0].content == "Who?"
        (turn,) = first.turns
        assert (turn.calls[0].tool, turn.calls[0].arguments, turn.calls[0].call_id) == ("search", {"q": "who"}, "lc1")
        assert (turn.results[0].call_id, turn.results[0].error) == ("lc1", "the index is gone")
        assert turn.seconds == 0.4

    def test_a_trace_that_ended_in_an_error_is_a_failure(self):
        first = records("traces.jsonl")[0]
        assert (first.failure.kind, first.failure.type, first.failure.message) == (
            "infrastructure",
            "IndexError",
            "the index is gone",
        )
        assert first.outcome.success is None and not first.outcome.terminated

    def test_a_row_of_search_traces_and_anthropics_blocks(self):
        second = records("traces.jsonl")[1]
        assert [(message.role, message.content) for message in second.messages] == [
            ("system", "Be kind."),
            ("user", "hi"),
        ]
        turn = second.turns[0]
        assert (turn.text, turn.calls[0].tool, turn.calls[0].call_id, turn.stop_reason) == (
            "hello",
            "wave",
            "tu",
            "tool_use",
        )
        assert second.agent.policy_version == "claude-haiku-4-5"

    def test_nested_spans_without_a_model_call(self):
        third = records("traces.jsonl")[2]
        (turn,) = third.turns
        assert (turn.calls[0].tool, turn.calls[0].arguments, turn.results[0].exit_code) == (
            "bash",
            {"command": "false"},
            1,
        )

    def test_a_list_of_traces(self, tmp_path):
        trace = json.loads((LOGS / "trace-v3.json").read_text())
        for value in ([trace, trace], {"traces": [trace, trace]}):
            (tmp_path / "t.json").write_text(json.dumps(value, indent=1))
            assert detect_format(LogSource(tmp_path / "t.json")) == "mlflow"
            assert [len(each.turns) for each in read_log(tmp_path / "t.json")] == [2, 2]


class TestConversation:
    def test_without_tool_spans_the_next_input_tells_the_results(self, tmp_path):
        asked = chat(("user", "q"))
        again = {
            "messages": [
                *asked["messages"],
                {"role": "assistant", "content": "", "tool_calls": []},
                {"role": "tool", "tool_call_id": "c", "content": "r"},
                {"role": "user", "content": "more"},
            ]
        }
        spans = [
            span("llm", "LLM", asked, answer("", ("c", "f")), at=1),
            span("llm", "LLM", again, answer("end"), at=5),
        ]
        found = one(tmp_path, {"info": {}, "data": {"spans": spans}})
        assert [result.content for result in found.turns[0].results] == ["r", "more"] and found.turns[1].text == "end"
        assert found.turns[0].results[0].call_id == "c" and found.turns[0].results[1].call_id == ""

    def test_a_client_within_a_wrapper_is_told_once(self, tmp_path):
        outer = span("wrapper", "CHAT_MODEL", chat(("user", "q")), answer("a"), at=1)
        inner = span("client", "LLM", chat(("user", "q")), answer("a"), at=2, parent_span_id="wrapper-1")
        assert len(one(tmp_path, {"spans": [outer, inner]}).turns) == 1

    def test_two_agents_are_told_apart(self, tmp_path):
        spans = [span("lead", "AGENT", at=1)]
        spans.append(span("llm", "LLM", chat(("user", "q")), answer("ask the other"), at=2, parent_span_id="lead-1"))
        spans.append(span("helper", "AGENT", at=3, parent_span_id="lead-1"))
        spans.append(span("llm", "LLM", chat(("user", "sub")), answer("done"), at=4, parent_span_id="helper-3"))
        found = one(tmp_path, {"info": {"trace_id": "x"}, "data": {"spans": spans}})
        assert [turn.agent_id for turn in found.turns] == ["lead", "helper"] and found.turns[0].results[
            0
        ].content == "sub"

    @pytest.mark.parametrize(
        ("outputs", "text"),
        [
            ("plain", "plain"),
            ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "r"}]}]}, "r"),
            ({"output": {"message": {"role": "assistant", "content": [{"text": "b"}]}}}, "b"),
            ({"candidates": [{"content": {"role": "model", "parts": [{"text": "g"}]}}]}, "g"),
            ({"generations": [[{"text": "t", "message": {"lc": 1, "kwargs": {"type": "ai", "content": "k"}}}]]}, "k"),
            ({"messages": [{"role": "user", "content": "no"}, {"role": "assistant", "content": "m"}]}, "m"),
            ([{"content": "first"}], "first"),
            ({"text": "completion"}, "completion"),
            ({"answer": 42}, '{"answer":42}'),
            (None, ""),
        ],
    )
    def test_replies_of_every_provider(self, tmp_path, outputs, text):
        found = one(tmp_path, {"spans": [span("llm", "LLM", chat(("user", "q")), outputs)]})
        assert [turn.text for turn in found.turns] == [text]

    def test_calls_of_gemini_and_bedrock(self, tmp_path):
        gemini = {
            "candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]}}]
        }
        bedrock = {
            "output": {"message": {"content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}}]}},
            "stopReason": "tool_use",
        }
        for outputs in (gemini, bedrock):
            (turn,) = one(tmp_path, {"spans": [span("llm", "LLM", "q", outputs)]}).turns
            assert (turn.calls[0].tool, turn.calls[0].arguments) == ("f", {"a": 1})


class TestHostile:
    @pytest.mark.parametrize(
        "value",
        [None, 3, "x", [], {}, [[[[]]]], {"messages": 3}, {"choices": [3]}, {"choices": {"a": 1}}, {"output": [3]}],
    )
    def test_any_input_and_output_is_taken(self, tmp_path, value):
        spans = [
            span("llm", "LLM", value, value),
            span("f", "TOOL", value, value, at=2),
            span("a", "AGENT", value, value, at=3),
        ]
        assert one(tmp_path, {"info": {"tags": value, "state": value}, "data": {"spans": spans}}).turns

    @pytest.mark.parametrize(
        "raw", [3, None, [], {"name": 3, "attributes": 4, "context": [], "events": 3, "status": 5, "start_time": "x"}]
    )
    def test_any_span_is_taken_or_told(self, tmp_path, raw):
        bad = []
        one(tmp_path, {"spans": [raw, span("llm", "LLM", "q", "a")]}, on_bad=bad.append)
        assert bool(bad) is not isinstance(raw, dict)

    def test_parents_in_a_circle_end(self, tmp_path):
        first = span("a", "TOOL", {}, "r", at=1, parent_span_id="b-2")
        assert one(tmp_path, {"spans": [first, span("b", "TOOL", {}, "r", at=2, parent_span_id="a-1")]}).turns

    def test_what_is_no_trace_is_told(self, tmp_path):
        with pytest.raises(DataError, match="no trace"):
            one(tmp_path, {"info": {}})


@pytest.mark.slow
def test_what_mlflow_itself_writes_is_read(tmp_path, request, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    from mlflow.entities import SpanType

    request.addfinalizer(lambda: mlflow.set_tracking_uri(None))

    # The traces of every store have one form; a database runs all of its migrations first.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("logs")
    with mlflow.start_span("agent", span_type=SpanType.AGENT) as root:
        root.set_inputs({"goal": "list"})
        with mlflow.start_span("llm", span_type=SpanType.CHAT_MODEL) as model:
            model.set_inputs({"model": "m", "messages": [{"role": "user", "content": "list"}]})
            call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
            model.set_outputs(
                {
                    "choices": [
                        {
                            "message": {"role": "assistant", "content": "", "tool_calls": [call]},
                            "finish_reason": "tool_calls",
                        }
                    ]
                }
            )
        with mlflow.start_span("bash", span_type=SpanType.TOOL) as tool:
            tool.set_inputs({"command": "ls"})
            tool.set_outputs("a.txt")
        root.set_outputs("done")
    mlflow.flush_trace_async_logging()
    trace = mlflow.get_trace(mlflow.get_last_active_trace_id())
    (tmp_path / "trace.json").write_text(trace.to_json())
    (tmp_path / "pretty.json").write_text(trace.to_json(pretty=True))
    (found,) = read_log(tmp_path / "trace.json")
    assert [(turn.calls[0].tool, turn.results[0].content) for turn in found.turns] == [("bash", "a.txt")]
    assert found.messages[0].content == "list" and found.outcome.success is None and found.agent.name == "agent"
    assert list(read_log(tmp_path / "pretty.json")) == [found]
