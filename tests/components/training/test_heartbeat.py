"""A job says that it lives, what it does and since when it has not moved; whoever watches it ends one that stands still."""

import time
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from patience import until
from training_jobs import make_job

from ratchet.components.training.heartbeat import HEARTBEAT_FILE, Heartbeat, HeartbeatState, read_heartbeat
from ratchet.components.training.job_process import stalled_seconds
from ratchet.components.training.trainer_callbacks import HeartbeatCallback

pytestmark = pytest.mark.slow


class State:
    global_step = 7


def test_the_heartbeat_is_written_periodically_and_records_progress(tmp_path):
    with Heartbeat(tmp_path, 0.01) as heartbeat:
        until(lambda: read_heartbeat(tmp_path) is not None)
        first = read_heartbeat(tmp_path)
        assert (first.phase, first.step) == ("starting", 0)
        until(lambda: read_heartbeat(tmp_path).at > first.at)
        assert read_heartbeat(tmp_path).moved == first.moved, "a beat alone is no movement"
        HeartbeatCallback(heartbeat).on_step_end(None, State, None)
        until(lambda: read_heartbeat(tmp_path).step == 7)
        assert read_heartbeat(tmp_path).moved > first.moved and read_heartbeat(tmp_path).phase == "training"
        heartbeat.phase("writing the checkpoint")
        until(lambda: read_heartbeat(tmp_path).phase == "writing the checkpoint")
    assert list(tmp_path.iterdir()) == []


def test_a_step_of_the_systems_clock_is_no_stall(tmp_path, monkeypatch):
    with Heartbeat(tmp_path, 0.01):
        until(lambda: read_heartbeat(tmp_path) is not None)
        monkeypatch.setattr("time.time", lambda: 0.0)
        first = read_heartbeat(tmp_path)
        until(lambda: read_heartbeat(tmp_path).at > first.at)
        job = make_job("sft", output=tmp_path, train="t", run={"stalled_after": 60})
        assert stalled_seconds(read_heartbeat(tmp_path), job, time.monotonic()) is None


def test_a_full_disk_does_not_stop_the_heartbeat(tmp_path):
    with Heartbeat(tmp_path / "later", 0.01):
        time.sleep(0.05)
        assert read_heartbeat(tmp_path / "later") is None
        (tmp_path / "later").mkdir()
        until(lambda: read_heartbeat(tmp_path / "later") is not None)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_beat_that_fails_as_it_is_renamed_leaves_no_file_and_the_next_one_is_written(tmp_path, monkeypatch, error):
    renamed = []

    def fail_once(self, target, rename=Path.replace):
        renamed.append(target)
        if len(renamed) == 1:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", fail_once)
    with Heartbeat(tmp_path, 0.01):
        until(lambda: read_heartbeat(tmp_path) is not None)
    assert renamed and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_truncated_heartbeat_file_is_ignored(tmp_path, content):
    (tmp_path / HEARTBEAT_FILE).write_bytes(content)
    assert read_heartbeat(tmp_path) is None


@pytest.mark.parametrize(
    ("at", "moved", "now", "limit", "still"),
    [
        (100, 99, 101, 50, None),
        (100, 10, 101, 50, 90),
        (100, 99, 300, 50, 200),
        (100, 99, 140, 50, None),
        (100, 99, 170, 5, None),
        (100, 10, 400, None, None),
    ],
    ids=["moves", "beats and does nothing", "does not even beat", "a little late", "a busy machine", "may stand still"],
)
def test_a_stalled_job_is_distinguished_from_a_slow_one(at, moved, now, limit, still):
    job = make_job("sft", output="o", train="t", stalled_after=limit, heartbeat_seconds=10)
    assert stalled_seconds(HeartbeatState(at, moved, "training"), job, now) == still
