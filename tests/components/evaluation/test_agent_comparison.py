"""Two agents on the same tasks: what stands against what, which tasks flipped, and what every test says of it."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played_agents import agent_that, at_random
from scipy import stats

from ratchet.components.core import DataError
from ratchet.components.evaluation.agent_comparison import compare_agents, flips
from ratchet.components.evaluation.paired_comparison import compare_paired

OUTCOMES = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3), min_size=1
)


class TestPairing:
    def test_an_attempt_without_a_known_outcome_counts_for_neither(self):
        a, b = agent_that("a", {"t": [1, 0, None]}), agent_that("b", {"t": [1, None, 1]})
        found = compare_paired(a, b)
        assert [(pair.a, pair.b) for pair in found.pairs] == [(1.0, 1.0)]
        assert (found.lost, found.lost_tasks, found.k) == (2, 0, 3)

    def test_a_task_without_a_pair_is_lost_and_counted(self):
        a, b = agent_that("a", {"t": [1], "u": [None]}), agent_that("b", {"t": [0], "u": [1]})
        found = compare_paired(a, b)
        assert (found.n_tasks, found.lost, found.lost_tasks) == (1, 1, 1)

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            (agent_that("b", {"t": [1], "v": [1]}), "not played by both agents (first: u, absent from b)"),
            (agent_that("b", {"t": [1], "u": [1]}, task_hash="another"), "same version of the taskset"),
            (agent_that("b", {"t": [1], "u": [1]}, seed=1), "seeds 0 and 1000 differ"),
            (agent_that("b", {"t": [1], "u": [1]}, role="audit"), "b has played no promote tasks"),
            (agent_that("b", {"t": [None], "u": [None]}), "share no attempt with a known outcome"),
        ],
    )
    def test_what_decides_refuses_agents_that_did_not_do_the_same(self, other, said):
        with pytest.raises(DataError) as error:
            compare_paired(agent_that("a", {"t": [1], "u": [0]}), other)
        assert said in str(error.value) and "\n" not in str(error.value)

    def test_by_hand_the_tasks_that_both_played_are_compared_and_the_others_counted(self):
        a, b = agent_that("a", {"t": [1], "u": [0]}), agent_that("b", {"u": [1], "v": [1], "w": [1]})
        found = compare_agents(a, b)
        assert (found.n_tasks, found.unshared, found.difference.value, found.paired_by) == (1, 3, 1.0, "attempt")

    def test_where_seeds_differ_task_stands_against_task_with_all_its_known_attempts(self):
        a, b = agent_that("a", {"t": [1, 0, None]}), agent_that("b", {"t": [1, None, 1]}, seed=7)
        found = compare_agents(a, b)
        assert (found.paired_by, found.mean_a.value, found.mean_b.value) == ("task", 0.5, 1.0)

    @pytest.mark.parametrize(
        ("other", "said"),
        [
            (agent_that("b", {"z": [1]}), "share none of their tasks"),
            (agent_that("b", {"t": [1]}, task_hash="another"), "same version of the taskset"),
            (agent_that("b", {"t": [None]}), "share no attempt with a known outcome"),
        ],
    )
    def test_by_hand_what_cannot_be_compared_is_one_line(self, other, said):
        with pytest.raises(DataError) as error:
            compare_agents(agent_that("a", {"t": [1]}), other)
        assert said in str(error.value) and "\n" not in str(error.value)

    def test_rewards_are_compared_where_both_have_one(self):
        a = agent_that("a", {"t": [1, 1], "u": [1, 1]}, rewards={"t": [0.2, None], "u": [None, None]})
        b = agent_that("b", {"t": [0, 0], "u": [1, 1]}, rewards={"t": [0.5, 0.9], "u": [0.1, 0.1]})
        found = compare_agents(a, b, by="reward")
        assert (found.n_tasks, found.lost_tasks, found.lost) == (1, 1, 3)
        assert found.difference.value == pytest.approx(0.3) and found.flips == ()


class TestFlips:
    def test_the_largest_difference_comes_first_and_ties_are_none(self):
        a = agent_that("a", {"even": [1, 0], "won": [0, 0], "half": [1, 0], "lost": [1, 1]})
        b = agent_that("b", {"even": [0, 1], "won": [1, 1], "half": [1, 1], "lost": [0, 0]})
        found = flips(a, b, "promote")
        assert [(flip.task_id, flip.won, flip.difference) for flip in found] == [
            ("lost", False, -1.0),
            ("won", True, 1.0),
            ("half", True, 0.5),
        ]

    def test_the_episodes_that_made_the_difference_come_first_with_their_causes(self):
        a, b = agent_that("a", {"t": [1, 1, 0, 0]}), agent_that("b", {"t": [0, 1, 1, 1]})
        (flip,) = flips(a, b)
        assert [each.attempt for each in flip.attempts] == [2, 3, 1, 0]
        first = flip.attempts[0]
        assert (first.a_episode, first.b_episode, first.seed) == ("a/t/2", "b/t/2", 2)
        assert (first.a_success, first.b_success, first.a_cause, first.b_cause) == (False, True, "tests_failed", "")

    def test_where_seeds_differ_a_failure_stands_beside_a_success(self):
        a, b = agent_that("a", {"t": [1, 0]}), agent_that("b", {"t": [1, 1]}, seed=3)
        (flip,) = flips(a, b)
        telling = flip.attempts[0]
        assert (telling.a_success, telling.b_success, telling.seed) == (False, True, None)
        assert telling.a_episode == "a/t/1"

    @given(OUTCOMES, OUTCOMES)
    @settings(max_examples=40)
    def test_seen_from_the_other_side_every_win_is_a_loss(self, mine, theirs):
        a, b = agent_that("a", mine), agent_that("b", theirs)
        try:
            there = flips(a, b)
        except DataError:
            with pytest.raises(DataError):
                flips(b, a)
            return
        back = flips(b, a)
        assert [(each.task_id, each.won, each.a, each.b) for each in there] == [
            (each.task_id, not each.won, each.b, each.a) for each in back
        ]
        assert [{pair.a_episode for pair in each.attempts} for each in there] == [
            {pair.b_episode for pair in each.attempts} for each in back
        ]
        assert all(each.attempts[0].b_success is each.won for each in there)
        assert all(each.attempts[0].a_success is not each.won for each in there)


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(8)
    rates = rng.uniform(0.2, 0.7, 60)
    return at_random("a", rates, 4, rng, per_family=3), at_random("b", np.clip(rates + 0.2, 0, 1), 4, rng, per_family=3)


@pytest.fixture(scope="module")
def found(two):
    return compare_agents(*two, n_resamples=2000)


@pytest.fixture(scope="module")
def by_family(two):
    means = {}
    for mine, theirs in zip(two[0].tasks, two[1].tasks, strict=True):
        means.setdefault(mine.family, []).append(theirs.success_rate - mine.success_rate)
    return np.array([sum(own) / len(own) for own in means.values()])


class TestTests:
    def test_the_permutation_test_is_scipys_over_families(self, found, by_family):
        reference = stats.permutation_test(
            (by_family,), np.mean, permutation_type="samples", n_resamples=20_000, random_state=1
        )
        assert found.p_value == pytest.approx(reference.pvalue, abs=0.01)
        assert found.tests[0].p_value == found.p_value

    def test_mcnemar_is_scipys_sign_test_over_families(self, found, by_family):
        test = found.tests[2]
        ahead, behind = int((by_family > 1e-12).sum()), int((by_family < -1e-12).sum())
        assert test.p_value == pytest.approx(stats.binomtest(ahead, ahead + behind).pvalue)
        assert f"ahead ({ahead}) and behind ({behind})" in test.about

    def test_wilcoxon_is_scipys_over_the_means_of_families(self):
        rng = np.random.default_rng(5)
        before, after = rng.random((30, 2)), rng.random((30, 2)) + 0.1
        names = [f"t{n:02d}" for n in range(30)]
        families = {name: f"f{n // 2}" for n, name in enumerate(names)}
        a, b = (
            agent_that(who, dict.fromkeys(names, (1, 1)), families=families, rewards=dict(zip(names, own, strict=True)))
            for who, own in (("a", before), ("b", after))
        )
        means = (after - before).mean(axis=1).reshape(15, 2).mean(axis=1)
        test = compare_agents(a, b, by="reward").tests[1]
        assert test.p_value == pytest.approx(stats.wilcoxon(means).pvalue)

    def test_with_one_attempt_and_one_task_a_family_it_is_mcnemars_own_table(self):
        a = agent_that("a", {f"t{n}": [n < 3] for n in range(12)})
        b = agent_that("b", {f"t{n}": [n >= 2] for n in range(12)})
        test = compare_agents(a, b).tests[2]
        assert test.p_value == pytest.approx(stats.binomtest(2, 11).pvalue)

    def test_what_to_believe_sums_to_one_and_agrees_with_the_sign(self, found):
        known = found.posterior
        assert known.p_better + known.p_equivalent + known.p_worse == pytest.approx(1)
        assert known.p_better > 0.9 and known.mean == pytest.approx(found.difference.value)

    def test_each_kind_is_believed_between_its_own_difference_and_that_of_the_others(self):
        rng = np.random.default_rng(2)
        rates = {"easy": (0.5, 0.9), "hard": (0.5, 0.5), "more": (0.4, 0.7)}
        a, b = (
            msgspec.structs.replace(
                agent_that(who, {}),
                tasks=tuple(
                    msgspec.structs.replace(
                        task, task_id=f"{kind}{task.task_id}", family=f"{kind}{task.family}", kind=kind
                    )
                    for kind, both in rates.items()
                    for task in at_random(who, [both[side]] * 30, 2, rng).tasks
                ),
            )
            for side, who in enumerate("ab")
        )
        found = compare_agents(a, b)
        rows = {row.kind: row.difference.value for row in found.by_kind}
        overall = np.mean(list(rows.values()))
        assert [each.kind for each in found.kinds] == sorted(rates)
        for each in found.kinds:
            low, high = sorted([rows[each.kind], overall])
            assert low - 0.02 <= each.posterior.mean <= high + 0.02
        assert {each.kind: each.posterior.p_better > 0.95 for each in found.kinds}["easy"]

    def test_swapped_agents_give_the_same_p_values_and_the_opposite_difference(self, found, two):
        back = compare_agents(two[1], two[0], n_resamples=2000)
        assert back.difference.value == pytest.approx(-found.difference.value)
        assert [test.p_value for test in back.tests] == pytest.approx([test.p_value for test in found.tests], abs=0.01)
        assert (back.won, back.lost_to, back.tied) == (found.lost_to, found.won, found.tied)

    def test_equal_agents_differ_nowhere(self, two):
        same = compare_agents(two[0], msgspec.structs.replace(two[0], name="twin"))
        assert same.flips == () and same.difference.value == 0 and same.p_value == 1
        assert all(test.p_value == 1 for test in same.tests) and same.difference.interval.low < 0
        assert same.posterior is None and same.kinds == ()

    def test_a_single_task_gives_no_certainty(self):
        found = compare_agents(agent_that("a", {"t": [0]}), agent_that("b", {"t": [1]}))
        assert (
            found.difference.interval is None and found.p_value == 1 and found.posterior is None and found.kinds == ()
        )
