"""An episode as a trace: turns and steps in their places, scores on what they are about, and a reader that reads it back."""

import json

import pytest
from episodes import make_episode, turn
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from records import trajectories
from scored import judgement_of, score_of

from ratchet.components.core import ToolCall, Usage
from ratchet.components.interop.reader_registry import read_log
from ratchet.components.tracking.episode_trace import MAX_TEXT, episode_trace, parse_span_id, span_id, trace_id
from ratchet.components.tracking.trace_log import TraceSample, sample_episodes
from ratchet.components.trajectories.trajectory import Failure, FailureKind


class TestPlaces:
    @given(st.integers(0, 2**31 - 1), st.integers(-1, 2**27 - 1))
    def test_a_span_says_where_it_stands(self, turn, step):
        assert parse_span_id(span_id(turn, step)) == (turn, step)
        assert len(span_id(turn, step)) == 16 and int(span_id(turn, step), 16)

    def test_the_episode_itself_has_a_span_and_no_span_means_the_episode(self):
        assert parse_span_id(span_id()) == parse_span_id(None) == parse_span_id("") == (-1, -1)

    @pytest.mark.parametrize("strange", ["0000000000000000", "b7ad6b7169203331", "xyz", "3", "10000000000000001"])
    def test_a_span_of_anybody_else_is_none_of_ours(self, strange):
        assert parse_span_id(strange) is None


class TestSpans:
    def test_there_is_one_for_the_episode_each_turn_and_each_step(self):
        trace = episode_trace(make_episode())
        assert [(span.kind, span.name) for span in trace.spans] == [
            ("AGENT", "repair/train-0001"),
            *(("CHAT_MODEL", "turn 0"), ("TOOL", "read_file")),
            *(("CHAT_MODEL", "turn 1"), ("TOOL", "edit_file")),
            *(("CHAT_MODEL", "turn 2"), ("TOOL", "submit")),
        ]
        assert {span.parent_id for span in trace.spans[1:]} == {span_id()}

    @settings(deadline=None, max_examples=15)
    @given(trajectories())
    def test_of_any_record_ids_differ_times_rise_and_nothing_is_later_than_the_episode(self, episode):
        trace = episode_trace(episode, begin=10**18)
        root, *spans = trace.spans
        assert len({span.span_id for span in trace.spans}) == len(trace.spans) == 1 + len(spans)
        assert [span.begin for span in spans] == sorted(span.begin for span in spans)
        assert all(root.begin <= span.begin < span.end <= root.end for span in spans)
        steps = [span for span in spans if span.kind == "TOOL"]
        assert len(steps) == sum(len(each.calls) for each in episode.turns)
        assert all(span.name and "\n" not in span.name for span in trace.spans)

    def test_a_model_call_is_given_what_came_since_the_last_so_that_the_length_stays_linear(self):
        turns = tuple(turn(index, "read_file", path=f"{index}.py") for index in range(40))
        spans = episode_trace(make_episode(turns=turns)).spans
        assert all(len(span.inputs["messages"]) == 1 for span in spans if span.kind == "CHAT_MODEL")

    def test_a_long_text_is_cut_and_says_by_how_much(self):
        long = turn(0, "edit_file", path="a.py", new="x" * (MAX_TEXT + 5))
        (span,) = (each for each in episode_trace(make_episode(turns=[long])).spans if each.kind == "TOOL")
        assert span.inputs["new"].endswith("… 5 characters left out") and len(span.inputs["new"]) < MAX_TEXT + 40

    def test_no_zero_byte_reaches_a_database(self):
        odd = turn(0, "bash", command="a\x00b")
        trace = episode_trace(make_episode("task\x00", turns=[odd]))
        assert trace.spans[2].inputs == {"command": "a\ufffdb"} and trace.name == "task\ufffd"
        assert trace.tags["task"] == "task\ufffd" and "\x00" not in trace.request

    def test_an_unreadable_call_is_a_step_that_failed(self):
        call = ToolCall("0-0", "", {}, "<tool_call>{", "not a JSON call")
        broken = replace(turn(0, "bash"), calls=(call,), results=())
        (span,) = (each for each in episode_trace(make_episode(turns=[broken])).spans if each.kind == "TOOL")
        assert (span.name, span.error, span.inputs) == ("(unreadable)", "not a JSON call", {"raw": "<tool_call>{"})

    def test_time_and_tokens_are_those_of_the_record(self):
        timed = replace(turn(0, "bash"), seconds=2.5, usage=Usage(100, 20))
        trace = episode_trace(make_episode(turns=[timed]))
        model = trace.spans[1]
        assert model.usage == {"input_tokens": 100, "output_tokens": 20}
        assert trace.spans[0].end - trace.spans[0].begin == pytest.approx(2.5e9, rel=1e-3)
        assert trace.spans[0].begin == 1_795_143_600_000_000_000 - 2_500_000_000  # it was collected when it had ended

    def test_only_the_infrastructure_makes_a_trace_fail(self):
        lost = episode_trace(make_episode(broken=True))
        assert lost.failed and "SandboxUnavailable" in lost.spans[0].error
        own = replace(make_episode(success=False), failure=Failure(FailureKind.POLICY, "Loop", "again and again"))
        assert not episode_trace(own).failed and not episode_trace(make_episode(success=False)).failed

    def test_our_own_reader_reads_the_trace_as_the_same_conversation(self, tmp_path):
        episode = make_episode()
        trace = episode_trace(episode)
        spans = [
            {
                "name": span.name,
                "span_id": span.span_id,
                "parent_span_id": span.parent_id,
                "start_time_unix_nano": span.begin,
                "end_time_unix_nano": span.end,
                "attributes": {
                    "mlflow.spanType": json.dumps(span.kind),
                    "mlflow.spanInputs": json.dumps(span.inputs),
                    "mlflow.spanOutputs": json.dumps(span.outputs),
                },
            }
            for span in trace.spans
        ]
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"info": {"trace_id": trace_id("e", "r", trace)}, "data": {"spans": spans}}))
        (found,) = read_log(path, "mlflow")
        assert [(each.role, each.content) for each in found.messages] == [("user", "repair repair/train-0001")]
        told = [(call.tool, call.arguments, result.content) for each in found.turns
                for call, result in zip(each.calls, each.results, strict=True)]  # fmt: skip
        ours = [(call.tool, call.arguments, result.content) for each in episode.turns
                for call, result in zip(each.calls, each.results, strict=True)]  # fmt: skip
        assert told == ours


class TestAssessments:
    def test_scores_stand_on_what_they_are_about_with_their_reasons(self):
        episode = make_episode()
        found = episode_trace(episode, score_of(episode), [judgement_of(episode)]).assessments
        told = [(each.name, parse_span_id(each.span_id), each.value, each.source, each.judged) for each in found]
        assert told == [
            ("success", (-1, -1), True, "outcome", False),
            ("total", (-1, -1), 0.7, "rules-9", False),
            ("outcome", (-1, -1), 1.0, "rules-9", False),
            ("process", (-1, -1), 0.5, "rules-9", False),
            ("process", (0, 0), 0.5, "rules-9", False),
            ("process", (1, 0), 0.5, "rules-9", False),
            ("judge", (1, 0), 0.25, "small@1", True),
            ("judge.goal_progress", (1, 0), 0.25, "small@1", True),
        ]  # efficiency, step 2 and tool_selection are null: null is not zero
        assert found[5].rationale == "non_redundancy: the same call again"
        assert found[7].rationale == "it breaks the loop"

    def test_a_judgement_of_another_content_is_left_out(self):
        episode = make_episode()
        (success,) = episode_trace(episode, None, [judgement_of(episode, content_hash="old")]).assessments
        assert success.name == "success"

    def test_whether_an_episode_succeeded_is_yes_no_or_absent(self):
        found = [episode_trace(make_episode(success=value)).assessments for value in (True, False, None)]
        assert [[each.value for each in one] for one in found] == [[True], [False], []]

    def test_the_same_episode_and_scores_give_the_same_trace_and_id(self):
        episode = make_episode()
        one, other = (episode_trace(episode, score_of(episode), [judgement_of(episode)]) for _ in range(2))
        assert one == other and trace_id("e", "r", one) == trace_id("e", "r", other)
        assert len({trace_id("e", "r", one), trace_id("e", "s", one), trace_id("f", "r", one)}) == 3


class TestSample:
    def test_the_best_the_worst_and_some_of_the_others(self):
        totals = {f"ep-{number:03d}": number / 100 for number in range(100)} | {"lost": None}
        found = sample_episodes(totals, TraceSample(best=3, worst=2, random=5), seed=1)
        assert found[:5] == ["ep-099", "ep-098", "ep-097", "ep-000", "ep-001"]
        assert len(found) == len(set(found)) == 10
        assert found == sample_episodes(dict(reversed(totals.items())), TraceSample(3, 2, 5), seed=1)
        assert found[5:] != sample_episodes(totals, TraceSample(3, 2, 5), seed=2)[5:]

    @given(
        st.dictionaries(st.text(max_size=4), st.none() | st.floats(0, 1), max_size=20),
        st.builds(TraceSample, st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)),
    )
    def test_nothing_is_chosen_twice_and_no_more_than_was_asked_for(self, totals, sample):
        found = sample_episodes(totals, sample)
        assert (
            len(found) == len(set(found)) == min(len(totals), len(found)) <= sample.best + sample.worst + sample.random
        )
        assert set(found) <= set(totals)
