"""`ratchet score`: a line of JSON for machines, tables for people, one line for what is wrong."""

import json
import os

import msgspec
import pytest
from episodes import make_episode, turn, write_night

from ratchet.cli import run
from ratchet.components.rewards.annotation_records import WHOLE, Judgement, judgement_key
from ratchet.components.rewards.calibration.calibration_record import Calibration
from ratchet.components.trajectories.trajectory import Outcome

TWICE = (turn(0, "read_file", path="[/red]main.py"), turn(1, "read_file", path="[/red]main.py"), turn(2, "submit"))


@pytest.fixture
def episodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [make_episode(), make_episode(attempt=1, success=False, turns=TWICE), make_episode(attempt=2, broken=True)]


@pytest.fixture
def shard(episodes, tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(episodes))
    return path


def judgement(episode, value):
    return Judgement(
        key=judgement_key(episode.content_hash, WHOLE, WHOLE, "r@1", "j@1", "p@1"),
        layer="judge",
        episode_id=episode.episode_id,
        content_hash=episode.content_hash,
        domain="coding",
        rubric="r@1",
        judge="j@1",
        prompt="p@1",
        overall=value,
        reasons={"overall": "it went in a circle"},
    )


def lines(capsys, *arguments):
    assert run(["score", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def one_line(capsys):
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("error: ")
    return said.err


def test_a_line_of_json_an_episode_with_layers_and_explanations(shard, episodes, capsys):
    found = lines(capsys, shard)
    assert [each["episode_id"] for each in found] == [each.episode_id for each in episodes]
    assert list(found[0]) == [
        "episode_id", "total", "outcome", "process", "efficiency", "steps", "layers", "explanations", "version",
    ]  # fmt: skip
    assert [each["total"] is None for each in found] == [False, False, True]
    (why,) = (each for each in found[1]["explanations"] if each["line"] == "non_redundancy")
    assert (why["turn"], why["step"], why["layer"], why["score"]) == (1, 0, "rules", 0) and why["why"]


def test_a_folder_of_shards_scores_as_its_shard(shard, episodes, tmp_path, capsys):
    assert lines(capsys, write_night(tmp_path / "night", episodes)) == lines(capsys, shard)


def test_people_see_every_episode_and_the_means(shard, episodes, capsys):
    assert run(["score", str(shard)]) == 0
    out = capsys.readouterr().out
    assert all(each.episode_id in out for each in episodes)
    assert "mean of 2" in out and "infrastructure failure" in out


def test_explain_shows_the_steps_and_why_whatever_stands_in_a_name(shard, capsys):
    assert run(["score", str(shard), "--explain"]) == 0
    assert "non_redundancy 0.000" in capsys.readouterr().out


class TestJudgements:
    @pytest.fixture
    def said(self, episodes, tmp_path):
        folder = tmp_path / "judgements"
        folder.mkdir()
        (folder / "judgements.jsonl").write_bytes(msgspec.json.encode(judgement(episodes[0], 0.1)) + b'\n{"key": "half')
        return folder

    def test_of_a_local_cache_enter_the_score(self, shard, said, capsys):
        plain, judged = lines(capsys, shard), lines(capsys, shard, "--judgements", said)
        assert judged[0]["process"] < plain[0]["process"] and judged[1:] == plain[1:]
        assert judged[0]["layers"]["judge"] == {"score": 0.1, "steps": 0, "counted": True, "sources": ["j@1"]}

    def test_are_told_in_words(self, shard, said, capsys):
        assert run(["score", str(shard), "--judgements", str(said), "--explain"]) == 0
        assert "judge 0.100: it went in a circle" in capsys.readouterr().out

    def test_are_corrected_by_the_calibration_where_one_stands(self, shard, said, tmp_path, capsys):
        (tmp_path / "data").mkdir()
        (tmp_path / "data/calibration.json").write_text("{")
        assert run(["score", str(shard), "--judgements", str(said), "--json"]) == 3
        assert "data/calibration.json is not a calibration" in one_line(capsys)
        Calibration().save(tmp_path / "mine.json")
        assert lines(capsys, shard, "--judgements", said, "--calibration", tmp_path / "mine.json")[0]["layers"]["judge"]

    def test_that_are_absent_are_one_line(self, shard, capsys):
        assert run(["score", str(shard), "--judgements", "nowhere", "--json"]) == 2
        assert "nowhere is absent; judge first (`ratchet judge`)" in one_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["gone.jsonl"], "gone.jsonl is absent", 2),
        (["some.jsonl", "--domain", "codign"], "unknown domain 'codign'; did you mean 'coding'?", 2),
        (["empty.jsonl"], "holds no trajectories", 3),
        (["binary.jsonl"], "binary.jsonl, line 1", 3),
        (["cut.jsonl"], "the last line is cut short", 3),
        (["newer.jsonl"], "schema_version 99 is newer", 3),
    ],
)
def test_bad_input_is_one_line(shard, tmp_path, capsys, arguments, said, code):
    whole = shard.read_bytes()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00\n")
    (tmp_path / "cut.jsonl").write_bytes(whole[:-40])
    (tmp_path / "newer.jsonl").write_bytes(whole.replace(b'"schema_version":1', b'"schema_version":99'))
    assert run(["score", *arguments, "--json"]) == code
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_pipe_is_refused_and_a_log_of_another_agent_is_told_where_to_go(tmp_path, capsys):
    os.mkfifo(pipe := tmp_path / "pipe")
    assert run(["score", str(pipe)]) == 2 and "write it to a file first" in one_line(capsys)
    (log := tmp_path / "output.jsonl").write_text('{"instance_id": "a"}\n')
    assert run(["score", str(log)]) == 3 and "`ratchet trajectories convert" in one_line(capsys)


def test_parameters_of_the_working_folder_count(shard, tmp_path, capsys):
    before = lines(capsys, shard)
    (tmp_path / "params.yaml").write_text("score: {weights: {outcome: 1, process: 0, efficiency: 0}}\n")
    after = lines(capsys, shard)
    assert [each["total"] for each in after] == [1, 0.25, None] and before[0]["version"] != after[0]["version"]


def test_the_mean_counts_what_has_a_total_and_what_is_unknown_or_repeated_is_named(tmp_path, capsys):
    unknown = make_episode(attempt=3, outcome=Outcome())
    path = tmp_path / "some.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines([unknown, unknown, make_episode(attempt=2, broken=True)]))
    assert run(["score", str(path)]) == 0
    said = capsys.readouterr()
    assert "mean of 2" in said.out and "1 of 3 episodes have no total" in said.out
    assert said.out.count("outcome unknown") == 2 and "1 records repeat an episode" in said.err
