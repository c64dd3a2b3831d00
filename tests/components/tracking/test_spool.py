"""MLflow goes away at any moment of a night and comes back: all is told, in order, and nothing is lost. MLflow is a list here."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import msgspec
import pytest
from episodes import make_episode, night_of, turn

from ratchet.components.core import InfrastructureError, Role, TaskSpec
from ratchet.components.tracking import mlflow_client, record_upload, run_writer, trace_log
from ratchet.components.tracking.episode_trace import EpisodeTrace
from ratchet.components.tracking.evaluation_tables import agent_run
from ratchet.components.tracking.mlflow_client import MlflowRefusal
from ratchet.components.tracking.run_records import (
    ArtifactFile,
    DatasetRead,
    EvaluatedModel,
    EvaluationDataset,
    ExperimentTags,
    RunEnd,
    RunStart,
    RunValues,
    TraceBatch,
    table_content,
)
from ratchet.components.tracking.run_writer import ReadBackReport


class Mlflow:
    """Takes records while it is up. A run must have been begun, and a trace named `bad` is never taken."""

    def __init__(self):
        self.told, self.calls, self.up = [], 0, lambda call: True

    def apply(self, client, record):
        self.calls += 1
        if not self.up(self.calls):
            raise OSError("connection refused")
        key = record.experiment, record.run
        if not isinstance(record, RunStart) and key not in {(each.experiment, each.run) for each in self.told}:
            raise MlflowRefusal(record.run)
        if isinstance(record, TraceBatch) and any(each.name == "bad" for each in record.traces):
            raise MlflowRefusal("a bad trace")
        self.told.append(record)
        return "id"


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    made = Mlflow()
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.setattr(record_upload, "upload_record", made.apply)
    monkeypatch.setattr(record_upload, "client", lambda: None)
    monkeypatch.setattr(mlflow_client, "RETRY_WAITS", ())
    monkeypatch.setattr(mlflow_client, "_mlflow_errors", lambda: (OSError,))
    monkeypatch.setattr(run_writer, "_system_metrics", lambda run: nullcontext())
    monkeypatch.setattr(run_writer, "read_back", lambda tally: ReadBackReport(len(tally.runs), 1, 1))
    return made


def trace(name):
    return EpisodeTrace(f"ep-{name}", "content", name, "coding", "", "", False, {}, ())


TASK = TaskSpec(
    "repair/promote-1", "repair", "f", "loop", Role.PROMOTE, "coding", "Mend it.", reference={"a.py": "answer"}
)


def test_an_evaluation_dataset_holds_what_an_agent_is_asked_and_no_answer(mlflow):
    night()
    (dataset,) = [record for record in mlflow.told if isinstance(record, EvaluationDataset)]
    assert [(task.task_id, task.prompt) for task in dataset.tasks] == [("repair/promote-1", "Mend it.")]
    assert b"answer" not in msgspec.json.encode(dataset)


def night(name="night"):
    """A night with everything that can be told."""
    with run_writer.night_run(name, "repair", params={"scale": "smoke"}) as run:
        with agent_run(run, "challenger", 3) as agent, agent.open_child("train challenger") as stage:
            stage.log_history(("train/loss", 1 / step, step, 7) for step in (1, 2, 3))
            stage.log_dataset("sft", "d" * 64, "data/sft")
        with agent_run(run, "challenger", 3) as agent:
            agent.log_evaluated_model(4, {"eval/success": 0.5}, ("repair-promote", "hash"))
            agent.log_table("eval/by_kind.json", {"kind": ["loop"], "success": [0.5]})
            agent.log_traces([trace("a"), trace("b")])
        run.log_artifact("figures/success.png", b"\x89PNG\x00\xff")
        run.log_metrics({"eval/promoted": 1})
        with run.open_shared("repair agents", "w4", "v4 challenger", {"ratchet.kind": "agent"}) as row:
            row.log_metrics({"eval/success": 0.5})
            row.set_experiment_tags({"mlflow.note.content": "v4 leads"})
            row.log_evaluation_dataset("repair-promote 1 hash", {"hash": "hash"}, [TASK])
        run.set_description("Promoted: it is better.")


def words(record):
    """A record without the moment at which it was made."""
    kind = type(record).__name__
    if isinstance(record, RunValues | EvaluatedModel):
        return (
            kind,
            record.run,
            sorted((point.key, point.step, point.value) for point in record.points),
            str(getattr(record, "params", "")),
        )
    if isinstance(record, ArtifactFile):
        return kind, record.run, record.path, record.content
    if isinstance(record, TraceBatch):
        return kind, record.run, [each.name for each in record.traces]
    return kind, record.run, getattr(record, "status", ""), getattr(record, "digest", "")


def once(records):
    """In the order in which each was first told: a spool may be replayed from its start."""
    return list(
        dict.fromkeys(str(words(each)) for each in records if getattr(each, "path", "") != run_writer.READ_BACK_FILE)
    )


@pytest.fixture
def undisturbed(mlflow):
    night()
    assert {type(each) for each in mlflow.told} == {
        RunStart,
        RunValues,
        DatasetRead,
        EvaluatedModel,
        ArtifactFile,
        TraceBatch,
        ExperimentTags,
        EvaluationDataset,
        RunEnd,
    }
    wanted = once(mlflow.told)
    mlflow.told.clear()
    calls, mlflow.calls = mlflow.calls, 0
    return wanted, calls


def test_mlflow_that_goes_away_at_any_moment_is_told_all_later_and_in_order(mlflow, undisturbed):
    wanted, calls = undisturbed
    for moment in range(1, calls + 1):
        mlflow.told.clear()
        mlflow.calls, mlflow.up = 0, lambda call, moment=moment: call < moment
        night()
        assert len(once(mlflow.told)) <= moment - 1
        mlflow.up = lambda call: True
        report = record_upload.sync()
        assert (report.waiting, report.rejected, report.cut) == (0, 0, 0)
        assert once(mlflow.told) == wanted, f"away at call {moment}"
        assert not list(record_upload.spool_folder().glob("*.jsonl"))


def test_mlflow_that_comes_and_goes_while_it_is_told_later_loses_nothing(mlflow, undisturbed):
    wanted, calls = undisturbed
    for moment in range(1, calls + 1):
        mlflow.told.clear()
        mlflow.up = lambda call: False
        night()
        mlflow.calls, mlflow.up = 0, lambda call, moment=moment: call < moment
        assert record_upload.sync().waiting == (1 if moment < calls else 0)
        mlflow.up = lambda call: True
        record_upload.sync()
        assert once(mlflow.told) == wanted, f"away again at call {moment}"


def test_nights_that_waited_are_told_in_the_order_in_which_they_were_played(mlflow):
    mlflow.up = lambda call: False
    for name in ("first", "second", "third"):
        night(name)
    mlflow.up = lambda call: True
    night("fourth")
    begun = [each.run for each in mlflow.told if isinstance(each, RunStart) and each.parent is None]
    assert [run for run in begun if run != "w4"] == ["first", "second", "third", "fourth"]


def test_nights_that_waited_are_told_in_their_order_also_where_the_clock_was_set_back_between_them(mlflow, monkeypatch):
    mlflow.up = lambda call: False
    for name, now in (("first", 3_000), ("second", 2_000), ("third", 1_000)):
        monkeypatch.setattr(record_upload.time, "time_ns", lambda now=now: now * 10**9)
        night(name)
    mlflow.up = lambda call: True
    record_upload.sync()
    begun = [each.run for each in mlflow.told if isinstance(each, RunStart) and each.parent is None]
    assert [run for run in begun if run != "w4"] == ["first", "second", "third"]


def test_a_line_that_was_cut_short_is_counted_and_the_rest_is_told(mlflow):
    mlflow.up = lambda call: False
    night()
    (path,) = record_upload.spool_folder().glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    mlflow.up = lambda call: True
    report = record_upload.sync()
    assert report.cut == 1 and report.told == len(mlflow.told) and report.waiting == 0


def test_a_line_of_another_version_is_kept_and_the_rest_is_told(mlflow):
    mlflow.up = lambda call: False
    night()
    (path,) = record_upload.spool_folder().glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b'{"type": "unheard-of", "run": "n"}\n', b"\xff\xfe\n", *lines[3:]]))
    mlflow.up = lambda call: True
    report = record_upload.sync()
    assert (report.rejected, report.cut, report.waiting) == (2, 0, 0) and report.told == len(mlflow.told) == len(lines)
    kept = (record_upload.spool_folder() / record_upload.REJECTED).read_text()
    assert "unheard-of" in kept and kept.count("cannot read it") == 2


def test_two_that_tell_at_once_keep_the_order_and_refuse_nothing(mlflow):
    mlflow.up = lambda call: False
    night("first")
    night("second")
    for name in ("first", "second"):  # the same nights go on: their runs are begun in the files before
        (path,) = (
            each for each in record_upload.spool_folder().glob("*.jsonl") if f'"{name}"'.encode() in each.read_bytes()
        )
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0])
        path.with_name(f"{path.stem}.on.jsonl").write_bytes(b"".join(lines[1:]))
    mlflow.up = lambda call: time.sleep(0.002) is None
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: record_upload.sync(), range(4)))
    assert sum(each.rejected for each in reports) == 0 and sum(each.told for each in reports) == len(mlflow.told)
    assert not list(record_upload.spool_folder().glob("*.jsonl"))


def test_of_many_traces_the_one_that_is_refused_goes_alone(mlflow):
    with run_writer.night_run("n", "repair") as run:
        assert run.log_traces([trace("a"), trace("bad"), trace("c")])
        assert not run.log_traces([trace("bad")])
    told = [each.name for record in mlflow.told if isinstance(record, TraceBatch) for each in record.traces]
    assert told == ["a", "c"]
    rejected = (record_upload.spool_folder() / record_upload.REJECTED).read_bytes().splitlines()
    assert len(rejected) == 2 and all(b'"bad"' in line for line in rejected)


def test_traces_are_told_in_batches_that_a_database_can_take(mlflow, monkeypatch):
    monkeypatch.setattr(trace_log, "_count_traces", lambda run: 45)
    long = make_episode("repair/long", turns=[turn(number, "read_file", path="x") for number in range(600)])
    with run_writer.night_run("n", "repair") as run:
        report = trace_log.log_traces(run, [*night_of(15, 3), long, *night_of(1, 2, version="other")], {})
    told = [len(record.traces) for record in mlflow.told if isinstance(record, TraceBatch)]
    assert told == [20, 20, 5, 1, 2] and report.chosen == sum(told)


def test_what_waits_is_said_and_synced_by_hand(mlflow, capsys):
    from ratchet import cli

    mlflow.up = lambda call: False
    night()
    assert cli.run(["sync"]) == InfrastructureError.exit_code
    assert "1 files are still queued" in capsys.readouterr().err
    mlflow.up = lambda call: True
    assert cli.run(["sync"]) == 0 and capsys.readouterr().out.startswith("uploaded ")
    assert cli.run(["sync"]) == 0 and capsys.readouterr().out == "nothing is queued\n"


def test_a_table_is_for_reading_and_holds_what_json_can():
    columns = {
        "rate": [0.7609605893668878, 2.3456789e-7, float("nan"), None],
        "n": [1, 394.65000000000003, 123456.789, "x"],
    }
    assert table_content(columns) == (
        b'{"columns": ["rate", "n"], "data": [[0.76096, 1], [2.3457e-07, 394.65], [null, 123456.8], [null, "x"]]}'
    )
