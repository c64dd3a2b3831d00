import errno
import os

import pytest
from open_files import open_files

from ratchet.components.core import SandboxFileError, SandboxUnavailable
from ratchet.components.sandboxes.workspace_paths import read_file_in, relative_path, write_file_in


@pytest.mark.parametrize(
    ("path", "relative"),
    [("a", "a"), ("./a//b/", "a/b"), ("a/../b", "b"), ("/workspace/a", "a"), ("/workspace", "."), ("a/..", ".")],
)
def test_a_path_is_taken_relative_to_the_workspace(path, relative):
    assert relative_path(path, "/workspace") == relative


@pytest.mark.parametrize(
    "path", ["", "..", "../a", "a/../../b", "/", "/workspace/../etc", "/workspacex", "a\0", "\udcff"]
)
def test_a_path_that_leads_out_is_refused(path):
    with pytest.raises(SandboxFileError):
        relative_path(path, "/workspace")


def test_a_full_disk_is_no_fault_of_the_caller(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(SandboxUnavailable, match="No space left"):
        write_file_in(tmp_path, "file", b"content")


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    write_file_in(tmp_path, "a/b/c", b"content")
    for _ in range(5):
        assert read_file_in(tmp_path, "a/b/c") == b"content"
        for path in ("folder", "link", "absent/x", "a/b/c/d", "."):
            with pytest.raises(SandboxFileError):
                read_file_in(tmp_path, path)
    assert open_files(tmp_path) == []
