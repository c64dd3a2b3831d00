"""Every public name is documented by an example that runs: in its docstring, in docs/library.md or in a notebook."""

import ast
import doctest
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ratchet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
DATA = [name for name in ratchet.__all__ if not callable(getattr(ratchet, name))]
FUNCTIONS = [name for name in ratchet.__all__ if inspect.isfunction(getattr(ratchet, name))]
SLOW = {"compare", "evaluate_agent", "leaderboard", "make_sandbox", "train"}
"""Examples that start sandboxes, play many tasks, or train."""


def cells(notebook: Path) -> list[str]:
    parsed = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in parsed["cells"] if cell["cell_type"] == "code"]


def in_process(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code as a script of its own in an empty folder, with a home of its own."""
    (folder / "example.py").write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RATCHET_HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, "example.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run_docstring(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "programs-base").symlink_to(ROOT / "data" / "models" / "programs-base")
    monkeypatch.setenv("RATCHET_HOME", str(folder / "home"))
    found = doctest.DocTestFinder(recurse=False).find(
        getattr(ratchet, name), name, globs={"ratchet": ratchet, "pathlib": pathlib}
    )
    failures: list[str] = []
    for example in found:
        doctest.DocTestRunner().run(example, out=failures.append)
    assert not failures, "".join(failures)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in SLOW | {"read_decision"}])
def test_the_example_of_a_function_runs(name, tmp_path, monkeypatch):
    run_docstring(name, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_the_example_of_a_function_that_takes_long_runs(name, tmp_path, monkeypatch):
    run_docstring(name, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example(name):
    assert ">>> " in (inspect.getdoc(getattr(ratchet, name)) or "")


@pytest.mark.parametrize("name", [name for name in ratchet.__all__ if name not in DATA])
def test_every_public_name_has_a_docstring_of_its_own(name):
    value = getattr(ratchet, name)
    assert ((vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or "").strip()


def test_every_public_name_occurs_in_an_example_that_runs():
    docstrings = [inspect.getdoc(getattr(ratchet, name)) or "" for name in ratchet.__all__ if name not in DATA]
    examples = "\n".join([*BLOCKS, *re.findall(r"(?:>>>|\.\.\.) (.*)", "\n".join(docstrings))])
    examples += "\n".join(text for notebook in NOTEBOOKS for text in cells(notebook))
    assert [name for name in ratchet.__all__ if not re.search(rf"\b{name}\b", examples)] == []


@pytest.mark.slow
def test_the_page_runs_from_its_top_to_its_end(tmp_path):
    code = "\n".join(BLOCKS)
    assert code.count("assert") >= 10
    done = in_process(code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    done = in_process("\n".join(cells(notebook)), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", [*BLOCKS, *(text for notebook in NOTEBOOKS for text in cells(notebook))])
def test_examples_import_from_ratchet_alone(code):
    modules = [node.module or "" for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in modules if module.startswith("ratchet.")]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_task_in_a_notebook_takes_at_most_fifteen_lines(notebook):
    parsed = json.loads(notebook.read_text(encoding="utf-8"))
    lines = 0
    for cell in parsed["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and source.startswith("## "):
            lines = 0
        elif cell["cell_type"] == "code":
            lines += len([line for line in source.splitlines() if line.strip()])
            assert lines <= 15


def test_provisional_names_are_public_and_marked_in_the_page():
    public = set(ratchet.__all__)
    assert public >= ratchet.PROVISIONAL
    section = PAGE.split("## Stability")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) >= ratchet.PROVISIONAL
