"""Dependencies are pinned with hashes, the workflow runs `.ci/run`, and a release is refused until everything about it agrees."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from ratchet.components.core.errors import install_command

ROOT = Path(__file__).parents[1]


def pins(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


def test_the_hashed_requirements_are_the_constraints_without_torch() -> None:
    constraints = pins("constraints.txt")
    assert constraints.pop("torch")
    assert pins("requirements.txt") == constraints, "run: make requirements"


def test_every_requirement_has_a_hash_and_no_index_has_an_address() -> None:
    text = (ROOT / "requirements.txt").read_text()
    entries = re.split(
        r"\n(?=[A-Za-z0-9])", text.partition("\n\n")[2] or re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    )
    assert len(entries) == len(pins("requirements.txt"))
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"://|--index|--extra-index|--find-links", text)


def test_the_workflow_runs_the_ci_command_with_pinned_actions_and_read_rights() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps] and os.access(ROOT / ".ci/run", os.X_OK)
    assert [step["uses"] for step in steps if "uses" in step and not re.search(r"@[0-9a-f]{40}$", step["uses"])] == []
    assert workflow["permissions"] == {"contents": "read"}


def test_nobody_is_told_to_install_the_other_ratchet_of_pypi_and_every_extra_exists() -> None:
    assert install_command("mcp") == f"pip install -e '{ROOT}[mcp]'"
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in (ROOT / name for name in listed.stdout.splitlines() if not name.startswith("tests/")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\bratchet\[[a-z]", text), path
        assert set(re.findall(r"install_command\([\"'](\w+)", text)) <= extras, path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository that may be released as 1.2.3, and a stand-in for uv that builds empty files and notes its calls."""
    folder = tmp_path / "project"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/release-check", folder / ".ci")
    (folder / "pyproject.toml").write_text('[project]\nname = "ratchet"\nversion = "1.2.3"\n')
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3\nBetter.\n\n## 1.2.2\nGood.\n")
    (folder / "constraints.txt").write_text("")
    (folder / ".gitignore").write_text("dist/\n/components/inspector/assets/\n")
    (folder / "components/inspector/assets").mkdir(parents=True)
    (folder / "components/inspector/assets/index.html").write_text("<!doctype html>")
    uv = tmp_path / "uv"
    uv.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n[ "$1" != build ] || '
        "{ mkdir -p dist && touch dist/ratchet-1.2.3-py3-none-any.whl dist/ratchet-1.2.3.tar.gz; }\n"
    )
    uv.chmod(0o755)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "state")


def check(folder: Path) -> tuple[int, str, str]:
    environment = {**os.environ, "UV": str(folder.parent / "uv")}
    command = [str(folder / ".ci/release-check")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_release_is_built_checked_and_started_and_nothing_is_uploaded_or_tagged(project: Path) -> None:
    code, out, err = check(project)
    assert (code, err) == (0, "") and "git tag -a v1.2.3" in out
    calls = (project.parent / "calls").read_text()
    assert [line.split()[0] for line in calls.splitlines()] == ["build", "tool", "tool"]
    assert "check --strict" in calls and "ratchet --help" in calls and "publish" not in calls
    assert subprocess.run(["git", "tag"], cwd=project, capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("CHANGELOG.md", "## 1.2.3", "## 1.2.3 (unreleased)", 'the first heading is "1.2.3 (unreleased)"'),
        ("CHANGELOG.md", "## 1.2.3\nBetter.\n\n", "", 'the first heading is "1.2.2"'),
        ("pyproject.toml", "1.2.3", "1.2.3.dev0", "version 1.2.3.dev0 is no release"),
    ],
)
def test_a_version_that_is_none_or_that_the_changelog_does_not_begin_with_is_refused(
    project: Path, file: str, old: str, new: str, says: str
) -> None:
    (project / file).write_text((project / file).read_text().replace(old, new))
    commit(project)
    code, _, err = check(project)
    assert code == 2 and says in err and not (project / "dist").exists()


def test_uncommitted_changes_and_a_tag_that_exists_are_refused_in_a_line_each(project: Path) -> None:
    git(project, "tag", "v1.2.3")
    (project / "new.py").write_text("")
    code, _, err = check(project)
    assert code == 2 and len(err.splitlines()) == 2
    assert "uncommitted changes" in err and "the tag v1.2.3 exists" in err


def test_a_release_without_the_page_of_the_inspector_is_refused(project: Path) -> None:
    shutil.rmtree(project / "components")
    code, _, err = check(project)
    assert code == 2 and len(err.splitlines()) == 1 and "make inspector" in err
