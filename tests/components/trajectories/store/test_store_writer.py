"""What is put is there, once, by identity; nothing that is there is ever overwritten."""

import fcntl
import os
import subprocess
import sys

import msgspec
import pytest
from episodes import make_episode

from ratchet.components.core import ConfigurationError, DataError, TokenTrace
from ratchet.components.redaction import RedactionPolicy
from ratchet.components.trajectories.blobs import blob_name
from ratchet.components.trajectories.shards import read_folder, read_manifest
from ratchet.components.trajectories.store.record_admission import PutCounts
from ratchet.components.trajectories.store.store_export import store_stats
from ratchet.components.trajectories.store.store_maintenance import check_store
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.token_sidecar import TurnTokens, encode_tokens
from ratchet.components.trajectories.trajectory import Message, content_hash, with_content_hash


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def night_of(tasks, attempts):
    """Episodes of which no two have the same content."""
    numbers = [(task, attempt) for task in range(tasks) for attempt in range(attempts)]
    return [make_episode(f"repair/train-{task:04d}", attempt, edit=f"return {attempt}") for task, attempt in numbers]


def put(root, records, **options):
    with StoreWriter(root, raw=True) as writer:
        return writer.put(records, **options)


def everything(root):
    return list(TrajectoryStore(root).read())


class TestPut:
    def test_what_was_put_comes_back_in_its_order(self, root):
        night = night_of(7, 3)
        assert put(root, night) == PutCounts(added=21)
        assert everything(root) == night
        assert TrajectoryStore(root).get(night[4].episode_id) == night[4]

    def test_the_same_record_again_is_nothing_new(self, root):
        night = night_of(4, 2)
        put(root, night)
        before = (root / "shards" / "shard-00000.jsonl").read_bytes()
        assert put(root, night) == PutCounts(same=8)
        assert (root / "shards" / "shard-00000.jsonl").read_bytes() == before

    def test_a_record_that_differs_in_timing_alone_is_the_same(self, root):
        first = make_episode()
        turns = (msgspec.structs.replace(first.turns[0], seconds=3.5), *first.turns[1:])
        put(root, [first])
        assert put(root, [msgspec.structs.replace(first, turns=turns)]) == PutCounts(same=1)
        assert everything(root) == [first]

    def test_another_content_under_an_identity_is_a_conflict_and_both_are_kept(self, root):
        first, other = make_episode(success=True), make_episode(success=False)
        assert first.episode_id == other.episode_id
        put(root, [first])
        assert put(root, [other], log_name="second.log") == PutCounts(conflicts=1)
        assert everything(root) == [first], "the first is not overwritten"
        (found,) = TrajectoryStore(root).conflicts.entries()
        assert (found.record, found.where, found.episode_id) == (other, "second.log", first.episode_id)
        assert put(root, [other]) == PutCounts(conflicts=1)
        assert len(TrajectoryStore(root).conflicts) == 1, "the same conflict is set aside once"

    def test_a_content_hash_that_lies_hides_no_conflict(self, root):
        first = make_episode(success=True)
        other = msgspec.structs.replace(make_episode(success=False), content_hash=first.content_hash)
        put(root, [first])
        assert put(root, [other]) == PutCounts(conflicts=1)

    def test_an_identity_twice_in_one_call_is_compared_too(self, root):
        first, other = make_episode(success=True), make_episode(success=False)
        assert put(root, [first, first, other]) == PutCounts(added=1, same=1, conflicts=1)

    def test_duplicates_by_content_are_kept_and_counted(self, root):
        first = make_episode()
        twins = [msgspec.structs.replace(first, episode_id=f"ep-twin{n}") for n in range(3)]
        assert put(root, [first, twins[0]]) == PutCounts(added=2, duplicates=1)
        assert put(root, twins) == PutCounts(added=2, same=1, duplicates=2)
        store = TrajectoryStore(root)
        assert store_stats(store).same_content == 3
        assert store.count(EpisodeQuery(content_hash=first.content_hash)) == 4

    def test_defect_30_a_success_and_a_failure_of_the_same_steps_are_two(self, root):
        won = make_episode(edit="same")
        lost = with_content_hash(
            msgspec.structs.replace(
                won, episode_id="ep-lost", outcome=msgspec.structs.replace(won.outcome, success=False)
            )
        )
        elsewhere = make_episode("repair/train-0002", edit="same")
        assert put(root, [won, lost, elsewhere]) == PutCounts(added=3), "none is the duplicate of another"
        assert len({each.content_hash for each in everything(root)}) == 3
        assert [TrajectoryStore(root).count(EpisodeQuery(success=each)) for each in (True, False)] == [2, 1]

    def test_a_record_without_a_content_hash_gets_its_own(self, root):
        put(root, [msgspec.structs.replace(make_episode(), content_hash="")])
        (found,) = everything(root)
        assert found.content_hash == content_hash(found) == make_episode().content_hash

    def test_what_cannot_be_json_is_named(self, root):
        broken = make_episode(source_extra={"what": object()})
        with pytest.raises(DataError, match=f"episode {broken.episode_id} cannot be written as JSON"):
            put(root, [make_episode("repair/train-0002"), broken])

    def test_an_unknown_episode_is_a_data_error(self, root):
        put(root, [make_episode()])
        with pytest.raises(DataError, match="has no episode 'ep-absent'"):
            TrajectoryStore(root).get("ep-absent")


class TestSegments:
    def test_a_full_segment_is_sealed_in_the_format_of_shards(self, root, monkeypatch):
        for name in ("SEGMENT_EPISODES", "BATCH_RECORDS"):
            monkeypatch.setattr(f"ratchet.components.trajectories.store.store_writer.{name}", 4)
        night = night_of(5, 2)
        put(root, night)
        assert [each.episodes for each in read_manifest(root / "shards")] == [4, 4]
        assert list(read_folder(root / "shards")) == night[:8], "any reader of shards reads it, hashes checked"
        assert (root / "shards" / "shard-00002.jsonl").exists()
        assert everything(root) == night

    def test_a_sealed_segment_is_never_written_again(self, root, monkeypatch):
        for name in ("SEGMENT_EPISODES", "BATCH_RECORDS"):
            monkeypatch.setattr(f"ratchet.components.trajectories.store.store_writer.{name}", 4)
        put(root, night_of(2, 2))
        before = (root / "shards" / "shard-00000.jsonl").read_bytes()
        put(root, night_of(4, 2))
        assert (root / "shards" / "shard-00000.jsonl").read_bytes() == before

    def test_a_large_segment_is_sealed_before_it_has_all_its_records(self, root, monkeypatch):
        monkeypatch.setattr("ratchet.components.trajectories.store.store_writer.SEGMENT_BYTES", 3_000)
        for each in night_of(4, 1):
            put(root, [each])
        assert len(read_manifest(root / "shards")) >= 1
        assert everything(root) == night_of(4, 1)

    def test_a_batch_costs_one_fsync(self, root, monkeypatch):
        synced = []
        real = os.fsync
        with StoreWriter(root, raw=True) as writer:
            writer.put(night_of(1, 1))
            monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), real(file))[1])
            writer.put(night_of(20, 5))
        assert len(synced) == 1


class TestTokens:
    def tokens_of(self, records):
        rows = [TurnTokens(each.episode_id, 0, TokenTrace((1, 2), (3,), (-0.5,), 0)) for each in records]
        return encode_tokens(rows, tokenizer_hash="tok", template_hash="tem")

    def test_a_sidecar_stays_with_its_records(self, root):
        night = night_of(3, 2)
        put(root, [make_episode("repair/train-0900")])
        put(root, night, tokens=self.tokens_of(night))
        store = TrajectoryStore(root)
        (found,) = store.tokens(night[2].episode_id)
        assert found.trace == TokenTrace((1, 2), (3,), (-0.5,), 0)
        assert store.tokens(make_episode("repair/train-0900").episode_id) == []
        entry = read_manifest(root / "shards")[1]
        assert (entry.episodes, entry.tokens) == (6, "tokens-00001.parquet")

    def test_of_a_sidecar_only_rows_of_new_records_are_kept(self, root):
        night = night_of(3, 2)
        put(root, night[:2])
        assert put(root, night, tokens=self.tokens_of(night)) == PutCounts(added=4, same=2)
        assert [len(TrajectoryStore(root).tokens(each.episode_id)) for each in night] == [0, 0, 1, 1, 1, 1]

    def test_an_identity_twice_in_one_shard_is_refused(self, root):
        night = [make_episode(), make_episode()]
        with pytest.raises(DataError, match="stands twice in one shard"):
            put(root, night, tokens=self.tokens_of(night))

    def test_a_sidecar_that_is_none_is_refused_and_nothing_stays(self, root):
        with pytest.raises(DataError, match="token ids cannot be read"):
            put(root, night_of(2, 1), tokens=b"PAR1")
        assert everything(root) == []


class TestBlobs:
    def test_a_blob_is_named_by_its_content_and_kept_once(self, root):
        with StoreWriter(root, raw=True) as writer:
            name = writer.blobs.put(b"\x89PNG")
            assert name == blob_name(b"\x89PNG") == writer.blobs.put(b"\x89PNG")
        assert TrajectoryStore(root).blob(name).read_bytes() == b"\x89PNG"

    def test_a_blob_that_is_absent_is_a_data_error(self, root):
        put(root, [make_episode()])
        with pytest.raises(DataError, match="has no blob"):
            TrajectoryStore(root).blob("../../etc/passwd")

    def test_the_blobs_of_an_episode_are_known(self, root):
        with StoreWriter(root, raw=True) as writer:
            name = writer.blobs.put(b"image")
            writer.put([make_episode(messages=(Message("user", "look", (name,)),))])
        assert store_stats(TrajectoryStore(root)).blobs == 1


class TestWriters:
    def test_a_second_writer_is_told_who_holds_the_store(self, root):
        with (
            StoreWriter(root, raw=True),
            pytest.raises(ConfigurationError, match=rf"process {os.getpid()} .* since ") as caught,
        ):
            StoreWriter(root, raw=True).__enter__()
        assert "\n" not in str(caught.value)
        put(root, [make_episode()])

    def test_a_writer_that_was_killed_leaves_no_lock(self, root):
        script = (
            "import os, signal, sys; from ratchet.components.trajectories.store.store_writer import StoreWriter\n"
            "StoreWriter(sys.argv[1], raw=True).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
        )
        done = subprocess.run([sys.executable, "-c", script, str(root)], check=False)
        assert done.returncode == -9
        assert put(root, [make_episode()]) == PutCounts(added=1)

    def test_the_lock_is_given_back_where_the_start_fails(self, root):
        put(root, [make_episode()])
        with pytest.raises(ConfigurationError, match="holds raw records"):
            StoreWriter(root).__enter__()
        file = os.open(root / "lock", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(file)

    def test_a_folder_that_holds_something_else_is_not_made_a_store(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(ConfigurationError, match="holds other files"):
            StoreWriter(tmp_path, raw=True).__enter__()
        assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]

    def test_where_no_store_is_reading_says_how_one_begins(self, tmp_path):
        with pytest.raises(DataError, match="is no store; `ratchet store add"):
            TrajectoryStore(tmp_path)

    def test_a_newer_format_asks_for_an_upgrade(self, root):
        put(root, [make_episode()])
        (root / "store.json").write_bytes(b'{"raw": true, "format": 99}')
        with pytest.raises(DataError, match="format 99, newer than 2; upgrade Ratchet"):
            TrajectoryStore(root)


class TestRemoval:
    def test_a_removed_episode_is_hidden_and_kept_out(self, root):
        night = night_of(2, 2)
        put(root, night)
        with StoreWriter(root, raw=True) as writer:
            assert writer.remove([night[1].episode_id]) == 1
        assert everything(root) == [night[0], *night[2:]]
        assert put(root, night) == PutCounts(same=3, removed=1)
        with StoreWriter(root, raw=True) as writer:
            assert writer.remove([night[1].episode_id]) == 0

    def test_an_unknown_episode_removes_nothing(self, root):
        night = night_of(2, 1)
        put(root, night)
        with StoreWriter(root, raw=True) as writer, pytest.raises(DataError, match="nothing was removed"):
            writer.remove([night[0].episode_id, "ep-absent"])
        assert everything(root) == night


SECRET = "gh" + "p_" + "x7Kq2mPf9LwZt4VbN8sRc3YhJd6GaE1uTo5Q"


def told():
    """Two episodes, of which the second gives a secret away."""
    return [make_episode(), make_episode("repair/train-0002", edit=f"token = '{SECRET}'")]


def holding(root):
    return [path for path in root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


class TestSanitised:
    def test_nothing_is_stored_that_the_sanitiser_has_not_seen(self, root):
        with StoreWriter(root) as writer:
            tally = writer.put(told())
            assert (tally.added, tally.found) == (2, 1)
            assert writer.put(told()).same == 2, "the same log gives the same clean record"
            kept = writer.get(told()[1].episode_id)
        assert holding(root) == []
        assert kept.content_hash == content_hash(kept) and check_store(TrajectoryStore(root)).faults == []

    def test_a_conflict_is_set_aside_clean(self, root):
        with StoreWriter(root) as writer:
            writer.put(told())
            other = make_episode("repair/train-0002", edit=f"key = '{SECRET}'")
            assert writer.put([other]).conflicts == 1
        assert holding(root) == []

    def test_the_policy_may_drop(self, root):
        with StoreWriter(root, policy=RedactionPolicy.parse("drop")) as writer:
            tally = writer.put(told())
            assert (tally.added, tally.dropped) == (1, 1)
            assert list(writer.read()) == told()[:1]

    def test_the_policy_may_refuse(self, root):
        with StoreWriter(root, policy=RedactionPolicy.parse("fail")) as writer:
            with pytest.raises(DataError, match="the policy is to fail") as caught:
                writer.put(told())
            assert SECRET not in str(caught.value)
        assert holding(root) == []

    def test_token_ids_that_spell_a_secret_are_left_out(self, root):
        records = told()
        rows = [TurnTokens(each.episode_id, 0, TokenTrace((1,), (2,), (-0.5,), 0)) for each in records]
        with StoreWriter(root) as writer:
            tally = writer.put(records, tokens=encode_tokens(rows, tokenizer_hash="t", template_hash="c"))
            assert tally.tokens_dropped == 1
            assert [len(writer.tokens(each.episode_id)) for each in records] == [1, 0]

    def test_a_blob_of_text_is_clean_and_an_image_as_it_was(self, root):
        with StoreWriter(root) as writer:
            text, image = writer.blobs.put(f"token: {SECRET}".encode()), writer.blobs.put(b"\x89PNG\xff\xfe")
            assert SECRET not in writer.blob(text).read_text() and writer.blob(image).read_bytes() == b"\x89PNG\xff\xfe"
            assert blob_name(writer.blob(text).read_bytes()) == text
