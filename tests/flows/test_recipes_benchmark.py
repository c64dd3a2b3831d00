"""`benchmarks/recipes.py`: its figures are those of the tasks, clustered by family, and it begins where a night began."""

from pathlib import Path

import msgspec
import pytest
from night_world import run

from components.evaluation.comparison import TaskPair
from components.protocol import ConfigurationError


@pytest.fixture
def recipes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import recipes

    return recipes


def pairs(gains):
    """Four tasks of each family, all with the same gain."""
    return [
        TaskPair(f"t{family}-{task}", f"f{family}", "typo" if family % 2 else "sign", 0.25, 0.25 + gain)
        for family, gain in enumerate(gains)
        for task in range(4)
    ]


def test_a_gain_is_the_mean_over_tasks_and_its_test_one_over_families(recipes):
    found = recipes.gain(pairs([0.25, 0.5, 0.0, 0.25, 0.5, 0.25, 0.25]))
    assert (found["before"], found["tasks"], found["families"]) == (0.25, 28, 7)
    assert found["gain"] == pytest.approx(2 / 7) and found["after"] == pytest.approx(0.25 + 2 / 7)
    assert found["low"] < found["gain"] < found["high"]
    assert found["p"] == pytest.approx(2 / 2**7), (
        "of all signs of seven families two are as good: one of them gained nothing"
    )


def test_every_recipe_has_a_line_and_each_kind_of_task_one_below_it(recipes):
    whole = pairs([0.25] * 6)
    rows = {
        "dpo": {**recipes.gain(whole), "seeds": [0.2, 0.3], "tokens": 1234}
        | {"by_kind": {kind: recipes.gain([each for each in whole if each.kind == kind]) for kind in ("sign", "typo")}}
    }
    head, first, *kinds = recipes.table(rows).splitlines()
    assert head.startswith("recipe") and first.startswith("dpo") and "+20.0 +30.0" in first and first.endswith("1,234")
    assert [line.split()[0] for line in kinds] == ["sign", "typo"]


def test_it_begins_from_the_champion_and_the_rows_that_a_night_began_with(recipes, world):
    with pytest.raises(ConfigurationError, match="no night was played here"):
        recipes.source_night(None)
    first, _ = run()
    night, champion, data = recipes.source_night(None)
    assert (night.id, champion.policy_version) == (first.id, "first-v")
    assert data == msgspec.convert(first.results["set aside data"], type(data))
    second, _ = run(seed=None)
    assert recipes.source_night(None)[1].policy_version == "challenger-v"
    assert recipes.source_night(first.id)[0].id == first.id != second.id
