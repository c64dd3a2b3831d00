"""`ratchet init`: a project is whole, overwrites nothing, and its pipeline, scale, recipe and environment are usable."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ratchet.components.core import ConfigurationError, make, spec
from ratchet.components.datasets.versioning.git_plumbing import git
from ratchet.components.nights.recipe_config import known_recipes, load_recipe
from ratchet.components.nights.scale_config import SCALES_FOLDER, load_scale, yaml_names
from ratchet.components.operations.new_project import FILES, STARTER_TASKS, new_project
from ratchet.components.tasksets import load_taskset, taskset_names
from ratchet.components.tasksets.plain_rows_import import import_plain_rows


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projects") / "my"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        new_project(folder)
        yield folder
    sys.modules.pop("greenhouse", None)


@pytest.fixture
def inside(project, monkeypatch):
    monkeypatch.chdir(project)
    return project


def test_everything_is_committed_in_a_repository_of_its_own(project):
    assert git("status", "--porcelain", root=project) == ""
    committed = set(git("ls-files", root=project).splitlines())
    assert set(FILES) <= committed and "data/models/programs-base/model.safetensors" in committed
    assert not any(name.startswith(("data/build.yaml", ".ratchet")) for name in committed)


def test_its_files_send_nobody_to_a_page_that_a_project_does_not_hold(project):
    texts = {name: (project / name).read_text(encoding="utf-8") for name in FILES}
    assert "# Files docs/*.md are pages of Ratchet's documentation" in texts.pop("params.yaml")
    assert [name for name, text in texts.items() if re.search(r"(?<!Ratchet's )(docs|infra)/\w", text)] == []


def test_what_is_collected_by_hand_is_ignored(project):
    assert git("check-ignore", "runs/probe", root=project).strip() == "runs/probe"


def test_in_a_repository_of_ones_own_nothing_is_committed(tmp_path):
    git("init", "--quiet", root=tmp_path)
    new_project(tmp_path / "inner")
    assert not (tmp_path / "inner/.git").exists() and git("status", "--porcelain", root=tmp_path) == "?? inner/"


@pytest.mark.parametrize(
    "name", ["dvc.yaml", "README.md", ".dvc/config", "data/models/programs-base", "data/tasksets/starter"]
)
def test_no_file_is_overwritten_and_nothing_is_written_beside_one(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigurationError, match="exists, and nothing is overwritten"):
        new_project(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "mine"


def test_the_projects_scale_and_recipe_come_before_ratchets(inside):
    scale = load_scale("smoke")
    assert scale.taskset == "starter" and {"smoke", "sums"} <= set(yaml_names(SCALES_FOLDER))
    assert load_recipe(scale.recipe, scale.size).plain_sft_stage is not None
    assert {"own", "sft", "grpo"} <= set(known_recipes())


def test_the_scale_asks_for_no_more_tasks_than_there_are(inside):
    scale, taskset = load_scale("smoke"), load_taskset("starter")
    assert {role: len(taskset.tasks(role)) for role in STARTER_TASKS} == STARTER_TASKS
    assert scale.demonstrations.tasks + scale.collection.tasks <= len(taskset.tasks("train"))
    assert scale.evaluation.promote <= len(taskset.tasks("promote"))
    assert scale.evaluation.audit <= len(taskset.tasks("audit"))


def test_the_stages_of_the_build_are_those_of_the_repository(project):
    ours, theirs = (yaml.safe_load(path.read_bytes()) for path in (Path("dvc.yaml"), project / "dvc.yaml"))
    assert list(ours["stages"]) == list(theirs["stages"])
    changed = {name for name, stage in ours["stages"].items() if stage != theirs["stages"][name]}
    assert changed == {"code"} and "deps" not in theirs["stages"]["code"]


def test_the_greenhouse_is_what_its_rows_say_and_its_module_is_imported_from_the_project(inside):
    before = load_taskset("greenhouse").hash
    import_plain_rows(
        inside / "data/tasksets/greenhouse",
        inside / "data/tasksets/greenhouse/rows.yaml",
        environment="greenhouse:mine/greenhouse",
    )
    assert load_taskset("greenhouse").hash == before
    assert spec("greenhouse:mine/greenhouse").domain == "greenhouse"
    assert list(make("greenhouse:mine/greenhouse").available_tools) == ["look", "water", "submit"]


def test_an_environment_whose_module_is_absent_or_broken_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    for name, reason in (("absent_module", "No module named"), ("broken_module", "ZeroDivisionError")):
        with pytest.raises(ConfigurationError, match=reason) as caught:
            spec(f"{name}:mine/thing")
        assert "\n" not in str(caught.value)


def test_bundled_tasksets_are_found_from_a_project(inside):
    assert {"starter", "greenhouse", "programs", "orders"} <= set(taskset_names())


@pytest.mark.slow
def test_the_projects_own_tests_pass_and_dvc_reads_its_pipeline(project):
    for command in (["pytest", "-q", "-p", "no:cacheprovider"], ["dvc", "dag"]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=project, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
