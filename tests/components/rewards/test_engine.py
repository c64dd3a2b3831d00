"""What an episode is worth: outcome, process, efficiency, total. Properties first, then the regressions of old defects."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.components.core import ConfigurationError, DataError, load_domain
from ratchet.components.rewards.episode_scoring import calls_with_results, score, score_all
from ratchet.components.rewards.reference_steps import reference_steps
from ratchet.components.rewards.reward_config import RewardConfig
from ratchet.components.rewards.rules.rule_engine import RULES
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Turn, content_hash

CODING = load_domain("coding")
JUNK = ["read", "range", "grep", "edit", "undo", "bash", "think", "submit", "unreadable", "unknown", "refused"]


def step(play, name, number):
    return {
        "read": lambda: play.read(),
        "range": lambda: play.read(start_line=number),
        "grep": lambda: play.call("grep", pattern=f"total_price_{number}"),
        "edit": lambda: play.edit("total_price", f"total_price{number}"),
        "undo": lambda: play.edit(f"total_price{number}", "total_price"),
        "bash": lambda: play.bash(f"python -m pytest test_{number}.py"),
        "think": lambda: play.call("think", thought=str(number)),
        "submit": lambda: play.submit(),
        "unreadable": lambda: play.unreadable(),
        "unknown": lambda: play.call("frobnicate", depth=number),
        "refused": lambda: play.read(path=f"gone_{number}.py", _error="no such file"),
    }[name]()


moves = st.lists(st.tuples(st.sampled_from(JUNK), st.integers(0, 3)), max_size=25)
weights = st.fixed_dictionaries({name: st.floats(0.01, 10) for name in ("outcome", "process", "efficiency")})
outcomes = st.builds(
    Outcome,
    success=st.none() | st.booleans(),
    score=st.none() | st.floats(-1, 3),
    tests_passed=st.none() | st.integers(0, 12),
    tests_total=st.none() | st.integers(0, 8),
)
references = st.none() | st.floats(0.5, 100)


def values(found):
    """Every score of an episode."""
    yield from (found.total, found.outcome, found.process, found.efficiency)
    for each in found.steps:
        yield each.total
        yield from each.scores.values()


@given(moves=moves, outcome=outcomes, weights=weights, reference=references)
def test_every_score_is_in_0_to_1_or_null(play, moves, outcome, weights, reference):
    trajectory = play.trajectory(*(step(play, *move) for move in moves), outcome=outcome)
    found = score(trajectory, CODING, RewardConfig(weights=weights), reference)
    assert all(value is None or 0 <= value <= 1 for value in values(found))
    assert len(found.steps) == len(moves)


@given(moves=moves, outcome=outcomes)
def test_null_carries_no_weight(play, moves, outcome):
    """Independent reference: the definition, written out."""
    found = score(play.trajectory(*(step(play, *move) for move in moves), outcome=outcome), CODING)
    for each in found.steps:
        lines = [(CODING.rubric[name], value) for name, value in each.scores.items() if value is not None]
        expected = sum(w * v for w, v in lines) / sum(w for w, _ in lines) if lines else None
        assert each.total == (expected if expected is None else pytest.approx(expected))
    totals = [each.total for each in found.steps if each.total is not None]
    assert found.process == (pytest.approx(sum(totals) / len(totals)) if totals else None)


@pytest.mark.slow
@settings(max_examples=60)
@given(good=moves, bad=moves, win=outcomes, loss=outcomes, weights=weights, reference=references)
def test_any_success_outranks_any_failure_of_the_same_task(play, good, bad, win, loss, weights, reference):
    config = RewardConfig(weights=weights)
    win, loss = msgspec.structs.replace(win, success=True), msgspec.structs.replace(loss, success=False)
    solver = play.trajectory(*(step(play, *move) for move in good), outcome=win)
    loser = play.trajectory(*(step(play, *move) for move in bad), outcome=loss)
    above, below = (score(each, CODING, config, reference).total for each in (solver, loser))
    assert above > below


@given(moves=moves, weights=weights, outcome=st.none() | st.floats(0, 1), reference=references)
def test_the_total_is_the_weighted_mean_of_the_parts_that_are_known(play, moves, weights, outcome, reference):
    """Where nobody knows of success; a failure is held below (next tests)."""
    trajectory = play.trajectory(*(step(play, *move) for move in moves), outcome=Outcome(score=outcome))
    found = score(trajectory, CODING, RewardConfig(weights=weights), reference)
    parts = [(weights[name], value) for name in weights if (value := getattr(found, name)) is not None]
    expected = sum(w * v for w, v in parts) / sum(w for w, _ in parts) if parts else None
    if outcome is not None and outcome < 1:
        expected *= weights["outcome"] / sum(weights.values())
    assert found.total == (expected if expected is None else pytest.approx(expected, abs=1e-8))


def test_a_perfect_run_scores_1(play):
    found = score(play.solver(), CODING, reference=3)
    assert (found.total, found.outcome, found.process, found.efficiency) == (1, 1, 1, 1)


def test_fifty_reads_of_one_file_score_near_0(play):
    found = score(play.trajectory(*[play.read()] * 50, success=False), CODING, reference=3)
    assert found.process == pytest.approx(0.02)
    assert found.total < 0.02


def test_weights_change_the_total_as_they_say(play):
    trajectory = play.trajectory(play.read(), play.read(), play.submit(), success=True)
    for weights, expected in (
        ({"outcome": 1, "process": 0, "efficiency": 0}, 1.0),
        ({"outcome": 0, "process": 1, "efficiency": 0}, 0.5),
        ({"outcome": 0, "process": 0, "efficiency": 1}, 2 / 3),
        ({"outcome": 1, "process": 1, "efficiency": 0}, 0.75),
    ):
        config = RewardConfig.load({"weights": weights})
        assert score(trajectory, CODING, config, reference=2).total == pytest.approx(expected)


def test_where_the_outcome_weighs_nothing_a_failure_is_judged_by_its_process(play):
    config = RewardConfig.load({"weights": {"outcome": 0}})
    assert score(play.trajectory(play.read(), success=False), CODING, config).total == 1


def test_partial_credit_orders_failures(play):
    totals = [
        score(play.trajectory(play.read(), outcome=Outcome(False, tests_passed=n, tests_total=4)), CODING).total
        for n in range(4)
    ]
    assert totals == sorted(set(totals))


def test_the_outcome_is_the_score_else_tests_else_success_else_null(play):
    def outcome(**fields):
        return score(play.trajectory(outcome=Outcome(**fields)), CODING).outcome

    assert outcome(success=False, score=0.9, tests_passed=1, tests_total=4) == 0.9
    assert outcome(success=False, tests_passed=1, tests_total=4) == 0.25
    assert outcome(success=False, score=0.9, tests_passed=None, tests_total=4) == 0.9
    assert outcome(success=True, tests_passed=0, tests_total=0) == 1
    assert outcome(success=False) == 0
    assert outcome(score=float("nan")) is None
    assert outcome() is None


def test_a_policy_failure_that_was_not_graded_scores_0_and_says_so(play):
    failure = Failure(FailureKind.POLICY, "ContextOverflow", "too long")
    trajectory = msgspec.structs.replace(play.trajectory(play.read()), failure=failure)
    assert score(trajectory, CODING).outcome == 0


def test_an_infrastructure_failure_is_not_scored_at_all(play):
    trajectory = play.trajectory(play.read(), play.unreadable(), success=False, infrastructure=True)
    found = score(trajectory, CODING, reference=3)
    assert len(found.steps) == 2
    assert all(value is None for value in values(found))


def test_an_episode_of_nothing_has_no_process(play):
    found = score(play.trajectory(success=False), CODING, reference=3)
    assert (found.total, found.outcome, found.process, found.efficiency, found.steps) == (0, 0, None, None, [])


def test_efficiency_is_the_reference_over_the_steps_at_most_1(play):
    solver = play.solver()
    assert score(solver, CODING, reference=1.5).efficiency == 0.5
    assert score(solver, CODING, reference=30).efficiency == 1
    assert score(solver, CODING).efficiency is None
    assert score(solver, CODING, RewardConfig(reference_steps=1), reference=3).efficiency == pytest.approx(1 / 3)


def test_the_reference_is_the_median_of_the_successful_episodes_of_the_task(play):
    episodes = [
        play.trajectory(*[play.read()] * steps, success=success, attempt=steps)
        for steps, success in ((2, True), (4, True), (9, True), (1, False), (1, None))
    ]
    episodes.append(play.trajectory(play.read(), success=True, infrastructure=True))
    episodes.append(play.trajectory(play.read(), success=False, task_id="other"))
    assert reference_steps(episodes) == {("price-1", "hash"): 4.0}


def test_a_hack_is_no_reference_for_honest_episodes(play):
    deleted = play.trajectory(play.bash("rm -r tests"), play.submit(), success=True, attempt=1)
    assert score(deleted, CODING).layers["guards"].score == 0
    assert reference_steps([play.solver(), deleted]) == reference_steps([play.solver()])
    assert reference_steps([deleted]) == {}


def test_several_calls_of_a_turn_are_several_steps(play):
    trajectory = play.trajectory(play.submit(), success=True)
    turn = play.turn(0, play.read(), play.read(), play.edit("- 1", "+ 0"))
    found = score(msgspec.structs.replace(trajectory, turns=(turn,)), CODING)
    assert [(each.turn, each.step, each.scores["non_redundancy"]) for each in found.steps] == [
        (0, 0, 1), (0, 1, 0), (0, 2, 1)
    ]  # fmt: skip


def test_a_call_that_the_episode_ended_before_has_no_result(play):
    turn = play.turn(0, play.read(), play.submit())
    turn = msgspec.structs.replace(turn, results=turn.results[:1])
    assert [result is None for _, result in calls_with_results(turn)] == [False, True]
    assert list(calls_with_results(Turn(0, "agent", "no call"))) == []


def test_the_json_of_a_score_has_the_promised_shape(play):
    line = msgspec.json.decode(msgspec.json.encode(score(play.solver(), CODING)))
    assert list(line) == [
        "episode_id", "total", "outcome", "process", "efficiency", "steps", "layers", "explanations", "version",
    ]  # fmt: skip
    assert list(line["steps"][0]) == ["turn", "step", "total", "scores"]
    assert line["steps"][2] == {
        "turn": 2, "step": 0, "total": None,
        "scores": dict.fromkeys(RULES),
    }  # fmt: skip


def test_a_file_is_scored_in_order_and_streaming(play, tmp_path):
    path = tmp_path / "some.jsonl"
    episodes = [play.solver(attempt=0), play.trajectory(play.read(), success=False, attempt=1)]
    path.write_bytes(msgspec.json.Encoder().encode_lines(episodes))
    found = score_all(read_jsonl(path), reference_steps(read_jsonl(path)), RewardConfig(), "coding")
    assert next(found) == score(episodes[0], CODING, reference=3)
    assert [each.episode_id for each in found] == [episodes[1].episode_id]
    assert [each.total for each in score_all(read_jsonl(path), {}, RewardConfig())] == [
        score(each, CODING).total for each in episodes
    ]


def test_a_file_that_is_cut_short_is_refused_in_one_line(play, tmp_path):
    path = tmp_path / "cut.jsonl"
    path.write_bytes(msgspec.json.encode(play.solver())[:-40])
    with pytest.raises(DataError, match=r"cut\.jsonl, line 1: the last line is cut short") as caught:
        list(score_all(read_jsonl(path), {}, RewardConfig()))
    assert "\n" not in str(caught.value)


class TestConfiguration:
    def test_an_unknown_key_is_refused_and_the_nearest_named(self):
        with pytest.raises(ConfigurationError, match=r"unknown key 'weights\.proces'; did you mean 'process'\?"):
            RewardConfig.load({"weights": {"proces": 1}})
        with pytest.raises(ConfigurationError, match=r"'rubric\.redundancy'; did you mean 'non_redundancy'\?"):
            RewardConfig.load({"rubric": {"redundancy": 1}})

    @pytest.mark.parametrize("values", [{"outcome": -1}, {"outcome": 0, "process": 0, "efficiency": 0}])
    def test_weights_that_weigh_nothing_or_less_are_refused(self, values):
        with pytest.raises(ConfigurationError, match="weights"):
            RewardConfig.load({"weights": values})

    def test_the_version_names_the_rules_the_parameters_and_the_profile(self):
        plain, other = RewardConfig(), RewardConfig.load({"weights": {"process": 0.6}})
        versions = {plain.version(CODING), other.version(CODING), plain.version(load_domain("generic"))}
        assert len(versions) == 3
        assert RewardConfig().version(CODING) == plain.version(CODING)


class TestOldDefects:
    def test_defect_07_the_weight_of_a_rule_has_an_effect(self, play):
        trajectory = play.trajectory(play.read(), play.edit("foobar", "quux", path="zzz.txt"))
        light, heavy = (
            score(trajectory, CODING, RewardConfig.load({"rubric": {"information_use": weight}})).process
            for weight in (0.1, 5)
        )
        assert light > heavy

    def test_defect_08_no_constant_squeezes_the_scores(self, play):
        assert score(play.solver(), CODING, reference=3).total == 1
        assert score(play.trajectory(*[play.read()] * 50), CODING).total < 0.05

    def test_defect_11_more_tests_passed_than_there_are_is_1(self, play):
        assert score(play.trajectory(outcome=Outcome(tests_passed=7, tests_total=4)), CODING).outcome == 1
        assert score(play.trajectory(outcome=Outcome(score=3.0)), CODING).outcome == 1

    def test_defect_12_a_spammer_does_not_outrank_a_solver(self, play):
        spam = [play.read(start_line=line) for line in range(200)]
        spammer, solver = (
            play.trajectory(*spam, success=False, attempt=1),
            play.trajectory(play.unreadable(), success=True),
        )
        totals = [score(each, CODING, reference=3).total for each in (spammer, solver)]
        assert totals[0] < totals[1]

    def test_defect_12_cheap_steps_do_not_add_up(self, play):
        few, many = ([play.read(start_line=line, _content=f"line {line}") for line in range(n)] for n in (2, 200))
        assert score(play.trajectory(*few), CODING).process == score(play.trajectory(*many), CODING).process == 1

    def test_defect_13_submitting_is_not_success(self, play):
        found = score(play.trajectory(play.submit()), CODING)
        assert (found.total, found.outcome, found.process) == (None, None, None)
        claimed = Outcome(success=False, terminated=True, reason="submit")
        assert score(play.trajectory(play.submit(), outcome=claimed), CODING).outcome == 0

    def test_defect_30_a_success_and_a_failure_of_the_same_moves_stay_two(self, play):
        won, lost = play.solver(success=True), play.solver(success=False)
        assert content_hash(won) != content_hash(lost)
        assert score(won, CODING).total > score(lost, CODING).total
