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
