"""Logs go in from where they were left: half lines wait, rotation loses nothing, and a second reading adds nothing."""

import json
import shutil

import msgspec
import pytest
from episodes import make_episode, night_of, write_night
from log_files import FIXTURES, SAMPLES

from ratchet.components.core import ConfigurationError, TokenTrace
from ratchet.components.interop import log_ingest as module
from ratchet.components.interop.log_ingest import IngestTotals, LogIngest
from ratchet.components.rewards.score_table import ScoreRow, write_parquet
from ratchet.components.trajectories.shards import write_shard
from ratchet.components.trajectories.store.store_export import export_query
from ratchet.components.trajectories.store.store_maintenance import check_store
from ratchet.components.trajectories.store.store_reader import EpisodeQuery, TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.token_sidecar import TurnTokens, encode_tokens
from ratchet.components.trajectories.trajectory import Message

NIGHT = night_of(8, 2)
LINES = [msgspec.json.encode(each) + b"\n" for each in NIGHT]


@pytest.fixture
def log(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "agent.jsonl"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def look(root, *paths, **options):
    """One process that looks once, as `ratchet store add` does."""
    with StoreWriter(root, raw=True) as writer:
        return list(LogIngest(writer, **options).once(paths))


def total(reports):
    found = IngestTotals()
    for each in reports:
        found.include(each)
    return found


def ids(root):
    return [each.episode_id for each in TrajectoryStore(root).query()]


def expected(count):
    return [each.episode_id for each in NIGHT[:count]]


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


class TestLines:
    def test_a_log_is_read_once_and_then_from_where_it_was_left(self, root, log):
        log.write_bytes(b"".join(LINES[:3]))
        assert total(look(root, log)).tally.added == 3
        (again,) = look(root, log)
        assert (again.state, again.tally.added, again.tally.has_changes) == ("unchanged", 0, False)
        append(log, b"".join(LINES[3:5]))
        (grown,) = look(root, log)
        assert (grown.state, grown.tally.added, grown.tally.same) == ("grown", 2, 0), (
            "the first lines are not read again"
        )
        assert ids(root) == expected(5)

    def test_defect_35_a_half_written_last_line_waits_and_is_not_lost(self, root, log):
        log.write_bytes(LINES[0] + LINES[1][:-100])
        (first,) = look(root, log)
        assert (first.tally.added, first.rejected, first.waiting) == (1, 0, len(LINES[1]) - 100)
        assert ids(root) == expected(1)
        append(log, LINES[1][-100:] + LINES[2])
        (second,) = look(root, log)
        assert (second.tally.added, second.waiting) == (2, 0)
        assert ids(root) == expected(3) and list(TrajectoryStore(root).read()) == NIGHT[:3]

    @pytest.mark.parametrize("whose", [{"employee": "coder"}, {"agent": "coder", "outcome": {}}])
    def test_defect_35_flat_steps_are_not_empty(self, root, tmp_path, whose):
        """Steps whose tool, parameters and output stand in the step itself."""
        steps = [
            {
                "thought": f"look {n}",
                "tool_name": "bash",
                "tool_params": {"command": f"cat {n}.py"},
                "tool_output": f"text {n}",
            }
            for n in range(3)
        ]
        path = tmp_path / "flat.jsonl"
        path.write_text(
            json.dumps({"task": {"task_id": "t-1", "description": "mend it"}, "steps": steps, **whose}) + "\n"
        )
        (report,) = look(root, path)
        assert (report.tally.added, report.rejected, report.error) == (1, 0, "")
        (found,) = TrajectoryStore(root).read()
        assert [call.tool for turn in found.turns for call in turn.calls] == ["bash"] * 3
        assert [call.arguments for turn in found.turns for call in turn.calls][2] == {"command": "cat 2.py"}
        assert [result.content for turn in found.turns for result in turn.results] == ["text 0", "text 1", "text 2"]

    def test_a_log_that_is_half_a_line_waits(self, root, log):
        log.write_bytes(LINES[0][:50])
        (report,) = look(root, log)
        assert (report.error, report.waiting) == ("", 50)
        append(log, LINES[0][50:])
        assert total(look(root, log)).tally.added == 1

    def test_a_last_line_without_its_newline_is_taken_where_it_is_whole(self, root, log):
        log.write_bytes(LINES[0] + LINES[1].rstrip())
        assert total(look(root, log)).tally.added == 2
        append(log, b"\n" + LINES[2])
        (report,) = look(root, log)
        assert (report.state, report.tally.added, report.rejected) == ("grown", 1, 0)
        assert ids(root) == expected(3)

    def test_bad_lines_are_set_aside_with_where_and_why_and_the_rest_is_read(self, root, log):
        log.write_bytes(LINES[0] + b'{"broken": \n' + LINES[1] + b"\xff\xfe\n" + b'{"episode_id": 5}\n')
        assert total(look(root, log)).rejected == 3
        assert ids(root) == expected(2)
        found = list(TrajectoryStore(root).rejected.entries())
        assert [each.where.rpartition(", ")[2] for each in found] == ["line 2", "line 4", "line 5"]
        assert found[0].text == '{"broken": \n' and found[1].base64 and all(each.why for each in found)
        append(log, b"also bad\n" + LINES[2])
        (report,) = look(root, log)
        assert (report.rejected, report.tally.added) == (1, 1)
        assert [each.where.rpartition(", ")[2] for each in TrajectoryStore(root).rejected.entries()][-1] == "line 6"

    def test_a_log_is_committed_in_parts(self, root, log, monkeypatch):
        monkeypatch.setattr("ratchet.components.interop.log_files.PART_BYTES", len(LINES[0]) * 3)
        log.write_bytes(b"".join(LINES))
        puts = []
        real = StoreWriter.put
        monkeypatch.setattr(
            StoreWriter, "put", lambda self, *a, **o: (puts.append(o.get("cursors")), real(self, *a, **o))[1]
        )
        assert total(look(root, log)).tally.added == 16
        assert len(puts) > 3 and all(puts), "each with its cursor"

    def test_after_a_kill_between_two_parts_the_rest_is_read(self, root, log, monkeypatch):
        """Size and time of the file are the same then; the cursor alone tells that it was not read to its end."""
        monkeypatch.setattr("ratchet.components.interop.log_files.PART_BYTES", len(LINES[0]) * 3)
        log.write_bytes(b"".join(LINES))

        class Killed(BaseException):
            pass

        real = StoreWriter.put
        puts = []

        def put(self, *values, **options):
            puts.append(1)
            if len(puts) == 3:
                raise Killed
            return real(self, *values, **options)

        with monkeypatch.context() as patch:
            patch.setattr(StoreWriter, "put", put)
            with pytest.raises(Killed):
                look(root, log)
        assert 0 < len(ids(root)) < 16
        monkeypatch.setattr("ratchet.components.interop.log_files.RECENT_NS", -(10**18))
        (report,) = look(root, log)
        assert report.tally.same == 0 and ids(root) == expected(16)

    def test_a_lost_index_costs_a_second_reading_and_nothing_else(self, root, log):
        log.write_bytes(b"".join(LINES[:4]))
        look(root, log)
        for path in root.glob("index-*"):
            path.unlink()
        append(log, LINES[4])
        (report,) = look(root, log)
        assert (report.state, report.tally.same, report.tally.added) == ("new", 4, 1)
        assert ids(root) == expected(5)


class TestRotation:
    def test_the_rest_of_a_renamed_log_is_read_before_the_new_one(self, root, log):
        log.write_bytes(b"".join(LINES[:3]))
        look(root, log)
        append(log, b"".join(LINES[3:5]))
        log.rename(log.with_name("agent.jsonl.1"))
        log.write_bytes(b"".join(LINES[5:7]))
        reports = look(root, log)
        assert [each.tally.added for each in reports] == [2, 2] and not any(each.note for each in reports)
        assert ids(root) == expected(7)
        assert not any(each.tally.has_changes for each in look(root, log))

    def test_a_log_that_was_copied_and_truncated_is_read_from_its_start(self, root, log):
        log.write_bytes(b"".join(LINES[:3]))
        look(root, log.parent)
        append(log, LINES[3])
        shutil.copy(log, log.with_name("agent.jsonl.1"))
        log.write_bytes(LINES[4])
        reports = look(root, log.parent)
        assert {each.state for each in reports} == {"truncated", "new"}
        assert sorted(ids(root)) == sorted(expected(5)), "what was written between two looks stands in the copy"

    def test_a_log_that_was_truncated_and_outgrew_its_cursor_is_read_from_its_start(self, root, log):
        log.write_bytes(LINES[0])
        look(root, log)
        log.write_bytes(b"".join(LINES[1:4]))
        (report,) = look(root, log)
        assert (report.state, report.tally.added) == ("replaced", 3)
        assert ids(root) == expected(4)

    def test_an_older_log_that_is_gone_is_told_of_once(self, root, log):
        log.write_bytes(LINES[0])
        look(root, log)
        kept = log.with_name("holds-the-inode")
        log.rename(kept)
        log.write_bytes(LINES[1])
        kept.rename(log.parent.parent / "elsewhere")
        reports = look(root, log)
        assert [bool(each.note) for each in reports] == [True, False]
        assert "was not read" in reports[0].note
        assert not any(each.note for each in look(root, log))

    def test_a_log_that_moves_while_it_is_read_is_read_again(self, root, log, monkeypatch):
        log.write_bytes(b"".join(LINES[:3]))
        real = module.LogReading._check_unmoved

        def moves(self, end):
            if log.exists():
                log.rename(log.with_name("agent.jsonl.1"))
                log.write_bytes(LINES[3])
            real(self, end)

        with monkeypatch.context() as patch:
            patch.setattr(module.LogReading, "_check_unmoved", moves)
            (first,) = look(root, log)
        assert "moved while it was read" in first.note and ids(root) == []
        look(root, log.parent)
        assert sorted(ids(root)) == sorted(expected(4))


def chat(count, **more):
    messages = [{"role": "user", "content": "count up"}]
    for number in range(count):
        messages += [{"role": "assistant", "content": f"that is {number}"}, {"role": "user", "content": "next"}]
    return {"messages": messages, **more}


class TestWhole:
    """Documents, and logs whose records grow over many lines."""

    def test_a_document_is_read_again_when_it_changes_and_stays_one_episode(self, root, tmp_path):
        path = tmp_path / "run.json"
        for count in (1, 2, 4):
            path.write_text(json.dumps(chat(count, id="run-7"), indent=1))
            look(root, path)
            (found,) = TrajectoryStore(root).read()
            assert len(found.turns) == count
        (report,) = look(root, path)
        assert not report.tally.has_changes
        assert len(TrajectoryStore(root).conflicts) == 0 and check_store(TrajectoryStore(root)).faults == []

    def test_a_document_without_a_name_of_its_own_stays_one_episode_too(self, root, tmp_path):
        """Its content is its identity: the beginning is the same episode as what extends it."""
        path = tmp_path / "run.json"
        for count in (1, 3, 4):
            path.write_text(json.dumps(chat(count)))
            look(root, path)
            (found,) = TrajectoryStore(root).read()
            assert len(found.turns) == count

    def test_another_run_in_the_same_file_is_another_episode(self, root, tmp_path):
        path = tmp_path / "run.json"
        for question in ("first?", "second?"):
            path.write_text(
                json.dumps(
                    {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": "yes"}]}
                )
            )
            look(root, path)
        assert TrajectoryStore(root).count() == 2

    def test_a_document_that_is_half_written_is_named_and_read_when_it_is_whole(self, root, tmp_path):
        path = tmp_path / "run.json"
        text = json.dumps(chat(3, id="run-7"), indent=1)
        path.write_text(text[:100])
        (first,) = look(root, path)
        assert first.error and "run.json" in first.error
        path.write_text(text)
        (second,) = look(root, path)
        assert (second.error, second.tally.added) == ("", 1)

    def test_what_was_said_otherwise_is_a_conflict(self, root, tmp_path):
        path = tmp_path / "run.json"
        for answer in ("yes", "no"):
            path.write_text(
                json.dumps(
                    {
                        "id": "run-7",
                        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}],
                    }
                )
            )
            reports = look(root, path)
        assert reports[0].tally.conflicts == 1 and TrajectoryStore(root).count() == 1
        assert len(TrajectoryStore(root).conflicts) == 1


GROWING = [
    pytest.param(path, id=str(path.relative_to(FIXTURES)))
    for path in sorted(FIXTURES.rglob("*"))
    if path.suffix in (".jsonl", ".txt")
]


@pytest.mark.slow
@pytest.mark.parametrize("path", GROWING)
def test_a_log_that_is_read_while_it_grows_is_stored_as_one_that_is_read_at_its_end(tmp_path, path):
    """Whatever its format: line by line, and half lines between."""
    folder = tmp_path / "logs"
    shutil.copytree(path.parent, folder)
    log = folder / path.name
    log.write_bytes(b"")
    with StoreWriter(tmp_path / "live", raw=True) as live, StoreWriter(tmp_path / "once", raw=True) as once:
        ingest = LogIngest(live)
        for line in path.read_bytes().splitlines(keepends=True):
            for half in (line[: len(line) // 2], line[len(line) // 2 :]):
                append(log, half)
                list(ingest.once([log]))
        list(LogIngest(once).once([log]))
        assert once.count() > 0
        assert {each.episode_id: each for each in live.read()} == {each.episode_id: each for each in once.read()}
        assert len(live.conflicts) == len(once.conflicts) == 0
        assert [each for each in check_store(live).faults if not each.where.startswith("blobs/")] == []


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no folder of real samples")
def test_real_logs_go_in_once(root):
    first, again = total(look(root, SAMPLES)), total(look(root, SAMPLES))
    assert (first.tally.added, first.errors, first.rejected) == (6, 0, 0)
    assert not again.tally.has_changes and TrajectoryStore(root).count() == 6


class TestFolders:
    def test_every_log_beneath_a_folder_is_read_and_what_is_none_is_passed_over(self, root, log):
        log.write_bytes(b"".join(LINES[:3]))
        (log.parent / "deep").mkdir()
        (log.parent / "deep" / "other.jsonl").write_bytes(LINES[3])
        (log.parent / "README.md").write_text("# about these logs\n")
        (log.parent / ".hidden.jsonl").write_bytes(LINES[4])
        (log.parent / "empty.jsonl").touch()
        (log.parent / "loop").symlink_to(log.parent)
        found = total(look(root, log.parent))
        assert (found.logs, found.strangers, found.errors) == (2, 1, 0)
        assert sorted(ids(root)) == sorted(expected(4))

    def test_the_store_itself_is_no_log(self, tmp_path, log):
        log.write_bytes(LINES[0])
        root = log.parent / "store"
        look(root, log.parent)
        assert total(look(root, log.parent)).logs == 1

    def test_a_sealed_night_goes_in_with_its_token_ids(self, root, tmp_path):
        night = tmp_path / "night"
        night.mkdir()
        rows = [TurnTokens(each.episode_id, 0, TokenTrace((1,), (2,), (-0.5,), 0)) for each in NIGHT[:4]]
        write_shard(night, 0, NIGHT[:4], encode_tokens(rows, tokenizer_hash="t", template_hash="c"))
        write_shard(night, 1, NIGHT[4:6])
        assert total(look(root, night)).tally.added == 6
        assert [len(TrajectoryStore(root).tokens(each)) for each in expected(6)] == [1, 1, 1, 1, 0, 0]
        assert total(look(root, night)).tally.added == 0

    def test_a_shard_that_differs_from_its_manifest_is_refused(self, root, tmp_path):
        night = write_night(tmp_path / "night", NIGHT[:4], shard=2)
        (night / "shard-00000.jsonl").write_bytes(LINES[9])
        reports = look(root, night)
        assert "differs from the hash in its manifest" in reports[0].error and reports[1].tally.added == 2

    def test_blobs_beside_a_log_come_along(self, root, tmp_path):
        with StoreWriter(tmp_path / "first", raw=True) as writer:
            blob = writer.blobs.put(b"\x89PNG image")
            writer.put([make_episode(messages=(Message("user", "see", (blob,)),))])
        export_query(TrajectoryStore(tmp_path / "first"), EpisodeQuery(), tmp_path / "out.jsonl")
        export_query(TrajectoryStore(tmp_path / "first"), EpisodeQuery(), tmp_path / "shards", "shards")
        for name in ("out.jsonl", "shards"):
            look(tmp_path / f"again-{name}", tmp_path / name)
            again = TrajectoryStore(tmp_path / f"again-{name}")
            assert again.blob(blob).read_bytes() == b"\x89PNG image" and check_store(again).faults == []

    def test_a_table_of_scores_is_attached(self, root, log, tmp_path):
        log.write_bytes(LINES[0])
        write_parquet(tmp_path / "scores.parquet", ScoreRow, [ScoreRow(expected(1)[0], -1, -1, "total", "v", 0.75)])
        assert total(look(root, log, tmp_path / "scores.parquet")).attached == 1
        assert TrajectoryStore(root).query()[0].reward == 0.75


class TestFaults:
    def test_a_file_that_somebody_named_and_nobody_knows_is_an_error(self, root, tmp_path):
        (tmp_path / "x.txt").write_text("hello\n")
        (report,) = look(root, tmp_path / "x.txt")
        assert "x.txt" in report.error and "\n" not in report.error

    def test_a_path_that_is_absent_is_an_error_and_the_others_are_read(self, root, log, tmp_path):
        log.write_bytes(LINES[0])
        found = total(look(root, tmp_path / "absent.jsonl", log))
        assert (found.errors, found.tally.added) == (1, 1)

    def test_an_unknown_format_is_refused_with_the_nearest_name(self, root, log):
        log.write_bytes(LINES[0])
        with pytest.raises(ConfigurationError, match="did you mean 'ratchet'"):
            look(root, log, format="rachet")


class TestWatch:
    def test_what_is_written_meanwhile_is_taken_in(self, root, log):
        log.write_bytes(LINES[0][:50])

        class Enough(Exception):
            pass

        steps = iter(
            [
                lambda: append(log, LINES[0][50:]),
                lambda: append(log, LINES[1] + LINES[2][:9]),
                lambda: append(log, LINES[2][9:]),
            ]
        )

        def pause(seconds):
            assert seconds == 0.5
            step = next(steps, None)
            if step is None:
                raise Enough
            step()

        news = []
        with StoreWriter(root, raw=True) as writer, pytest.raises(Enough):
            news.extend(each.tally.added for each in LogIngest(writer).watch([log.parent], interval=0.5, pause=pause))
        assert news == [1, 1, 1]
        assert ids(root) == expected(3)

    def test_a_fault_is_told_once_until_the_log_changes(self, root, tmp_path):
        path = tmp_path / "x.txt"
        path.write_text("hello\n")
        rounds = []

        class Enough(Exception):
            pass

        def pause(seconds):
            rounds.append(1)
            if len(rounds) == 3:
                path.write_text("hello again\n")
            if len(rounds) == 5:
                raise Enough

        errors = []
        with StoreWriter(root, raw=True) as writer, pytest.raises(Enough):
            reports = LogIngest(writer).watch([path, tmp_path / "absent"], pause=pause)
            errors.extend(each.path.rpartition("/")[2] for each in reports)
        assert errors == ["x.txt", "absent", "x.txt"]
