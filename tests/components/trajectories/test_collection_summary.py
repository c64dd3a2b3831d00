"""Describe: numbers by hand; what is unknown is counted as unknown."""

import statistics

import pytest
from episodes import make_episode, turn
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ratchet.components.core import ToolCall, ToolResult, Usage
from ratchet.components.trajectories.collection_summary import MAX_BARS, distribution, histogram, summarize
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Provenance, Turn


def test_nothing_is_described_as_nothing():
    found = summarize([])
    assert (found.episodes, found.steps, found.success_rate, found.cost, found.histogram) == (0, None, None, None, [])


def test_success_is_counted_among_the_known():
    found = summarize(
        [make_episode("a", i, success=success) for i, success in enumerate([True, True, False, None, None])]
    )
    assert (found.succeeded, found.not_succeeded, found.success_unknown) == (2, 1, 2)
    assert found.success_rate == pytest.approx(2 / 3)
    assert summarize([make_episode(success=None)]).success_rate is None


def test_tasks_sources_agents_and_domains_are_counted():
    records = [make_episode("a"), make_episode("a", 1), make_episode("b", version="w-2")]
    records.append(make_episode("c", provenance=Provenance("openhands", collected_at="2026-01-02T00:00:00Z")))
    found = summarize(records)
    assert (found.episodes, found.tasks) == (4, 3)
    assert found.sources == {"ratchet": 3, "openhands": 1}
    assert found.agents == {"transformers weights-1": 3, "transformers w-2": 1}
    assert found.domains == {"coding": 4} and found.tasksets == {"repair": 4}
    assert (found.first_collected, found.last_collected) == ("2026-01-02T00:00:00Z", "2026-11-20T03:00:00Z")


def test_ends_are_told_apart():
    broken = make_episode("b", broken=True)
    lost = make_episode("c", failure=Failure(FailureKind.POLICY, "NoCall", ""), outcome=Outcome(truncated=True))
    found = summarize([make_episode("a"), broken, lost])
    assert (found.cut_short, found.policy_failures, found.infrastructure_failures) == (2, 1, 1)


def test_repeated_identities_and_contents_are_counted_and_kept():
    found = summarize([make_episode("a"), make_episode("a", 1), make_episode("a", 1)])
    assert (found.episodes, found.repeated_ids, found.repeated_contents) == (3, 1, 2)


def test_tools_and_their_errors():
    calls = (
        ToolCall("1", "run"),
        ToolCall("2", "run"),
        ToolCall("3", "run"),
        ToolCall("4", "read"),
        ToolCall("5", "", parse_error="?"),
    )
    results = (
        ToolResult("1", "", exit_code=0),
        ToolResult("2", "", exit_code=2),
        ToolResult("4", "", error="denied"),
        ToolResult("5", "", error="?"),
    )
    tools = summarize([make_episode(turns=(Turn(0, "agent", "", calls=calls, results=results),))]).tools
    assert list(tools) == ["run", "", "read"]
    run = tools["run"]
    assert (run.calls, run.answered, run.errors, run.error_rate) == (3, 2, 1, 0.5)
    assert tools["read"].error_rate == 1.0 and tools[""].unreadable == 1
    assert (
        summarize([make_episode(turns=(Turn(0, "agent", "", calls=(ToolCall("1", "run"),)),))]).tools["run"].error_rate
        is None
    )


def test_tokens_cost_and_time_are_sums_of_what_is_known():
    timed = [
        replace(turn(0, "run"), usage=Usage(100, 10, 0.5), seconds=2.0),
        replace(turn(1, "run"), usage=Usage(200, 20)),
    ]
    found = summarize([make_episode("a", turns=timed), make_episode("b")])
    assert (found.prompt_tokens, found.completion_tokens, found.cost, found.episodes_with_usage) == (300, 30, 0.5, 1)
    assert found.seconds.count == 1 and found.seconds.total == 2.0
    assert summarize([make_episode()]).cost is None


def test_steps_are_calls_and_turns_are_replies():
    found = summarize([make_episode(turns=[turn(i, "run") for i in range(n)]) for n in (1, 2, 3, 10)])
    assert found.turns == 16
    assert (found.steps.total, found.steps.mean, found.steps.median, found.steps.p90, found.steps.most) == (
        16,
        4,
        2,
        10,
        10,
    )


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1))
def test_a_spread_is_that_of_the_library(values):
    found = distribution(values)
    assert found.median == statistics.median_low(values)
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert (found.least, found.most, found.total, found.count) == (min(values), max(values), sum(values), len(values))
    assert (
        sum(each <= found.p90 for each in values) >= 0.9 * len(values) > sum(each < found.p90 for each in values) - 1e-9
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1))
def test_a_histogram_holds_every_value_once(values):
    bars = histogram(values)
    assert len(bars) <= MAX_BARS and sum(bar.episodes for bar in bars) == len(values)
    assert all(sum(bar.least <= value <= bar.most for bar in bars) == 1 for value in values)
    assert all(bar.episodes == sum(bar.least <= value <= bar.most for value in values) for bar in bars)


def test_errors_are_unknown_where_no_result_of_a_foreign_log_states_one():
    calls, results = (ToolCall("1", "edit"), ToolCall("2", "run")), (ToolResult("1", "x"), ToolResult("2", "y", 1))
    turns = (Turn(0, "agent", "", calls=calls, results=results),)
    tools = summarize([make_episode(turns=turns, provenance=Provenance("swe_agent"))]).tools
    assert (tools["edit"].errors, tools["edit"].error_rate) == (None, None)
    assert (tools["run"].errors, tools["run"].error_rate) == (1, 1.0)
    assert summarize([make_episode(turns=turns)]).tools["edit"].errors == 0


def test_the_usage_that_a_log_reports_for_the_whole_episode_is_counted_where_its_turns_have_none():
    def reported(**stats):
        found = summarize([make_episode(turns=(), source_extra={"info": {"model_stats": stats}})])
        return found.prompt_tokens, found.completion_tokens, found.cost, found.episodes_with_usage

    assert reported(tokens_sent=120, tokens_received=7, instance_cost=1.5) == (120, 7, 1.5, 1)
    assert reported(tokens_sent=0, tokens_received=0, instance_cost=0) == (0, 0, None, 0)
    assert reported(instance_cost="dear") == (0, 0, None, 0)
