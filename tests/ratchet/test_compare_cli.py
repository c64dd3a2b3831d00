"""`ratchet compare`, `leaderboard` and `history` as a person or a script calls them."""

import json
from dataclasses import dataclass

import msgspec
import pytest
from episodes import make_episode, write_night

import ratchet
from ratchet.components.evaluation.leaderboard import Leaderboard
from ratchet.components.evaluation.promotion.decision_record import read_decision
from ratchet.components.nights.night_state import begin_night
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.trajectory import TaskRef, with_content_hash

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A night in which three agents played forty tasks of the bundled taskset, and a file with a hostile name."""
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    begin_night("smoke", night="n1")
    tasks = [TaskRef.from_task(task) for task in load_taskset("programs").tasks("promote")[:40]]
    for name, solved in (("champion", 1), ("challenger", 4), ("control", 1)):
        played = [
            with_content_hash(
                msgspec.structs.replace(make_episode(task.task_id, success=n % 5 < solved, version=name), task=task)
            )
            for n, task in enumerate(tasks)
        ]
        write_night(tmp_path / "home" / "evaluations" / "n1" / name, played)
    write_night(tmp_path / "[bold]x", played)
    return tmp_path


def test_two_agents_get_a_verdict_the_tests_and_the_flipped_tasks_with_their_episodes(run, home):
    code, out, err = run("compare", "n1/champion", "n1/challenger", "--control", "n1/control")
    assert code == 0
    assert "Verdict:" in out and "permutation" in out and "flipped tasks" in out and "bayes" in out
    assert out.count("│ won") == 20 and "ep-" in out and "4 more flipped tasks" in err


def test_for_a_script_comparisons_come_first_and_the_decision_last(run, home):
    code, out, _ = run("compare", "n1/champion", "n1/challenger", "--json")
    comparison, decision = out.splitlines()
    assert code == 0 and read_decision(decision.encode()).night == "by hand"
    found = json.loads(comparison)
    assert found["won"] == 24 == len(found["flips"]) and found["difference"]["value"] == pytest.approx(0.6)


def test_many_agents_stand_in_one_table_without_a_verdict(run, home):
    code, out, err = run("compare", "n1")
    assert code == 0 and "Verdict" not in out and err == ""
    assert [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")] == [
        "champion",
        "challenger",
        "control",
    ]


def test_few_families_get_a_remark_that_the_p_value_decides_and_many_do_not(run, home):
    for name, success in (("worst", False), ("best", True)):
        write_night(home / name, [make_episode(f"t/{n}", success=success, version=name) for n in range(3)])
    code, out, _ = run("compare", home / "worst", home / "best")
    assert code == 0 and "too narrow below 10 families" in out and "[+100.0, +100.0]" not in out
    assert "no probabilities" in out and "better 100.0 %" not in out
    assert "too narrow" in run("leaderboard", home / "worst", home / "best")[1]
    assert "too narrow" not in run("compare", "n1")[1] + run("leaderboard")[1]
    found = ratchet.compare(home / "worst", home / "best")
    assert all("too narrow" in text for text in (repr(found), found._repr_html_(), found[0]._repr_html_()))


def test_two_agents_without_a_verdict_say_why(run, home):
    other = write_night(home / "other", [make_episode("elsewhere/1", version=name, role="promote") for name in "a"])
    again = write_night(home / "again", [make_episode("elsewhere/1", version=name, role="promote") for name in "b"])
    code, out, err = run("compare", other, again)
    assert (
        code == 0 and "no task has different success rates" in out and "no verdict: task elsewhere/1 was played" in err
    )


def test_folders_may_be_compared_by_reward(run, home):
    code, out, _ = run("compare", "n1/champion", "n1/challenger", "--by", "reward")
    assert code == 0 and "challenger minus champion" in out and "total: higher" in out


@dataclass(frozen=True)
class Wrong:
    words: tuple[str, ...]
    said: str
    code: int = 2


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(("compare", "n1/champion"), "one set alone"),
        Wrong(("compare", "n1/champion", "n1/champion"), "is given twice"),
        Wrong(("compare", "n1/champion", "n1/control", "--by", "luck"), "success or reward"),
        Wrong(
            ("compare", "n1/champion", "n1/control", "--by", "reward", "--role", "audit"),
            "--control and --role are only valid",
        ),
        Wrong(("compare", "n1/champion", "n1/control", "--domain", "coding"), "are for files"),
        Wrong(("compare", "n1/champion", "n1/control", "--role", "audit"), "played no audit tasks", 3),
        Wrong(("leaderboard", "--by", "luck"), "success or reward"),
        Wrong(("leaderboard", "--json", "--markdown"), "not both"),
        Wrong(("leaderboard", "n1", "--alpha", "2"), "--alpha"),
    ],
)
def test_a_wrong_command_line_is_one_line(run, home, wrong):
    code, _, err = run(*wrong.words)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == wrong.code and len(errors) == 1 and wrong.said in errors[0]


def test_the_board_is_a_table_json_or_markdown(run, home):
    code, out, _ = run("leaderboard")
    assert code == 0 and "1 " in out and "challenger" in out and "share a letter" in out
    _, out, _ = run("leaderboard", "--json")
    board = msgspec.json.decode(out, type=Leaderboard)
    assert [place.name for place in board.places] == ["challenger", "champion", "control"]
    assert [place.group for place in board.places] == ["a", "b", "b"]
    _, out, _ = run("leaderboard", "n1", "--markdown", "--by", "reward")
    assert out.startswith("| rank | agent | reward |") and "Share of tasks" in out


def test_a_name_is_shown_as_it_is(run, home):
    code, out, _ = run("leaderboard", home / "[bold]x", "n1/champion")
    assert code == 0 and "[bold]x" in out
    code, out, _ = run("compare", home / "[bold]x", "n1/champion", "--by", "reward")
    assert code == 0 and "champion minus [bold]x" in out


def test_an_episode_that_a_file_holds_twice_counts_once_for_the_reward(run, home):
    shards = sorted((home / "home" / "evaluations" / "n1" / "champion").glob("shard-*.jsonl"))
    lines = b"".join(shard.read_bytes() for shard in shards)
    (home / "twice.jsonl").write_bytes(lines + lines)
    (home / "once.jsonl").write_bytes(lines)
    code, out, _ = run("compare", home / "once.jsonl", home / "twice.jsonl", "--json")
    once, twice = json.loads(out)["sets"]
    (home / "empty.jsonl").write_bytes(b"")
    assert "error: empty: no episodes to evaluate" in run("leaderboard", home / "once.jsonl", home / "empty.jsonl")[2]
    assert code == 0 and once["episodes"] == twice["episodes"] == 40 and once["means"] == twice["means"]


def test_history_is_a_line_a_night(run, home):
    code, out, _ = run("history")
    assert code == 0 and "n1" in out and "interrupted after 0 steps" in out
    _, out, _ = run("history", "--json")
    assert json.loads(out)["night"] == "n1"
