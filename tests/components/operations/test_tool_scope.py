"""What the tools of `ratchet mcp` may read and write, and what they refuse with one line."""

import os

import pytest

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import credential
from ratchet.components.operations.tool_scope import ToolScope


@pytest.fixture
def scope(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "project" / "home"))
    credential("mcp")
    root = tmp_path / "project" / "runs"
    (root / "inner").mkdir(parents=True)
    (root / "log.jsonl").write_text("{}\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("not to be read")
    return ToolScope.of("write", [root])


def refused(action, *arguments, **options):
    with pytest.raises(ConfigurationError) as caught:
        action(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_of_the_home_and_of_named_folders_are_read(scope):
    assert scope.readable(str(scope.roots[0] / "log.jsonl")) == scope.roots[0] / "log.jsonl"
    assert scope.readable(str(scope.roots[0] / "inner" / ".." / "log.jsonl")).name == "log.jsonl"
    (scope.home / "evaluations").mkdir()
    assert scope.readable(str(scope.home / "evaluations")).is_dir()


def test_a_relative_path_is_one_of_the_working_directory(scope, monkeypatch):
    monkeypatch.chdir(scope.roots[0])
    assert scope.readable("log.jsonl") == scope.roots[0] / "log.jsonl"


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret/file", "/", "~/.ssh", "/proc/self/environ", "/dev/zero"])
def test_a_path_outside_is_refused(scope, path, monkeypatch):
    monkeypatch.chdir(scope.roots[0])
    message = refused(scope.readable, path)
    assert "outside the folders" in message or "no file or folder" in message


def test_a_link_that_leads_outside_is_refused(scope, tmp_path):
    (scope.roots[0] / "link").symlink_to(tmp_path / "secret" / "file")
    (scope.roots[0] / "folder").symlink_to(tmp_path / "secret")
    assert "outside" in refused(scope.readable, str(scope.roots[0] / "link"))
    assert "outside" in refused(scope.readable, str(scope.roots[0] / "folder" / "file"))
    assert "links to a place" in refused(scope.readable, str(scope.roots[0]))


def test_a_link_deep_in_a_folder_is_refused_and_one_that_stays_inside_is_not(scope, tmp_path):
    (scope.roots[0] / "inner" / "near").symlink_to(scope.roots[0] / "log.jsonl")
    assert scope.readable(str(scope.roots[0]))
    (scope.roots[0] / "inner" / "far").symlink_to(tmp_path / "secret")
    assert "inner/far" in refused(scope.readable, str(scope.roots[0]))


def test_names_that_no_file_system_takes_are_refused(scope):
    loop = scope.roots[0] / "loop"
    loop.symlink_to(loop)
    os.mkfifo(scope.roots[0] / "pipe")
    for path in ("a\0b", "x" * 5000, str(loop), str(scope.roots[0] / "pipe"), str(scope.roots[0] / "absent"), ""):
        refused(scope.readable, path)


def test_the_credentials_of_the_home_are_never_read(scope, tmp_path):
    wide = ToolScope.of("run", [tmp_path])
    for path in (scope.home / "credentials", scope.home / "credentials" / "mcp"):
        assert "outside" in refused(scope.readable, str(path))
        assert "outside" in refused(wide.readable, str(path))
    for path in (scope.home, scope.home.parent, tmp_path):
        assert "credentials" in refused(wide.readable, str(path))


def test_a_new_path_below_a_named_folder_or_mcp_in_the_home_is_written(scope):
    assert scope.writable(str(scope.roots[0] / "new" / "out.jsonl")).parent.is_dir()
    assert scope.writable(str(scope.home / "mcp" / "out"))


def test_nothing_is_overwritten_and_the_state_of_the_home_is_not_written(scope, tmp_path):
    wide = ToolScope.of("run", [tmp_path])
    (scope.roots[0] / "folder").symlink_to(tmp_path / "secret")
    assert "exists" in refused(scope.writable, str(scope.roots[0] / "log.jsonl"))
    assert "exists" in refused(scope.writable, str(scope.roots[0] / "inner"))
    assert "hidden" in refused(scope.writable, str(scope.roots[0] / ".git" / "hooks" / "post-commit"))
    for path in (scope.roots[0], scope.home / "nights" / "x", tmp_path / "x", scope.roots[0] / "folder" / "x"):
        assert "outside" in refused(scope.writable, str(path))
    for path in (scope.home / "nights" / "x", scope.home / "credentials" / "x"):
        assert "outside" in refused(wide.writable, str(path))


def test_only_a_folder_that_holds_a_collection_is_continued(scope):
    folder = scope.roots[0] / "inner"
    (folder / "notes.txt").write_text("mine")
    for path in (folder, folder / "notes.txt"):
        assert "exists" in refused(scope.writable, str(path), resumed=True)
    (folder / "plan.txt").write_text("a hash")
    assert scope.writable(str(folder), resumed=True) == folder


def test_a_name_is_no_option_of_git_and_no_way_out(scope, monkeypatch):
    monkeypatch.chdir(scope.roots[0])
    for name in ("2026-11-21-a1b2/champion", "@champion", "sft/train/17", "agent/3", "repair"):
        assert scope.name(name) == name
    for name in ("--upload-pack=x", "-n", "../secret", "a/../b", "/etc/passwd", "a b", "a\nb", "$(id)", "~root"):
        refused(scope.name, name)
    assert scope.name("log.jsonl") == str(scope.roots[0] / "log.jsonl")


def test_a_level_includes_those_before_it(scope):
    assert scope.allows("read") and scope.allows("write") and not scope.allows("run")
    assert "--allow run" in refused(scope.require, "run", "create_sandbox")


def test_a_named_folder_must_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    assert "--root" in refused(ToolScope.of, "read", [tmp_path / "absent"])
