"""`ratchet init`, and the commands that the pages on tasks and projects show, run as they stand there."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NEEDS_MORE = (
    "ratchet night",
    "ratchet publish",
    "ratchet tasks faults",
    "ratchet tasks validate data/tasksets/releases",
    "ratchet evaluate --taskset releases",
)
"""Commands that need minutes, a hub or an index of packages: other tests run them."""


def commands(page: str) -> list[list[str]]:
    """The words of every `ratchet` command in the page's bash blocks, in their order."""
    blocks = re.findall(r"```bash\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = (line for block in blocks for line in block.splitlines() if line.startswith("ratchet "))
    return [shlex.split(line, comments=True)[1:] for line in lines if not line.startswith(NEEDS_MORE)]


@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / ".ratchet"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("greenhouse", None)


def test_init_says_what_it_made_and_what_comes_next(run, inside):
    code, out, err = run("init", "my")
    assert code == 0 and "scales/smoke.yaml" in out and "ratchet night" in err
    code, _, err = run("init", "my")
    assert code == 2 and "nothing is overwritten" in err and err.count("\n") == 1


def test_init_lists_its_files_for_programs(run, inside):
    files = json.loads(run("init", "my", "--json")[1])["files"]
    assert sorted(files) == files and {"dvc.yaml", "params.yaml", "recipes/own.yaml", "tests/test_project.py"} < set(
        files
    )


@pytest.mark.slow
def test_the_commands_of_the_page_on_tasksets_run_in_an_empty_folder(run, inside):
    shown = commands("tasksets.md")
    assert [words[:2] for words in shown[:2]] == [["tasks", "new"], ["tasks", "validate"]] and len(shown) >= 6
    for words in shown:
        code, _, err = run(*words)
        assert code == 0, (words, err)


@pytest.mark.slow
def test_the_commands_of_the_page_on_projects_run_in_a_project(run, inside, monkeypatch):
    init, *shown = commands("project.md")
    assert init == ["init", "my"] and len(shown) >= 6
    assert run(*init)[0] == 0
    monkeypatch.chdir(inside / "my")
    for words in shown:
        code, _, err = run(*words)
        assert code == 0, (words, err)


def test_filters_go_with_the_tasks_of_one_taskset(run, inside):
    assert run("tasks", "list", "--kind", "x")[0] == 2
    assert run("tasks", "show", "orders", "orders/x", "--limit", "2")[0] == 2
    code, out, _ = run(
        "tasks", "list", "repair", "--language", "Python", "--kind", "off_by_one", "--limit", "3", "--json"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [(row["language"], row["kind"]) for row in rows] == [("python", "off_by_one")] * 3
    code, out, _ = run("tasks", "show", "orders", "--limit", "2", "--json")
    assert code == 0 and len(out.splitlines()) == 2


def test_the_schema_is_printed_as_published(run):
    assert run("tasks", "schema")[1] == (DOCS / "taskset.schema.json").read_text(encoding="utf-8")
