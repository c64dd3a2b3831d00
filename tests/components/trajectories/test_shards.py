"""Shards: whole or not at all, each fault in one line, and nothing lost by a kill.

Whether a shard is what its manifest says; each lie in one line that names the record.
"""

import hashlib
import json
import os

import msgspec
import pytest

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.files import write_atomically
from ratchet.components.trajectories import shards
from ratchet.components.trajectories.shards import (
    MANIFEST,
    ShardEntry,
    check_entries,
    check_link,
    check_listed,
    check_repeated_keys,
    has_valid_hash,
    is_canonical,
    join_first,
    read_folder,
    read_jsonl,
    read_manifest,
    record_differences,
    seal_folder,
    write_shard,
)


@pytest.fixture
def folder(tmp_path, episode):
    folder = tmp_path / "spool" / "night-1"
    folder.mkdir(parents=True)
    write_shard(folder, 0, [episode(0), episode(1)])
    write_shard(folder, 1, [episode(2)], tokens=b"PAR1")
    return folder


def refusal(folder, kind=DataError, **options):
    with pytest.raises(kind) as caught:
        list(read_folder(folder, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestShards:
    def test_what_is_written_is_read_in_order(self, folder, episode):
        assert list(read_folder(folder)) == [episode(0), episode(1), episode(2)]

    def test_the_manifest_tells_of_every_finished_shard(self, folder, episode):
        first, second = read_manifest(folder)
        data = (folder / first.shard).read_bytes()
        assert (first.shard, first.episodes, first.sha256) == ("shard-00000.jsonl", 2, hashlib.sha256(data).hexdigest())
        assert first.episode_ids == (episode(0).episode_id, episode(1).episode_id) and first.tokens is None
        assert second.tokens == "tokens-00001.parquet"
        assert second.tokens_sha256 == hashlib.sha256(b"PAR1").hexdigest()
        assert (folder / second.tokens).read_bytes() == b"PAR1"

    def test_shards_may_finish_in_any_order(self, tmp_path, episode):
        for index in (2, 0, 1):
            write_shard(tmp_path, index, [episode(index)])
        assert [each.attempt for each in read_folder(tmp_path)] == [0, 1, 2]

    def test_the_same_episodes_give_the_same_bytes(self, tmp_path, episode):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            write_shard(tmp_path / name, 0, [episode(0)])
        for file in ("shard-00000.jsonl", MANIFEST):
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()

    def test_a_finished_shard_is_never_rewritten(self, folder, episode):
        before = (folder / "shard-00000.jsonl").read_bytes()
        with pytest.raises(DataError, match="never rewritten"):
            write_shard(folder, 0, [episode(9)])
        assert (folder / "shard-00000.jsonl").read_bytes() == before

    def test_a_folder_without_shards_says_so(self, tmp_path):
        assert read_manifest(tmp_path) == []
        assert "no finished shards" in refusal(tmp_path)
        (tmp_path / "store.json").write_text("{}")
        assert f"ratchet store export --store {tmp_path}" in refusal(tmp_path)


class TestFaults:
    def test_a_truncated_last_line_names_the_line_and_what_to_do(self, folder, episode):
        path = folder / "shard-00000.jsonl"
        path.write_bytes(path.read_bytes()[:-25])
        assert "shard-00000.jsonl, line 2: the last line is cut short; remove it or restore" in refusal(folder)
        lines = read_jsonl(path)
        assert next(lines) == episode(0), "what stands before the cut is still readable"

    def test_a_corrupted_shard_that_still_parses_is_found_by_its_hash(self, folder):
        path = folder / "shard-00000.jsonl"
        path.write_bytes(path.read_bytes().replace(b"I look.", b"I cook."))
        assert "shard-00000.jsonl differs from the hash in its manifest" in refusal(folder)
        assert len(list(read_folder(folder, verify=False))) == 3

    def test_a_corrupted_line_in_the_middle_is_named(self, folder):
        path = folder / "shard-00000.jsonl"
        first, second = path.read_bytes().splitlines()
        path.write_bytes(first[:50] + b"#" + first[51:] + b"\n" + second + b"\n")
        assert "shard-00000.jsonl, line 1" in refusal(folder)

    def test_a_newer_schema_asks_for_an_upgrade(self, folder, episode):
        newer = msgspec.to_builtins(episode()) | {"schema_version": 99, "mood": "good"}
        path = folder / "shard-00000.jsonl"
        path.write_bytes(msgspec.json.encode(newer) + b"\n")
        assert "schema_version 99 is newer than 1; upgrade Ratchet" in refusal(folder)

    def test_a_newer_schema_of_the_same_fields_is_refused_too(self, folder, episode):
        newer = msgspec.to_builtins(episode()) | {"schema_version": 99}
        path = folder / "new.jsonl"
        path.write_bytes(msgspec.json.encode(newer) + b"\n")
        with pytest.raises(DataError, match="schema_version 99 is newer than 1"):
            list(read_jsonl(path))

    @pytest.mark.parametrize(
        "line", [b"\xff\xfe{}\n", b'{"episode_id": "caf\xe9"}\n', b"[]\n", b"null\n", b"3\n", b"{}\n"]
    )
    def test_what_is_no_trajectory_or_not_utf8_is_refused_by_line(self, tmp_path, episode, line):
        path = tmp_path / "some.jsonl"
        path.write_bytes(msgspec.json.encode(episode()) + b"\n" + line)
        with pytest.raises(DataError, match=r"some\.jsonl, line 2") as caught:
            list(read_jsonl(path))
        assert "\n" not in str(caught.value)

    def test_text_that_is_not_utf8_within_a_record_is_refused(self, tmp_path, episode):
        path = tmp_path / "some.jsonl"
        path.write_bytes(msgspec.json.encode(episode()).replace(b"I look.", b"I l\xff\xfek.") + b"\n")
        with pytest.raises(DataError, match=r"some\.jsonl, line 1"):
            list(read_jsonl(path))

    def test_empty_lines_are_passed_over(self, tmp_path, episode):
        path = tmp_path / "some.jsonl"
        path.write_bytes(b"\n" + msgspec.json.encode(episode()) + b"\n\n")
        assert list(read_jsonl(path)) == [episode()]

    def test_a_shard_that_is_gone_is_named(self, folder):
        (folder / "shard-00001.jsonl").unlink()
        assert "shard-00001.jsonl is in the manifest and absent" in refusal(folder)

    def test_a_manifest_that_cannot_be_read_names_its_line(self, folder):
        with (folder / MANIFEST).open("ab") as file:
            file.write(b'{"shard": "sha')
        assert f"{MANIFEST}, line 3" in refusal(folder)

    def test_a_file_that_is_absent_is_a_data_error(self, tmp_path):
        with pytest.raises(DataError, match=r"absent\.jsonl"):
            list(read_jsonl(tmp_path / "absent.jsonl"))


class TestKills:
    """A kill between any two effects leaves what a resume can go on from."""

    def test_between_shard_and_manifest_the_shard_counts_as_never_finished(self, folder, episode, monkeypatch):
        real = shards.write_atomically

        def killed(path, data):
            if path.name == MANIFEST:
                raise KeyboardInterrupt
            real(path, data)

        monkeypatch.setattr(shards, "write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            write_shard(folder, 2, [episode(3)])
        monkeypatch.undo()
        assert (folder / "shard-00002.jsonl").exists()
        assert [each.attempt for each in read_folder(folder)] == [0, 1, 2]
        write_shard(folder, 2, [episode(3), episode(4)])
        assert [each.attempt for each in read_folder(folder)] == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("stage", ["fsync", "replace"])
    def test_before_the_rename_the_old_file_is_whole(self, tmp_path, monkeypatch, stage):
        path = tmp_path / "file"
        write_atomically(path, b"old")

        def fails(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os if stage == "fsync" else type(path), stage, fails)
        with pytest.raises(OSError, match="No space"):
            write_atomically(path, b"new")
        monkeypatch.undo()
        assert path.read_bytes() == b"old"
        assert [each.name for each in tmp_path.iterdir()] == ["file"], "no temporary file is left"

    def test_a_temporary_file_that_a_kill_left_is_not_read(self, folder):
        (folder / ".shard-00002.jsonl.77.tmp").write_bytes(b"{")
        assert len(list(read_folder(folder))) == 3


class TestSeal:
    def test_a_night_is_moved_whole(self, folder, tmp_path, episode):
        target = tmp_path / "rollouts" / "night-1"
        seal_folder(folder, target)
        assert not folder.exists()
        assert [each.attempt for each in read_folder(target)] == [0, 1, 2]

    def test_a_night_is_sealed_once(self, folder, tmp_path, episode):
        target = tmp_path / "rollouts" / "night-1"
        seal_folder(folder, target)
        before = sorted((path.name, path.read_bytes()) for path in target.iterdir())
        folder.mkdir()
        write_shard(folder, 0, [episode(9)])
        with pytest.raises(ConfigurationError, match="sealed already"):
            seal_folder(folder, target)
        assert sorted((path.name, path.read_bytes()) for path in target.iterdir()) == before
        assert folder.exists()

    def test_an_empty_spool_is_not_sealed(self, tmp_path):
        (tmp_path / "spool").mkdir()
        with pytest.raises(DataError, match="no finished shard"):
            seal_folder(tmp_path / "spool", tmp_path / "night")
        assert not (tmp_path / "night").exists()

    def test_a_move_that_fails_says_why_and_leaves_the_spool(self, folder, tmp_path, monkeypatch):
        def crosses(*_):
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(type(folder), "rename", crosses)
        with pytest.raises(InfrastructureError, match="Invalid cross-device link; keep RATCHET_HOME and data on one"):
            seal_folder(folder, tmp_path / "night")
        monkeypatch.undo()
        assert len(list(read_folder(folder))) == 3


def entry(**changes):
    return ShardEntry(
        **({"shard": "shard-00000.jsonl", "episodes": 1, "sha256": "", "episode_ids": ("ep-1",)} | changes)
    )


def integrity_error(check, *arguments):
    with pytest.raises(DataError) as caught:
        check(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestEntries:
    @pytest.mark.parametrize(
        "name", ["../a.jsonl", "/etc/passwd", "a/b.jsonl", "", ".", "..", ".hidden", "a\0b", "a\nb"]
    )
    def test_a_name_that_is_no_file_of_the_folder_is_refused(self, tmp_path, name):
        for wrong in (entry(shard=name), entry(tokens=name)):
            said = integrity_error(check_entries, tmp_path / MANIFEST, [entry(shard="other.jsonl"), wrong])
            assert f"{MANIFEST}, line 2: {name!r} is no file of this folder" in said

    def test_a_shard_may_have_any_plain_name(self, tmp_path):
        check_entries(tmp_path / MANIFEST, [entry(shard=each) for each in ("shard-00000.jsonl", "part_1-of-2.jsonl")])

    def test_a_shard_listed_twice_and_a_wrong_count_are_refused(self, tmp_path):
        assert "listed twice" in integrity_error(check_entries, tmp_path / MANIFEST, [entry(), entry()])
        assert "says 2 episodes and names 1" in integrity_error(check_entries, tmp_path / MANIFEST, [entry(episodes=2)])


class TestLinks:
    def test_a_file_and_a_link_within_the_folder_are_what_they_say(self, tmp_path):
        (tmp_path / "a").write_text("")
        (tmp_path / "b").symlink_to("a")
        check_link(tmp_path / "a")
        check_link(tmp_path / "b")

    @pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "below/a", "../files/md5/ab/short"])
    def test_a_link_out_of_the_folder_is_refused(self, tmp_path, target):
        (tmp_path / "night").mkdir()
        (tmp_path / "night/a").symlink_to(target)
        assert "is a link out of its folder" in integrity_error(check_link, tmp_path / "night/a")


class TestRecords:
    @pytest.mark.parametrize(
        ("found", "said"),
        [
            (["a"], "b is missing"),
            (["a", "b", "c"], "c is not listed"),
            (["a", "c"], "c is not listed; b is missing"),
            (["b", "a"], "an episode stands twice, or in another place"),
            (["a", "b", "b"], "an episode stands twice, or in another place"),
        ],
    )
    def test_other_records_than_the_listed_ones_are_named(self, tmp_path, found, said):
        assert said in integrity_error(check_listed, tmp_path / "shard", found, ("a", "b"))

    def test_the_records_of_a_damaged_shard_that_differ_are_told_apart(self, episode):
        same, changed, twice = episode(0), msgspec.structs.replace(episode(1), content_hash="0" * 24), episode(0)
        listed = [same.episode_id, changed.episode_id, "ep-gone"]
        assert record_differences(enumerate([same, changed, twice, episode(4)], start=1), listed) == [
            f"line 2, {changed.episode_id}, is not what its content_hash says",
            f"line 3, {same.episode_id}, stands twice",
            f"line 4, {episode(4).episode_id}, is not listed",
            "ep-gone is missing",
        ]

    def test_only_the_first_few_are_named(self):
        assert join_first(["a", "b"]) == "a; b"
        assert join_first(["a", "b", "c", "d", "e"]) == "a; b; c and 2 more"

    def test_a_record_that_cannot_be_written_is_not_sealed(self, episode):
        assert has_valid_hash(episode())
        changed = msgspec.structs.replace(episode(), source_extra={}, turns=(), messages=())
        assert not has_valid_hash(changed)


class TestKeys:
    def lines(self, *records):
        return msgspec.json.Encoder().encode_lines(list(records))

    def test_what_we_write_is_plain(self, episode):
        assert is_canonical(self.lines(episode(0), episode(1)), [episode(0), episode(1)])
        assert not is_canonical(b" " + self.lines(episode(0)), [episode(0)])

    @pytest.mark.parametrize("key", ["outcome", "success", "path", "to"])
    def test_a_key_that_stands_twice_anywhere_is_named_with_its_line(self, tmp_path, episode, key):
        line = self.lines(episode(1)).replace(f'"{key}":'.encode(), f'"{key}":null,"{key}":'.encode(), 1)
        said = integrity_error(check_repeated_keys, tmp_path / "shard", [self.lines(episode(0)), b"\n", line])
        assert f"shard, line 3: the key '{key}' stands twice in one object" in said

    def test_equal_keys_in_two_objects_and_in_texts_are_none(self, tmp_path, episode):
        text = '{"outcome": 1, "outcome": 2}'
        line = json.dumps(msgspec.to_builtins(episode()) | {"source_extra": {"outcome": text, "tools": [{}, {}]}})
        check_repeated_keys(tmp_path / "shard", [line.encode()])
