"""Which of two ways is called better, and which comparisons are not made."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from components.rewards.pairing import Played, played, step_pairs, trajectory_pairs
from components.rewards.pairs import PairConfig, make_pairs


def episode(name, said, total, may_be_chosen=True, heard=None, task="t", start="s"):
    """`said`: one letter a turn; `heard` the same for the results."""
    return Played(name, task, f"{task}/{start}", tuple(said), tuple(heard or "." * len(said)), total, may_be_chosen)


def steps(*episodes, margin=0.05):
    return [pair[2:] for pair in step_pairs(episodes, margin)]


def wholes(*episodes, margin=0.05):
    return [pair[2:] for pair in trajectory_pairs(episodes, margin)]


def test_two_episodes_that_part_at_one_message_give_one_pair_at_that_turn():
    assert steps(episode("a", "rxe", 0.9), episode("b", "ryf", 0.2)) == [(1, "a", "b", 0.7)]


def test_after_they_have_parted_nothing_is_compared():
    assert len(steps(episode("a", "xabc", 0.9), episode("b", "ydef", 0.2))) == 1


def test_a_margin_below_the_least_gives_no_pair():
    assert steps(episode("a", "x", 0.54), episode("b", "y", 0.5)) == []
    assert steps(episode("a", "x", 0.56), episode("b", "y", 0.5)) != []


def test_messages_that_are_alike_are_no_fork_even_where_the_results_differ():
    one, other = episode("a", "rx", 0.9, heard="1."), episode("b", "ry", 0.2, heard="2.")
    assert steps(one, other) == []


def test_an_episode_that_stopped_before_the_turn_has_no_message_to_compare():
    assert steps(episode("a", "rx", 0.9), episode("b", "r", 0.2)) == []


def test_other_tasks_and_other_openings_are_never_compared():
    assert steps(episode("a", "x", 0.9), episode("b", "y", 0.2, task="u")) == []
    assert steps(episode("a", "x", 0.9), episode("b", "y", 0.2, start="v")) == []


def test_what_may_not_be_chosen_is_still_rejected():
    good, bad = episode("a", "x", 0.9), episode("b", "y", 0.2, may_be_chosen=False)
    assert steps(good, bad) == [(0, "a", "b", 0.7)]
    assert steps(good._replace(may_be_chosen=False), bad) == []


def test_the_next_best_is_chosen_where_the_best_may_not_be():
    three = episode("a", "x", 0.9, may_be_chosen=False), episode("b", "y", 0.6), episode("c", "z", 0.1)
    assert steps(*three) == [(0, "b", "c", 0.5)]


def test_a_message_that_both_won_and_lost_is_worth_its_mean_and_pairs_do_not_contradict_each_other():
    mixed = [episode("a1", "x", 0.9), episode("a2", "x", 0.1), episode("b1", "y", 0.8), episode("b2", "y", 0.6)]
    assert steps(*mixed) == [(0, "b1", "a2", 0.2)]


def test_pairs_go_from_the_outside_inwards_each_message_once():
    fork = [episode(name, name, total) for name, total in zip("abcde", (0.1, 0.3, 0.5, 0.7, 0.9), strict=True)]
    assert steps(*fork) == [(0, "e", "a", 0.8), (0, "d", "b", 0.4)]


def test_whole_episodes_are_paired_by_the_same_rule():
    four = [episode(name, "r" + name, total) for name, total in zip("abcd", (0.1, 0.2, 0.8, 0.9), strict=True)]
    assert wholes(*four) == [(-1, "d", "a", 0.8), (-1, "c", "b", 0.6)]


def test_the_same_transcript_twice_is_one_option():
    assert wholes(episode("a", "x", 0.9), episode("b", "x", 0.9), episode("c", "y", 0.1)) == [(-1, "b", "c", 0.8)]


episodes = st.lists(
    st.builds(
        lambda said, total, may, task: (said, total, may, task),
        st.text("xyz", min_size=1, max_size=4),
        st.integers(0, 20).map(lambda n: n / 20),
        st.booleans(),
        st.sampled_from("tu"),
    ),
    max_size=14,
).map(lambda rows: [episode(f"e{n:02d}", row[0], row[1], row[2], task=row[3]) for n, row in enumerate(rows)])


@given(episodes=episodes, order=st.randoms())
def test_what_every_pair_promises(episodes, order):
    by_name = {each.episode_id: each for each in episodes}
    pairs = make_pairs(episodes, PairConfig())
    shuffled = list(episodes)
    order.shuffle(shuffled)
    assert make_pairs(shuffled, PairConfig()) == pairs
    seen = set()
    for pair in pairs:
        chosen, rejected = by_name[pair.chosen_episode_id], by_name[pair.rejected_episode_id]
        assert chosen.may_be_chosen
        assert chosen.start == rejected.start
        assert pair.margin >= 0.05 - 1e-9
        assert chosen.total - rejected.total >= 0.05 - 1e-9
        if pair.level == "step":
            assert chosen.said[: pair.turn] == rejected.said[: pair.turn]
            sides = chosen.said[pair.turn], rejected.said[pair.turn]
            history = chosen.said[: pair.turn]
        else:
            sides, history = (chosen.said, rejected.said), ()
        assert sides[0] != sides[1]
        key = pair.level, chosen.start, pair.turn, history, frozenset(sides)
        assert key not in seen
        seen.add(key)


def test_the_levels_may_be_chosen(play):
    two = [episode("a", "x", 0.9), episode("b", "y", 0.1)]
    assert {pair.level for pair in make_pairs(two, PairConfig())} == {"step", "trajectory"}
    assert {pair.level for pair in make_pairs(two, PairConfig(levels=("step",)))} == {"step"}


class TestPlayed:
    def test_ids_of_calls_thoughts_and_times_are_no_difference(self, play):
        one = play.solver()
        calls = (msgspec.structs.replace(one.turns[0].calls[0], call_id="call_9f"),)
        results = (msgspec.structs.replace(one.turns[0].results[0], call_id="call_9f"),)
        turn = msgspec.structs.replace(one.turns[0], calls=calls, results=results, seconds=3.5, thought="hm")
        other = msgspec.structs.replace(one, turns=(turn, *one.turns[1:]))
        assert played(one, 0.5, True) == played(other, 0.5, True)

    def test_arguments_texts_and_results_are(self, play):
        base = play.trajectory(play.read())
        said = play.trajectory(play.read(start_line=2))
        heard = play.trajectory(play.read(_content="another file"))
        reduced = [played(each, 0.5, True) for each in (base, said, heard)]
        assert reduced[0].said != reduced[1].said
        assert reduced[0].said == reduced[2].said
        assert reduced[0].heard != reduced[2].heard

    def test_defect_31_the_opening_with_the_task_is_part_of_the_history(self, play):
        one, other = play.solver(opening="Repair a."), play.solver(opening="Repair b.")
        assert played(one, 0.5, True).start != played(other, 0.5, True).start
