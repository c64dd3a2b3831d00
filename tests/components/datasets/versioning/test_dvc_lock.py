"""DVC's hashes, computed without DVC. The figures of the folder were made by `dvc add` (3.67)."""

import hashlib
import json
from pathlib import Path

import pytest

from ratchet.components.core import DataError
from ratchet.components.datasets.versioning.dvc_lock import (
    cached_scores,
    dvc_md5,
    lock_outputs,
    read_lock,
    read_pointer,
)


def test_a_file_has_the_md5_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 1_000_000)
    assert dvc_md5(path) == hashlib.md5(path.read_bytes()).hexdigest()


def test_a_folder_has_the_hash_that_dvc_gives_it(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("ho\n")
    assert dvc_md5(tmp_path) == "eddaa661023b94220f519a1c8d431279.dir"


def test_a_name_or_a_byte_changes_a_folders_hash(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/x").write_text("ho\n")
    first = dvc_md5(tmp_path)
    (tmp_path / "sub/x").rename(tmp_path / "sub/y")
    second = dvc_md5(tmp_path)
    (tmp_path / "sub/y").write_text("hi\n")
    assert len({first, second, dvc_md5(tmp_path)}) == 3


def test_what_is_absent_has_no_hash(tmp_path: Path) -> None:
    assert dvc_md5(tmp_path / "absent") is None
    assert lock_outputs(read_lock(tmp_path / "dvc.lock")) == {}


def test_a_pointer_names_the_path_beside_it(tmp_path: Path) -> None:
    pointer = tmp_path / "n1.dvc"
    pointer.write_text("outs:\n- md5: abc.dir\n  size: 1\n  path: n1\n")
    assert read_pointer(pointer) == (tmp_path / "n1", "abc.dir")


@pytest.mark.parametrize(
    "text", [b"", b"outs: []", b"outs: 3", b"[1]", b"\xff\xfe", b"<<<<\na: 1\n", b"outs:\n- path: n1\n"]
)
def test_a_pointer_that_cannot_be_read_is_one_line(tmp_path: Path, text: bytes) -> None:
    pointer = tmp_path / "n1.dvc"
    pointer.write_bytes(text)
    with pytest.raises(DataError, match=r"n1\.dvc .*restore it from a night's tag") as caught:
        read_pointer(pointer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["../n1", "/etc", "n2", "."])
def test_a_pointer_points_to_nothing_else(tmp_path: Path, path: str) -> None:
    pointer = tmp_path / "n1.dvc"
    pointer.write_text(f"outs:\n- md5: abc.dir\n  path: {path}\n")
    with pytest.raises(DataError, match="points to '"):
        read_pointer(pointer)


@pytest.mark.parametrize("text", [b"[1]", b"\xff\xfe", b"<<<<<<< ours\na: 1\n", b"stages: 3\n", b"lock\n"])
def test_a_lock_that_cannot_be_read_is_one_line(tmp_path: Path, text: bytes) -> None:
    lock = tmp_path / "dvc.lock"
    lock.write_bytes(text)
    with pytest.raises(DataError, match=r"dvc\.lock .*remove it: built outputs are in the cache") as caught:
        read_lock(lock)
    assert "\n" not in str(caught.value)


class TestScoresThatABuildNeedNotRepeat:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        """A project whose lock records the scores of the nights n1 and n2; n2 is here as a pointer alone."""
        for name in ("code/a.py", "data/rollouts/n1/shard.jsonl"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        (tmp_path / "data/rollouts/n2.dvc").write_text("outs:\n- md5: abc.dir\n  size: 1\n  path: n2\n")
        (tmp_path / "params.yaml").write_text("score: {gamma: 1.0}\nrank: {}\n")
        hashes = {"code": dvc_md5(tmp_path / "code"), "data/rollouts/n1": dvc_md5(tmp_path / "data/rollouts/n1")}
        stages = {"code": {"deps": [{"path": "code", "md5": hashes["code"]}]}}
        for night, md5 in (("n1", hashes["data/rollouts/n1"]), ("n2", "abc.dir")):
            stages[f"score@{night}"] = {
                "deps": [{"path": f"data/rollouts/{night}", "md5": md5}],
                "params": {"params.yaml": {"score": {"gamma": 1.0}}},
            }
        (tmp_path / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
        return tmp_path

    def test_are_those_of_nights_in_the_lock_also_where_only_their_pointer_is_here(self, project: Path) -> None:
        assert cached_scores(["n1", "n2", "n3"], project) == ["n1", "n2"]

    def test_are_none_after_a_change_of_the_code_or_the_settings(self, project: Path) -> None:
        (project / "params.yaml").write_text("score: {gamma: 0.9}\n")
        assert cached_scores(["n1", "n2"], project) == []
        (project / "params.yaml").write_text("score: {gamma: 1.0}\n")
        (project / "code/a.py").write_text("changed")
        assert cached_scores(["n1", "n2"], project) == []

    def test_are_not_those_of_a_night_with_other_bytes(self, project: Path) -> None:
        (project / "data/rollouts/n1/shard.jsonl").write_text("other")
        assert cached_scores(["n1", "n2"], project) == ["n2"]

    def test_are_none_before_the_first_build(self, tmp_path: Path) -> None:
        assert cached_scores(["n1"], tmp_path) == []
