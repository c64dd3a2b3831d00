"""Verify finds every damage, gc frees what nothing names and nothing else, an export reads as what was put."""

import msgspec
import pytest
from episodes import make_episode, night_of

from ratchet.components.core import ConfigurationError, DataError, TokenTrace
from ratchet.components.trajectories.shards import read_folder, read_jsonl
from ratchet.components.trajectories.store.index_rebuild import index_files
from ratchet.components.trajectories.store.store_export import export_query, store_stats
from ratchet.components.trajectories.store.store_maintenance import check_store, remove_garbage
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.token_sidecar import TurnTokens, encode_tokens, read_tokens
from ratchet.components.trajectories.trajectory import Message


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name in ("SEGMENT_EPISODES", "BATCH_RECORDS"):
        monkeypatch.setattr(f"ratchet.components.trajectories.store.store_writer.{name}", 4)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


NIGHT = night_of(5, 2)


def tokens_of(records, tokenizer="tok"):
    rows = [TurnTokens(each.episode_id, 0, TokenTrace((1,), (n,), (-0.5,), 0)) for n, each in enumerate(records)]
    return encode_tokens(rows, tokenizer_hash=tokenizer, template_hash="tem")


@pytest.fixture
def filled(root):
    """Two sealed segments, an open one, one with tokens, and a blob that is named."""
    with StoreWriter(root, raw=True) as writer:
        writer.put(NIGHT)
        with_tokens = night_of(3, 1, version="w2")
        writer.put(with_tokens, tokens=tokens_of(with_tokens))
        blob = writer.blobs.put(b"image")
        writer.put([make_episode("repair/train-0900", messages=(Message("user", "see", (blob,)),))])
    return root


def faults(root):
    return [f"{each.where}: {each.why}" for each in check_store(TrajectoryStore(root)).faults]


class TestVerify:
    def test_a_whole_store_has_no_fault(self, filled):
        checked = check_store(TrajectoryStore(filled))
        assert (checked.segments, checked.records, checked.blobs, checked.faults) == (5, 14, 1, [])

    def test_every_flipped_byte_of_a_shard_is_found(self, filled):
        path = filled / "shards" / "shard-00001.jsonl"
        data = path.read_bytes()
        for at in range(0, len(data), len(data) // 7):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert any("shard-00001.jsonl" in each for each in faults(filled)), at
        path.write_bytes(data)
        assert not faults(filled)

    def test_each_damage_is_named(self, filled):
        shards = filled / "shards"
        for name, change, said in (
            (shards / "shard-00000.jsonl", None, "shard-00000.jsonl: is in the manifest and absent"),
            (shards / "shard-00000.jsonl", lambda data: data[:-30], "shard-00000.jsonl: differs from its hash"),
            (shards / "shard-00000.jsonl", lambda data: data + b"{}\n", "shard-00000.jsonl: differs from its hash"),
            (shards / "tokens-00003.parquet", lambda data: data[:-1], "tokens-00003.parquet: differs from its hash"),
            (shards / "tokens-00003.parquet", None, "tokens-00003.parquet: is in the manifest and absent"),
            (next((filled / "blobs").iterdir()), lambda data: b"other", "differs from its hash"),
            (next((filled / "blobs").iterdir()), None, "is absent and ep-"),
        ):
            data = name.read_bytes()
            name.unlink()
            if change is not None:
                name.write_bytes(change(data))
            assert any(said in each for each in faults(filled)), (said, faults(filled))
            name.write_bytes(data)
        assert not faults(filled)

    def test_a_record_whose_content_hash_lies_is_found(self, root):
        with StoreWriter(root, raw=True) as writer:
            writer.put([msgspec.structs.replace(make_episode(), content_hash="0" * 24)])
        assert any("its content does not fit its content_hash" in each for each in faults(root))

    @pytest.mark.parametrize(
        "sql",
        [
            "DELETE FROM episodes WHERE rowid = 3",
            "UPDATE episodes SET offset = offset + 1 WHERE rowid = 3",
            "UPDATE episodes SET content_hash = 'x' WHERE rowid = 3",
        ],
    )
    def test_an_index_that_says_something_else_is_found_and_made_again(self, filled, sql):
        with StoreWriter(filled, raw=True) as writer:
            writer.update_index(lambda index: index.execute(sql))
            assert [fault.index for fault in check_store(writer).faults] == [True]
            writer.rebuild()
            assert check_store(writer).faults == []


class TestGc:
    def test_nothing_of_a_whole_store_is_waste(self, filled):
        before = sorted(path for path in filled.rglob("*") if "index" not in path.name)
        with StoreWriter(filled, raw=True) as writer:
            assert remove_garbage(writer, removed=True) == []
        assert sorted(path for path in filled.rglob("*") if "index" not in path.name) == before

    def test_temporary_files_and_orphaned_blobs_go(self, filled):
        left = [
            filled / "shards" / ".manifest.jsonl.77.tmp",
            filled / "blobs" / ".sha256-ab.9.tmp",
            filled / ".index-2.sqlite.tmp",
        ]
        for path in left:
            path.write_bytes(b"12345")
        with StoreWriter(filled, raw=True) as writer:
            orphan = writer.blobs.put(b"nobody names me")
            dry = remove_garbage(writer, dry_run=True)
            assert all(path.exists() for path in left) and writer.blob(orphan).exists()
            assert remove_garbage(writer) == dry
            assert len(dry) == 4 and sum(each.bytes for each in dry) == 15 + len(b"nobody names me")
        assert not any(path.exists() for path in left)
        assert len(list((filled / "blobs").iterdir())) == 1
        assert not faults(filled)

    def test_removed_episodes_go_byte_for_byte_when_asked(self, filled):
        first, last = NIGHT[1], night_of(3, 1, version="w2")[0]
        with StoreWriter(filled, raw=True) as writer:
            writer.put([make_episode(NIGHT[1].task.task_id, 1, success=not NIGHT[1].outcome.success)])
            assert len(writer.conflicts) == 1
            writer.remove([first.episode_id, last.episode_id])
            assert remove_garbage(writer) == [], "not unless asked"
            dry = remove_garbage(writer, removed=True, dry_run=True)
            before = list(writer.read())
            assert remove_garbage(writer, removed=True) == dry and len(dry) == 3
            assert list(writer.read()) == before
        identity = first.episode_id.encode()
        holding = [
            path for path in filled.rglob("*.jsonl") if identity in path.read_bytes() and path.name != "removed.jsonl"
        ]
        assert holding == []
        assert not faults(filled)
        kept = {each.episode_id for each in (*NIGHT, *night_of(3, 1, version="w2"))} - {
            first.episode_id,
            last.episode_id,
        }
        assert {each.episode_id for each in read_folder(filled / "shards")} >= kept - {
            each.episode_id for each in NIGHT[8:]
        }
        assert len(TrajectoryStore(filled).tokens(night_of(3, 1, version="w2")[1].episode_id)) == 1, (
            "its tokens went with it"
        )

    @pytest.mark.parametrize("effect", ["write_atomically", "write_sealed", "seal", "update_index", "unlink"])
    def test_a_kill_within_gc_loses_nothing_and_brings_nothing_back(self, filled, monkeypatch, effect):
        class Killed(BaseException):
            pass

        def kill(*_, **__):
            raise Killed

        gone = NIGHT[1].episode_id
        before = [each for each in TrajectoryStore(filled).read() if each.episode_id != gone]
        with StoreWriter(filled, raw=True) as writer:
            writer.remove([gone])
        with monkeypatch.context() as patch, StoreWriter(filled, raw=True) as writer:
            if effect == "unlink":
                patch.setattr(type(filled), "unlink", kill)
            elif effect == "update_index":
                patch.setattr(writer, "update_index", kill)
            elif effect in ("seal", "write_sealed"):
                patch.setattr(writer.segments, effect, kill)
            else:
                patch.setattr(f"ratchet.components.trajectories.store.store_maintenance.{effect}", kill)
            with pytest.raises(Killed):
                remove_garbage(writer, removed=True)
        for rebuild in (False, True):
            with StoreWriter(filled, raw=True) as writer:
                if rebuild:
                    writer.rebuild()
                assert sorted(writer.read(), key=lambda each: each.episode_id) == sorted(
                    before, key=lambda each: each.episode_id
                )
                assert check_store(writer).faults == []
        with StoreWriter(filled, raw=True) as writer:
            remove_garbage(writer, removed=True)
            assert sorted(each.episode_id for each in writer.read()) == sorted(each.episode_id for each in before)
        assert not faults(filled)
        assert not any(gone.encode() in path.read_bytes() for path in filled.glob("shards/*.jsonl"))

    def test_an_older_index_goes(self, filled):
        (path,) = index_files(TrajectoryStore(filled).layout)
        path.with_name("index-0.sqlite").write_bytes(b"old")
        with StoreWriter(filled, raw=True) as writer:
            assert [each.path for each in remove_garbage(writer)] == ["index-0.sqlite"]


class TestExport:
    def test_json_lines_read_as_what_was_put(self, filled, tmp_path):
        out = tmp_path / "out" / "good.jsonl"
        count = export_query(TrajectoryStore(filled), EpisodeQuery(success=True), out)
        records = list(read_jsonl(out))
        assert records == list(TrajectoryStore(filled).read(EpisodeQuery(success=True))) and len(records) == count > 0
        assert all(not line.endswith(b" ") for line in out.read_bytes().splitlines())

    def test_blobs_come_along_and_go_in_again(self, filled, tmp_path):
        out = tmp_path / "one.jsonl"
        export_query(TrajectoryStore(filled), EpisodeQuery(task="repair/train-0900"), out)
        (blob,) = (tmp_path / "one.blobs").iterdir()
        assert blob.read_bytes() == b"image"

    def test_shards_read_as_a_sealed_night_with_their_token_ids(self, filled, tmp_path):
        out = tmp_path / "night"
        assert export_query(TrajectoryStore(filled), EpisodeQuery(), out, "shards") == 14
        assert list(read_folder(out)) == list(TrajectoryStore(filled).read())
        rows = [row for path in sorted(out.glob("tokens-*.parquet")) for row in read_tokens(path)]
        assert sorted(row.episode_id for row in rows) == sorted(
            each.episode_id for each in night_of(3, 1, version="w2")
        )

    def test_token_ids_of_two_tokenizers_are_not_mixed(self, filled, tmp_path):
        others = night_of(1, 1, version="w3")
        with StoreWriter(filled, raw=True) as writer:
            writer.put(others, tokens=tokens_of(others, "other"))
        with pytest.raises(DataError, match="different tokenizers"):
            export_query(TrajectoryStore(filled), EpisodeQuery(), tmp_path / "night", "shards")
        assert export_query(TrajectoryStore(filled), EpisodeQuery(policy_version="w3"), tmp_path / "w3", "shards") == 1

    def test_an_export_of_nothing_says_so_and_leaves_what_was_there(self, filled, tmp_path):
        (tmp_path / "old.jsonl").write_text("old")
        with pytest.raises(DataError, match="nothing to export"):
            export_query(TrajectoryStore(filled), EpisodeQuery(task="absent"), tmp_path / "old.jsonl")
        assert (tmp_path / "old.jsonl").read_text() == "old"

    def test_a_folder_that_holds_something_is_not_filled(self, filled, tmp_path):
        (tmp_path / "f").write_text("x")
        with pytest.raises(ConfigurationError, match="is not empty"):
            export_query(TrajectoryStore(filled), EpisodeQuery(), tmp_path, "shards")

    def test_an_unknown_format_is_refused(self, filled, tmp_path):
        with pytest.raises(ConfigurationError, match="jsonX"):
            export_query(TrajectoryStore(filled), EpisodeQuery(), tmp_path / "x", "jsonX")


def test_stats_count_what_is_there(filled):
    stats = store_stats(TrajectoryStore(filled))
    assert (stats.episodes, stats.steps, stats.shards, stats.blobs, stats.raw) == (14, 42, 5, 1, True)
    assert sum(stats.success.values()) == 14 and stats.domains == {"coding": 14}
    assert stats.bytes == sum(path.stat().st_size for path in filled.glob("shards/*-*.jsonl"))
