"""Bootstrap intervals: the quantiles they should be, whole families, and how often they cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.statistics.bootstrap import bootstrap_ci, bootstrap_figures, resampled_means
from ratchet.components.statistics.numerics import family_sums
from ratchet.components.statistics.result_types import Interval
from ratchet.components.statistics.t_tests import confidence_interval

SKEWED = np.random.default_rng(11).exponential(size=30)
FAMILIES = [f"f{number // 3}" for number in range(30)]


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def test_resamples_are_draws_with_replacement_of_whole_families() -> None:
    drawn = resampled_means(*family_sums(SKEWED, FAMILIES), 4_000, seed=0)
    sums = SKEWED.reshape(10, 3).mean(axis=1)
    assert drawn.mean() == pytest.approx(SKEWED.mean(), abs=4 * sums.std() / (10 * 4_000) ** 0.5)
    assert drawn.std() == pytest.approx(sums.std() / 10**0.5, rel=0.05)


def test_how_draws_are_cut_into_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_ci(SKEWED, n_resamples=1_000, seed=2)
    monkeypatch.setattr("ratchet.components.statistics.bootstrap._CHUNK", 7 * 30)
    assert bootstrap_ci(SKEWED, n_resamples=1_000, seed=2) == whole
    assert bootstrap_ci(SKEWED, n_resamples=1_000, seed=3) != whole


def test_the_expanded_interval_is_a_t_interval_where_means_are_normal() -> None:
    values = np.random.default_rng(0).normal(size=12)
    low, high = ends(bootstrap_ci(values, n_resamples=40_000))
    assert (low, high) == pytest.approx(ends(confidence_interval(values)), abs=0.06)
    plain = np.quantile(resampled_means(*family_sums(values, None), 40_000, seed=0), (0.025, 0.975))
    assert high - low > 1.1 * (plain[1] - plain[0])


class TestDegenerate:
    @pytest.mark.parametrize("x", [[], [1.0]])
    def test_fewer_than_two_families_have_no_interval(self, x: list[float]) -> None:
        assert bootstrap_ci(x) is None
        assert bootstrap_ci([1.0, 2.0], clusters=["f", "f"]) is None

    def test_equal_values_have_no_interval_of_zero_width(self) -> None:
        assert bootstrap_ci([0.1] * 5) is None
        assert bootstrap_ci([0.2, 0.0, 0.1, 0.1], clusters=list("ffgg")) is None
        assert bootstrap_figures(lambda rows: {"share": 1.0}, list("abcd")) == {"share": None}

    def test_two_values_have_an_interval(self) -> None:
        low, high = ends(bootstrap_ci([0.0, 1.0]))
        assert 0 <= low < high <= 1

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"n_resamples": 0}, ConfigurationError),
            ({"level": 1}, DataError),
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, options, error) -> None:
        with pytest.raises(error):
            bootstrap_ci([1.0, 2.0], **options)

    def test_input_that_is_not_finite_is_refused(self) -> None:
        with pytest.raises(DataError, match="1 values are NaN"):
            bootstrap_ci([1.0, float("nan")])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(-100, 100), min_size=2, max_size=10, unique=True),
    st.integers(-50, 50),
    st.sampled_from([1, 4]),
)
def test_it_moves_and_stretches_with_the_data(x: list[int], shift: int, stretch: int) -> None:
    plain = ends(bootstrap_ci(x, n_resamples=50))
    moved = ends(bootstrap_ci([stretch * value + shift for value in x], n_resamples=50))
    assert moved == pytest.approx([stretch * end + shift for end in plain], abs=1e-9)


@pytest.mark.parametrize(("n", "least"), [(20, 0.92), (5, 0.86)])
def test_it_covers_about_as_often_as_it_says(n: int, least: float) -> None:
    rows = np.random.default_rng(n).normal(size=(500, n))
    intervals = [ends(bootstrap_ci(row, n_resamples=400)) for row in rows]
    assert least <= np.mean([low <= 0 <= high for low, high in intervals]) <= 0.985


class TestFigures:
    def test_of_a_mean_the_interval_is_that_of_the_mean(self) -> None:
        found = bootstrap_figures(lambda rows: {"mean": float(SKEWED[rows].mean())}, FAMILIES, n_resamples=300, seed=4)
        assert ends(found["mean"]) == pytest.approx(
            ends(bootstrap_ci(SKEWED, clusters=FAMILIES, n_resamples=300, seed=4))
        )

    def test_figures_of_one_call_share_their_resamples(self) -> None:
        found = bootstrap_figures(lambda rows: {"a": SKEWED[rows].max(), "b": 2 * SKEWED[rows].max()}, range(30))
        assert ends(found["b"]) == pytest.approx([2 * end for end in ends(found["a"])])

    def test_clusters_are_drawn_whole(self) -> None:
        clusters, samples = ["a", "b", "a", "c", "b", "a"], []
        bootstrap_figures(lambda rows: {"rows": float(len(samples.append(rows) or rows))}, clusters, n_resamples=20)
        for rows in samples:
            drawn = [clusters[row] for row in rows]
            assert drawn.count("a") % 3 == 0 and drawn.count("b") % 2 == 0 and len(set(rows) & {0, 2, 5}) in (0, 3)

    def test_a_figure_that_is_mostly_undefined_has_no_interval(self) -> None:
        def figures(rows: np.ndarray) -> dict[str, float | None]:
            return {"never": None, "rarely": 1.0 if len(set(rows)) == len(rows) else None}

        assert bootstrap_figures(figures, range(6), n_resamples=100) == {"never": None, "rarely": None}

    def test_fewer_than_two_families_have_no_interval(self) -> None:
        assert bootstrap_figures(lambda rows: {"n": float(len(rows))}, ["f", "f"]) == {"n": None}
