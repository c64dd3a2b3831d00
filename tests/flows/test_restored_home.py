"""A home that a real night left is backed up, restored in another clone, and plays the next night there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.long]

SMALL = {
    "sandbox": {"backend": "local"},
    "demonstrations": {"tasks": 12, "attempts": 1, "cohort_size": 12, "workers": 1},
    "collection": {"tasks": 10, "attempts": 2, "temperature": 1.0, "cohort_size": 20, "workers": 1},
    "evaluation": {"promote": 8, "audit": 4, "attempts": 1, "temperature": 0.6, "cohort_size": 20, "workers": 1},
    "promotion": {"min_tasks": 4},
}
"""Changes of the scale of a new project: a night of two minutes."""


def ratchet(folder, *arguments):
    """The standard output of a command in a folder."""
    left_out = ("RATCHET_", "MLFLOW_", "PREFECT_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    command = [sys.executable, "-m", "ratchet.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(folder, *arguments):
    return [json.loads(line) for line in ratchet(folder, *arguments, "--json").splitlines()]


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A project in which a small night was played."""
    folder = tmp_path_factory.mktemp("first")
    ratchet(folder, "init", "project")
    project = folder / "project"
    scale = yaml.safe_load((project / "scales/smoke.yaml").read_text())
    scale["cold_start"] |= {"optimization": {"steps": 3}, "checkpoints": {"evaluate_every": 3}}
    (project / "scales/smoke.yaml").write_text(yaml.safe_dump(scale | SMALL))
    recipe = (project / "recipes/own.yaml").read_text()
    (project / "recipes/own.yaml").write_text(recipe.replace("token_budget: 600000", "token_budget: 20000"))
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", *identity, "commit", "--quiet", "--all", "--message", "small"], cwd=project, check=True)
    ratchet(project, "night")
    return project


def test_a_restored_home_knows_its_night_its_lineage_and_plays_the_next_one(first, tmp_path):
    elsewhere = tmp_path / "another place" / "clone"
    ratchet(first, "backup", str(tmp_path / "home.tar"))
    subprocess.run(["git", "clone", "--quiet", str(first), str(elsewhere)], check=True)
    hidden = first.rename(first.with_name("gone"))  # nothing may be read from its old place
    ratchet(elsewhere, "restore", str(tmp_path / "home.tar"))
    assert lines(elsewhere, "status") == lines(hidden, "status")
    assert lines(elsewhere, "trace", "@champion"), "each hash is recomputed; one that differs is an error"
    ratchet(elsewhere, "night")
    nights = lines(elsewhere, "status")
    assert len(nights) == 2 and all(night["state"] == "finished" for night in nights)
    (versions,) = lines(elsewhere, "models", "list")
    assert len(versions) == 5, "the first champion, and a challenger and a control of each night"
