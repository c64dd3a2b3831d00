"""`benchmarks/promotion.py`: its fast test is the rule's own, and the rule keeps its promises in simulated nights."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from components.evaluation.statistics import permutation_test

ROOT = Path(__file__).parents[4]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "promotion", raising=False)
    return importlib.import_module("promotion_made")


@pytest.fixture
def benchmark(made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("promotion")
    monkeypatch.setattr(module, "CHECKED", 4)
    return module


def rows(benchmark: ModuleType, section: str, count: int) -> list[Any]:
    return list(benchmark.SECTIONS[section](count, np.random.default_rng(1)))


@pytest.mark.parametrize("families", [8, 30])
def test_the_fast_p_value_is_the_permutation_tests(made: ModuleType, families: int) -> None:
    many = made.make(made.World(tasks=60, families=families), 20, np.random.default_rng(0))
    for number, fast in enumerate(made.p_values(many)):
        test = permutation_test(
            many.challenger[number] / 4,
            many.champion[number] / 4,
            clusters=many.family.tolist(),
            alternative="greater",
            n_resamples=2_000,
        )
        noise = 0.0 if families <= 12 else 5 * (test.p_value * (1 - test.p_value) / 1000) ** 0.5
        assert fast == pytest.approx(test.p_value, abs=noise + 1e-12)


def test_what_is_made_is_what_was_asked_for(made: ModuleType) -> None:
    world = made.World(tasks=200, families=50, effect=0.08, spread=0.08, task_spread=0.05, equal=True)
    many = made.make(world, 1_000, np.random.default_rng(0))
    means = many.differences().mean(axis=1)
    assert means.mean() == pytest.approx(0.08, abs=0.003)
    assert means.std() == pytest.approx(world.design().standard_error, rel=0.08)
    champion, challenger = many.agents(3)
    rates = [task.rate for task in challenger.tasks]
    assert rates == (many.challenger[3] / 4).tolist() and len(champion.tasks[0].attempts) == 4


@pytest.mark.slow
def test_a_challenger_that_is_no_better_is_promoted_with_at_most_alpha(benchmark: ModuleType) -> None:
    found = rows(benchmark, "nulls", 1_000)
    assert all(row.kept for row in found)
    few = next(row for row in found if "of 8 families" in row.what)
    assert "independent 1" in few.also  # more than 10 %: without clusters the same test is wrong


@pytest.mark.slow
def test_thirty_nights_promote_a_null_challenger_with_at_most_five_per_cent(benchmark: ModuleType) -> None:
    found = rows(benchmark, "seasons", 400)
    assert all(row.kept for row in found) and found[2].found > 0.3


@pytest.mark.slow
def test_a_lead_of_eight_points_is_found_as_often_as_computed(benchmark: ModuleType) -> None:
    found = rows(benchmark, "power", 2_000)
    assert all(row.kept for row in found) and {row.draws for row in found} == {2_000}


@pytest.mark.slow
def test_intervals_and_early_looks_keep_what_they_promise(benchmark: ModuleType) -> None:
    assert all(row.kept for section in ("intervals", "early", "looks") for row in rows(benchmark, section, 800))
