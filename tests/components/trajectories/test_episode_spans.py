"""Traces of episodes, as a collector at the other end of OTLP receives them."""

import subprocess
import sys

import msgspec
import pytest
from episodes import make_episode, turn
from otlp_receiver import attributes, collecting

from ratchet.components.core import ToolCall, Usage
from ratchet.components.core.errors import install_command
from ratchet.components.core.otlp_export import night_ids, send_spans, step_ids
from ratchet.components.core.run_context import working_on
from ratchet.components.trajectories.episode_spans import CAPTURE, episode_spans, send_episodes

pytestmark = pytest.mark.slow  # imports OpenTelemetry
KEY = "sk-proj-4fT9wQz7LmNp2RsVx8Ya1BcD3eFgHj5K"
NIGHT = {"night": "monday", "step": "collect attempts"}


@pytest.fixture(autouse=True)
def collector(monkeypatch):
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", CAPTURE):
        monkeypatch.delenv(name, raising=False)
    with collecting(monkeypatch) as collector:
        yield collector


def send(*episodes):
    with working_on(**NIGHT):
        send_episodes(msgspec.json.Encoder().encode_lines(episodes))
    wait()


def wait():
    from ratchet.components.core.otlp_export import _exporter

    for future in _exporter()._waiting:
        future.result(timeout=20)


def timed(index, tool, seconds, call_seconds, **changes):
    return msgspec.structs.replace(turn(index, tool), seconds=seconds, call_seconds=call_seconds, **changes)


def test_an_episode_is_a_trace_from_the_agent_to_its_tool_calls(collector):
    usage = Usage(11, 7)
    send(make_episode(turns=[timed(0, "read_file", 2.0, (0.5,), usage=usage), timed(1, "edit_file", 3.0, (1.0,))]))
    (root,), chats, tools = (collector.named(name) for name in ("invoke_agent", "chat", "execute_tool"))
    assert [span.name for span in tools] == [
        "execute_tool _OTHER",
        "execute_tool edit_file",
    ]  # read_file was not offered
    assert {span.trace_id for span in collector.spans} == {root.trace_id} and not root.parent_span_id
    assert {span.parent_span_id for span in (*chats, *tools)} == {root.span_id}
    assert len({span.span_id for span in collector.spans}) == 5
    assert [(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 for span in chats] == [1.5, 2.0]
    assert [(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9 for span in tools] == [0.5, 1.0]
    assert tools[0].start_time_unix_nano == chats[0].end_time_unix_nano
    assert root.end_time_unix_nano - root.start_time_unix_nano == 5_000_000_000
    names = attributes(root)
    assert names["gen_ai.operation.name"] == "invoke_agent" and names["gen_ai.usage.output_tokens"] == 7
    assert names["ratchet.night"] == "monday" and names["ratchet.success"] is True
    assert names["ratchet.task"] == "repair/train-0001"
    assert attributes(chats[0])["gen_ai.usage.input_tokens"] == 11
    assert attributes(tools[1])["process.exit.code"] == 0


def test_an_episode_is_linked_to_the_step_that_played_it(collector):
    send(make_episode())
    (link,) = collector.named("invoke_agent")[0].links
    trace, span = step_ids(*NIGHT.values())
    assert (int.from_bytes(link.trace_id), int.from_bytes(link.span_id)) == (trace, span)
    assert trace == night_ids("monday")[0]


def test_the_same_episode_has_the_same_ids_however_often_it_is_sent():
    first, second = ([*episode_spans(make_episode(), context)] for context in (NIGHT, NIGHT))
    other = [*episode_spans(make_episode(), NIGHT | {"night": "tuesday"})]
    assert first == second
    assert not {(span.trace_id, span.span_id) for span in first} & {(span.trace_id, span.span_id) for span in other}


def test_no_text_of_an_episode_leaves_without_consent(collector):
    secret = turn(0, f"tool {KEY}", path=KEY)
    calls = (ToolCall("0-0", "edit_file", {}, raw=KEY, parse_error=f"no JSON: {KEY}"),)
    broken = make_episode(attempt=1, turns=[msgspec.structs.replace(turn(0, "edit_file"), text=KEY, calls=calls)])
    send(make_episode(turns=[secret]), broken)
    assert collector.spans and KEY not in str(collector.spans)
    assert not [name for span in collector.spans for name in attributes(span) if "messages" in name or "call.r" in name]


def test_texts_that_are_asked_for_are_redacted(collector, monkeypatch):
    monkeypatch.setenv(CAPTURE, "span_only")
    send(make_episode(turns=[msgspec.structs.replace(turn(0, "edit_file", new=f"key = '{KEY}'"), thought="I look")]))
    (chat,), (tool,) = collector.named("chat"), collector.named("execute_tool")
    asked, answered = (
        msgspec.json.decode(attributes(chat)[f"gen_ai.{which}.messages"]) for which in ("input", "output")
    )
    assert asked[0]["role"] == "user" and asked[0]["parts"][0]["type"] == "text"
    assert [part["type"] for part in answered[0]["parts"]] == ["reasoning", "tool_call"]
    assert "[OPENAI_KEY_1]" in attributes(tool)["gen_ai.tool.call.arguments"]
    assert attributes(tool)["gen_ai.tool.call.result"] == "did edit_file" and KEY not in str(collector.spans)


def test_a_failure_of_infrastructure_is_an_error_and_a_lost_task_is_none(collector):
    send(make_episode(success=None, broken=True), make_episode(success=False, attempt=1))
    lost, unsolved = sorted(collector.named("invoke_agent"), key=lambda span: attributes(span)["ratchet.attempt"])
    assert lost.status.code == 2 and attributes(lost)["error.type"] == "SandboxUnavailable"
    assert unsolved.status.code == 0 and "error.type" not in attributes(unsolved)
    assert "ratchet.success" not in attributes(lost) and attributes(unsolved)["ratchet.success"] is False


def test_the_standard_variables_name_the_service_and_the_share_of_traces(collector, monkeypatch):
    from ratchet.components.core import otlp_export

    monkeypatch.setenv("OTEL_SERVICE_NAME", "nights of team A")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    otlp_export._exporter.cache_clear()
    send(*(make_episode(attempt=number) for number in range(40)))
    assert collector.resources[0]["service.name"] == "nights of team A"
    sampled = collector.named("invoke_agent")
    assert 5 < len(sampled) < 35
    assert {span.trace_id for span in collector.spans} == {span.trace_id for span in sampled}


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_the_standard_variables_switch_traces_off(collector, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    send_spans(lambda: pytest.fail("spans are made"))
    assert not collector.requests


def test_a_collector_that_refuses_costs_one_warning_and_no_episode(collector, caplog):
    collector.answer = 400
    send(make_episode())
    send(make_episode(attempt=1))
    assert collector.requests == 1 and not collector.spans
    assert [record.message for record in caplog.records if "spans are lost" in record.message]


def test_without_its_package_a_warning_says_what_to_install(collector, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    send(make_episode())
    assert install_command("telemetry") in caplog.text and not collector.requests


def test_nothing_of_opentelemetry_is_imported_where_it_is_off():
    code = (
        "import sys, ratchet\n"
        "ratchet.collect('orders', agent='teacher', tasks=1)\n"
        "loaded = [name for name in sys.modules if name.startswith('opentelemetry') or 'episode_spans' in name]\n"
        "assert not loaded, loaded"
    )
    clean = {"PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, env=clean, timeout=120)
