"""Killed between any two effects, with a lost or damaged index, on a full disk: nothing is lost, nothing is there twice."""

import errno
import os
import sqlite3
import threading

import pytest
from episodes import make_episode, night_of

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.trajectories.shards import MANIFEST, read_folder, read_manifest
from ratchet.components.trajectories.store.episode_index import EpisodeIndex
from ratchet.components.trajectories.store.index_rebuild import index_files
from ratchet.components.trajectories.store.store_files import SegmentFolder
from ratchet.components.trajectories.store.store_maintenance import check_store, remove_garbage
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter


class Killed(BaseException):
    """Stands for a kill: no handler of ours catches it."""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def small(monkeypatch):
    """Segments of four."""
    for name in ("SEGMENT_EPISODES", "BATCH_RECORDS"):
        monkeypatch.setattr(f"ratchet.components.trajectories.store.store_writer.{name}", 4)


def put(root, records, **options):
    with StoreWriter(root, raw=True) as writer:
        return writer.put(records, **options)


def whole(root, expected):
    """The store holds just this, and every byte of it is right."""
    with StoreWriter(root, raw=True):
        pass
    store = TrajectoryStore(root)
    assert [each.episode_id for each in store.read()] == [each.episode_id for each in expected]
    assert list(store.read()) == list(expected)
    assert check_store(store).faults == []


def killing(monkeypatch, where, name, nth):
    """The nth call is the last thing that happens."""
    real = getattr(where, name)
    calls = []

    def call(*values, **options):
        calls.append(name)
        if len(calls) == nth:
            raise Killed
        return real(*values, **options)

    monkeypatch.setattr(where, name, call)
    return calls


@pytest.mark.parametrize(
    ("where", "name", "calls"),
    [
        (os, "fsync", 8),
        pytest.param(os, "write", 5, marks=pytest.mark.long),
        pytest.param(EpisodeIndex, "upsert", 3, marks=pytest.mark.long),
        pytest.param(EpisodeIndex, "set_cursors", 3, marks=pytest.mark.long),
        (SegmentFolder, "seal", 2),
    ],
)
def test_a_kill_at_any_effect_loses_nothing_and_doubles_nothing(tmp_path, small, monkeypatch, where, name, calls):
    night = night_of(5, 2)
    for nth in range(1, calls + 1):
        root = tmp_path / f"store-{nth}"
        put(root, night[:1])
        with monkeypatch.context() as patch:
            killing(patch, where, name, nth)
            writer = StoreWriter(root, raw=True)
            try:
                writer.__enter__()
                writer.put(night)
            except Killed:
                pass
            finally:
                writer._lock.release()  # as the kernel does
        kept = [each.episode_id for each in TrajectoryStore(root).read()]
        assert kept == [each.episode_id for each in night[: len(kept)]], "what a reader sees now is a beginning"
        assert len(kept) in (1, 4, 8, 10), "whole batches alone"
        put(root, night)
        whole(root, night)


def test_records_that_were_cut_are_not_there_at_all(root):
    put(root, night_of(6, 1))
    segment = root / "shards" / "shard-00000.jsonl"
    data = segment.read_bytes()
    for cut in range(1, len(data), 2777):
        segment.write_bytes(data[:cut])
        for path in root.glob("index-*"):
            path.unlink()
        lines = data[:cut].count(b"\n")
        whole(root, night_of(6, 1)[:lines])
        assert segment.read_bytes() == b"".join(data.splitlines(keepends=True)[:lines])


def test_a_store_of_format_1_is_converted_when_it_is_opened(root, small):
    night = night_of(5, 2)
    put(root, night)
    (root / "shards" / "shard-00002.jsonl").rename(root / "shards" / "open-00002.jsonl")
    (root / "store.json").write_bytes(b'{"raw":true,"format":1}\n')
    assert list(TrajectoryStore(root).read()) == night
    assert TrajectoryStore(root).marker.format == 2
    whole(root, night)


def test_half_a_line_of_the_manifest_is_written_again(root, small):
    put(root, night_of(5, 2))
    manifest = root / "shards" / MANIFEST
    lines = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(lines[0] + lines[1][:40])
    whole(root, night_of(5, 2))
    assert list(read_folder(root / "shards")) == night_of(5, 2)[:8]


def test_a_full_segment_that_is_not_listed_yet_is_taken_in(root, small):
    put(root, night_of(5, 2))
    manifest = root / "shards" / MANIFEST
    entries = read_manifest(root / "shards")
    manifest.unlink()
    whole(root, night_of(5, 2))
    assert read_manifest(root / "shards") == entries


def test_a_sidecar_without_its_shard_is_no_part_of_the_next(root, small):
    put(root, night_of(1, 1))
    (root / "shards" / "tokens-00001.parquet").write_bytes(b"left by a kill")
    put(root, night_of(9, 1))
    assert [entry.tokens for entry in read_manifest(root / "shards")] == [None, None]


class TestIndex:
    def test_a_lost_index_is_made_again_by_a_reader(self, root, small):
        night = night_of(5, 2)
        put(root, night)
        for path in root.glob("index-*"):
            path.unlink()
        store = TrajectoryStore(root)
        assert list(store.read(EpisodeQuery(success=True))) == [each for each in night if each.outcome.success]
        assert check_store(store).faults == []

    @pytest.mark.parametrize("damage", ["empty", "text", "middle", "cut", "version", "no table"])
    def test_a_damaged_index_is_made_again(self, root, damage):
        night = night_of(20, 2)
        put(root, night)
        (path,) = index_files(TrajectoryStore(root).layout)
        data = path.read_bytes()
        if damage == "empty":
            path.write_bytes(b"")
        elif damage == "text":
            path.write_bytes(b"not a database at all " * 1000)
        elif damage == "middle":
            path.write_bytes(data[:4096] + os.urandom(len(data) - 4096))
        elif damage == "cut":
            path.write_bytes(data[: len(data) // 2])
        else:
            connection = sqlite3.connect(path)
            connection.execute("PRAGMA user_version = 99" if damage == "version" else "DROP TABLE episodes")
            connection.commit()
            connection.close()
        assert list(TrajectoryStore(root).read()) == night
        put(root, night)
        whole(root, night)

    def test_a_writer_in_the_middle_of_its_work_makes_it_again_too(self, root, small):
        night = night_of(30, 2)
        with StoreWriter(root, raw=True) as writer:
            writer.put(night[:31])
            writer._index.close()
            writer._index = None
            (path,) = index_files(writer.layout)
            path.write_bytes(b"damaged" * 1000)
            writer.put(night)
        whole(root, night)

    def test_readers_keep_their_answers_while_the_index_is_made_again(self, root, small):
        night = night_of(6, 2)
        put(root, night)
        store = TrajectoryStore(root)
        assert store.count() == 12
        with StoreWriter(root, raw=True) as writer:
            writer.rebuild()
            assert store.count() == 12
            writer.put([make_episode("repair/train-0900")])
        assert store.count() == 13, "it has gone over to the new one"
        assert len(index_files(store.layout)) == 1

    def test_an_index_that_is_behind_catches_up(self, root):
        """As after a power cut, which an index may not have survived to its last batch."""
        put(root, night_of(2, 1))
        (path,) = index_files(TrajectoryStore(root).layout)
        before = path.read_bytes()
        put(root, night_of(5, 1))
        path.write_bytes(before)
        for beside in ("-wal", "-shm"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
        whole(root, night_of(5, 1))

    def test_an_index_that_knows_more_than_there_is_is_made_again(self, root, small):
        put(root, night_of(4, 2))
        (root / "shards" / "shard-00001.jsonl").unlink()
        whole(root, night_of(4, 2)[:4])
        put(root, night_of(4, 2))
        whole(root, night_of(4, 2))


class TestFullDisk:
    def failing(self, monkeypatch, name, nth=1, written=10):
        real, calls = getattr(os, name), []

        def call(file, *values):
            calls.append(name)
            if len(calls) < nth:
                return real(file, *values)
            if name == "write" and written and len(calls) == nth:
                return real(file, values[0][:written])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, name, call)

    @pytest.mark.parametrize("name", ["write", "fsync"])
    def test_a_batch_that_does_not_fit_is_not_there_and_the_rest_is(self, root, monkeypatch, name):
        night = night_of(6, 1)
        with StoreWriter(root, raw=True) as writer:
            writer.put(night[:2])
            with monkeypatch.context() as patch:
                self.failing(patch, name)
                with pytest.raises(InfrastructureError, match="free space and give the same command again") as caught:
                    writer.put(night)
            assert "\n" not in str(caught.value)
            assert list(writer.read()) == night[:2]
            writer.put(night)
            assert list(writer.read()) == night, "with space again the same writer goes on"
        whole(root, night)

    def test_an_index_that_does_not_fit_takes_the_batch_back(self, root, monkeypatch):
        night = night_of(6, 1)
        with StoreWriter(root, raw=True) as writer:
            writer.put(night[:2])
            size = (root / "shards" / "shard-00000.jsonl").stat().st_size
            with monkeypatch.context() as patch:
                patch.setattr(
                    EpisodeIndex, "upsert", lambda *_: (_ for _ in ()).throw(InfrastructureError("index is full"))
                )
                with pytest.raises(InfrastructureError):
                    writer.put(night)
            assert (root / "shards" / "shard-00000.jsonl").stat().st_size == size
            writer.put(night)
        whole(root, night)

    def test_sqlite_that_finds_the_disk_full_says_so_in_one_line(self, root):
        night = night_of(40, 5)
        with StoreWriter(root, raw=True) as writer:
            writer.put(night[:1])
            writer._index.execute("PRAGMA max_page_count = 1")
            with pytest.raises(InfrastructureError, match="database or disk is full; free space"):
                writer.put(night)
        put(root, night)
        whole(root, night)

    def test_a_segment_that_cannot_be_sealed_stays_open(self, root, small, monkeypatch):
        night = night_of(6, 1)
        with StoreWriter(root, raw=True) as writer:
            writer.put(night[:3])
            with monkeypatch.context() as patch:
                self.failing(patch, "write", nth=2, written=5)
                with pytest.raises(InfrastructureError, match=r"manifest\.jsonl cannot be written"):
                    writer.put(night)
            assert (root / "shards" / MANIFEST).read_bytes() == b""
            writer.put(night)
        whole(root, night)


class TestReaders:
    @pytest.mark.slow
    def test_readers_see_whole_batches_and_wait_for_nobody(self, root, small):
        """A reader asks all the while that a writer writes batches of four."""
        night = night_of(60, 4)
        put(root, night[:4])
        seen, faults, done = [], [], threading.Event()

        def read():
            store = TrajectoryStore(root)
            while not done.is_set():
                found = [each.episode_id for each in store.read()]
                if found != [each.episode_id for each in night[: len(found)]]:
                    faults.append(found)
                seen.append(len(found))
            store.close()

        readers = [threading.Thread(target=read) for _ in range(2)]
        for each in readers:
            each.start()
        with StoreWriter(root, raw=True) as writer:
            for start in range(4, len(night), 4):
                writer.put(night[start : start + 4])
        done.set()
        for each in readers:
            each.join()
        assert not faults
        assert all(each % 4 == 0 for each in seen) and len(set(seen)) > 3

    def test_readers_go_on_while_gc_moves_what_they_read(self, root, small):
        night = night_of(15, 2)
        put(root, night)
        faults, done = [], threading.Event()
        kept = [each.episode_id for n, each in enumerate(night) if n % 5]

        def read():
            store = TrajectoryStore(root)
            while not done.is_set():
                found = {each.episode_id for each in store.read()}
                if not found >= set(kept):
                    faults.append(sorted(set(kept) - found))
            store.close()

        reader = threading.Thread(target=read)
        reader.start()
        with StoreWriter(root, raw=True) as writer:
            for n in range(0, 30, 5):
                writer.remove([night[n].episode_id])
                remove_garbage(writer, removed=True)
        done.set()
        reader.join()
        assert not faults
        assert sorted(each.episode_id for each in TrajectoryStore(root).read()) == sorted(kept)
        assert check_store(TrajectoryStore(root)).faults == []

    def test_a_reader_without_an_index_says_who_the_writer_is(self, root, monkeypatch):
        monkeypatch.setattr("ratchet.components.trajectories.store.store_reader.WRITER_WAIT", 0.1)
        put(root, night_of(2, 1))
        with StoreWriter(root, raw=True) as writer:
            for path in root.glob("index-*"):
                path.unlink()
            store = TrajectoryStore(root)
            with pytest.raises(ConfigurationError, match="is being written by process"):
                store.count()
            assert writer.count() == 2, "the writer makes it again"
            assert store.count() == 2
