"""Migration: older records are read as present ones, newer ones are refused, and no success is taken over unproven."""

import copy
import json

import msgspec
import pytest
from records import recorded

from ratchet.components.core import DataError
from ratchet.components.trajectories import record_decoding
from ratchet.components.trajectories.record_decoding import MIGRATIONS, migrate_line, migrate_record, version_of
from ratchet.components.trajectories.record_rules import rule_violations
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.trajectory import SCHEMA_VERSION, content_hash


def line(record):
    return json.dumps(record).encode() + b"\n"


class TestVersions:
    def test_each_record_is_known_by_its_shape_or_its_number(self, episode):
        now = msgspec.to_builtins(episode())
        assert version_of(now) == SCHEMA_VERSION == 1
        assert version_of({**now, "schema_version": 99}) == 99
        del now["schema_version"]
        assert version_of(now) == SCHEMA_VERSION
        assert version_of(recorded()) == 0

    @pytest.mark.parametrize(
        "value", [None, [], 3, {}, {"messages": []}, {"schema_version": "1"}, {"schema_version": True}]
    )
    def test_what_is_no_record_has_none(self, value):
        assert version_of(value) is None

    def test_there_is_a_step_from_every_older_version(self):
        assert sorted(MIGRATIONS) == list(range(SCHEMA_VERSION))

    def test_steps_are_taken_one_after_another(self, monkeypatch, episode):
        """With a version to come: a record of today becomes one of tomorrow, and a record of yesterday passes through both."""

        def renamed(record):
            record = {**record, "schema_version": 2}
            record["source_extra"] = {**record["source_extra"], "moved": True}
            return record

        monkeypatch.setattr(record_decoding, "SCHEMA_VERSION", 2)
        monkeypatch.setitem(MIGRATIONS, 1, renamed)
        for record in (msgspec.to_builtins(episode()), recorded()):
            new = migrate_record(record)
            assert new.schema_version == 2 and new.source_extra["moved"] is True
        assert migrate_line(msgspec.json.encode(episode())) is not None

    def test_a_flat_record_of_the_hub_is_read_as_the_recorders(self):
        """As knowlyr-hub 0.1.2 writes `trajectories.jsonl`: only its counts of tests prove success, its rewards are kept apart."""
        step = {"thought": "I look.", "tool": "bash", "params": {"command": "ls"}, "output": "a.py", "exit_code": 0}
        flat = {
            "task_id": "shop-1",
            "agent_framework": "openhands",
            "agent_model": "some-model",
            "steps": [step],
            "total_steps": 1,
            "success": True,
            "reward": 0.8,
            "step_rewards": [0.8],
            "duration_seconds": 1.5,
            "metadata": {
                "task_description": "Mend it.",
                "outcome_tests_passed": 2,
                "outcome_tests_failed": 0,
                "run": 7,
            },
        }
        new = migrate_record(flat)
        assert (new.task.task_id, new.task.description, new.agent.name) == ("shop-1", "Mend it.", "openhands")
        assert (new.agent.policy, new.turns[0].calls[0].tool, new.turns[0].results[0].content) == (
            "some-model",
            "bash",
            "a.py",
        )
        assert (new.outcome.success, new.outcome.score, new.outcome.tests_total) == (True, None, 2)
        assert new.source_extra["reward"] == 0.8 and new.source_extra["metadata"] == {"run": 7}
        unproven = migrate_record({**flat, "metadata": {}})
        assert unproven.outcome.success is None and not list(rule_violations(new))
        assert migrate_record({**flat, "reward": 0.1}).episode_id != new.episode_id

    def test_a_present_or_a_newer_record_is_not_migrated(self, episode):
        assert migrate_line(msgspec.json.encode(episode())) is None
        assert migrate_line(line({**recorded(), "schema_version": 7})) is None
        assert migrate_line(b"{") is None and migrate_line(b"\xff") is None


class TestRecorder:
    def test_thought_call_result_and_exit_code_are_where_they_belong(self):
        record = migrate_record(recorded())
        assert [turn.thought for turn in record.turns] == ["I look for the name.", "I mend it.", None]
        assert [turn.calls[0].tool for turn in record.turns] == ["bash", "edit_file", "submit"]
        assert record.turns[0].calls[0].arguments == {"command": "grep -rn price ."}
        assert [turn.results[0].exit_code for turn in record.turns] == [0, 1, 0]
        assert record.turns[1].results[0].content == "no such file"
        assert (record.task.task_id, record.task.kind, record.task.description) == (
            "shop-1",
            "bug_fix",
            "Mend the price.",
        )
        assert (record.agent.name, record.agent.policy_version) == ("openhands/CodeActAgent", "some-model")
        assert record.provenance.collected_at == "2026-02-15T13:00:00Z"

    def test_it_keeps_the_rules_of_a_record(self):
        record = migrate_record(recorded())
        assert list(rule_violations(record)) == [] and record.content_hash == content_hash(record)

    def test_what_has_no_place_is_kept(self):
        extra = migrate_record(recorded(judgement={"by": "anna", "better": True})).source_extra
        assert extra["judgement"] == {"by": "anna", "better": True}
        assert extra["metadata"] == {"instance_id": "shop-1"}
        assert extra["outcome"]["total_tokens"] == 303 and extra["outcome"]["success"] is True
        assert extra["task"]["repo"] == "acme/shop"
        assert extra["turns"]["1"] == {"step_id": 1, "timestamp": "2026-02-15T13:00:01+00:00", "token_count": 101}

    @pytest.mark.parametrize(
        ("claimed", "passed", "failed", "success", "total"),
        [
            (True, 0, 0, None, None),
            (False, 0, 0, None, None),
            (True, 4, 0, True, 4),
            (False, 4, 0, None, 4),
            (True, 3, 1, False, 4),
            (False, 0, 2, False, 2),
        ],
    )
    def test_only_tests_prove_an_outcome(self, claimed, passed, failed, success, total):
        counts = {"success": claimed, "tests_passed": passed, "tests_failed": failed, "score": 0.0}
        outcome = migrate_record(recorded(outcome=counts)).outcome
        assert (outcome.success, outcome.tests_total) == (success, total)
        assert outcome.score is None

    def test_the_same_line_gives_the_same_identity_and_another_another(self):
        assert migrate_record(recorded()).episode_id == migrate_record(recorded()).episode_id
        assert migrate_record(recorded(model="other")).episode_id != migrate_record(recorded()).episode_id

    def test_the_record_that_is_migrated_is_left_as_it_was(self):
        record = recorded()
        before = copy.deepcopy(record)
        migrate_record(record)
        assert record == before

    def test_sparse_steps_are_turns_too(self):
        sparse = [
            {},
            {"thought": "hm", "tool_call": None},
            {"tool_result": {"output": "out"}},
            {"tool_call": {"name": "ls"}},
        ]
        record = migrate_record(recorded(steps=sparse))
        assert len(record.turns) == 4 and list(rule_violations(record)) == []
        assert record.turns[2].results[0].content == "out" and record.turns[3].calls[0].tool == "ls"
        assert record.provenance.collected_at is None

    @pytest.mark.parametrize(
        ("change", "place"),
        [
            ({"steps": 3}, "$.steps"),
            ({"steps": [{"tool_call": {"parameters": "text"}}]}, "$.steps[0].tool_call.parameters"),
            ({"task": []}, "$.task"),
            ({"outcome": {"success": "yes"}}, "$.outcome.success"),
        ],
    )
    def test_a_wrong_type_names_its_field(self, change, place):
        with pytest.raises(msgspec.ValidationError) as caught:
            migrate_line(line(recorded(**change)))
        assert place in str(caught.value)


class TestReading:
    def test_old_and_new_lines_may_stand_in_one_file(self, tmp_path, episode):
        path = tmp_path / "mixed.jsonl"
        path.write_bytes(line(recorded()) + msgspec.json.encode(episode()) + b"\n")
        first, second = read_jsonl(path)
        assert first.task.task_id == "shop-1" and second == episode()

    def test_an_old_line_that_cannot_be_migrated_is_one_clear_error(self, tmp_path):
        path = tmp_path / "old.jsonl"
        path.write_bytes(line(recorded(steps=3)))
        with pytest.raises(DataError, match=r"old\.jsonl, line 1: is a record of schema 0 .*\$\.steps") as caught:
            list(read_jsonl(path))
        assert "\n" not in str(caught.value)

    def test_a_bottomless_line_is_a_data_error(self, tmp_path):
        path = tmp_path / "deep.jsonl"
        path.write_bytes(b"[" * 100_000 + b"\n")
        with pytest.raises(DataError, match="line 1"):
            list(read_jsonl(path))

    def test_defect_05_the_tools_of_a_recorders_output_are_known_to_who_scores_it(self, tmp_path):
        from ratchet.components.rewards.episode_scoring import score_all
        from ratchet.components.rewards.reward_config import RewardConfig

        path = tmp_path / "recorded.jsonl"
        path.write_bytes(
            line(recorded()) + line(recorded(outcome={"success": True, "tests_passed": 2, "tests_failed": 0}))
        )
        claimed, proven = score_all(read_jsonl(path), {}, RewardConfig())
        assert [step.total is not None for step in proven.steps] == [True, True, False], (
            "handing in is not scored by a rule"
        )
        assert proven.outcome == 1.0 and claimed.outcome is None
