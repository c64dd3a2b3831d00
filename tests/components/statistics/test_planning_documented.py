"""The figures of docs/planning.md are those that the functions give."""

from pathlib import Path

import pytest

from ratchet.components.statistics.multiple_testing import AlphaSpending, season_levels
from ratchet.components.statistics.power_analysis import (
    ClusteredDesign,
    VarianceComponents,
    minimum_detectable_effect,
    minimum_families,
)

DOCUMENT = (Path(__file__).parents[3] / "docs" / "planning.md").read_text()
NIGHT = ClusteredDesign(
    tasks=150, families=52, attempts=4, components=VarianceComponents(family=0.005, task=0.15, attempt=0.055)
)


def row(begins: str) -> list[str]:
    """The cells of the table's row that begins so, without its first."""
    (line,) = (line for line in DOCUMENT.splitlines() if line.startswith(f"| {begins}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_example_gives_the_figures_beside_it() -> None:
    names: dict[str, object] = {}
    block = DOCUMENT.split("```python\n")[1].split("```")[0]
    claims = [line.split("#") for line in block.splitlines() if line.startswith(("minimum", "tasks"))]
    assert len(claims) == 2
    exec(block, names)
    for call, value in claims:
        assert eval(call, names) == pytest.approx(float(value), abs=0.0005)


def test_the_levels_of_a_season_are_those_of_the_table() -> None:
    tests = [int(cell) for cell in row("test of the season")]
    spending = AlphaSpending()
    fruitless, after = season_levels(spending, [False] * 30), season_levels(spending, [True, *[False] * 29])
    shown = row("level, no promotion yet")
    assert [f"{fruitless[test - 1]:.4f}"[1:] for test in tests] == shown
    assert ["", *(f"{after[test - 1]:.4f}"[1:] for test in tests[1:])] == row("level, after a promotion on night 1")
    least = [minimum_detectable_effect(NIGHT, alpha=fruitless[test - 1]) for test in tests]
    assert [f"{effect:.3f}"[1:] for effect in least if effect is not None] == row("least difference found")
    assert [str(minimum_families(fruitless[test - 1])) for test in tests] == row("families without which")
