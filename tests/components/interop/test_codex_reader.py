"""Codex CLI: a rollout is a session; what its log does not say stays unknown."""

import json

import pytest
from log_files import FIXTURES, exit_codes_of, tools_of

from ratchet.components.core import DataError
from ratchet.components.interop.log_source import LogSource
from ratchet.components.interop.reader_registry import detect_format, read_log

NEW, OLD = (FIXTURES / "codex" / f"rollout-{day}.jsonl" for day in ("2026-11-01", "2025-08-01"))


def lines():
    return [json.loads(line) for line in NEW.read_text().splitlines()]


def read(tmp_path, rows):
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = read_log(path)
    return found


def event(kind, **fields):
    return {"timestamp": "2026-11-01T10:00:09Z", "type": "event_msg", "payload": {"type": kind, **fields}}


@pytest.mark.parametrize("path", [NEW, OLD], ids=["new", "old"])
def test_it_is_known_by_its_content(path):
    assert detect_format(LogSource(path)) == "codex"


def test_reasoning_text_and_parallel_calls_are_one_turn():
    (found,) = read_log(NEW)
    assert [message.role for message in found.messages] == ["system", "developer", "user", "user"]
    first, patch, last = found.turns
    assert (first.text, first.thought) == ("I run the test.", "I run it first.")
    assert [call.call_id for call in first.calls] == ["c1", "c2"]
    assert patch.calls[0].arguments == {"input": "*** Begin Patch\n*** End Patch"}
    assert (last.text, last.calls) == ("It passes now.", ())
    assert [turn.usage.completion_tokens for turn in found.turns] == [20, 30, 5]


def test_exit_codes_are_read_in_each_form_and_a_patch_has_none():
    (found,) = read_log(NEW)
    assert exit_codes_of(found) == [1, 0, None]
    assert found.turns[0].results[1].content == "a.py\n"


def test_the_description_is_the_users_own_request_and_success_is_unknown():
    (found,) = read_log(NEW)
    assert found.task.description == "Fix the test."
    assert (found.agent.policy_version, found.agent.sampling) == ("small-5", {"reasoning_effort": "low"})
    assert found.provenance.commit == "abc123"
    assert (found.outcome.success, found.outcome.terminated) == (None, True)


def test_a_rollout_before_payloads_is_read():
    (found,) = read_log(OLD)
    assert tools_of(found) == ["local_shell"] and exit_codes_of(found) == [0]
    assert found.turns[-1].text == "hello"


def test_an_interruption_truncates_and_an_error_at_the_end_is_of_the_infrastructure(tmp_path):
    found = read(tmp_path, [*lines()[:-1], event("turn_aborted", reason="interrupted")])
    assert (found.outcome.truncated, found.outcome.terminated) == (True, False)
    found = read(tmp_path, [*lines()[:-1], event("error", message="stream closed")])
    assert (found.failure.kind, found.failure.message) == ("infrastructure", "stream closed")
    assert read(tmp_path, [*lines()[:8], event("error", message="retried"), *lines()[8:]]).failure is None


def test_lines_of_newer_versions_are_counted(tmp_path):
    found = read(tmp_path, [*lines(), {"timestamp": "x", "type": "hologram", "payload": {}}])
    assert found.source_extra["events"]["hologram"] == 1


def test_a_search_for_tools_is_a_call_with_the_found_tools_as_its_result(tmp_path):
    search = {"type": "tool_search_call", "call_id": "t", "arguments": {"query": "issues"}}
    answer = {"type": "tool_search_output", "call_id": "t", "tools": [{"name": "list_issues"}]}
    items = [{"timestamp": "x", "type": "response_item", "payload": payload} for payload in (search, answer)]
    turn = read(tmp_path, [*lines()[:4], *items]).turns[-1]
    assert (turn.calls[0].tool, turn.calls[0].arguments) == ("tool_search", {"query": "issues"})
    assert [(result.call_id, result.content) for result in turn.results] == [("t", '[{"name":"list_issues"}]')]


def test_a_log_cut_in_its_last_line_is_one_clear_error(tmp_path):
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(NEW.read_bytes()[:-20])
    with pytest.raises(DataError, match="the last line is cut short"):
        list(read_log(path))
    (found,) = read_log(path, on_bad=lambda part: None)
    assert len(found.turns) == 3


def item(kind, **fields):
    return {"timestamp": "2026-11-01T10:00:08Z", "type": "response_item", "payload": {"type": kind, **fields}}


def said(text, role="assistant"):
    return item("message", role=role, content=[{"type": "output_text", "text": text}])


def called(call_id, name="exec_command", **fields):
    return item("function_call", call_id=call_id, name=name, arguments="{}", **fields)


def counted(prompt, completion, total):
    last = {"input_tokens": prompt, "output_tokens": completion}
    return event("token_count", info={"last_token_usage": last, "total_token_usage": {"total_tokens": total}})


def completed(**fields):
    return event("item_completed", item=fields)


START = lines()[:4]


def test_replies_without_anything_between_are_turns_with_their_own_tokens(tmp_path):
    dropped, again = said("A dropped reply."), said("The reply.")
    summary = [said("A summary."), counted(900, 8, 1910), counted(0, 0, 1910)]
    rows = [called("c1"), counted(10, 2, 12), dropped, counted(10, 2, 12), again, counted(980, 9, 1001), *summary]
    found = read(tmp_path, [*START, *rows, called("c2"), counted(20, 3, 1933)])
    assert [turn.text for turn in found.turns] == ["", "A dropped reply.", "The reply.", "A summary.", ""]
    tokens = [turn.usage and (turn.usage.prompt_tokens, turn.usage.completion_tokens) for turn in found.turns]
    assert tokens == [(10, 2), None, (980, 9), (900, 8), (20, 3)]


def test_the_description_is_what_the_user_typed_first_without_marks_of_images(tmp_path):
    tagged = said('<image name=[Image #1] path="a.png">\n</image>\nFix it.', role="user")
    typed = completed(type="UserMessage", content=[{"type": "local_image", "path": "a.png"}, {"text": "Fix it."}])
    later = [said("Go on.", role="user"), completed(type="UserMessage", content=[{"type": "text", "text": "Go on."}])]
    assert read(tmp_path, [*START, tagged, typed, said("Done."), *later]).task.description == "Fix it."
    older = [event("user_message", message=text) for text in ("Fix it.", "Go on.")]
    assert read(tmp_path, [*START, said("Fix it.", role="user"), *older]).task.description == "Fix it."


def test_a_tool_is_named_with_its_namespace_and_a_failed_call_of_mcp_has_an_error(tmp_path):
    failed = completed(type="McpToolCall", id="c1", status="failed")
    output = item("function_call_output", call_id="c1", output=[{"type": "input_text", "text": "no such issue"}])
    found = read(tmp_path, [*START, called("c1", "get", namespace="mcp__tracker"), failed, output])
    assert tools_of(found) == ["mcp__tracker__get"]
    assert found.turns[0].results[0].error == "no such issue"


def test_instructions_that_are_sent_as_a_message_occur_once_and_tools_in_the_history_are_kept(tmp_path):
    tools = item("additional_tools", role="developer", tools=[{"type": "custom", "name": "exec"}])
    found = read(tmp_path, [START[0], tools, said("You write code.", role="developer"), *START[1:], called("c1")])
    assert [message.content for message in found.messages].count("You write code.") == 1
    assert found.source_extra["tools"] == [{"type": "custom", "name": "exec"}]


def test_a_tools_own_json_stays_whole_and_every_image_of_a_result_is_kept(tmp_path):
    own = '{"content":"a","id":5}'
    images = [{"type": "input_image", "image_url": f"data:image/png;base64,{data}"} for data in ("AAAA", "BBBB")]
    calls = [called("c1"), called("c2")]
    results = [item("function_call_output", call_id="c1", output=own)]
    results.append(item("function_call_output", call_id="c2", output=images))
    (turn,) = (found := read(tmp_path, [*START, *calls, *results])).turns
    assert turn.results[0].content == own
    (more,) = found.source_extra["turns"]["0"]["results"]
    assert turn.results[1].blob and len(more["blobs"]) == 1


def test_a_request_that_failed_or_was_killed_is_no_completed_session(tmp_path):
    found = read(tmp_path, [*START, called("c1"), event("task_complete", error={"message": "overloaded"})])
    assert (found.failure.kind, found.failure.message) == ("infrastructure", "overloaded")
    assert found.outcome.terminated is False
    found = read(tmp_path, [*lines(), event("task_started"), said("Go on.", role="user")])
    assert (found.outcome.terminated, found.outcome.reason) == (False, "")


def test_versions_that_write_each_parallel_call_with_its_output_have_one_turn_for_a_reply(tmp_path):
    def pair(*call_ids):
        outputs = {call_id: item("function_call_output", call_id=call_id, output="ok") for call_id in call_ids}
        return [row for call_id in call_ids for row in (called(call_id), outputs[call_id])]

    counted_first = [counted(10, 2, 12), *pair("c1", "c2"), counted(10, 2, 12), counted(20, 3, 35), *pair("c3")]
    found = read(tmp_path, [*START, *counted_first])
    assert [[call.call_id for call in turn.calls] for turn in found.turns] == [["c1", "c2"], ["c3"]]
    assert [turn.usage.prompt_tokens for turn in found.turns] == [10, 20]
    assert [len(turn.results) for turn in found.turns] == [2, 1]

    state, head = {"record_type": "state"}, {"id": "s", "timestamp": "2025-08-01T10:00:00Z", "instructions": None}
    bare = [row if row is state else row["payload"] for row in (state, *pair("c1", "c2"), state, state, *pair("c3"))]
    found = read(tmp_path, [head, *bare])
    assert [[call.call_id for call in turn.calls] for turn in found.turns] == [["c1", "c2"], ["c3"]]
