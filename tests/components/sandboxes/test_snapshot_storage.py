import os
import tempfile

import pytest
from open_files import open_files

from ratchet.components.core import SandboxFileError, SandboxUnavailable
from ratchet.components.sandboxes.snapshot_storage import MAX_MEMORY_BYTES, SandboxSnapshots, StoredArchive


def test_archives_come_back_from_memory_and_from_disk_more_than_once():
    contents = [os.urandom(size) for size in (0, 400, MAX_MEMORY_BYTES, 3_000_000, 1)]
    archives = [StoredArchive(each) for each in contents]
    for _ in range(2):
        assert [b"".join(each) for each in archives] == contents
    assert [each.size for each in archives] == [len(each) for each in contents]
    for each in archives:
        each.release()
        each.release()


def test_a_large_archive_is_in_a_file_and_its_descriptor_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    archive = StoredArchive(b"x" * (MAX_MEMORY_BYTES + 1))
    assert len(open_files(tmp_path)) == 1
    archive.release()
    assert open_files(tmp_path) == []


def test_a_full_disk_makes_the_sandbox_unavailable(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(SandboxUnavailable):
        StoredArchive(b"x" * (MAX_MEMORY_BYTES + 1))


def test_a_snapshot_is_found_by_its_id_until_it_is_released():
    snapshots = SandboxSnapshots()
    first, second = snapshots.add(b"one"), snapshots.add(b"two")
    assert b"".join(snapshots.find(first)) == b"one"
    snapshots.release()
    for gone in (first, second, "never"):
        with pytest.raises(SandboxFileError):
            snapshots.find(gone)
