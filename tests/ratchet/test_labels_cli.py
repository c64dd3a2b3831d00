"""`ratchet label` and `ratchet calibrate`: what people say is kept at once, and what it says of judges is told."""

import io
import json
import os
import pty
import random
import subprocess
import sys

import msgspec
import pytest
from episodes import make_episode, turn, write_night
from log_files import ROOT
from patience import LIMIT

from ratchet import cli
from ratchet.components.rewards.annotation_records import Judgement, Label
from ratchet.components.rewards.calibration.calibration_record import Calibration
from ratchet.components.rewards.human_labels.label_files import read_labels


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys, monkeypatch):
    def run(*words, keys=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys.split())))
        code = cli.run([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def kept(tmp_path):
    return lambda: list(read_labels(tmp_path / "home" / "labels" / "labels.jsonl"))


def judgement(episode, step, score, *, night="n1"):
    return Judgement(
        key=f"jd-{episode.episode_id}-{step}",
        layer="judge",
        episode_id=episode.episode_id,
        content_hash=episode.content_hash,
        domain="coding",
        turn=step,
        step=0,
        rubric="coding@1",
        judge="small@1",
        prompt="steps@1",
        overall=score,
        judged_at=f"2026-11-2{night[-1]}T01:00:00Z",
    )


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.Encoder().encode_lines(records))
    return path


@pytest.fixture
def episodes():
    return [make_episode(f"repair/train-{number:04d}", success=number % 2 == 0) for number in range(6)]


@pytest.fixture
def night(tmp_path, episodes):
    return write_night(tmp_path / "data" / "rollouts" / "n1", episodes)


@pytest.fixture
def judged(tmp_path, episodes):
    """A judge is sure of all but the second step of the fourth episode."""
    said = [
        judgement(each, step, 0.5 if (n, step) == (3, 1) else 0.98)
        for n, each in enumerate(episodes)
        for step in range(3)
    ]
    return write(tmp_path / "data" / "judgements" / "n1" / "judgements.jsonl", said)


class TestLabelling:
    def test_each_answer_is_kept_with_who_gave_it_and_of_what(self, run, night, kept, episodes):
        code, out, err = run("label", night, "--annotator", "ann", "--budget", 3, keys="y n h")
        assert code == 0 and "3 labels by ann kept" in err
        assert [each.value for each in kept()] == [1.0, 0.0, 0.5]
        hashes = {each.episode_id: each.content_hash for each in episodes}
        for each in kept():
            assert hashes[each.episode_id] == each.content_hash and each.domain == "coding" and each.labelled_at
        assert "3 of 3: overall" in out

    def test_what_a_judge_doubts_comes_first_and_neither_its_score_nor_the_outcome_is_shown(
        self, run, night, judged, kept, episodes
    ):
        _, out, _ = run("label", night, "--annotator", "ann", "--budget", 1, keys="n")
        assert [(each.episode_id, each.turn) for each in kept()] == [(episodes[3].episode_id, 1)]
        assert "edit_file" in out and "return bad" in out and "repair repair/train-0003" in out
        assert "0.50" not in out and "success" not in out and "tests" not in out

    def test_the_same_command_goes_on_where_it_stopped_and_q_keeps_what_is_done(self, run, night, kept):
        run("label", night, "--annotator", "ann", "--budget", 4, keys="y y q")
        run("label", night, "--annotator", "ann", "--budget", 4, keys="n n n n")
        places = [(each.episode_id, each.turn) for each in kept()]
        assert len(places) == len(set(places)) == 6
        run("label", night, "--annotator", "bob", "--budget", 30, keys="y " * 30)
        assert len([each for each in kept() if each.annotator == "bob"]) == 18

    def test_back_comments_and_skips(self, run, night, kept):
        run("label", night, "--annotator", "ann", "--budget", 3, keys="s c it-fits y u n ? y")
        found = kept()
        assert [(each.value, each.comment) for each in found] == [(1.0, "it-fits"), (0.0, ""), (1.0, "")]
        assert (found[0].episode_id, found[0].turn) == (found[1].episode_id, found[1].turn)

    def test_a_line_of_the_rubric_can_be_labelled_by_itself(self, run, night, kept):
        run("label", night, "--annotator", "ann", "--budget", 1, "--line", "goal_progress", keys="y")
        run("label", night, "--annotator", "ann", "--budget", 18, keys="y " * 18)
        assert [each.line for each in kept()].count("goal_progress") == 1 and len(kept()) == 19

    def test_of_a_long_result_the_middle_is_left_out_until_all_is_asked_for(self, run, tmp_path, kept):
        lines = "\n".join(f"line {number}" for number in range(90))
        long = turn(0, "read_file", path="a.py")
        long = msgspec.structs.replace(long, results=(msgspec.structs.replace(long.results[0], content=lines),))
        night = write_night(tmp_path / "long", [make_episode(turns=[long])])
        _, out, _ = run("label", night, "--annotator", "ann", "--budget", 1, keys="f q")
        first, whole = out.split("line 89", 1)
        assert "67 lines left out" in first and "line 40" not in first and "line 40" in whole

    def test_a_hostile_result_moves_no_cursor_and_is_no_markup(self, run, tmp_path):
        evil = turn(0, "bash", command="[red]echo[/red] \x1b]0;title\x07\x1b[2J")
        night = write_night(tmp_path / "evil", [make_episode(turns=[evil])])
        _, out, _ = run("label", night, "--annotator", "ann", "--budget", 1, keys="q")
        assert "\x1b" not in out and "\x07" not in out and "[red]echo[/red]" in out

    def test_what_is_worth_labelling_can_be_listed_for_people_and_machines(
        self, run, night, judged, kept, episodes, tmp_path
    ):
        code, out, _ = run("label", night, "--list", "--budget", 4, "--seed", 1, "--json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert code == 0 and len(rows) == 4 and rows[0]["episode_id"] == episodes[3].episode_id
        assert (
            rows[0]["why"] == "judges are unsure: mean score 0.50"
            and [row["why"] for row in rows].count("drawn at random") == 1
        )
        assert "judges are unsure: mean score 0.50" in run("label", night, "--list", "--budget", 4, "--seed", 1)[1]
        assert not (tmp_path / "home" / "labels").exists()

    def test_ctrl_c_loses_nothing_that_was_answered(self, run, night, kept, monkeypatch):
        pressed = iter("yn")

        def key():
            try:
                return next(pressed)
            except StopIteration:
                raise KeyboardInterrupt from None

        monkeypatch.setattr("ratchet.render.label_session.read_key", key)
        code, _, err = run("label", night, "--annotator", "ann")
        assert code == 130 and "2 labels by ann kept" in err and len(kept()) == 2

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["label"], 2, "nothing to label was given"),
            (["label", "absent.jsonl"], 3, "absent.jsonl cannot be read"),
            (["label", "{night}", "--budget", "0"], 2, "--budget"),
            (["label", "{night}", "--judgements", "absent.jsonl"], 3, "absent.jsonl cannot be read"),
            (["label", "--import", "absent.csv"], 3, "absent.csv cannot be read"),
            (["label", "--export", "labels.txt"], 2, "are written as CSV or JSONL"),
            (["calibrate", "--labels", "absent.jsonl"], 3, "absent.jsonl cannot be read"),
            (["calibrate", "--plot", "x.png"], 3, "too few labels for a reliability diagram"),
        ],
    )  # fmt: skip
    def test_a_wrong_command_line_is_one_line(self, run, night, words, code, said):
        found, _, err = run(*(word.format(night=night) for word in words))
        assert found == code and said in err and len(err.strip().splitlines()) == 1

    def test_help_teaches_with_an_example(self, run):
        for command, example in (("label", "ratchet label data/rollouts"), ("calibrate", "ratchet calibrate --plot")):
            code, out, _ = run(command, "--help")
            assert code == 0 and example in " ".join(out.split())

    @pytest.mark.slow
    def test_in_a_terminal_single_keys_are_enough(self, night, tmp_path):
        """A real terminal, as far as the program can tell."""
        script = "import sys; from ratchet import cli; sys.exit(cli.run(sys.argv[1:]))"
        master, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", script, "label", night, "--annotator", "ann", "--budget", "3"],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "RATCHET_HOME": str(tmp_path / "home")},
        )
        os.close(terminal)
        os.write(master, b"y\x1b[Anq")
        _, err = process.communicate(timeout=2 * LIMIT)
        os.close(master)
        assert process.returncode == 0 and b"2 labels by ann kept" in err, err


class TestTables:
    def test_labels_come_from_a_table_once_and_go_to_one(self, run, night, kept, episodes, tmp_path):
        rows = [f"{each.episode_id},1,0,{n % 2}" for n, each in enumerate(episodes)]
        (tmp_path / "in.csv").write_text("episode_id,turn,step,value\n" + "\n".join(rows) + "\n")
        words = ("label", night, "--import", tmp_path / "in.csv", "--annotator", "ann", "--json")
        assert json.loads(run(*words)[1]) == {"read": 6, "new": 6}
        assert len(kept()) == 6 and {each.content_hash for each in kept()} == {each.content_hash for each in episodes}
        code, out, _ = run("label", "--export", tmp_path / "out" / "labels.csv")
        assert code == 0 and "6 written" in out
        assert run("label", "--import", tmp_path / "out" / "labels.csv", "--json")[1].strip() == '{"read":6,"new":0}'

    def test_a_fault_in_a_table_takes_nothing_of_it(self, run, tmp_path):
        (tmp_path / "in.csv").write_text("episode_id,value,annotator,domain\nep-1,1,ann,coding\nep-2,2,ann,coding\n")
        code, _, err = run("label", "--import", tmp_path / "in.csv")
        assert code == 3 and "in.csv, line 3: 'value' must be in [0, 1]" in err
        assert not (tmp_path / "home" / "labels" / "labels.jsonl").exists()


class TestCalibrate:
    @pytest.fixture
    def data(self, tmp_path):
        """A lenient judge over two nights, labelled; nothing else stands there."""
        rng = random.Random(1)
        for night in ("n1", "n2"):
            judged, said = [], []
            for number in range(30):
                episode = make_episode(f"repair/{night}-{number}")
                for step in range(3):
                    right = rng.random() < 0.5
                    judged.append(
                        judgement(episode, step, min(1.0, 0.6 + 0.3 * right + rng.gauss(0, 0.05)), night=night)
                    )
                    place = {"episode_id": episode.episode_id, "content_hash": episode.content_hash, "domain": "coding"}
                    said.append(Label(**place, turn=step, step=0, value=float(right), annotator="ann"))
            write(tmp_path / "data" / "judgements" / night / "judgements.jsonl", judged)
            write(tmp_path / "data" / "labels" / night / "labels.jsonl", said)
        return tmp_path / "data"

    def test_it_tells_how_well_the_judge_does_and_what_corrects_it(self, run, data, tmp_path):
        code, out, _ = run("calibrate")
        text = " ".join(out.split())
        assert code == 0 and "180 labels, 180 scores of judges, 180 of them labelled; calibration cal-" in text
        assert "small · all domains · all criteria" in text and "judge in coding: trusted" in text
        assert "drift over nights" in text and "n2" in text
        assert not (data / "calibration.json").exists()  # nothing is written unless it is asked for

    def test_what_is_written_is_what_scoring_reads(self, run, data, tmp_path):
        code, _, err = run("calibrate", "--out", data / "calibration.json", "--plot", tmp_path / "plots" / "r.png")
        assert code == 0 and "written: " in err
        assert (tmp_path / "plots" / "r.png").read_bytes().startswith(b"\x89PNG")
        calibration = Calibration.load(data / "calibration.json")
        assert calibration.apply(judgement(make_episode(), 0, 0.65)).overall < 0.2

    def test_what_is_read_stays_and_a_place_that_cannot_be_written_is_told_of(self, run, data, tmp_path):
        labels = tmp_path / "home" / "labels" / "labels.jsonl"
        labels.parent.mkdir(parents=True)
        labels.write_bytes(b"")
        for words in (("calibrate", "--out", labels), ("label", "--export", labels)):
            code, _, err = run(*words)
            assert code == 2 and "is what is read" in err
        (tmp_path / "file").write_text("")
        code, _, err = run("calibrate", "--out", tmp_path / "file" / "calibration.json")
        assert code == 2 and "cannot be written" in err and "Traceback" not in err

    def test_for_a_machine_it_is_one_json_line(self, run, data):
        code, out, _ = run("calibrate", "--json")
        found = json.loads(out)
        assert code == 0 and len(out.strip().splitlines()) == 1
        assert found["pools"][0]["after"]["mae"] < 0.6 * found["pools"][0]["before"]["mae"]
        assert found["judges"][0]["agreement"]["pairwise"]["value"] > 0.9 and len(found["nights"]) == 2

    def test_parameters_are_those_of_the_build(self, run, data, tmp_path):
        (tmp_path / "params.yaml").write_text("calibration: {min_labels: 500}\n")
        code, out, err = run("calibrate")
        assert code == 0 and "calibration none" in out and "too few labels to fit a curve" in err

    def test_labels_in_the_terminal_count_at_once(self, run, night, judged, tmp_path):
        run("label", night, "--annotator", "ann", "--budget", 5, keys="y y y y y")
        _, out, err = run("calibrate")
        assert "5 labels, 18 scores of judges, 5 of them labelled; calibration none" in out and "too few labels" in err

    def test_with_nothing_at_all_it_says_so(self, run):
        code, out, _ = run("calibrate")
        assert code == 0 and "0 labels, 0 scores" in out and "calibration none" in out

    def test_labels_of_what_no_judge_saw_are_counted(self, run, night, tmp_path):
        run("label", night, "--annotator", "ann", "--budget", 2, keys="y n")
        _, _, err = run("calibrate")
        assert "2 labels have no judge's score to compare with" in err
