"""`ratchet evaluate`: what it prints, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest
import tiny
from model_stand_in import says, stand_in

from ratchet.components.core import Role
from ratchet.components.training.perplexity import PerplexityReport
from ratchet.components.trajectories.shards import read_folder

pytestmark = pytest.mark.usefixtures("tiny_home")


@pytest.fixture
def taskset(tmp_path):
    return tiny.write_taskset(tmp_path / "tiny", 4, role=Role.PROMOTE)


def test_it_shows_success_what_k_attempts_are_worth_costs_kinds_and_where_the_episodes_lie(run, taskset):
    code, out, err = run("evaluate", "--policy", "teacher", "--taskset", taskset, "--attempts", 2, "--tasks", 3)
    assert code == 0, err
    assert "promote: new instances of known tasks; 3 tasks of 1 family x 2 attempts, seed 0" in out
    for said in (
        "success",
        "100.0 %",
        "k = 1",
        "k = 2",
        "most do",
        "unsafe or hacked",
        "failed by",
        "none",
    ):
        assert said in out
    assert "median" in out and "p95" in out and "steps (median)" in out
    assert "evaluations/by-hand/teacher-s0-" in out and "evaluate teacher" in err


def test_as_json_it_is_one_line_with_every_figure(run, taskset):
    code, out, _ = run("evaluate", "--policy", "teacher", "--taskset", taskset, "--attempts", 2, "--seed", 3, "--json")
    (line,) = out.splitlines()
    found = json.loads(line)
    assert code == 0 and (found["policy"], found["taskset"], found["seed"], found["attempts"]) == (
        "teacher",
        "tiny",
        3,
        2,
    )
    promote = found["roles"]["promote"]
    assert promote["success"]["value"] == 1.0 and promote["summary"]["by_k"][1]["pass_hat"] == 1.0
    assert promote["summary"]["quantiles"]["steps"]["median"] == 3.0 and promote["summary"]["unsafe_rate"] == 0.0
    assert set(promote["by_kind"]) == {"k"} and set(promote["by_family"]) == {"f"}


def test_a_system_prompt_is_sent_recorded_and_part_of_the_version(run, taskset, tmp_path):
    (tmp_path / "brief.txt").write_text("Be brief.", encoding="utf-8")
    with stand_in(otherwise=says("done")) as server:
        words = ("--policy", f"openai:m@{server.base_url}", "--taskset", taskset, "--attempts", 1, "--json")
        plain, text, file, other = (
            json.loads(run("evaluate", *words, *more)[1])
            for more in ((), ("--system", "Be brief."), ("--system", tmp_path / "brief.txt"), ("--system", "Be kind."))
        )
        assert {"role": "system", "content": "Be brief."} in server.asked[-5]["messages"]
    assert text["policy_version"] == file["policy_version"] and file["episodes_played"] == 0
    assert len({found["policy_version"] for found in (plain, text, other)}) == 3
    assert next(iter(read_folder(Path(text["folder"])))).messages[0].content == "Be brief."
    code, _, err = run("collect", tmp_path / "out", "--policy", "teacher", "--taskset", taskset, "--system", "gone.txt")
    assert code == 2 and "--system gone.txt cannot be read" in err


def test_an_agent_that_breaks_shows_its_first_message(run, taskset, tmp_path, monkeypatch):
    (tmp_path / "my_breakers.py").write_text("def agent(request):\n    raise RuntimeError('no such client')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ("--policy", "my_breakers:agent", "--taskset", taskset, "--role", "promote", "--attempts", 1)
    code, out, err = run("collect", tmp_path / "out", *words)
    assert code == 0 and "first failure of policy: RuntimeError: no such client" in err
    assert "played now" in out and "replayed" not in out


def test_replies_that_were_cut_are_said_and_a_finished_evaluation_asks_nobody(run, taskset):
    with stand_in(otherwise=says("and so on", finish="length")) as server:
        words = ("evaluate", "--policy", f"openai:m@{server.base_url}", "--taskset", taskset, "--attempts", 1)
        code, _, err = run(*words)
        asked = len(server.asked)
        assert code == 0 and asked == 4 and "nothing was played" not in err
        assert "4 of 4 replies were cut at max_new_tokens (the scale's is 128)" in err
        code, out, err = run(*words, "--json")
        assert code == 0 and json.loads(out)["episodes_played"] == 0 and len(server.asked) == asked
        assert "nothing was played: the 4 episodes were read from" in err and "4 of 4 replies were cut" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--role", "promot"], "unknown role"),
        (["--tasks", "99"], "99 tasks were asked for"),
        (["--policy", "techer"], "unknown policy 'techer'"),
        (["--max-length", "64"], "--max-length is only valid with --data"),
        (["--data", "rows.jsonl"], "remove --taskset"),
    ],
)
def test_a_wrong_command_line_is_one_line(run, taskset, words, said):
    code, out, err = run(
        "evaluate", *([] if "--policy" in words else ["--policy", "teacher"]), "--taskset", taskset, *words
    )
    assert code == 2 and out == "" and said in err.strip().splitlines()[-1]


def test_a_policy_without_weights_predicts_nothing(run, tmp_path):
    code, _, err = run("evaluate", "--policy", "teacher", "--data", tmp_path / "rows.jsonl")
    assert code == 2 and "has no weights" in err


def test_held_out_rows_that_are_absent_are_one_line(run, tmp_path):
    (tmp_path / "model").mkdir()
    code, _, err = run(
        "evaluate", "--policy", f"transformers:{tmp_path / 'model'}", "--data", tmp_path / "absent.jsonl"
    )
    assert code == 2 and "absent.jsonl is no file" in err


def test_perplexity_is_shown_with_its_spread_over_rows_and_plays_nothing(run, tmp_path, monkeypatch):
    figures = PerplexityReport(3, 40, 0.5, 1.6487, 0.875, [0.1, 0.5, 0.9], {"truncated": 1}, 512, 1.0)
    monkeypatch.setattr(
        "ratchet.components.operations.manual_evaluation.measure_held_out", lambda *args, **kwargs: figures
    )
    words = ("evaluate", "--policy", f"transformers:{tmp_path}", "--data", "rows.jsonl")
    code, out, _ = run(*words)
    assert code == 0 and "perplexity" in out and "1.649" in out and "truncated 1" in out
    assert "median 1.649" in out and "0.875" in out
    code, out, _ = run(*words, "--json")
    found = json.loads(out)
    assert found["row_perplexity"]["n"] == 3 and "row_losses" not in found and found["tokens"] == 40
    assert tiny.Tiny.resets == []
