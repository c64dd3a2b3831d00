"""`kill -9` in the middle of an ingest, at random moments: nothing lost, nothing twice. At each effect: test_index_rebuild.py."""

import multiprocessing
import os
import random
import signal
import time

import msgspec
import pytest
from episodes import night_of

from ratchet.components.interop.log_ingest import LogIngest
from ratchet.components.trajectories.shards import read_manifest
from ratchet.components.trajectories.store import store_writer
from ratchet.components.trajectories.store.store_maintenance import check_store
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter

KILLS = 15
SEED = 20261121


def ingest_all(root, log, batch):
    """What a process does until somebody kills it: small segments, so that everything happens often."""
    store_writer.SEGMENT_EPISODES = store_writer.BATCH_RECORDS = batch
    with StoreWriter(root, raw=True) as writer:
        for report in LogIngest(writer).once([log]):
            assert not report.error, report.error
    os._exit(0)


@pytest.mark.slow
def test_kills_lose_nothing_and_double_nothing(tmp_path, monkeypatch):
    draw = random.Random(SEED)
    monkeypatch.setattr("ratchet.components.interop.log_files.PART_BYTES", 40_000)
    night = night_of(400, 3)
    lines = [msgspec.json.encode(each) + b"\n" for each in night]
    fork = multiprocessing.get_context("fork")
    killed = stores = 0
    while killed < KILLS:
        stores += 1
        root, log = tmp_path / f"store-{stores}", tmp_path / f"log-{stores}.jsonl"
        log.write_bytes(b"".join(lines))
        finished = False
        while not finished:
            child = fork.Process(target=ingest_all, args=(root, log, draw.choice((3, 7, 20))))
            child.start()
            time.sleep(draw.uniform(0.001, 0.08))
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            finished = child.exitcode == 0
            assert finished or child.exitcode == -signal.SIGKILL
            killed += not finished
            if (root / "store.json").exists() and draw.random() < 0.2:
                _is_a_beginning(root, night)
            if killed >= KILLS:
                break
        with StoreWriter(root, raw=True) as writer:
            reports = list(LogIngest(writer).once([log]))
        assert not any(each.error or each.tally.conflicts or each.rejected for each in reports)
        _is_all(root, night)
    assert killed >= KILLS


def _is_a_beginning(root, night):
    """What a reader sees between two kills: the first records of the log, in order, each once."""
    store = TrajectoryStore(root)
    found = [each.episode_id for each in store.read()]
    assert found == [each.episode_id for each in night[: len(found)]]
    store.close()


def _is_all(root, night):
    store = TrajectoryStore(root)
    assert list(store.read()) == night
    assert store.count() == store.count(EpisodeQuery()) == len(night)
    assert check_store(store).faults == []
    listed = [identity for entry in read_manifest(root / "shards") for identity in entry.episode_ids]
    assert len(listed) == len(set(listed)), "no record was written twice"
    store.close()
