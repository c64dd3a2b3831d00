"""`ratchet store`: what a user types, what comes back, and with what exit code."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest
from episodes import make_episode, night_of, write_night
from patience import LIMIT, until

from ratchet import cli
from ratchet.components.interop import reader_registry
from ratchet.components.rewards.score_table import ScoreRow, write_parquet
from ratchet.components.trajectories.store.store_reader import TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter

NIGHT = night_of(4, 2)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in NIGHT))
    return path


def run(*words):
    return cli.run(["store", *map(str, words)])


def lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_add_list_and_show(log, home, capsys):
    assert run("add", log, "--raw") == 0
    assert "8 added" in capsys.readouterr().out and (home / "store" / "store.json").exists()
    assert run("list", "--success", "yes", "--limit", 2) == 0
    out = capsys.readouterr().out
    assert "2 of 3 episodes" in out and NIGHT[0].task.task_id in out
    assert run("show", NIGHT[0].episode_id[:12]) == 0
    shown = capsys.readouterr().out
    assert "edit_file" in shown and NIGHT[0].episode_id in shown


def test_show_prints_the_scores_of_each_step(log, tmp_path, capsys):
    rows = [
        ScoreRow(NIGHT[0].episode_id, -1, -1, "total", "v", 0.875),
        ScoreRow(NIGHT[0].episode_id, 1, 0, "redundancy", "v", 0.125),
    ]
    write_parquet(tmp_path / "scores.parquet", ScoreRow, rows)
    assert run("add", log, tmp_path / "scores.parquet", "--raw") == 0
    assert "scores or ranks of 1 episodes" in capsys.readouterr().out
    run("show", NIGHT[0].episode_id)
    shown = capsys.readouterr().out
    assert "0.875" in shown or "0.88" in shown
    assert "redundancy" in shown
    run("list", "--min-reward", 0.5, "--json")
    assert [each["reward"] for each in lines(capsys)] == [0.875]


def test_what_is_stored_is_sanitised_unless_raw_is_asked_for(tmp_path, capsys):
    secret = "gh" + "p_" + "x7Kq2mPf9LwZt4VbN8sRc3YhJd6GaE1uTo5Q"
    record = make_episode(edit=f"token = '{secret}'")
    path = tmp_path / "run.jsonl"
    path.write_bytes(msgspec.json.encode(record) + b"\n" + f'{{"broken": "{secret}" \n'.encode())
    assert run("add", path) == 3, "a line was set aside"
    assert "secrets removed" in capsys.readouterr().out
    holding = [
        each for each in (tmp_path / "home").rglob("*") if each.is_file() and secret.encode() in each.read_bytes()
    ]
    assert holding == []
    assert run("add", path, "--raw") == 2, "a store holds one kind"
    assert run("add", path, "--raw", "--store", tmp_path / "raw") == 3
    assert secret in msgspec.json.encode(next(TrajectoryStore(tmp_path / "raw").read())).decode()


def test_reports_as_json(log, capsys):
    assert run("add", log, "--raw", "--json") == 0
    report, end = lines(capsys)
    assert report["tally"]["added"] == 8 == end["total"]["tally"]["added"]
    run("list", "--json", "--order", "-turns", "--limit", 3)
    assert len(lines(capsys)) == 3
    run("stats", "--json")
    assert lines(capsys)[0]["episodes"] == 8


def test_conflicts_and_bad_lines_exit_with_3(log, capsys):
    run("add", log, "--raw")
    other = make_episode(NIGHT[0].task.task_id, 0, success=not NIGHT[0].outcome.success)
    with log.open("ab") as file:
        file.write(b"no json\n" + msgspec.json.encode(other) + b"\n")
    capsys.readouterr()
    assert run("add", log, "--raw") == 3
    out = capsys.readouterr().out
    assert "1 conflicts" in out and "1 rejected parts" in out


def test_export_remove_gc_verify(log, tmp_path, capsys):
    run("add", log, "--raw")
    assert run("export", "--success", "no", "-o", tmp_path / "no.jsonl") == 0
    assert len((tmp_path / "no.jsonl").read_bytes().splitlines()) == 5
    assert run("remove", NIGHT[0].episode_id) == 0
    assert run("show", NIGHT[0].episode_id) == 3
    assert run("gc", "--removed", "--dry-run") == 0
    assert "would be freed" in capsys.readouterr().out
    assert run("verify") == 0
    assert "0 faults" in capsys.readouterr().out


def test_a_damage_is_named_with_exit_code_3_and_the_index_mended(log, home, capsys):
    run("add", log, "--raw")
    with StoreWriter(home / "store", raw=True) as writer:
        writer.update_index(lambda index: index.execute("DELETE FROM episodes WHERE rowid = 1"))
    assert run("verify") == 3
    assert "--mend" in capsys.readouterr().err
    assert run("verify", "--mend") == 0


def test_a_sealed_night_goes_in(tmp_path, capsys):
    write_night(tmp_path / "night", NIGHT, shard=3)
    assert run("add", tmp_path / "night", "--raw") == 0
    assert "3 logs, 3 read; 8 added" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("list",), 3, "is no store; `ratchet store add"),
        (("show", "ep-1"), 3, "is no store"),
        (("add", "absent.jsonl", "--raw"), 3, "absent.jsonl cannot be read"),
        (("add", "absent.jsonl", "--raw", "--format", "opnehands"), 3, "absent.jsonl cannot be read"),
    ],
)
def test_a_mistake_costs_one_line(words, code, said, capsys):
    assert run(*words) == code
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_a_question_that_makes_no_sense_costs_one_line(log, capsys):
    run("add", log, "--raw")
    capsys.readouterr()
    for words, said in (
        (("list", "--success", "maybe"), "--success is 'maybe'; give yes, no or unknown"),
        (("list", "--order", "rewrd"), "did you mean 'reward'"),
        (("list", "--since", "monday"), "since 'monday' is no time"),
        (("export", "-o", "x", "--to", "jsnl"), "jsnl"),
    ):
        assert run(*words) == 2, words
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert said in line


@pytest.mark.slow
def test_watching_takes_in_what_is_written_and_ends_with_ctrl_c(log, home, tmp_path):
    script = "import sys; from ratchet import cli; sys.exit(cli.run(sys.argv[1:]))"
    words = ["store", "add", str(log), "--raw", "--watch", "--interval", "0.1"]
    said = tmp_path / "said"
    with said.open("w") as stderr:
        child = subprocess.Popen([sys.executable, "-c", script, *words], stderr=stderr, env=dict(os.environ))
    try:
        until(lambda: (home / "store" / "store.json").exists() and TrajectoryStore(home / "store").count() == 8)
        with log.open("ab") as file:
            file.write(msgspec.json.encode(make_episode("repair/train-0900")) + b"\n")
        until(lambda: "1 added" in said.read_text())
        assert TrajectoryStore(home / "store").count() == 9
        child.send_signal(signal.SIGINT)
        assert child.wait(LIMIT) == 130
    finally:
        child.kill()
        child.wait()


def test_a_reader_that_raises_is_one_line_about_its_log(log, capsys, monkeypatch):
    class Careless:
        def detects(self, source):
            return False

        def read(self, source):
            raise KeyError("command")
            yield

    monkeypatch.setitem(reader_registry._plugin_readers, "careless", Careless())
    assert run("add", log, "--format", "careless") == 3
    said = capsys.readouterr().err
    assert f"{log}: the reader 'careless' failed: KeyError: 'command'" in said and "Traceback" not in said


def test_logs_with_an_error_are_not_counted_as_read_and_empty_ones_alone_are_an_error(log, tmp_path, capsys):
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    bad.write_text('{"a": \n')
    empty.touch()
    assert run("add", log, bad, empty) == 3
    assert "3 logs, 1 read" in capsys.readouterr().out
    assert run("add", empty) == 3 and "1 logs are empty" in capsys.readouterr().out
