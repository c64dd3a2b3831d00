"""A clone that was moved or copied sets its environment up again, and never runs the code of another clone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.cli import other_clone_error

PYTHON = """#!/bin/sh
# Stands for Python: `-m venv FOLDER` makes an environment of scripts that know where they stand.
if [ "$1" = -m ]; then
    mkdir -p "$3/bin"
    for name in python pip uv; do
        printf "#!/bin/sh\\necho %s >>log\\n" "$name of $PWD" >"$3/bin/$name"
        chmod +x "$3/bin/$name"
    done
fi
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with a space in its path, set up by a Python that installs nothing."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(name, clone / name)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    assert "of" in set_up(clone)
    return clone


def set_up(clone: Path) -> str:
    """What `make setup` says; the log of what it ran is emptied first."""
    (clone / "log").write_text("")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["PWD"] = str(clone)  # as a shell sets it, links included
    command = ["make", "setup", f"PYTHON={clone.parent / 'python'}"]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + (clone / "log").read_text()


def test_a_clone_that_stands_where_it_was_set_up_has_nothing_to_do(clone: Path) -> None:
    assert "uv of" not in set_up(clone)


def test_a_moved_clone_is_set_up_again(clone: Path) -> None:
    moved = clone.rename(clone.with_name("moved"))
    said = set_up(moved)
    assert f"this clone was moved or copied from {clone}" in said and f"uv of {moved}" in said
    assert "uv of" not in set_up(moved)


def test_a_clone_that_is_reached_through_a_link_has_not_moved(clone: Path) -> None:
    link = clone.with_name("link")
    link.symlink_to(clone)
    assert "uv of" not in set_up(link)
    (clone / "constraints.txt").touch()
    said = set_up(link)
    assert "uv of" in said and "moved or copied" not in said
    assert "uv of" not in set_up(clone)


def test_a_copied_clone_is_set_up_again_and_the_original_is_not(clone: Path) -> None:
    copy = Path(shutil.copytree(clone, clone.with_name("copy"), symlinks=True))
    said = set_up(copy)
    assert f"uv of {copy}" in said and f"uv of {clone}" not in said
    assert "uv of" not in set_up(clone)


def test_a_clone_that_an_older_makefile_set_up_keeps_its_environment(clone: Path) -> None:
    (clone / ".venv/.set-up").write_text("")
    (clone / ".venv/mine").write_text("")
    said = set_up(clone)
    assert "moved or copied" not in said and "uv of" in said and (clone / ".venv/mine").exists()


def test_the_command_refuses_to_run_the_code_of_another_clone(tmp_path: Path) -> None:
    here = Path.cwd()
    other = tmp_path / "other"
    (other / "ratchet").mkdir(parents=True)
    (other / "data").mkdir()
    for name in ("dvc.yaml", "ratchet/cli.py"):
        shutil.copy(name, other / name)
    assert (
        other_clone_error(here) is None
        and other_clone_error(here / "docs") is None
        and other_clone_error(tmp_path) is None
    )
    for folder in (other, other / "data"):
        line = other_clone_error(folder)
        assert line is not None and str(other) in line and str(here) in line and "make setup" in line


@pytest.mark.slow
@pytest.mark.parametrize("words", [["tasks", "list"], ["compare", "--help"]])
def test_the_console_script_says_so_in_one_line_and_shows_its_help(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "ratchet").mkdir()
    for name in ("dvc.yaml", "ratchet/cli.py"):
        shutil.copy(name, tmp_path / name)
    code = f"import sys; sys.argv = {['ratchet', *words]}; from ratchet.cli import main; main()"
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); {code}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "--help" in words:
        assert done.returncode == 0 and "Usage: ratchet compare" in done.stdout
        return
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "make setup" in done.stderr
