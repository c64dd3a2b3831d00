"""`ratchet sanitise` from a file to a file: clean, whole or not at all, with an audit that tells nothing."""

import json
import logging
from pathlib import Path

import msgspec
import pytest
from episodes import make_episode
from model_stand_in import says, stand_in
from secrets_corpus import secrets_in_context

from ratchet.cli import run
from ratchet.components.core import ToolResult
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.trajectory import Trajectory, Turn

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def episode(attempt: int, *results: str) -> Trajectory:
    return make_episode(
        attempt=attempt, turns=[Turn(0, "a", "", results=tuple(ToolResult("", each) for each in results))]
    )


def write(path: Path, *episodes: Trajectory) -> Path:
    path.write_bytes(msgspec.json.Encoder().encode_lines(episodes))
    return path


@pytest.mark.slow
def test_neither_audit_nor_output_nor_log_holds_any_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hidden = list(secrets_in_context(9))
    source = write(tmp_path / "in.jsonl", *(episode(number, text) for number, (text, _) in enumerate(hidden)))
    with caplog.at_level(logging.DEBUG):
        assert (
            run(["sanitise", str(source), "-o", str(tmp_path / "out.jsonl"), "--audit", str(tmp_path / "audit.jsonl")])
            == 0
        )
    said = "".join(capfd.readouterr()) + caplog.text
    audit, out = (tmp_path / "audit.jsonl").read_bytes(), (tmp_path / "out.jsonl").read_bytes()
    leaked = [secret for _, secret in hidden if secret.encode() in audit or secret in said]
    assert leaked == []
    still = [secret for _, secret in hidden if json.dumps(secret, ensure_ascii=False)[1:-1].encode() in out]
    assert len(still) <= 0.01 * len(hidden), still
    assert len(list(read_jsonl(tmp_path / "out.jsonl"))) == len(hidden)
    lines = [json.loads(line) for line in audit.splitlines()]
    assert {"source", "kind", "severity", "where", "length", "digest", "placeholder", "action"} == lines[0].keys()


def test_the_counts_are_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", episode(0, TOKEN), episode(1, "nothing"))
    assert run(["sanitise", str(source), "-o", str(tmp_path / "out.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["read"], found["written"], found["changed"], found["findings"]) == (2, 2, 1, 1)
    assert found["kinds"] == {"github_token": 1}


def test_a_policy_leaves_out_or_stops_without_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", episode(0, TOKEN), episode(1, "nothing"))
    out = tmp_path / "out.jsonl"
    assert run(["sanitise", str(source), "-o", str(out), "--policy", "critical=drop"]) == 0
    assert [each.attempt for each in read_jsonl(out)] == [1]
    out.unlink()
    assert run(["sanitise", str(source), "-o", str(out), "--policy", "fail"]) == 3
    error = capsys.readouterr().err
    assert "github_token" in error and TOKEN not in error and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [source]


def test_a_model_behind_a_server_is_asked_for_names(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", episode(0, f"Jane Doe wrote {TOKEN}"))
    out = tmp_path / "out.jsonl"
    with stand_in(otherwise=says('[{"kind": "person", "text": "Jane Doe"}]')) as server:
        assert run(["sanitise", str(source), "-o", str(out), "--names", f"m@{server.base_url}"]) == 0
        asked = json.dumps(server.asked)
    assert next(read_jsonl(out)).turns[0].results[0].content == "[PERSON_1] wrote [GITHUB_TOKEN_1]"
    assert "Jane Doe" in asked and TOKEN not in asked


def test_the_same_file_may_be_given_twice(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", episode(0, TOKEN))
    assert run(["sanitise", str(source), "-o", str(source)]) == 0
    assert TOKEN.encode() not in source.read_bytes()


def test_any_text_can_be_cleaned(tmp_path: Path) -> None:
    source = tmp_path / "app.log"
    source.write_bytes(b"start\xff\npassword=" + b"hunter2!x9" + b"\nend\n")
    assert (
        run(
            ["sanitise", "--text", str(source), "-o", str(tmp_path / "clean.log"), "--audit", str(tmp_path / "a.jsonl")]
        )
        == 0
    )
    assert (tmp_path / "clean.log").read_bytes() == b"start\xff\npassword=[PASSWORD_1]\nend\n"
    assert json.loads((tmp_path / "a.jsonl").read_text())["where"] == "text, line 2"


def test_a_long_text_is_read_in_pieces_and_no_key_is_cut_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ratchet.components.interop import redact_files

    monkeypatch.setattr(redact_files, "CHUNK", 2_000)
    key = (
        "-----BEGIN RSA PRIVATE "
        + "KEY-----\n"
        + "\n".join(["a8Kq" * 16] * 12)
        + "\n-----END RSA PRIVATE "
        + "KEY-----\n"
    )
    text = "".join(f"line {number} of a log\n" for number in range(60)) + key
    source = tmp_path / "app.log"
    source.write_text(text * 5)
    assert run(["sanitise", "--text", str(source), "-o", str(tmp_path / "clean.log")]) == 0
    clean = (tmp_path / "clean.log").read_text()
    assert "a8Kq" not in clean
    assert clean.count("line 7 of a log") == 5


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none.jsonl", "-o", "out.jsonl"], 3, "check the path"),
        (["in.jsonl", "-o", "out.jsonl", "--policy", "burn"], 2, "no action 'burn'"),
        (["in.jsonl", "-o", "out.jsonl", "--allow", "none.txt"], 3, "check the path"),
        (["in.jsonl", "-o", "out.jsonl", "--names", "none.yaml"], 2, "none.yaml"),
        (["bad.jsonl", "-o", "out.jsonl"], 3, "line 1"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", episode(0, "x"))
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert run(["sanitise", *arguments]) == code
    error = capsys.readouterr().err
    assert says in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("words", [[], ["--text"]])
def test_an_audit_never_takes_the_place_of_the_input_or_of_the_clean_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    source = write(tmp_path / "in.jsonl", episode(0, TOKEN))
    before = source.read_bytes()
    (tmp_path / "link.jsonl").hardlink_to(source)
    (tmp_path / "below").mkdir()
    out, same = str(tmp_path / "out.jsonl"), str(tmp_path / "below" / ".." / "out.jsonl")
    for audit in (str(source), str(tmp_path / "link.jsonl"), out, same):
        assert run(["sanitise", str(source), "-o", out, "--audit", audit, *words]) == 2
        assert "a path of its own" in capsys.readouterr().err
    assert source.read_bytes() == before and not (tmp_path / "out.jsonl").exists()


def test_a_place_that_cannot_be_written_is_a_wrong_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.jsonl", episode(0, TOKEN))
    for words in (["sanitise"], ["trajectories", "convert"]):
        assert run([*words, str(source), "-o", "/proc/x.jsonl"]) == 2
        assert "/proc/x.jsonl cannot be written" in capsys.readouterr().err


def test_an_interruption_says_that_nothing_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    source = write(tmp_path / "in.jsonl", episode(0, TOKEN))
    monkeypatch.setattr("ratchet.components.interop.log_conversion._write_records", stopped)
    monkeypatch.setattr("ratchet.components.interop.redact_files._AuditedRun.note", stopped)
    for words in (["sanitise"], ["trajectories", "convert"]):
        assert run([*words, str(source), "-o", str(tmp_path / "out.jsonl")]) == 130
        said = capsys.readouterr().err
        assert "whole or not at all" in said and "is kept" not in said and len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [source]


def test_an_empty_file_is_refused_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert run(["sanitise", str(tmp_path / "empty.jsonl"), "-o", str(tmp_path / "out.jsonl")]) == 3
    assert "is empty" in capsys.readouterr().err and not (tmp_path / "out.jsonl").exists()
