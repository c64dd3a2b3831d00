"""Harbor task folders: the scripts prove and refute answers, and Harbor's own validator finds nothing.

RATCHET_HARBOR_PYTHON names the interpreter (3.12) of an environment with the package harbor.
"""

import os
import shutil
import subprocess

import msgspec
import pytest

from ratchet.components.core import DataError
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.harbor_export import write_harbor_tasks

TASKS = load_taskset("repair").tasks("audit")[:3]


def reward(task, tmp_path, answer=None):
    """Run the folder's scripts with their absolute paths moved below `tmp_path`, as Harbor's containers would see them."""
    (folder,) = write_harbor_tasks([task], tmp_path / "tasks")
    root = tmp_path / "root"
    shutil.copytree(folder / "environment" / "files", root / "app")
    shutil.copytree(folder / "tests", root / "tests")
    shutil.copytree(folder / "solution", root / "solution")
    for script in (root / "solution" / "solve.sh", root / "tests" / "test.sh"):
        text = script.read_text()
        for path in ("/app", "/tests", "/logs/", "/solution"):
            text = (
                text.replace(f" {path}", f" {root}{path}")
                .replace(f'"{path}', f'"{root}{path}')
                .replace(f"={path}", f"={root}{path}")
            )
        script.write_text(text)
    if answer is None:
        subprocess.run(["bash", root / "solution" / "solve.sh"], check=True, cwd=root / "app")
    else:
        for name, text in answer.items():
            (root / "app" / name).unlink() if text is None else (root / "app" / name).write_text(text)
    subprocess.run(["bash", root / "tests" / "test.sh"], check=True, cwd=root / "app")
    return (root / "logs" / "verifier" / "reward.txt").read_text().strip()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.task_id)
def test_the_reference_earns_the_reward_and_nothing_else_does(task, tmp_path):
    assert reward(task, tmp_path / "right") == "1"
    assert reward(task, tmp_path / "unchanged", {}) == "0"
    assert reward(task, tmp_path / "missing", {"main.py": None}) == "0"
    early = "import os\nos._exit(0)\n"
    assert reward(task, tmp_path / "early", {"main.py": early}) == "0"


def test_tasks_without_files_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match="not graded by tests on files"):
        write_harbor_tasks([*TASKS, load_taskset("orders").tasks("train")[0]], tmp_path / "tasks")
    assert not (tmp_path / "tasks").exists()
    outside = msgspec.structs.replace(TASKS[0], files=TASKS[0].files | {"../../../../x": ""})
    with pytest.raises(DataError, match="outside of its folder"):
        write_harbor_tasks([outside], tmp_path / "tasks")


def test_each_task_has_a_folder_of_its_own_below_the_given_one_and_its_own_image(tmp_path):
    ids = ["repair/a.1", "other/001", "another/001", "x/.."]
    tasks = [msgspec.structs.replace(TASKS[0], task_id=name, image="golang:1.22") for name in ids]
    folders = write_harbor_tasks(tasks, tmp_path / "tasks")
    assert [folder.name for folder in folders] == ["a-1", "other-001", "another-001", "x-"]
    assert {folder.parent for folder in folders} == {tmp_path / "tasks"}
    for part in ("environment", "tests"):
        assert (folders[0] / part / "Dockerfile").read_text().startswith("FROM golang:1.22\n")
    alike = [msgspec.structs.replace(TASKS[0], task_id=name) for name in ("x/1", "x-1")]
    with pytest.raises(DataError, match="one folder, x-1"):
        write_harbor_tasks(alike, tmp_path / "alike")
    assert not (tmp_path / "alike").exists()


@pytest.mark.slow
def test_harbors_own_model_and_linter_accept_every_task(tmp_path):
    python = os.environ.get("RATCHET_HARBOR_PYTHON")
    if not python:
        pytest.skip("needs the package harbor (Python 3.12) in RATCHET_HARBOR_PYTHON")
    folders = write_harbor_tasks(load_taskset("repair").tasks("audit"), tmp_path / "tasks")
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from harbor.lint.models import DEFAULT_RULES\nfrom harbor.lint.task import lint_task\n"
        "from harbor.models.task.task import Task\n"
        "for each in sys.argv[1:]:\n"
        "    task = Task(Path(each))\n"
        "    assert task.config.verifier.environment_mode.value == 'separate' and task.config.artifacts == ['/app/main.py']\n"
        "    assert lint_task(Path(each), selected_rules=set(DEFAULT_RULES)) == [], each\n"
        "print(len(sys.argv) - 1)"
    )
    done = subprocess.run([python, "-c", code, *map(str, folders)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(folders))), done.stderr
    assert len(folders) == 72
