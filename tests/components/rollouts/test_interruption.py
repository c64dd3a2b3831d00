"""Whatever ends a collection, what was finished is there, each identity once, and the same command goes on."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import collect_slowly
import msgspec
import pytest
import tiny
from patience import LIMIT

from ratchet.components.rollouts.collection import collect
from ratchet.components.trajectories.shards import read_folder, read_manifest

ROOT = Path(__file__).parents[3]
TASKS, EPISODES = 20, 80


@pytest.fixture
def taskset(tmp_path):
    return tiny.write_taskset(tmp_path / "tasks", TASKS)


def start(taskset, folder, seconds=0.1, closing=0.0):
    return subprocess.Popen(
        [sys.executable, collect_slowly.__file__, taskset, str(folder), str(seconds), str(closing)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def wait_until(process, done):
    """Until so many episodes have been told of."""
    for line in process.stdout:
        if int(line) >= done:
            return
    raise AssertionError(process.stderr.read())


def journaled(folder):
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("journal-*.jsonl"))


def kept(folder):
    return journaled(folder) + sum(entry.episodes for entry in read_manifest(folder))


def assert_complete(taskset, folder, played_before):
    assert collect(collect_slowly.plan(taskset), folder).replayed == EPISODES - played_before
    identities = [each.episode_id for each in read_folder(folder)]
    assert len(identities) == len(set(identities)) == EPISODES
    assert not list(folder.glob("journal-*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_one_line_everything_saved_and_nothing_open(taskset, tmp_path, number):
    process = start(taskset, tmp_path / "out")
    wait_until(process, 30)
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    (line,) = err.splitlines()
    said = re.fullmatch(
        r"error: interrupted; (\d+) of 80 episodes are saved, and the same command goes on from there; 0 environments open",
        line,
    )
    assert said and int(said.group(1)) == kept(tmp_path / "out") >= 30
    assert_complete(taskset, tmp_path / "out", kept(tmp_path / "out"))


@pytest.mark.slow
def test_a_second_signal_ends_at_once_and_loses_nothing(taskset, tmp_path):
    process = start(taskset, tmp_path / "out", 0.02, LIMIT)
    wait_until(process, 3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "it waits for environments that do not close"
    while process.poll() is None:  # two that come before the first was seen are one
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "ended at once" in err and "Traceback" not in err
    assert_complete(taskset, tmp_path / "out", kept(tmp_path / "out"))


@pytest.mark.slow
def test_a_kill_loses_the_running_episodes_alone(taskset, tmp_path):
    process = start(taskset, tmp_path / "out")
    wait_until(process, 30)
    process.kill()
    process.communicate(timeout=LIMIT)
    found = kept(tmp_path / "out")
    assert found >= 30
    assert_complete(taskset, tmp_path / "out", found)


def interrupted_at(make_plan, folder, done, monkeypatch):
    """A collection that was ended when so many were done: its journal stays."""
    gate = threading.Event()
    tiny.Tiny.on_reset = lambda task_id, steps: gate.wait(LIMIT) if len(tiny.Tiny.resets) > done else None

    class Ended(BaseException):
        pass

    def end(progress):
        if progress.done >= done:
            raise Ended

    monkeypatch.setattr("ratchet.components.rollouts.collection.REPORT_SECONDS", 0.0)
    with pytest.raises(Ended):
        collect(make_plan(cohort_size=12, concurrency=1), folder, on_progress=end)
    tiny.Tiny.forget()
    gate.set()
    return folder / "journal-00000.jsonl"


@pytest.mark.parametrize("torn", [b"", b'{"episode_id":"ep', b'not json\n{"episode_id"'])
def test_a_torn_last_line_is_dropped_and_its_episode_played_again(make_plan, tmp_path, monkeypatch, torn):
    """Defect 35: a half-written last line was lost for good."""
    journal = interrupted_at(make_plan, tmp_path / "out", 6, monkeypatch)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:4]) + lines[4][:-20] + (b"\n" + torn if torn else b""))
    assert collect(make_plan(cohort_size=12), tmp_path / "out").replayed == 8
    assert len({each.episode_id for each in read_folder(tmp_path / "out")}) == 12


def test_an_identity_that_stands_twice_in_a_journal_counts_once(make_plan, tmp_path, monkeypatch):
    journal = interrupted_at(make_plan, tmp_path / "out", 6, monkeypatch)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], lines[0], lines[3]]))
    report = collect(make_plan(cohort_size=12), tmp_path / "out")
    assert (report.episodes, report.replayed) == (12, 7)
    assert len(list(read_folder(tmp_path / "out"))) == 12


def test_a_journal_whose_shard_was_written_already_is_removed_unread(make_plan, tmp_path, monkeypatch):
    journal = interrupted_at(make_plan, tmp_path / "out", 6, monkeypatch)
    content = journal.read_bytes()
    collect(make_plan(cohort_size=12), tmp_path / "out")
    journal.write_bytes(content)
    report = collect(make_plan(cohort_size=12), tmp_path / "out")
    assert (report.episodes, report.replayed) == (12, 0) and not journal.exists()


def test_a_complete_journal_becomes_its_shard_without_playing(make_plan, tmp_path):
    collect(make_plan(cohort_size=12), tmp_path / "out")
    folder = tmp_path / "out"
    shard = folder / "shard-00000.jsonl"
    rows = [
        b'{"episode_id":"'
        + msgspec.json.decode(line)["episode_id"].encode()
        + b'","trajectory":'
        + line
        + b',"tokens":[]}\n'
        for line in shard.read_bytes().splitlines()
    ]
    wanted = shard.read_bytes()
    (folder / "manifest.jsonl").unlink()
    shard.unlink()
    (folder / "journal-00000.jsonl").write_bytes(b"".join(reversed(rows)))
    assert collect(make_plan(cohort_size=12), folder).replayed == 0
    assert shard.read_bytes() == wanted and len(read_manifest(folder)) == 1


def test_a_full_disk_ends_with_what_was_written_before_kept(make_plan, tmp_path, monkeypatch):
    honest, written = os.write, []

    def full(file, data):
        if data.startswith(b'{"episode_id"'):
            written.append(file)
            if len(written) == 6:
                return honest(file, data[:40])
        return honest(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space left"):
        collect(make_plan(cohort_size=12, concurrency=1), tmp_path / "out")
    monkeypatch.setattr(os, "write", honest)
    assert collect(make_plan(cohort_size=12), tmp_path / "out").replayed <= 7
    assert len({each.episode_id for each in read_folder(tmp_path / "out")}) == 12
