"""Sessions of Gemini CLI and OpenCode, results of τ-bench, and exports of Langfuse."""

import json

import pytest
from log_files import FIXTURES, errors_of, exit_codes_of, fixtures_of, tools_of

from ratchet.components.core import DataError
from ratchet.components.interop.log_source import LogSource
from ratchet.components.interop.reader_registry import detect_format, read_log

FORMATS = ("gemini_cli", "opencode", "tau_bench", "langfuse")
LOGS = [pytest.param(format, path, id=f"{format}-{path.name}") for format in FORMATS for path in fixtures_of(format)]


def records(format, name):
    return list(read_log(FIXTURES / format / name))


def read(tmp_path, value, name="log.json"):
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return list(read_log(path))


@pytest.mark.parametrize(("format", "path"), LOGS)
def test_each_is_known_by_its_content(format, path):
    assert detect_format(LogSource(path)) == format


@pytest.mark.parametrize(("format", "path"), LOGS)
def test_reading_again_gives_the_same_records(format, path):
    assert list(read_log(path)) == list(read_log(path))


@pytest.mark.parametrize(("format", "path"), LOGS)
def test_half_a_log_is_one_clear_error(format, path, tmp_path):
    half = tmp_path / path.name
    half.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(DataError) as error:
        list(read_log(half))
    assert "\n" not in str(error.value)


class TestGeminiCli:
    def test_a_message_with_its_tool_calls_is_a_turn(self):
        (found,) = records("gemini_cli", "session-old.json")
        first, last = found.turns
        assert (first.thought, tools_of(found)) == ("Listing: I call ls.", ["run_shell_command"])
        assert (exit_codes_of(found), errors_of(found)) == ([2], ["Command: ls x"])
        assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (50, 11)
        assert last.text == "x is absent."
        assert found.source_extra["notices"] == {"info": 1}
        assert found.outcome.success is None

    def test_lines_replace_change_and_rewind(self):
        (found,) = records("gemini_cli", "session-new.jsonl")
        assert [turn.text for turn in found.turns] == ["", "a"]
        assert found.turns[0].usage.completion_tokens == 9
        assert [result.content for result in found.turns[0].results] == ["Output: a\nExit Code: 0"]
        assert found.task.description == "List x."
        assert found.source_extra["session"]["lastUpdated"] == "2026-11-01T10:00:06Z"


class TestOpenCode:
    def test_each_step_is_a_turn(self):
        (found,) = records("opencode", "export.json")
        assert [turn.text for turn in found.turns] == ["Running.", "", "It printed hello."]
        assert found.turns[0].thought == "I run it."
        assert (exit_codes_of(found), errors_of(found)) == ([3, None], [None, "The user rejected it"])
        first = found.turns[0].usage
        assert (first.prompt_tokens, first.completion_tokens, first.cost) == (60, 10, 0.01)
        assert (found.agent.policy_version, found.outcome.terminated, found.outcome.success) == ("small", True, None)
        assert found.source_extra["session"]["parentID"] == "ses_0"

    def test_the_messages_of_the_server_alone_are_a_session(self, tmp_path):
        messages = json.loads((FIXTURES / "opencode" / "export.json").read_text())["messages"]
        (found,) = read(tmp_path, messages)
        assert found.turns == records("opencode", "export.json")[0].turns

    def test_events_are_a_session_and_an_error_at_the_end_is_its_failure(self):
        (found,) = records("opencode", "events.jsonl")
        assert (tools_of(found), exit_codes_of(found)) == (["bash"], [0])
        assert (found.failure.kind, found.failure.type, found.failure.message) == (
            "infrastructure",
            "APIError",
            "overloaded",
        )

    def test_a_tool_that_did_not_finish_has_no_result(self, tmp_path):
        session = json.loads((FIXTURES / "opencode" / "export.json").read_text())
        session["messages"][1]["parts"][3]["state"] = {"status": "running", "input": {"command": "ls"}}
        (found,) = read(tmp_path, session)
        assert (found.turns[0].calls[0].tool, found.turns[0].results) == ("bash", ())


class TestTauBench:
    def test_success_is_the_benchmarks_verdict(self):
        won, lost, broken = records("tau_bench", "small-1-airline.json")
        assert [(each.outcome.success, each.outcome.score) for each in (won, lost, broken)] == [
            (True, 1.0),
            (False, 0.0),
            (None, None),
        ]
        assert broken.failure.kind == "infrastructure" and broken.failure.message == "rate limit"

    def test_trials_are_attempts_at_one_task(self):
        won, lost, other = records("tau_bench", "small-1-airline.json")
        assert (won.task, won.attempt, lost.attempt) == (lost.task, 0, 1)
        assert won.task.task_id == "tau-bench/airline/0" != other.task.task_id
        assert (won.task.description, won.agent.policy_version) == ("You are u1 and cancel R1.", "small-1")

    def test_a_reward_without_the_benchmarks_report_is_no_verdict(self, tmp_path):
        run = json.loads((FIXTURES / "tau_bench" / "small-1-airline.json").read_text())[0]
        del run["info"]["reward_info"]
        (found,) = read(tmp_path, [run])
        assert (found.outcome.success, found.outcome.score) == (None, 1.0)

    def test_the_simulated_user_speaks_between_the_turns(self):
        won, *_ = records("tau_bench", "small-1-airline.json")
        assert [message.role for message in won.messages] == ["system", "user"]
        assert [result.content for turn in won.turns for result in turn.results] == [
            '{"status": "cancelled"}',
            "###STOP###",
        ]


class TestLangfuse:
    def test_generations_are_turns_and_tools_their_results(self):
        (found,) = records("langfuse", "trace.json")
        assert [message.role for message in found.messages] == ["system", "user"]
        first, last = found.turns
        assert (first.agent_id, tools_of(found), last.text) == ("forecaster", ["get_weather"], "21 degrees.")
        assert [(result.call_id, result.content) for result in first.results] == [("call_1", "21 degrees")]
        assert (first.usage.prompt_tokens, first.usage.completion_tokens, first.usage.cost) == (11, 7, 0.002)
        assert found.agent.sampling == {"temperature": 0.5}

    def test_scores_are_kept_and_are_no_success(self):
        (found,) = records("langfuse", "trace.json")
        assert found.source_extra["scores"][0]["value"] == 1
        assert (found.outcome.success, found.outcome.score) == (None, None)

    def test_observations_alone_are_grouped_by_their_trace(self):
        (found,) = records("langfuse", "observations.jsonl")
        assert [turn.text for turn in found.turns] == ["", "21 degrees."]
        assert found.source_extra["traces"] == ["tr-1"]
        assert found.failure.kind == "infrastructure" and found.failure.message == "cut"

    def test_a_page_of_the_api_is_read_in_both_spellings(self, tmp_path):
        rows = [json.loads(line) for line in (FIXTURES / "langfuse" / "observations.jsonl").read_text().splitlines()]
        names = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time"}
        snake = [{names.get(key, key): value for key, value in row.items()} for row in rows]
        for page in (rows, snake):
            (found,) = read(tmp_path, {"data": page, "meta": {"cursor": None}})
            assert found.turns == records("langfuse", "observations.jsonl")[0].turns
