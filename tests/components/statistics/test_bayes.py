"""Posteriors of a difference: against scipy's distributions and integrals, and against repeated simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ratchet.components.core import DataError
from ratchet.components.statistics.bayes import DifferencePosterior, bayes_groups, bayes_paired

RATES = st.integers(0, 4).map(lambda wins: wins / 4)


def sums_to_one(found: DifferencePosterior) -> bool:
    return math.isclose(found.p_worse + found.p_equivalent + found.p_better, 1.0, abs_tol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(RATES, RATES), min_size=2, max_size=40), st.floats(0.0, 0.2))
def test_a_paired_posterior_is_students_t(rows: list[tuple[float, float]], rope: float) -> None:
    a, b = zip(*rows, strict=True)
    found = bayes_paired(a, b, rope=rope, level=0.9)
    d = np.subtract(a, b)
    if np.ptp(d) < 1e-12:
        assert found is None
        return
    assert found is not None and sums_to_one(found)
    law = stats.t(len(d) - 1, d.mean(), stats.sem(d))
    assert found.p_worse == pytest.approx(law.cdf(-rope), abs=1e-9)
    assert found.p_better == pytest.approx(law.sf(rope), abs=1e-9)
    assert (found.interval.low, found.interval.high) == pytest.approx(law.interval(0.9), abs=1e-9)


def test_equal_families_count_as_their_means() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.binomial(4, 0.6, 60) / 4, rng.binomial(4, 0.5, 60) / 4
    whole = bayes_paired(a, b, clusters=[task // 5 for task in range(60)])
    means = bayes_paired(*(x.reshape(12, 5).mean(axis=1) for x in (a, b)))
    assert whole is not None and means is not None
    assert whole.p_better == pytest.approx(means.p_better) and whole.mean == pytest.approx(means.mean)


def test_a_family_of_copies_is_one_observation() -> None:
    a, b = [1.0, 0.5, 0.75, 0.0], [0.5, 0.5, 0.25, 0.25]
    once = bayes_paired(a, b)
    copied = bayes_paired(np.repeat(a, 10), np.repeat(b, 10), clusters=np.repeat(range(4), 10).tolist())
    assert once is not None and copied is not None
    assert copied.p_better == pytest.approx(once.p_better) and copied.interval.low == pytest.approx(once.interval.low)


def test_the_better_side_is_the_first() -> None:
    better = bayes_paired([1.0, 1.0, 0.75, 1.0, 0.5], [0.25, 0.0, 0.5, 0.25, 0.25])
    assert better is not None and better.p_better > 0.95 and better.mean > 0


def by_matrices(y: list[float], s: list[float], spread: float, rope: float) -> list[float]:
    """P(theta_g > rope) by the joint normal law of all groups given tau, a vague prior on mu, and a sum over tau."""
    weights, chances, groups = [], [], len(y)
    for tau in np.geomspace(1e-4, 20, 400):
        prior = tau**2 * np.eye(groups) + 100 * np.ones((groups, groups))
        seen = prior + np.diag(np.square(s))
        gain = prior @ np.linalg.inv(seen)
        law = np.diag(prior - gain @ prior)
        weights.append(stats.multivariate_normal.pdf(y, cov=seen) * tau / (1 + (tau / spread) ** 2))
        chances.append(stats.norm.sf(rope, gain @ y, np.sqrt(law)))
    return list(np.average(chances, axis=0, weights=weights))


@pytest.mark.slow
@pytest.mark.parametrize("y", [[0.1, 0.05], [0.2, -0.1, 0.05, 0.0]])
def test_groups_are_the_hierarchy_summed_over_tau(y: list[float]) -> None:
    s = [0.05, 0.1, 0.08, 0.03][: len(y)]
    found = bayes_groups(y, s, spread=0.1, rope=0.01)
    assert all(map(sums_to_one, found))
    assert [each.p_better for each in found] == pytest.approx(by_matrices(y, s, 0.1, 0.01), abs=1e-3)


def test_groups_are_pulled_towards_each_other_the_vaguer_the_more() -> None:
    vague, sure, rest = bayes_groups([0.3, 0.3, 0.0], [0.2, 0.01, 0.05])
    assert 0 < vague.mean < sure.mean < 0.3 + 1e-9 and rest.mean > 0


def test_intervals_of_equal_groups_hold_as_often_as_they_say() -> None:
    rng = np.random.default_rng(4)
    held = []
    for _ in range(50):
        true = rng.normal(0.05, 0.05, 6)
        found = bayes_groups(rng.normal(true, 0.06), [0.06] * 6, level=0.9)
        held += [each.interval.low <= theta <= each.interval.high for each, theta in zip(found, true, strict=True)]
    assert np.mean(held) == pytest.approx(0.9, abs=0.04)


def test_degenerate_input_has_answers() -> None:
    assert bayes_paired([], []) is None and bayes_paired([0.5], [0.25]) is None
    assert bayes_paired([0.5, 1.0], [0.0, 0.0], clusters=["f", "f"]) is None
    assert bayes_paired([0.5, 0.75], [0.25, 0.5]) is None and bayes_paired([1.0] * 3, [1.0] * 3) is None
    assert bayes_groups([], []) == ()
    (alone,) = bayes_groups([0.1], [0.05], rope=0.0)
    assert alone.p_better == pytest.approx(stats.norm.cdf(2.0))


def test_invalid_input_is_refused() -> None:
    for wrong in (
        lambda: bayes_paired([math.nan, 0.0], [0.0, 0.0]),
        lambda: bayes_paired([0.5, 1.0], [0.0, 0.0], rope=-0.1),
        lambda: bayes_paired([0.5, 1.0], [0.0, 0.0], level=1.0),
        lambda: bayes_groups([0.1, 0.2], [0.1, 0.0]),
    ):
        with pytest.raises(DataError, match=r"^[^\n]+$"):
            wrong()
