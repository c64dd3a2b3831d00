"""SWE-bench's rows as a taskset, from a file to a graded episode."""

import json

import pytest
from repositories import COMMAND, FAIL_TO_PASS, PASS_TO_PASS, MadeRepository, git

from ratchet import cli
from ratchet.components.core import ConfigurationError, DataError, Repository, Role
from ratchet.components.environments.sandbox_environment import SandboxEnvironment
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.swebench_import import ImportSettings, import_rows, read_rows
from ratchet.components.tasksets.validation import validate_taskset

PATCH = "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
ROW = {
    "instance_id": "owner__name-1",
    "repo": "owner/name",
    "base_commit": "a" * 40,
    "problem_statement": "It is broken.",
    "patch": "diff",
    "test_patch": PATCH,
    "FAIL_TO_PASS": '["tests/test_a.py::test_one"]',
    "PASS_TO_PASS": '["tests/test_a.py::test_two[a b]"]',
    "version": "1.2",
    "environment_setup_commit": "b" * 40,
    "hints_text": "Look at line 3.",
    "created_at": "2024-01-01T00:00:00Z",
}
URL = ImportSettings("https://example.invalid/{repo}.git")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))


def rows(tmp_path, *lines):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def one(tmp_path, settings=URL, **changes):
    found = read_rows(rows(tmp_path, {**ROW, **changes}), "mine", settings)
    assert not found.refused, found.refused
    return found.tasks[0]


def test_a_row_becomes_a_task_whose_hidden_parts_stay_hidden(tmp_path):
    task = one(tmp_path)
    assert (task.task_id, task.taskset, task.kind, task.role) == ("owner__name-1", "mine", "owner/name", Role.TRAIN)
    assert task.repository == Repository("https://example.invalid/owner/name.git", "a" * 40)
    assert task.criteria["fail_to_pass"] == ["tests/test_a.py::test_one"]
    assert task.criteria["pass_to_pass"] == ["tests/test_a.py::test_two[a b]"]
    assert task.test_command == "python3 -m pytest -q tests/test_a.py"
    assert task.metadata["version"] == "1.2" and task.image is None
    assert task.description == "It is broken." and not task.files and not task.tests


@pytest.mark.parametrize(
    "changes",
    [
        {"FAIL_TO_PASS": ["tests/test_a.py::test_one"]},
        {"FAIL_TO_PASS": None, "fail_to_pass": "['tests/test_a.py::test_one']"},
        {"FAIL_TO_PASS": ["tests/test_a.py::test_one", "tests/test_a.py::test_one"]},
    ],
)
def test_lists_are_read_however_they_are_written(tmp_path, changes):
    row = {key: value for key, value in {**ROW, **changes}.items() if value is not None}
    found = read_rows(rows(tmp_path, row), "mine", URL)
    assert found.tasks[0].criteria["fail_to_pass"] == ["tests/test_a.py::test_one"]


def test_the_row_says_its_image_and_command_unless_a_template_does(tmp_path):
    rebench = {"docker_image": "some/image:1", "install_config": {"test_cmd": "pytest -rA"}}
    task = one(tmp_path, **rebench)
    assert (task.image, task.test_command) == ("some/image:1", "pytest -rA tests/test_a.py")
    settings = ImportSettings(URL.repos, "swe/{docker_id}:{version}", "bash -c 'run {modules}'", "make", Role.PROMOTE)
    task = one(tmp_path, settings, **rebench)
    assert (task.image, task.test_command) == ("swe/owner_1776_name-1:1.2", "bash -c 'run test_a'")
    assert task.repository.setup_command == "make" and task.role == Role.PROMOTE
    assert one(tmp_path, repo="django/django").test_command.endswith("--parallel 1 test_a")


def test_a_row_without_a_base_commit_and_with_an_image_brings_the_fault_on_its_branch(tmp_path):
    smith = {"base_commit": None, "test_patch": None, "image_name": "smith/x", "repo": "swesmith/owner__name.1a2b"}
    task = one(tmp_path, **smith)
    assert task.repository.base_commit == "owner__name-1" and task.criteria["reverse"] is True
    assert task.test_command.endswith("-q tests/test_a.py")


def test_every_row_is_a_task_or_one_line_with_its_number(tmp_path):
    bad = {
        "{": "not a JSON object",
        "[]": "not a JSON object",
        "\udcff": "not a JSON object",
        json.dumps({**ROW, "instance_id": ""}): "instance_id is missing",
        json.dumps({**ROW, "instance_id": 3}): "instance_id is int",
        json.dumps({**ROW, "problem_statement": None}): "problem_statement is missing",
        json.dumps({**ROW, "base_commit": None}): "base_commit is missing",
        json.dumps({**ROW, "base_commit": "--upload-pack=x"}): "no commit's name",
        json.dumps({**ROW, "FAIL_TO_PASS": "[1, 2"}): "neither a list nor JSON",
        json.dumps({**ROW, "FAIL_TO_PASS": "__import__('os')"}): "neither a list nor JSON",
        json.dumps({**ROW, "FAIL_TO_PASS": [1]}): "not a list of tests",
        json.dumps({**ROW, "FAIL_TO_PASS": {"a": 1}}): "not a list of tests",
        json.dumps({**ROW, "FAIL_TO_PASS": []}): "FAIL_TO_PASS is empty",
    }
    file = tmp_path / "rows.jsonl"
    lines = [json.dumps(ROW), *bad, "", json.dumps(ROW), json.dumps({**ROW, "instance_id": "other"})]
    file.write_bytes(b"\n".join(line.encode("utf-8", "surrogateescape") for line in lines))
    found = read_rows(file, "mine", URL)
    assert [task.task_id for task in found.tasks] == ["owner__name-1", "other"]
    assert len(found.refused) == len(bad) + 1
    for number, (refused, why) in enumerate(zip(found.refused, bad.values(), strict=False), start=2):
        assert refused.where == f"{file}, line {number}" and why in refused.why and "\n" not in refused.why
    assert "earlier row" in found.refused[-1].why


def test_a_folder_of_clones_is_searched_under_the_usual_names(tmp_path):
    home = tmp_path / "repos"
    for name in ("owner__name", "plain.git", "deep/er"):
        (home / name).mkdir(parents=True)
    (home / "packed.bundle").touch()
    settings = ImportSettings(str(home))
    wanted = {"owner/name": "owner__name", "x/plain": "plain.git", "deep/er": "deep/er", "x/packed": "packed.bundle"}
    for repo, place in wanted.items():
        assert one(tmp_path, settings, repo=repo).repository.source == str(home / place)
    for repo in ("no/such", "../repos", "a/../../b", "/etc"):
        found = read_rows(rows(tmp_path, {**ROW, "repo": repo}), "mine", settings)
        assert found.refused[0].why.startswith(("repo ", str(home)))


def test_a_template_that_cannot_be_filled_says_what_it_may_hold(tmp_path):
    for settings in (
        ImportSettings("https://{owner}"),
        ImportSettings(URL.repos, "x{0}"),
        ImportSettings(URL.repos, "{"),
        ImportSettings("{repo.x}"),
    ):
        with pytest.raises(ConfigurationError, match="may hold"):
            read_rows(rows(tmp_path, ROW), "mine", settings)


def test_what_is_written_loads_and_another_taskset_is_never_overwritten(tmp_path):
    target = tmp_path / "mine"
    import_rows(target, rows(tmp_path, ROW, "{"), URL)
    assert [task.task_id for task in load_taskset(target).tasks("train")] == ["owner__name-1"]
    assert "1 rows refused" in (target / "README.md").read_text()
    import_rows(target, rows(tmp_path, ROW), URL)
    (target / "taskset.yaml").write_text("name: other\n")
    with pytest.raises(ConfigurationError, match="another folder"):
        import_rows(target, rows(tmp_path, ROW), URL)
    with pytest.raises(DataError, match=r"none of 1 rows.*line 1: not a JSON object"):
        import_rows(tmp_path / "none", rows(tmp_path, "{"), URL)
    assert not (tmp_path / "none").exists()


def made_rows(made):
    row = {
        **ROW,
        "instance_id": "made__numbers-1",
        "repo": "made/numbers",
        "base_commit": made.base,
        "patch": made.gold,
    }
    return {
        **row,
        "test_patch": made.test_patch,
        "FAIL_TO_PASS": FAIL_TO_PASS,
        "PASS_TO_PASS": json.dumps(PASS_TO_PASS),
    }


def smith_row(made):
    """The fault on a branch named after the instance; the tests are in the repository already."""
    git(made.folder, "checkout", "--quiet", "-b", "made__numbers-smith", made.fix)
    git(made.folder, "checkout", "--quiet", made.base, "--", "numbers_of")
    git(made.folder, "commit", "--quiet", "--message", "bring the fault")
    patch = git(made.folder, "diff", made.fix, "made__numbers-smith")
    row = {**made_rows(made), "instance_id": "made__numbers-smith", "patch": patch, "image_name": "none"}
    return {key: value for key, value in row.items() if key not in ("base_commit", "test_patch")}


@pytest.mark.slow
def test_imported_rows_hold_and_a_gold_patch_solves_them(tmp_path):
    made = MadeRepository(tmp_path / "repos" / "made__numbers")
    settings = ImportSettings(str(tmp_path / "repos"), test_command=COMMAND)
    target = tmp_path / "made"
    found = import_rows(target, rows(tmp_path, made_rows(made), smith_row(made)), settings)
    assert len(found.tasks) == 2 and not found.refused
    config = SandboxConfig(backend="local")
    report = validate_taskset(load_taskset(target), lambda: make_sandbox(config))
    assert not report.problems and report.tasks == 2, report.problems
    task = load_taskset(target).tasks()[0]
    with SandboxEnvironment(config) as environment:
        environment.reset(task=task)
        environment.step({"tool": "bash", "params": {"command": f"git apply - <<'E'\n{made.gold}E"}})
        step = environment.step({"tool": "submit", "params": {}})
    assert step.info["outcome"]["success"] is True and step.info["outcome"]["tests_total"] == 3


def test_the_command_says_what_it_made_and_names_each_bad_row(tmp_path, capsys):
    file = rows(tmp_path, ROW, "{")
    command = ["tasks", "import", "swebench", str(file), "--repos", URL.repos, "--to", str(tmp_path / "mine")]
    assert cli.run(command) == 3
    captured = capsys.readouterr()
    assert "1 tasks, 1 rows refused" in captured.out and f"{file}, line 2: not a JSON object" in captured.err
    assert cli.run([*command, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["refused"][0]["where"] == f"{file}, line 2"
    assert cli.run(["tasks", "import", "csv", str(file), "--repos", "x", "--to", "y"]) == 2
    assert cli.run([*command, "--role", "trian"]) == 2
    assert cli.run(["tasks", "import", "swebench", "/nowhere", "--repos", "x", "--to", "y"]) == 3
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 3 and all(line.startswith("error: ") for line in errors)
