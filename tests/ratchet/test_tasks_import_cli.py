"""`ratchet tasks import`: each format asks for what it needs, and says in one line what is wrong."""

import json

import pytest

from ratchet.components.tasksets import load_taskset

ROW = {"problem": "Two halves?", "answer": "1", "subject": "Algebra", "level": 1, "unique_id": "a"}


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {"unique_id": "b", "answer": ""}) + "\n")
    return file


def test_a_benchmark_is_for_audit_unless_a_role_is_given(run, rows, tmp_path):
    code, out, err = run("tasks", "import", "math", rows, "-o", tmp_path / "made")
    assert code == 3 and "1 tasks, 1 rows refused" in out and "line 2" in err
    assert [task.role for task in load_taskset(tmp_path / "made").tasks()] == ["audit"]
    assert run("tasks", "import", "math", rows, "-o", tmp_path / "made", "--role", "train", "--json")[0] == 3
    assert [task.role for task in load_taskset(tmp_path / "made").tasks()] == ["train"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["csv", "ROWS"], "unknown format 'csv'"),
        (["math"], "needs the file"),
        (["swebench", "ROWS"], "--repos"),
        (["reasoning-gym", "ROWS"], "reads no file"),
        (["reasoning-gym"], "--generator"),
        (["reasoning-gym", "--generator", "gcd", "--set", "lcm.x=1"], "GENERATOR.KEY=VALUE"),
        (["math", "ROWS", "--role", "test"], "unknown role 'test'"),
    ],
)
def test_wrong_use_is_exit_2_and_writes_nothing(run, rows, tmp_path, words, said):
    words = [rows if word == "ROWS" else word for word in words]
    code, _, err = run("tasks", "import", *words, "-o", tmp_path / "made")
    assert code == 2 and said in err and not (tmp_path / "made").exists()


def test_a_failed_import_says_that_the_tasks_of_before_are_still_there(run, tmp_path):
    assert run("tasks", "new", tmp_path / "made")[0] == 0
    (tmp_path / "made/rows.yaml").write_text("- prompt: nothing decides\n")
    code, _, err = run("tasks", "import", tmp_path / "made/rows.yaml", "-o", tmp_path / "made")
    assert code == 3 and err.rstrip().endswith("made still holds the tasks of before")
    code, _, err = run("tasks", "import", tmp_path / "made/rows.yaml", "-o", tmp_path / "other")
    assert code == 3 and "still holds" not in err


def test_validate_says_that_the_rows_have_changed_since_they_were_imported(run, tmp_path):
    assert run("tasks", "new", tmp_path / "made")[0] == 0
    rows = tmp_path / "made/rows.yaml"
    assert "older than" not in run("tasks", "validate", tmp_path / "made", "--limit", "1", "--backend", "local")[2]
    rows.write_text(rows.read_text() + "# another line\n")
    code, _, err = run("tasks", "validate", tmp_path / "made", "--limit", "1", "--backend", "local")
    assert code == 0 and f"the tasks are older than {rows}: `ratchet tasks import {rows} -o" in err
    assert run("tasks", "import", rows, "-o", tmp_path / "made")[0] == 0
    assert "older than" not in run("tasks", "validate", tmp_path / "made", "--limit", "1", "--backend", "local")[2]


def test_an_export_whose_repositories_an_installed_package_would_not_find_is_refused(run, tmp_path):
    row = {
        "description": "Mend it.",
        "test_command": "true",
        "repository": {"source": "data/x.git", "base_commit": "a"},
    }
    row |= {"tests": {"t.py": "pass"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    made = run("tasks", "import", tmp_path / "rows.jsonl", "-o", tmp_path / "made")
    assert made[0] == 0, made
    code, _, err = run("tasks", "export", tmp_path / "made", "-o", tmp_path / "out")
    assert code == 2 and "its repository at data/x.git" in err and not (tmp_path / "out").exists()
