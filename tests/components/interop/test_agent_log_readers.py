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


def read_lines(folder, rows):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(read_log(path))


def gemini_session():
    response = {"functionResponse": {"id": "j", "response": {"output": "Output: no x\nExit Code: 2"}}}
    call = {"id": "j", "name": "run_shell_command", "args": {"command": "ls x"}, "result": [response]}
    thoughts = [{"subject": "T", "description": "t"}]
    reply = {"id": "g1", "type": "gemini", "content": "I look.", "thoughts": thoughts, "toolCalls": [call]}
    return (
        {"id": "u1", "type": "user", "content": [{"text": "List x."}]},
        reply | {"tokens": {"input": 9, "output": 2, "thoughts": 1}},
        {"id": "r1", "type": "user", "content": [response]},
    )


GEMINI_SESSION = gemini_session()


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

    def test_a_resumed_session_states_its_history_again_and_nothing_of_it_is_lost_or_twice(self, tmp_path):
        first, calls, results = GEMINI_SESSION
        again = [
            {"id": "u1", "type": "user", "content": [{"text": "List x."}]},
            {"id": "g1", "type": "gemini", "content": [{"text": "**T** t", "thought": True}, {"functionCall": {}}]},
            {"id": "g1", "type": "user", "content": results["content"]},
            {"id": "g2", "type": "gemini", "content": [{"text": "b."}, {"functionCall": {"id": "k", "name": "glob"}}]},
            {"id": "g2", "type": "user", "content": [{"functionResponse": {"id": "k", "response": {"output": "c"}}}]},
        ]
        head = {"sessionId": "s", "projectHash": "h", "startTime": "2026-11-01T10:00:00Z"}
        resumed = [head | {"startTime": "2026-11-01T11:00:00Z"}, {"$set": {"messages": again}}]
        asked = {"id": "u2", "type": "user", "content": [{"text": "Go on."}]}
        (found,) = read_lines(tmp_path, [head, first, calls, results, *resumed, asked])
        assert [(turn.text, turn.thought) for turn in found.turns] == [("I look.", "T: t"), ("b.", None)]
        assert (tools_of(found), exit_codes_of(found)) == (["run_shell_command", "glob"], [2, None, None])
        assert [result.content for result in found.turns[1].results] == ["c", "Go on."]
        assert found.turns[0].usage.completion_tokens == 3
        assert found.provenance.collected_at == "2026-11-01T10:00:00Z"

    def test_a_second_file_of_a_resumed_session_is_no_episode(self, tmp_path):
        context = {"id": "c", "type": "user", "content": [{"text": "<session_context>\nToday is Sunday."}]}
        head = {"sessionId": "s", "projectHash": "h"}
        with pytest.raises(DataError, match="holds no trajectory"):
            read_lines(tmp_path, [head, {"$set": {"messages": [context]}}])

    def test_images_of_the_user_and_of_results_are_kept(self, tmp_path):
        image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
        text = [{"text": "See @a.png"}, {"text": "\n--- Content ---"}, image]
        asked = {"id": "u", "type": "user", "content": text, "displayContent": [{"text": "See @a.png"}]}
        response = {"functionResponse": {"id": "k", "name": "read_file", "response": {"output": "1 item"}}}
        call = {"id": "k", "name": "read_file", "args": {}, "status": "success", "result": [response, image, image]}
        reply = {"id": "g", "type": "gemini", "content": "", "toolCalls": [call]}
        (found,) = read_lines(tmp_path, [{"sessionId": "s", "projectHash": "h"}, asked, reply])
        assert len(found.messages[0].blobs) == 1 and "inlineData" not in found.messages[0].content
        assert found.task.description == "See @a.png"
        assert found.turns[0].results[0].content == "1 item" and found.turns[0].results[0].blob
        assert len(found.source_extra["turns"]["0"]["results"][0]["blobs"]) == 1

    @pytest.mark.parametrize(
        ("tool", "output", "code"),
        [
            (
                "run_shell_command",
                "<untrusted_context>\nOutput: a\nExit Code: 7\nProcess Group PGID: 1\n</untrusted_context>",
                7,
            ),
            ("run_shell_command", "Output: Exit Code: 5\nExit Code: 5\nb\nProcess Group PGID: 1", None),
            ("read_file", "a\nExit Code: 5", None),
        ],
    )
    def test_an_exit_code_is_the_shell_tools_own_line(self, tmp_path, tool, output, code):
        result = [{"functionResponse": {"response": {"output": output}}}]
        call = {"id": "k", "name": tool, "args": {}, "status": "success", "result": result}
        reply = {"id": "g", "type": "gemini", "content": "", "toolCalls": [call]}
        (found,) = read_lines(tmp_path, [{"sessionId": "s", "projectHash": "h"}, reply])
        assert exit_codes_of(found) == [code]

    def test_a_subagent_names_the_session_that_called_it(self, tmp_path):
        (tmp_path / "s-1").mkdir()
        head = {"sessionId": "s-2", "projectHash": "h", "kind": "subagent"}
        (found,) = read_lines(tmp_path / "s-1", [head, {"id": "u", "type": "user", "content": "Look."}])
        assert found.source_extra["parent_session"] == "s-1"

    def test_a_session_with_only_notices_is_no_episode(self, tmp_path):
        notice = {"id": "1", "type": "warning", "content": "a hook failed"}
        with pytest.raises(DataError, match="holds no trajectory"):
            read(tmp_path, {"sessionId": "s", "projectHash": "h", "messages": [notice]})


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

    def test_later_requests_are_kept_and_the_description_is_the_users_own_first_text(self, tmp_path):
        session = json.loads((FIXTURES / "opencode" / "export.json").read_text())
        texts = [
            {"type": "text", "synthetic": True, "text": "Called the Read tool"},
            {"type": "text", "text": "See a.png"},
        ]
        session["messages"][0]["parts"] = texts
        for part in ({"type": "text", "text": "Go on."}, {"type": "compaction"}):
            session["messages"].append({"info": {"role": "user"}, "parts": [part]})
        (found,) = read(tmp_path, session)
        assert (found.messages[-1].content, found.task.description) == ("Called the Read tool\nSee a.png", "See a.png")
        assert [result.content for result in found.turns[-1].results] == ["Go on.", ""]
        assert found.source_extra["turns"]["2"]["notes"][1]["compacted"] is True

    def test_images_of_a_result_and_the_error_of_an_invalid_call_are_kept(self, tmp_path):
        image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
        state = {"status": "completed", "input": {}, "output": "Image read", "attachments": [image, image]}
        unknown = {"status": "completed", "input": {"tool": "frob", "error": "no tool frob"}, "output": "invalid"}
        parts = [
            {"type": "step-start"},
            {"type": "tool", "tool": "read", "callID": "a", "state": state},
            {"type": "tool", "tool": "invalid", "callID": "b", "state": unknown},
        ]
        zeros = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        (found,) = read(tmp_path, [{"info": {"role": "assistant", "tokens": zeros, "cost": 0}, "parts": parts}])
        (turn,) = found.turns
        assert turn.results[0].blob and len(found.source_extra["turns"]["0"]["results"][0]["blobs"]) == 1
        assert (errors_of(found), turn.usage) == ([None, "no tool frob"], None)

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


def tau2_results(reason="user_stop", reward=1.0):
    call = {"id": "c", "name": "cancel", "arguments": {"order": "R1"}, "requestor": "assistant"}
    own = {"id": "u", "name": "toggle", "arguments": {}, "requestor": "user"}
    messages = [
        {"role": "assistant", "content": "How can I help?"},
        {"role": "user", "content": "Cancel R1."},
        {"role": "assistant", "content": None, "tool_calls": [call], "cost": 0.1, "usage": {"prompt_tokens": 9}},
        {"role": "tool", "id": "c", "content": "no such order", "requestor": "assistant", "error": True},
        {"role": "user", "content": None, "tool_calls": [own]},
        {"role": "tool", "id": "u", "content": "on", "requestor": "user", "error": False},
        {"role": "user", "content": "###STOP###"},
    ]
    run = {"id": "s", "task_id": "7", "trial": 2, "termination_reason": reason, "messages": messages}
    run["reward_info"] = {"reward": reward}
    info = {"agent_info": {"llm": "small"}, "environment_info": {"domain_name": "retail", "policy": "Be kind."}}
    tasks = [{"id": "7", "user_scenario": {"instructions": "You cancel R1."}}]
    return {"timestamp": "t", "info": info, "tasks": tasks, "simulations": [run]}


class TestTau2Bench:
    def test_a_simulation_is_a_run_without_what_only_its_user_sees(self, tmp_path):
        (found,) = read(tmp_path, tau2_results())
        assert [turn.text for turn in found.turns] == ["How can I help?", ""]
        assert [(each.call_id, each.content, each.error) for each in found.turns[1].results] == [
            ("c", "no such order", "no such order"),
            ("", "###STOP###", None),
        ]
        assert (found.turns[1].usage.prompt_tokens, found.turns[1].usage.cost) == (9, 0.1)
        assert (found.task.task_id, found.task.description) == ("tau2/retail/7", "You cancel R1.")
        assert (found.attempt, found.agent.policy_version, found.source_extra["policy"]) == (2, "small", "Be kind.")

    @pytest.mark.parametrize(
        ("reason", "reward", "success", "is_failure"),
        [
            ("user_stop", 1.0, True, False),
            ("agent_stop", 0.0, False, False),
            ("max_steps", 0.0, False, False),
            ("infrastructure_error", 0.0, None, True),
            ("user_stop", None, None, False),
        ],
    )
    def test_success_is_the_benchmarks_verdict(self, tmp_path, reason, reward, success, is_failure):
        (found,) = read(tmp_path, tau2_results(reason, reward))
        assert (found.outcome.success, found.failure is not None) == (success, is_failure)


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

    def test_a_trace_on_two_pages_counts_once(self, tmp_path):
        trace = json.loads((FIXTURES / "langfuse" / "trace.json").read_text())
        trace["scores"][0]["id"] = "s"
        assert read(tmp_path, [trace, trace]) == read(tmp_path, trace)

    def test_geminis_contents_have_a_system_message_thoughts_tools_and_each_result_once(self, tmp_path):
        calls = [{"function_call": {"name": "look", "args": {"at": at}}} for at in ("a", "b")]
        results = [{"function_response": {"name": "look", "response": {"result": at}}} for at in ("a", "b")]
        asked = {"role": "user", "parts": [{"text": "Look."}]}
        tools = [{"function_declarations": [{"name": "look", "description": "", "parameters": {}}]}]
        request = {"model": "small", "config": {"system_instruction": "Be brief.", "tools": tools, "temperature": 0.5}}
        reply = [{"text": "I look.", "thought": True}, *calls]
        history = [asked, {"role": "model", "parts": calls}, {"role": "user", "parts": results}]
        page = [
            gemini_observation(1, "GENERATION", request | {"contents": [asked]}, reply),
            gemini_observation(2, "TOOL", {"at": "b"}, {"result": "b"}, name="look"),
            gemini_observation(3, "GENERATION", request | {"contents": history}, [{"text": "Both."}]),
        ]
        (found,) = read(tmp_path, {"data": page, "meta": {}})
        assert [(message.role, message.content) for message in found.messages] == [
            ("system", "Be brief."),
            ("user", "Look."),
        ]
        first, last = found.turns
        assert (first.thought, first.text, last.text) == ("I look.", "", "Both.")
        assert {
            call.arguments["at"]: [result.content for result in first.results if result.call_id == call.call_id]
            for call in first.calls
        } == {"a": ['{"result":"a"}'], "b": ['{"result":"b"}']}
        assert len(first.results) == 2
        assert found.source_extra["tools"][0]["function"]["name"] == "look"
        assert found.agent.sampling == {"temperature": 0.5}

    def test_an_export_has_the_names_of_its_agents_in_text_and_other_names_for_tokens(self, tmp_path):
        attributes = json.dumps({"gen_ai.agent.name": "forecaster"})
        agent = gemini_observation(0, "AGENT", None, [], metadata=json.dumps({"attributes": attributes}))
        call = gemini_observation(1, "GENERATION", "q", [{"text": "a"}], inputUsage=3, outputUsage=2)
        call |= {"providedModelName": "small", "parentObservationId": "0"}
        (found,) = read(tmp_path, [agent, call])
        assert (found.agent.name, found.agent.policy_version) == ("forecaster", "small")
        assert (found.turns[0].usage.prompt_tokens, found.turns[0].usage.completion_tokens) == (3, 2)

    def test_traces_without_observations_are_refused_with_the_remedy(self, tmp_path):
        trace = {"id": "t", "bookmarked": False, "public": False, "release": None, "input": None}
        with pytest.raises(DataError, match="Langfuse's traces without their observations; export the observations"):
            read(tmp_path, [trace])


def gemini_observation(number, kind, request, parts, **more):
    output = {"content": {"role": "model", "parts": parts}} if isinstance(parts, list) else parts
    time = f"2026-11-01T10:00:0{number}Z"
    ids = {"id": str(number), "traceId": "t", "type": kind, "startTime": time, "endTime": time}
    return {**ids, "name": kind, "input": request, "output": output, **more}
