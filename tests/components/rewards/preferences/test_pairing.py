"""Which of two ways is called better, and which comparisons are not made."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.components.rewards.preferences.comparable_episodes import BranchOrigin, ComparableEpisode, TurnDigest
from ratchet.components.rewards.preferences.pair_building import PairConfig, make_pairs, pairs_of_level


def episode(name, said, worth, may_be_chosen=True, heard=None, task="t", start="s", policy="p", parent=None):
    """`said`: one letter a turn; `heard` the same for the results. A capital letter is a padded small one."""
    moves = tuple(
        TurnDigest(word, word.lower(), answer, (word.lower(),), *((90, 99) if word.isupper() else (30, 39)))
        for word, answer in zip(said, heard or "." * len(said), strict=True)
    )
    left = BranchOrigin(*parent) if parent else None
    return ComparableEpisode(name, task, policy, f"{task}/{start}", start, moves, worth, may_be_chosen, left)


def told(pairs):
    return [(each.turn, each.chosen.episode_id, each.rejected.episode_id, each.margin) for each in pairs]


def steps(*episodes, margin=0.05):
    return told(pairs_of_level("step", episodes, margin, Counter()))


def wholes(*episodes, margin=0.05):
    return told(pairs_of_level("trajectory", episodes, margin, Counter()))


class TestForks:
    def test_two_episodes_that_part_at_one_message_give_one_pair_at_that_turn(self):
        assert steps(episode("a", "rxe", 0.9), episode("b", "ryf", 0.2)) == [(1, "a", "b", 0.7)]

    def test_after_they_have_parted_nothing_is_compared(self):
        assert len(steps(episode("a", "xabc", 0.9), episode("b", "ydef", 0.2))) == 1

    def test_a_margin_below_the_least_gives_no_pair(self):
        assert steps(episode("a", "x", 0.54), episode("b", "y", 0.5)) == []
        assert steps(episode("a", "x", 0.56), episode("b", "y", 0.5)) != []

    def test_messages_that_are_alike_are_no_fork_even_where_the_results_differ(self):
        one, other = episode("a", "rx", 0.9, heard="1."), episode("b", "ry", 0.2, heard="2.")
        assert steps(one, other) == []

    def test_an_episode_that_stopped_before_the_turn_has_no_message_to_compare(self):
        assert steps(episode("a", "rx", 0.9), episode("b", "r", 0.2)) == []

    def test_other_tasks_and_other_openings_are_never_compared(self):
        assert steps(episode("a", "x", 0.9), episode("b", "y", 0.2, task="u")) == []
        assert steps(episode("a", "x", 0.9), episode("b", "y", 0.2, start="v")) == []

    def test_what_may_not_be_chosen_is_still_rejected(self):
        good, bad = episode("a", "x", 0.9), episode("b", "y", 0.2, may_be_chosen=False)
        assert steps(good, bad) == [(0, "a", "b", 0.7)]
        assert steps(good._replace(may_be_chosen=False), bad) == []

    def test_the_next_best_is_chosen_where_the_best_may_not_be(self):
        three = episode("a", "x", 0.9, may_be_chosen=False), episode("b", "y", 0.6), episode("c", "z", 0.1)
        assert steps(*three) == [(0, "b", "c", 0.5)]

    def test_a_message_that_both_won_and_lost_is_worth_its_mean_and_pairs_do_not_contradict_each_other(self):
        mixed = [episode("a1", "x", 0.9), episode("a2", "x", 0.1), episode("b1", "y", 0.8), episode("b2", "y", 0.6)]
        assert steps(*mixed) == [(0, "b1", "a2", 0.2)]

    def test_pairs_go_from_the_outside_inwards_each_message_once(self):
        fork = [episode(name, name, worth) for name, worth in zip("abcde", (0.1, 0.3, 0.5, 0.7, 0.9), strict=True)]
        assert steps(*fork) == [(0, "e", "a", 0.8), (0, "d", "b", 0.4)]

    def test_whole_episodes_are_paired_by_the_same_rule(self):
        four = [episode(name, "r" + name, worth) for name, worth in zip("abcd", (0.1, 0.2, 0.8, 0.9), strict=True)]
        assert wholes(*four) == [(-1, "d", "a", 0.8), (-1, "c", "b", 0.6)]

    def test_an_episode_without_a_turn_is_no_side_of_a_pair(self):
        assert wholes(episode("a", "x", 0.9), episode("b", "", 0.1)) == []

    def test_the_same_transcript_twice_is_one_option(self):
        assert wholes(episode("a", "x", 0.9), episode("b", "x", 0.9), episode("c", "y", 0.1)) == [(-1, "b", "c", 0.8)]

    def test_the_sides_say_how_much_they_are_worth_and_by_how_many_samples(self):
        found = pairs_of_level(
            "step", [episode("a", "x", 0.9), episode("b", "x", 0.7), episode("c", "y", 0.1)], 0.05, Counter()
        )
        (pair,) = found
        assert (pair.chosen.worth, pair.chosen.samples, pair.rejected.worth, pair.rejected.samples) == (0.8, 2, 0.1, 1)


class TestPadding:
    def test_an_option_of_too_few_samples_is_in_no_pair_and_the_fork_is_counted(self):
        three = [episode("a", "ab", 1.0), episode("b", "ac", 0.6), episode("c", "ac", 0.5)]
        assert make_pairs(three, PairConfig(levels=("step",))).report.pairs == {"step": 1}
        report = make_pairs(three, PairConfig(levels=("step",), min_samples=2)).report
        assert report.pairs == {"step": 0} and (report.left_out["samples"], report.left_out["margin"]) == (1, 0)

    def test_what_differs_by_padding_alone_is_no_pair_and_is_counted(self):
        two = [episode("a", "X", 0.9), episode("b", "x", 0.1)]
        for level in ("step", "trajectory"):
            left_out = Counter()
            assert list(pairs_of_level(level, two, 0.05, left_out)) == [] and left_out["padding"] == 1

    def test_padded_and_plain_wordings_of_one_option_are_worth_their_mean(self):
        three = [episode("a", "X", 0.9), episode("b", "x", 0.5), episode("c", "y", 0.1)]
        assert steps(*three) == [(0, "a", "c", 0.6)]

    def test_of_equally_good_wordings_the_shorter_one_is_chosen(self):
        three = [episode("z", "X", 0.9), episode("b", "x", 0.9), episode("c", "y", 0.1)]
        assert steps(*three) == [(0, "b", "c", 0.8)]

    def test_doing_the_same_again_at_once_to_the_same_end_is_no_other_way(self):
        assert wholes(episode("a", "rre", 0.9), episode("b", "re", 0.2)) == []
        assert wholes(episode("a", "rre", 0.9, heard="12."), episode("b", "re", 0.2, heard="1.")) != []

    def test_a_pair_after_a_padded_history_names_two_episodes_that_share_it_to_the_letter(self):
        shared = [episode("a", "Rx", 0.9), episode("b", "Ry", 0.1)]
        assert steps(*shared) == [(1, "a", "b", 0.8)]
        assert steps(shared[0], episode("b", "ry", 0.1)) == []


class TestBranches:
    def test_a_branch_and_its_parent_are_a_pair_at_the_turn_where_they_part(self):
        parent, branch = episode("a", "rxe", 0.2), episode("b", "rye", 0.9, parent=("a", 1))
        assert steps(parent, branch) == [(1, "b", "a", 0.7)]

    def test_branches_of_one_state_are_compared_with_each_other(self):
        parent = episode("a", "rx", 0.5)
        branches = [episode(name, "r" + name, worth, parent=("a", 1)) for name, worth in (("b", 0.9), ("c", 0.1))]
        assert steps(parent, *branches) == [(1, "b", "c", 0.8)]

    def test_many_branches_of_one_episode_do_not_outvote_episodes_that_were_never_branched(self):
        """Seen from the first turn, x is worth the mean of its two samples: .8, and the mean of `a` with its eight branches."""
        branched = [
            episode("a", "xr", 0.9),
            *(episode(f"a{n}", f"x{n}", 0.0, parent=("a", 1)) for n in range(8)),
            episode("b", "xs", 0.8),
            episode("c", "yr", 0.1),
        ]
        (pair,) = [each for each in pairs_of_level("step", branched, 0.05, Counter()) if each.turn == 0]
        assert (pair.chosen.worth, pair.chosen.samples) == (pytest.approx(0.45), 2)

    def test_a_failed_option_is_chosen_through_the_branch_that_came_to_a_good_end(self):
        tree = [
            episode("a", "xr", 0.3, may_be_chosen=False),
            episode("b", "xs", 0.9, parent=("a", 1)),
            episode("c", "yr", 0.1),
        ]
        assert (0, "b", "c", 0.5) in steps(*tree)

    def test_an_error_planted_by_another_policy_lowers_no_message_before_it(self):
        tree = [
            episode("a", "xr", 0.9),
            episode("i", "xw", 0.0, policy="injection", parent=("a", 1)),
            episode("c", "yr", 0.8),
        ]
        assert steps(*tree) == [(0, "a", "c", 0.1), (1, "a", "i", 0.9)]


def way(moves):
    """What was done and met, without repetitions at once."""
    return [key for key, _ in groupby((move.calls_hash, move.results_hash) for move in moves)]


@st.composite
def forests(draw):
    """Episodes of two tasks, some of which branch from others."""
    count = draw(st.integers(0, 14))
    made = []
    for number in range(count):
        said = draw(st.text("xyzX", min_size=1, max_size=4))
        task, worth = draw(st.sampled_from("tu")), draw(st.integers(0, 20)) / 20
        parents = [each for each in made if each.task_id == task]
        parent = draw(st.none() | st.sampled_from(parents)) if parents else None
        policy, may = draw(st.sampled_from("pq")), draw(st.booleans())
        name = f"e{number:02d}"
        if parent is None:
            made.append(episode(name, said, worth, may, task=task, policy=policy))
            continue
        turn = draw(st.integers(0, len(parent.moves)))
        branch = episode(name, said, worth, may, task=task, policy=policy, parent=(parent.episode_id, turn))
        made.append(branch._replace(moves=parent.moves[:turn] + branch.moves))
    return made


@settings(max_examples=60)
@given(episodes=forests(), order=st.randoms(), worth=st.sampled_from(["total", "winrate"]))
def test_what_every_pair_promises(episodes, order, worth):
    by_name = {each.episode_id: each for each in episodes}
    config = PairConfig(worth=worth)
    made = make_pairs(episodes, config)
    shuffled = list(episodes)
    order.shuffle(shuffled)
    assert make_pairs(shuffled, config) == made
    seen = set()
    for pair in made.preferences:
        chosen, rejected = by_name[pair.chosen.episode_id], by_name[pair.rejected.episode_id]
        assert chosen.may_be_chosen
        assert chosen.start == rejected.start
        assert pair.margin >= 0.05 - 1e-9
        assert chosen.worth > rejected.worth
        if pair.level == "step":
            history = chosen.moves[: pair.turn]
            assert history == rejected.moves[: pair.turn]
            sides = chosen.moves[pair.turn], rejected.moves[pair.turn]
            assert sides[0].calls_hash != sides[1].calls_hash
        else:
            sides, history = (chosen.moves, rejected.moves), ()
            assert way(sides[0]) != way(sides[1])
        policies = chosen.policy if worth == "winrate" else ""
        key = pair.level, chosen.start, pair.turn, history, frozenset(sides), policies
        assert key not in seen
        seen.add(key)
    for gap in made.report.length_gap.values():
        assert gap.kept is None or abs(gap.kept) <= config.max_length_gap + 1e-9
    assert made.report.pairs == {
        level: sum(pair.level == level for pair in made.preferences) for level in ("step", "trajectory")
    }


def test_the_levels_may_be_chosen():
    two = [episode("a", "x", 0.9), episode("b", "y", 0.1)]
    assert {pair.level for pair in make_pairs(two, PairConfig()).preferences} == {"step", "trajectory"}
    assert {pair.level for pair in make_pairs(two, PairConfig(levels=("step",))).preferences} == {"step"}


def test_defect_31_there_is_one_rule_for_messages_and_for_episodes():
    """Where episodes part at their only turn, both levels say the same."""
    fork = [episode(name, name, worth) for name, worth in zip("abcdefg", (9, 1, 5, 3, 7, 2, 8), strict=True)]
    fork = [each._replace(worth=each.worth / 10) for each in fork]
    assert [each[1:] for each in steps(*fork)] == [each[1:] for each in wholes(*fork)]
