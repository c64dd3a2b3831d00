"""Sets of episodes side by side: means by hand, intervals by family, and what is not compared."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ratchet.components.core import DataError
from ratchet.components.evaluation.reward_comparison import REWARD_COMPONENTS, ScoredEpisode, compare_rewards


def episode(task, total, family=None, **parts):
    scores = {part: parts.get(part) for part in REWARD_COMPONENTS} | {"total": total}
    return ScoredEpisode(task, "hash", family or task, scores)


def compared(*sets, **options):
    return compare_rewards({f"set {n}": each for n, each in enumerate(sets)}, **options)


def test_a_tasks_reward_is_the_mean_of_its_episodes_and_tasks_weigh_alike():
    before = [episode("a", 0.0), episode("a", 0.5), episode("b", 0.4)]
    after = [episode("a", 0.75), episode("b", 0.4), episode("b", 0.6)]
    found = compared(before, after)
    assert [each.means["total"].value for each in found.sets] == pytest.approx([(0.25 + 0.4) / 2, (0.75 + 0.5) / 2])
    (difference,) = found.differences
    assert difference.parts["total"].value == pytest.approx((0.5 + 0.1) / 2)
    assert (difference.higher, difference.lower, difference.equal, difference.unpaired) == (2, 0, 0, 0)
    assert [(each.task_id, each.totals) for each in found.tasks] == [("a", [0.25, 0.75]), ("b", [0.4, 0.5])]


def test_only_tasks_that_both_played_count_for_the_difference():
    found = compared([episode("a", 0.2), episode("b", 0.9)], [episode("a", 0.4), episode("c", 0.1)])
    (difference,) = found.differences
    assert difference.parts["total"].value == pytest.approx(0.2)
    assert (difference.parts["total"].tasks, difference.unpaired) == (1, 2)
    assert [each.totals for each in found.tasks] == [[0.2, 0.4], [0.9, None], [None, 0.1]]


def test_null_is_not_zero_and_is_counted():
    found = compared(
        [episode("a", 0.5, process=None), episode("b", None)], [episode("a", 0.5, process=0.9), episode("b", 0.3)]
    )
    assert [(each.episodes, each.unscored, each.tasks) for each in found.sets] == [(2, 1, 1), (2, 0, 2)]
    difference = found.differences[0]
    assert difference.parts["process"].value is None
    assert difference.parts["total"].tasks == 1


def test_each_set_is_compared_with_the_first():
    found = compared([episode("a", 0.1)], [episode("a", 0.4)], [episode("a", 0.2)])
    assert [(each.name, each.against) for each in found.differences] == [("set 1", "set 0"), ("set 2", "set 0")]
    assert [each.parts["total"].value for each in found.differences] == pytest.approx([0.3, 0.1])


def test_the_interval_is_that_of_the_paired_t_where_families_are_single_tasks():
    """Independent reference: scipy's t interval of the differences."""
    rng = np.random.default_rng(3)
    before, after = rng.uniform(0.2, 0.6, 40), rng.uniform(0.3, 0.7, 40)
    found = compared(*([episode(f"t{n}", float(x)) for n, x in enumerate(each)] for each in (before, after)))
    interval = found.differences[0].parts["total"].interval
    low, high = stats.t.interval(0.95, 39, loc=(after - before).mean(), scale=stats.sem(after - before))
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.01)
    assert found.differences[0].verdict == ("higher" if low > 0 else "not clear")


def test_tasks_of_one_family_are_one_witness():
    before = [episode(f"t{n}", 0.3, family=f"f{n % 4}") for n in range(40)]
    after = [episode(f"t{n}", 0.3 + 0.1 * (n % 4 - 1), family=f"f{n % 4}") for n in range(40)]
    wide = compared(before, after).differences[0]
    single = compared(*([each._replace(family=each.task_id) for each in own] for own in (before, after)))
    narrow = single.differences[0].parts["total"].interval
    assert wide.parts["total"].families == 4
    assert wide.parts["total"].interval.high - wide.parts["total"].interval.low > 2 * (narrow.high - narrow.low)
    assert wide.verdict == "not clear" and single.differences[0].verdict == "higher"


def test_a_lower_reward_is_called_lower_and_one_family_alone_proves_nothing():
    before, after = (
        [episode(f"t{n}", total + n * n / scale) for n in range(8)] for total, scale in ((0.5, 100), (0.2, 200))
    )
    assert compared(before, after).differences[0].verdict == "lower"
    one = [[each._replace(family="f") for each in own] for own in (before, after)]
    assert compared(*one).differences[0].verdict == "not clear"


def test_sets_without_a_common_task_are_refused_in_one_line():
    with pytest.raises(DataError, match="set 1 and set 0 share no task with a total in both"):
        compared([episode("a", 0.5)], [episode("b", 0.5)])
    with pytest.raises(DataError, match="share no task"):
        compared([episode("a", 0.5)], [episode("a", 0.5)._replace(task_hash="another version")])


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1)), min_size=1, max_size=12), st.randoms())
def test_the_order_of_episodes_changes_nothing_and_a_set_equals_itself(rows, order):
    episodes = [episode(*row) for row in rows]
    shuffled = list(episodes)
    order.shuffle(shuffled)
    found = compared(episodes, shuffled, n_resamples=50)
    assert found.differences[0].parts["total"].value == 0 and found.differences[0].verdict == "not clear"
    assert found.sets[0].means == found.sets[1].means
