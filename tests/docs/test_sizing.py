"""The table of docs/planning.md has every scale, and its tasks and episodes are those of the scale's file."""

import re

from documented_code import DOCS

from ratchet.components.nights.recipe_config import load_recipe
from ratchet.components.nights.scale_config import SCALES_FOLDER, Scale
from ratchet.components.operations import new_project

TABLE = (DOCS / "planning.md").read_text(encoding="utf-8").partition("## How large a machine")[2].partition("\n## ")[0]
AGENTS = 3
"""Champion, challenger and control."""
RECIPE_OF_A_PROJECT = str(new_project.TEMPLATE / "own.yaml")


def figures(row: str) -> list[int]:
    """The four counts of the row that begins so."""
    (line,) = (line for line in TABLE.splitlines() if line.startswith(f"| {row}"))
    return [int(cell.replace(",", "")) for cell in line.split(" | ")[1:5]]


def counts(scale: Scale) -> list[int]:
    """Train tasks, deciding and audit tasks, episodes of a first night and of later ones."""
    deciding = scale.evaluation.promote + scale.evaluation.audit
    recipe = RECIPE_OF_A_PROJECT if scale.recipe == "own" else scale.recipe
    samples = [stage.sample for stage in load_recipe(recipe, scale.size).stages if stage.sample is not None]
    sampled = sum(sample.tasks * sample.attempts for sample in samples)
    later = scale.collection.tasks * scale.collection.attempts + sampled + deciding * scale.evaluation.attempts * AGENTS
    shown = scale.demonstrations.tasks * scale.demonstrations.attempts
    return [scale.demonstrations.tasks + scale.collection.tasks, deciding, shown + later, later]


def test_every_scale_has_its_row():
    rows = set(re.findall(r"^\| `(\w+)`", TABLE, re.MULTILINE))
    assert rows == {path.stem for path in SCALES_FOLDER.glob("*.yaml")}


def test_the_counts_are_those_of_the_scales():
    for path in SCALES_FOLDER.glob("*.yaml"):
        scale = Scale.load(path)
        assert figures(f"`{path.stem}`") == counts(scale), path.stem


def test_the_counts_of_a_new_project_are_those_of_its_scale():
    assert figures("a project's `smoke`") == counts(Scale.load(new_project.TEMPLATE / "smoke.yaml"))
