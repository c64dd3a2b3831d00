"""The index of the inspector: interrupted, damaged and growing sources."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from episodes import make_episode, night_of, turn, write_night

from ratchet.components.core import DataError
from ratchet.components.inspector import index as module
from ratchet.components.inspector.index import InspectorIndex, SourceFile, read_record, source_files
from ratchet.components.trajectories.shards import MANIFEST


@pytest.fixture
def night(tmp_path: Path) -> Path:
    return write_night(tmp_path / "night", night_of(10, 4), shard=20)


def open_index(tmp_path: Path) -> InspectorIndex:
    return InspectorIndex(tmp_path / "index" / "index.sqlite")


def indexed(index: InspectorIndex) -> list[str]:
    return [row[0] for row in index.rows("SELECT episode_id FROM episodes ORDER BY key")]


def update(index: InspectorIndex, folder: Path, **options) -> None:
    index.update(source_files(folder, "night")[0], **options)


def test_every_record_is_found_and_read_at_its_offset(tmp_path: Path, night: Path) -> None:
    index = open_index(tmp_path)
    update(index, night)
    expected = night_of(10, 4)
    assert indexed(index) == [episode.episode_id for episode in expected]
    for episode in expected:
        location = index.locate(episode.episode_id)
        assert location is not None and read_record(location, episode.episode_id) == episode


@pytest.mark.parametrize("batches", range(1, 6))
def test_an_interrupted_update_goes_on_where_it_was(
    tmp_path: Path, night: Path, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 4_000)
    left = iter(range(batches))

    def stop() -> None:
        if next(left, None) is None:
            raise InterruptedError

    index = open_index(tmp_path)
    with pytest.raises(InterruptedError):
        update(index, night, on_batch=stop)
    assert 0 < len(indexed(index)) < 40
    index.close()
    again = open_index(tmp_path)
    update(again, night)
    assert indexed(again) == [episode.episode_id for episode in night_of(10, 4)]
    assert len(again.search("repair")) == 40


@pytest.mark.slow
def test_a_killed_process_loses_and_repeats_no_record(tmp_path: Path, night: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ratchet.components.inspector import index as m; m.BATCH_BYTES = 1500\n"
        "i = m.InspectorIndex(Path(sys.argv[1])); print('open', flush=True); i.update(m.source_files(Path(sys.argv[2]), 'n')[0])"
    )
    path = tmp_path / "index" / "index.sqlite"
    for delay in (0.0, 0.002, 0.01, 0.03):
        child = subprocess.Popen([sys.executable, "-c", script, str(path), str(night)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    index = InspectorIndex(path)
    update(index, night)
    assert indexed(index) == [episode.episode_id for episode in night_of(10, 4)]


def test_a_damaged_line_is_shown_and_the_rest_is_readable(tmp_path: Path, night: Path) -> None:
    shard = night / "shard-00000.jsonl"
    lines = shard.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:50] + b"\xff\xfe" + lines[3][52:]
    shard.write_bytes(b"".join(lines))
    index = open_index(tmp_path)
    update(index, night)
    broken = night_of(10, 4)[3].episode_id
    assert len(indexed(index)) == 40
    assert index.rows("SELECT episode_id FROM episodes WHERE damaged IS NOT NULL") == [(broken,)]
    location = index.locate(broken)
    assert location is not None
    with pytest.raises(DataError):
        read_record(location, broken)
    assert "differs from the hash" in index.rows("SELECT damage FROM files WHERE damage IS NOT NULL")[0][0]


def test_a_changed_record_is_marked_and_still_readable(tmp_path: Path, night: Path) -> None:
    shard = night / "shard-00000.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"did read_file", b"did read_FILE", 1))
    index = open_index(tmp_path)
    update(index, night)
    location = index.locate(night_of(10, 4)[0].episode_id)
    assert location is not None and location.damaged is not None and "content_hash" in location.damaged
    assert read_record(location, night_of(10, 4)[0].episode_id).turns[0].results[0].content == "did read_FILE"


def test_records_that_a_cut_or_absent_shard_lacks_are_listed(tmp_path: Path, night: Path) -> None:
    (night / "shard-00001.jsonl").unlink()
    shard = night / "shard-00000.jsonl"
    shard.write_bytes(b"".join(shard.read_bytes().splitlines(keepends=True)[:15]))
    index = open_index(tmp_path)
    update(index, night)
    assert len(set(indexed(index))) == 40
    assert index.rows("SELECT count(*) FROM episodes WHERE damaged IS NULL") == [(15,)]


def test_shards_of_a_damaged_manifest_are_still_read(tmp_path: Path, night: Path) -> None:
    (night / MANIFEST).write_bytes(b"{broken\n")
    files, damage = source_files(night, "night")
    index = open_index(tmp_path)
    index.update(files)
    assert damage is not None and len(indexed(index)) == 40


def test_a_running_journal_is_followed_and_a_torn_line_waits(tmp_path: Path) -> None:
    episodes = night_of(3, 1)
    lines = [
        msgspec.json.encode({"episode_id": each.episode_id, "trajectory": each, "tokens": [], "branches": []}) + b"\n"
        for each in episodes
    ]
    journal = tmp_path / "spool" / "journal-00000.jsonl"
    journal.parent.mkdir()
    index = open_index(tmp_path)
    counts = []
    for data in (lines[0], lines[0] + lines[1][:40], lines[0] + lines[1], b"".join(lines)):
        journal.write_bytes(data)
        update(index, journal.parent)
        counts.append(len(indexed(index)))
    assert counts == [1, 1, 2, 3]
    location = index.locate(episodes[2].episode_id)
    assert location is not None and read_record(location, episodes[2].episode_id) == episodes[2]


def test_records_move_from_the_spool_to_the_sealed_night(tmp_path: Path, night: Path) -> None:
    index = open_index(tmp_path)
    update(index, night)
    sealed = night.rename(tmp_path / "sealed")
    update(index, sealed)
    assert len(indexed(index)) == 40
    location = index.locate(indexed(index)[0])
    assert location is not None and location.path.parent == sealed


def test_a_damaged_index_is_built_again(tmp_path: Path, night: Path) -> None:
    index = open_index(tmp_path)
    update(index, night)
    index.close()
    index.path.write_bytes(b"x" * 5_000)
    again = open_index(tmp_path)
    update(again, night)
    assert len(indexed(again)) == 40


def test_a_replaced_file_is_indexed_anew(tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    index = open_index(tmp_path)
    for version in ("a", "b"):
        log.write_bytes(msgspec.json.Encoder().encode_lines([make_episode(version=version)]))
        index.update([SourceFile(log, "runs")])
    assert index.rows("SELECT policy_version FROM episodes") == [("b",)]


def test_a_file_that_is_written_anew_with_the_same_beginning_is_no_file_that_grew(tmp_path: Path) -> None:
    log, index = tmp_path / "runs.jsonl", open_index(tmp_path)
    for text in ("first", "other", "a longer one than before"):
        line = msgspec.json.encode(make_episode(turns=(turn(0, "bash", command=text),)))
        log.write_bytes(line[:1] + b" " * 300 + line[1:] + b"\n")
        index.update([SourceFile(log, "runs")])
        (id,) = indexed(index)
        assert read_record(index.locate(id), id).turns[0].calls[0].arguments == {"command": text}


def test_what_was_removed_does_not_fill_the_index_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WASTED_KEYS", 20)
    log, index = tmp_path / "runs.jsonl", open_index(tmp_path)
    for version in range(30):
        records = [make_episode(f"repair/train-{number:04d}", version=f"v{version}") for number in range(10)]
        log.write_bytes(msgspec.json.Encoder().encode_lines(records))
        index.update([SourceFile(log, "runs")])
        assert len(indexed(index)) == len(index.search("repair")[-10:]) == 10
        assert index.rows("SELECT count(*) FROM words_docsize")[0][0] <= 60
    assert index.rows("SELECT DISTINCT policy_version FROM episodes") == [("v29",)]


@pytest.mark.parametrize("query", ["错误", "生错", "abc错", "文件", '"不存在"', "エラー", "müller", "Straße"])
def test_words_are_found_in_texts_without_spaces(tmp_path: Path, query: str) -> None:
    text = "发生错误了：文件不存在 abc错误 接続エラー Müller Straße"
    (tmp_path / "log.jsonl").write_bytes(
        msgspec.json.encode(make_episode(turns=(turn(0, "bash", command=text),))) + b"\n"
    )
    index = open_index(tmp_path)
    index.update([SourceFile(tmp_path / "log.jsonl", "log")])
    assert len(index.search(query)) == 1 and len(index.search("误错")) == 0


@pytest.mark.parametrize("query", ['"', 'a" OR "b', "NEAR(", "*", "text:x", "-", "repair AND", "\0", "^", "(", '""'])
def test_no_word_of_a_search_is_an_operator(tmp_path: Path, night: Path, query: str) -> None:
    index = open_index(tmp_path)
    update(index, night)
    index.search(query)


def test_all_words_of_a_search_must_occur_and_the_last_may_be_a_beginning(tmp_path: Path, night: Path) -> None:
    index = open_index(tmp_path)
    update(index, night)
    good = index.search("edit_file goo").tolist()
    assert len(good) == sum(bool(each.outcome.success) for each in night_of(10, 4))
    assert index.search('"return good"').tolist() == good and index.search('"good return"').tolist() == []


def test_two_servers_index_each_record_once_and_see_what_the_other_wrote(tmp_path: Path, night: Path) -> None:
    one, other = open_index(tmp_path), open_index(tmp_path)
    seen: list[tuple[int, int]] = []

    def other_meanwhile() -> None:
        update(other, night)
        seen.append(other.state())

    update(one, night, on_batch=other_meanwhile)
    update(other, night)
    assert len(indexed(other)) == 40
    assert other.state() != seen[0]


def test_a_failed_transaction_leaves_the_index_usable(
    tmp_path: Path, night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = open_index(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(OverflowError):
        patch.setattr(index, "_insert", lambda number, row, text: index._connection.execute("SELECT ?", (2**70,)))
        update(index, night)
    update(index, night)
    assert len(indexed(index)) == 40


def test_a_number_of_more_than_64_bits_is_unknown_and_its_record_stays(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(msgspec.json.encode(msgspec.structs.replace(night_of(1, 1)[0], attempt=2**63 - 1)) + b"\n")
    log.write_bytes(log.read_bytes().replace(b"9223372036854775807", b"9" * 30))
    index = open_index(tmp_path)
    index.update([SourceFile(log, "log")])
    assert index.rows("SELECT attempt, damaged FROM episodes") == [(None, None)]


def test_a_shard_that_is_removed_after_it_was_indexed_is_damaged_until_it_is_back(tmp_path: Path, night: Path) -> None:
    index = open_index(tmp_path)
    update(index, night)
    shard = next(night.glob("shard-*.jsonl"))
    shard.rename(tmp_path / "away")
    damaged = "SELECT count(*) FROM episodes WHERE damaged IS NOT NULL"
    for _ in range(2):
        update(index, night)
        assert index.rows(damaged) == [(20,)] and len(indexed(index)) == 40
    (tmp_path / "away").rename(shard)
    update(index, night)
    assert index.rows(damaged) == [(0,)] and len(indexed(index)) == 40


def test_a_word_with_a_sign_in_it_is_a_phrase(tmp_path: Path, night: Path) -> None:
    index = open_index(tmp_path)
    update(index, night)
    assert len(index.search("main.py")) == len(index.search('"main py"')) == 40
    assert len(index.search("py.main")) == 0 < len(index.search("py main"))


@pytest.mark.parametrize("query", ["return", '"return good"'])
def test_a_search_that_is_abandoned_ends_and_begins_no_slower_one(
    tmp_path: Path, night: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROGRESS_STEPS", 1)
    index = open_index(tmp_path)
    update(index, night)
    statements: list[str] = []
    index._reader.set_trace_callback(statements.append)
    with pytest.raises(sqlite3.OperationalError):
        index.search(query, lambda: True)
    assert not [statement for statement in statements if "phrases MATCH" in statement]
    assert len(index.search(query)) > 0
