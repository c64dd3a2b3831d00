"""Sets of episodes by name: folders, nights, registered versions; compared, judged by the rule, and ranked."""

import shutil
from types import SimpleNamespace

import msgspec
import pytest
from episodes import make_episode, turn, write_night

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.nights.episode_sets import (
    evaluated_agents,
    latest_night,
    load_set_results,
    resolve_sets,
    shortest_names,
)
from ratchet.components.nights.night_state import begin_night
from ratchet.components.operations.compare_sets import compare, compare_sets, leaderboard
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.trajectory import TaskRef, with_content_hash

SKILL = {"champion": 2, "control": 2, "challenger": 5}
"""Of six tasks in a row, how many are solved."""


@pytest.fixture(scope="module")
def played():
    """Episodes of each agent at the same tasks of the bundled taskset, two attempts each."""
    tasks = [TaskRef.from_task(task) for task in load_taskset("programs").tasks("promote")[:60]]

    def of(name, seed=0):
        return [
            with_content_hash(
                msgspec.structs.replace(
                    make_episode(task.task_id, attempt, success=n % 6 < SKILL[name], version=f"{name}-w"),
                    task=task,
                    seed=seed + attempt,
                )
            )
            for n, task in enumerate(tasks)
            for attempt in range(2)
        ]

    return of


@pytest.fixture
def home(tmp_path, monkeypatch, played):
    """Two nights: in the first all three played, in the second the promoted challenger as champion."""
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    for night in ("n1", "n2"):
        begin_night("smoke", night=night)
    place = tmp_path / "home" / "evaluations"
    for name in SKILL:
        write_night(place / "n1" / name, played(name))
    write_night(place / "n2" / "champion", played("challenger", seed=50))
    return place


class TestSets:
    def test_an_agent_of_a_night_a_whole_night_and_a_folder_are_sets(self, home):
        assert [each.name for each in resolve_sets(["n1"])] == ["champion", "challenger", "control"]
        assert [each.path for each in resolve_sets(["n1/control"])] == [home / "n1" / "control"]
        assert [each.name for each in resolve_sets([str(home / "n1" / "champion"), "n2/champion"])] == [
            "n1/champion",
            "n2/champion",
        ]

    def test_the_latest_night_is_the_last_that_evaluated(self, home):
        begin_night("smoke", night="n3")
        assert latest_night() == "n2" and evaluated_agents("n3") == []
        shutil.rmtree(home)
        with pytest.raises(ConfigurationError, match="no night has evaluated"):
            latest_night()

    def test_registered_versions_mean_a_night_in_which_all_of_them_played(self, home, monkeypatch):
        known = {1: "champion-w", 2: "challenger-w", 3: "unheard-of"}
        monkeypatch.setattr("ratchet.components.tracking.model_registry.aliases", lambda *_: {"champion": 2})
        monkeypatch.setattr(
            "ratchet.components.tracking.model_registry.get_version",
            lambda number: SimpleNamespace(policy_version=known[number]),
        )
        assert [each.path for each in resolve_sets(["@1", "@champion"])] == [
            home / "n1" / name for name in ("champion", "challenger")
        ]
        assert [each.path for each in resolve_sets(["n1/control", "champion"])][1] == home / "n1" / "challenger"
        with pytest.raises(ConfigurationError, match=r"version 3 \(unheard-of\) has played .* --policy @3`"):
            resolve_sets(["1", "3"])
        (home / "n1" / "champion" / "shard-00000.jsonl").write_bytes(b"{")
        assert resolve_sets(["champion"])[0].path.name in ("challenger", "champion")

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["nowhere"], "nowhere holds no finished episodes"),
            (["n1/teacher"], "n1/teacher holds no finished episodes"),
            (["../home/evaluations/n1"], "holds no finished episodes"),
            ([""], "holds no finished episodes"),
            (["n1/champion", "n1"], "is given twice"),
        ],
    )
    def test_a_word_that_means_nothing_is_one_line(self, home, monkeypatch, words, said):
        monkeypatch.setattr("ratchet.components.tracking.model_registry.aliases", lambda *_: {})
        with pytest.raises(ConfigurationError) as error:
            resolve_sets(words)
        assert said in str(error.value) and "\n" not in str(error.value)

    def test_names_are_as_short_as_tells_them_apart(self, tmp_path):
        a, b = tmp_path / "x" / "a.jsonl", tmp_path / "y" / "a.jsonl"
        assert shortest_names([a]) == ["a"] and shortest_names([a, b]) == ["x/a.jsonl", "y/a.jsonl"]
        assert shortest_names([a, tmp_path / "z" / "x" / "a.jsonl"]) == [str(a), str(tmp_path / "z" / "x" / "a.jsonl")]


@pytest.mark.slow
class TestCompared:
    def test_two_sets_get_the_rules_verdict_and_the_flipped_tasks(self, home):
        found = compare_sets(["n1/champion", "n1/challenger"], control="n1/control")
        (first, second) = found.comparisons
        assert (first.b.name, second.b.name) == ("challenger", "control")
        assert first.difference.value == pytest.approx(0.5) and len(first.flips) == 30 == first.won
        assert found.decision.challenger.agent.policy_version == "challenger-w" and found.decision.control is not None
        assert found.decision.versus_champion.difference == first.difference

    def test_agents_of_one_night_are_resampled_with_its_seed_and_others_with_zero(self, home, tmp_path):
        night = begin_night("smoke", seed=7, night="n3")
        for name in ("champion", "challenger"):
            shutil.copytree(home / "n1" / name, home / night.id / name)
            shutil.copytree(home / "n1" / name, tmp_path / "elsewhere" / name)
        words, others = ["n3/champion", "n3/challenger"], [str(tmp_path / "elsewhere" / name) for name in SKILL][::2]
        assert compare_sets(words)[0].difference == compare_sets(words, seed=7)[0].difference
        assert any(compare_sets(words)[0].mean_b != compare_sets(words, seed=seed)[0].mean_b for seed in range(8, 14))
        assert compare(*words)[0].mean_a == leaderboard(words, seed=7).places[-1].value
        assert leaderboard(words).places == leaderboard(words, seed=7).places
        assert compare_sets(others)[0].difference == compare_sets(others, seed=0)[0].difference

    def test_two_nights_are_compared_task_by_task_and_the_rule_says_why_it_does_not(self, home):
        found = compare_sets(["n1/champion", "n2/champion"])
        assert found.comparisons[0].paired_by == "task" and found.comparisons[0].difference.value == pytest.approx(0.5)
        assert found.decision is None and "seeds" in found.why_not

    def test_many_sets_are_compared_with_the_first_and_corrected_together(self, home):
        found = compare_sets(["n1"])
        assert [each.a.name for each in found.comparisons] == ["champion", "champion"]
        assert found.decision is None and found.why_not == ""
        assert found.corrected[0] == pytest.approx(2 * found.comparisons[0].p_value)

    def test_a_decision_never_names_a_taskset_that_was_not_played(self, home, tmp_path):
        two = [
            write_night(tmp_path / name, [make_episode("elsewhere/1", version=name, role="promote")]) for name in "ab"
        ]
        found = compare_sets([str(each) for each in two])
        assert found.decision is None and "is none of the taskset programs" in found.why_not

    def test_tasks_of_the_reserve_decide_like_those_of_promote(self, home, tmp_path):
        two = [
            write_night(
                tmp_path / name, [make_episode(f"t{n}", version=name, role=role) for n, role in enumerate(roles)]
            )
            for name, roles in (("a", ("promote", "reserve")), ("b", ("promote", "reserve")))
        ]
        words = [str(each) for each in two]
        assert compare_sets(words).comparisons[0].n_tasks == 2
        assert compare_sets(words, role="reserve").comparisons[0].n_tasks == 1

    @pytest.mark.parametrize(
        ("words", "more", "error", "said"),
        [
            (["n1/champion"], {}, ConfigurationError, "one set alone"),
            (["n1/champion"], {"control": "n1/control"}, ConfigurationError, "one set alone"),
            (["n1"], {"control": "n2/champion"}, ConfigurationError, "--control is one set beside two"),
            (["n1/champion", "n2/champion"], {"role": "trian"}, ConfigurationError, "unknown role 'trian'"),
            (["n1/champion", "n2/champion"], {"role": "audit"}, DataError, "has played no audit tasks"),
        ],
    )
    def test_what_cannot_be_compared_is_one_line(self, home, words, more, error, said):
        with pytest.raises(error) as found:
            compare_sets(words, **more)
        assert said in str(found.value) and "\n" not in str(found.value)

    def test_a_damaged_shard_is_one_line(self, home):
        shard = home / "n1" / "champion" / "shard-00000.jsonl"
        shard.write_bytes(shard.read_bytes()[:-100])
        with pytest.raises(DataError, match="cut short"):
            compare_sets(["n1/champion", "n1/challenger"])


@pytest.mark.slow
class TestBoard:
    def test_by_default_it_is_the_night_that_evaluated_last(self, home):
        assert [place.name for place in leaderboard().places] == ["champion"]
        board = leaderboard(["n1"])
        assert [(place.rank, place.name, place.group) for place in board.places] == [
            (1, "challenger", "a"),
            (2, "champion", "b"),
            (2, "control", "b"),
        ]

    def test_defect_12_a_spammer_does_not_outrank_a_solver(self, tmp_path, monkeypatch):
        """By reward as by success: many well-formed steps are no solution, however their rewards would add up."""
        spam = [turn(index, "read_file", path=f"file{index}.py") for index in range(30)]
        spammer = [make_episode(f"t{n}", success=False, turns=spam, version="spam", role="promote") for n in range(12)]
        solver = [make_episode(f"t{n}", success=True, version="solve", role="promote") for n in range(12)]
        words = [str(write_night(tmp_path / name, own)) for name, own in (("spammer", spammer), ("solver", solver))]
        for by in ("success", "reward"):
            assert [place.name for place in leaderboard(words, by=by).places] == ["solver", "spammer"]

    def test_results_carry_the_rewards_that_all_were_measured_by_alike(self, home):
        results = load_set_results(resolve_sets(["n1"]))
        assert all(attempt.reward is not None for each in results for task in each.tasks for attempt in task.attempts)
