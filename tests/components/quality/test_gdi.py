"""The explained rank, against hand calculations and a plain-Python reference."""

import math
import random

import numpy as np
import pytest

from components.quality import gdi
from components.quality.params import GdiWeights


def reference(terms: list[float | None], weights: list[float]) -> float | None:
    """The definition, term by term."""
    known = [(w, t) for w, t in zip(weights, terms, strict=True) if t is not None and w > 0]
    whole = sum(w for w, _ in known)
    return sum(w * t for w, t in known) / whole if known else None


def test_the_rank_is_the_weighted_mean_of_the_known_terms() -> None:
    generator = random.Random(7)
    weights = GdiWeights(reward=0.5, process=0.2, learnability=0.3, uniqueness=0.0, recency=1.0, use=0.1)
    flat = [getattr(weights, name) for name in gdi.TERMS]
    rows = [[generator.random() if generator.random() < 0.6 else None for _ in flat] for _ in range(200)]
    terms = np.array([[math.nan if term is None else term for term in row] for row in rows])
    for row, total in zip(rows, gdi.weighted(terms, weights).total.tolist(), strict=True):
        expected = reference(row, flat)
        assert math.isnan(total) if expected is None else total == pytest.approx(expected, abs=1e-12)


def test_the_contributions_sum_to_the_rank() -> None:
    terms = np.random.default_rng(3).random((50, len(gdi.TERMS)))
    terms[::3, 1] = math.nan
    result = gdi.weighted(terms, GdiWeights())
    assert result.contributions.sum(axis=1) == pytest.approx(result.total, abs=1e-12)


def test_a_null_is_not_a_zero() -> None:
    known, unknown = [0.8, 0.8, 0.8, 0.8, 0.8, 0.8], [0.8, math.nan, 0.8, 0.8, 0.8, math.nan]
    total = gdi.weighted(np.array([known, unknown]), GdiWeights()).total
    assert total[0] == pytest.approx(0.8) == total[1]


def test_a_pass_rate_counts_only_episodes_whose_end_is_known() -> None:
    success = np.array([1.0, 0.0, math.nan, 1.0, math.nan])
    rate = gdi.pass_rate(success, np.array([0, 0, 0, 1, 2]))
    assert rate[:4].tolist() == [0.5, 0.5, 0.5, 1.0]
    assert math.isnan(rate[4])


def test_most_is_learnt_where_half_succeeds() -> None:
    assert gdi.learnability(np.array([0.0, 0.25, 0.5, 1.0])).tolist() == [0.0, 0.75, 1.0, 0.0]


def test_equal_runs_share_their_uniqueness() -> None:
    assert gdi.uniqueness(np.array([0, 1, 1, 1, 2, 2])).tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3, 0.5, 0.5])


def test_recency_halves_with_the_half_life_and_never_exceeds_one() -> None:
    ages = np.array([0.0, 10.0, 20.0, -5.0, math.nan])
    assert gdi.recency(ages, 10.0)[:4].tolist() == pytest.approx([1.0, 0.5, 0.25, 1.0])
    assert math.isnan(gdi.recency(ages, 10.0)[4])


def test_use_is_logarithmic_and_full_at_a_hundred() -> None:
    assert gdi.use(np.array([0.0, 100.0, 1e6])).tolist() == pytest.approx([0.0, 1.0, 1.0])


def test_no_episode_is_no_error() -> None:
    nothing = np.empty(0)
    assert gdi.pass_rate(nothing, np.empty(0, dtype=np.int64)).size == 0
    assert gdi.weighted(np.empty((0, 6)), GdiWeights()).total.size == 0
