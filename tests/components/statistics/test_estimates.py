"""Means over tasks: what weighs, and what stands in where resampling sees nothing."""

import pytest

from ratchet.components.core import DataError
from ratchet.components.statistics.bootstrap import difference_estimate, rate_estimate
from ratchet.components.statistics.permutation import permutation_test
from ratchet.components.statistics.proportions import wilson
from ratchet.components.statistics.result_types import Estimate


def test_a_family_weighs_as_much_as_it_has_tasks() -> None:
    found = rate_estimate([1.0, 1.0, 1.0, 0.0], ["f", "f", "f", "g"])
    assert (found.value, found.tasks, found.families) == (0.75, 4, 2)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_at_the_edge_has_wilsons_interval_over_families(rate: float) -> None:
    found, expected = rate_estimate([rate] * 6, list("ffggff")).interval, wilson(int(2 * rate), 2)
    assert found is not None and expected is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert rate_estimate([rate], ["f"]).interval is not None and difference_estimate([rate], ["f"]).interval is None


@pytest.mark.parametrize("families", range(2, 12))
def test_where_every_family_is_won_the_interval_agrees_with_the_sign_flip_test(families: int) -> None:
    interval = difference_estimate([1.0] * families, list(range(families))).interval
    assert interval is not None and interval.high == 1
    assert (interval.low > 0) == (permutation_test([1.0] * families, [0.0] * families).p_value <= 0.05)


@pytest.mark.parametrize(("difference", "low", "high"), [(0.0, -0.03 / 0.8, 0.03 / 0.8), (0.75, 0.68, 0.76)])
def test_equal_differences_are_as_uncertain_as_the_families_are_few(difference: float, low: float, high: float) -> None:
    wide, narrow = (difference_estimate([difference] * n, list(range(n))).interval for n in (3, 100))
    assert wide is not None and wide.low < 0 < wide.high
    assert narrow is not None and (narrow.low, narrow.high) == pytest.approx((low, high), abs=0.01)


def test_values_beyond_the_bounds_have_no_interval_where_all_are_equal() -> None:
    assert rate_estimate([2.0] * 5, list("abcde")) == Estimate(2.0, None, 5, 5)


@pytest.mark.parametrize("estimate", [rate_estimate, difference_estimate])
def test_degenerate_inputs_have_answers(estimate) -> None:
    assert estimate([], []) == Estimate(None, None, 0, 0)
    assert estimate([0.5, 0.25], ["f", "f"]) == Estimate(0.375, None, 2, 1)
    with pytest.raises(DataError, match="NaN"):
        estimate([float("nan")], ["f"])
