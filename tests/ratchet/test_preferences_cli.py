"""`ratchet preferences` and `ratchet compare` on files: pairs with reasons, rewards side by side."""

import json

import msgspec
import pytest
from episodes import make_episode, night_of, turn, write_night
from msgspec.structs import replace

from ratchet.components.rewards.annotation_records import Judgement, judgement_key
from ratchet.components.trajectories.chat_messages import chat_messages
from ratchet.components.trajectories.trajectory import Parent, with_content_hash


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def write(path, *records):
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    return path


@pytest.fixture
def some(tmp_path):
    """Two tasks, each solved once and failed once."""
    episodes = [make_episode(f"t{n}", attempt, success=attempt == 0) for n in range(2) for attempt in range(2)]
    return write(tmp_path / "some.jsonl", *episodes)


class TestPreferences:
    def test_pairs_are_shown_with_their_reasons_and_what_was_left_out(self, run, some):
        code, out, _ = run("preferences", some, "--max-length-gap", 1)
        assert code == 0
        assert "edit_file(main.py; new: return good) rather than" in out
        assert "2 step-level" in out and "2 trajectory-level" in out and "of 4 episodes" in out

    def test_what_is_read_is_never_written_over(self, run, some, tmp_path):
        before = some.read_bytes()
        for out in (some, tmp_path / "." / "some.jsonl"):
            code, _, err = run("preferences", some, "--out", out)
            assert code == 2 and "is what is read" in err and some.read_bytes() == before
        shard = write_night(tmp_path / "night", [make_episode("t0")]) / "shard-00000.jsonl"
        before = shard.read_bytes()
        assert run("preferences", tmp_path / "night", "--winrate", "--labels", shard)[0] == 2
        assert shard.read_bytes() == before

    def test_without_a_pair_nothing_is_written_and_the_reason_and_the_settings_are_shown(self, run, some, tmp_path):
        code, _, err = run("preferences", some, "--margin", 1, "--level", "step", "--out", tmp_path / "dpo.jsonl")
        assert code == 3 and "less than the margin 1" in err and "margin=1.0" in err and "levels=('step',)" in err
        assert not (tmp_path / "dpo.jsonl").exists() and run("preferences", some, "--margin", 1, "--json")[0] == 3

    def test_for_a_script_each_pair_is_a_json_line_and_the_summary_the_last(self, run, some):
        code, out, _ = run("preferences", some, "--json", "--level", "step", "--max-length-gap", 1)
        *pairs, summary = map(json.loads, out.splitlines())
        assert code == 0 and len(pairs) == 2 and summary["summary"]["pairs"] == {"step": 2}
        won, lost = make_episode("t0", 0), make_episode("t0", 1, success=False)
        (pair,) = [each for each in pairs if each["task_id"] == "t0"]
        assert (pair["chosen"]["episode_id"], pair["rejected"]["episode_id"]) == (won.episode_id, lost.episode_id)
        assert (pair["level"], pair["turn"]) == ("step", 1)
        assert pair["margin"] == pytest.approx(pair["chosen"]["worth"] - pair["rejected"]["worth"])
        assert pair["chosen"]["samples"] == 1 and "succeeded with 4/4 tests" in pair["why"]

    def test_defect_31_what_is_written_for_dpo_begins_with_the_task(self, run, some, tmp_path):
        code, out, _ = run("preferences", some, "--level", "step", "--max-length-gap", 1, "--out", "dpo.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "dpo.jsonl").read_text().splitlines()]
        assert code == 0 and "written: dpo.jsonl" in out and len(rows) == 2
        won = make_episode("t0", 0)
        (row,) = [each for each in rows if each["task_id"] == "t0"]
        assert row["prompt"] == chat_messages(won)[:3] and row["prompt"][0] == {"role": "user", "content": "repair t0"}
        assert [len(row[side]) for side in ("chosen", "rejected")] == [1, 1]

    def test_a_branch_that_holds_only_its_own_turns_is_written_with_its_whole_prompt(self, run, tmp_path):
        lost, won = make_episode("t0", 0, success=False), make_episode("t0", 1)
        own = (turn(0, "edit_file", path="main.py", old="x", new="return good"), turn(1, "submit"))
        branch = with_content_hash(replace(won, turns=own, messages=(), parent=Parent(lost.episode_id, 1)))
        write(tmp_path / "tree.jsonl", branch, lost)
        run("preferences", "tree.jsonl", "--level", "step", "--max-length-gap", 1, "--out", "dpo.jsonl")
        (row,) = [json.loads(line) for line in (tmp_path / "dpo.jsonl").read_text().splitlines()]
        assert row["prompt"] == chat_messages(lost)[:3] and row["turn"] == 1
        assert row["episode_ids"] == [branch.episode_id, lost.episode_id]

    def test_win_rates_are_compared_and_written_as_labels(self, run, some, tmp_path):
        code, out, _ = run(
            "preferences", some, "--winrate", "--labels", "labels.jsonl", "--json", "--max-length-gap", 1
        )
        pairs = [json.loads(line) for line in out.splitlines()][:-1]
        assert code == 0 and {each["margin"] for each in pairs} == {1.0}
        labels = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
        assert sorted(each["value"] for each in labels) == [0, 0, 1, 1]
        assert {(each["line"], each["annotator"], each["turn"]) for each in labels} == {("winrate", "winrate", -1)}

    def test_settings_come_from_params_yaml_and_flags_go_before_them(self, run, some, tmp_path):
        (tmp_path / "params.yaml").write_text("score: {}\npairs: {levels: [trajectory], max_length_gap: 1}\n")
        _, out, _ = run("preferences", some, "--json")
        assert json.loads(out.splitlines()[-1])["summary"]["pairs"] == {"trajectory": 2}
        _, out, _ = run("preferences", some, "--json", "--level", "step")
        assert json.loads(out.splitlines()[-1])["summary"]["pairs"] == {"step": 2}

    def test_pairs_of_held_out_tasks_are_shown_and_never_written_to_be_trained_on(self, run, tmp_path):
        episodes = [
            make_episode(f"t-{role}", attempt, success=attempt == 0, role=role)
            for role in ("train", "promote", "audit", "reserve")
            for attempt in range(2)
        ]
        path, out = write(tmp_path / "all.jsonl", *episodes), tmp_path / "dpo.jsonl"
        code, shown, said = run("preferences", path, "--level", "step", "--max-length-gap", 1, "--out", out)
        assert code == 0 and "4 step-level" in shown and "3 pairs of held-out tasks are not written" in said
        assert [json.loads(line)["task_id"] for line in out.read_text().splitlines()] == ["t-train"]

    def test_judgements_count_as_they_do_for_score(self, run, tmp_path):
        """Two equal successes: rules cannot tell them apart, a judge can."""
        one, other = (make_episode("t0", n, edit=f"return good{n}") for n in range(2))
        write(tmp_path / "two.jsonl", one, other)
        _, out, _ = run("preferences", "two.jsonl", "--json", "--level", "step")
        assert len(out.splitlines()) == 1
        judged = [
            Judgement(
                key=judgement_key(each.content_hash, 1, 0, "r@1", "j@1", "p@1"), layer="judge", domain="coding",
                episode_id=each.episode_id, content_hash=each.content_hash, turn=1, step=0, rubric="r@1", judge="j@1",
                prompt="p@1", scores={"goal_progress": score}, overall=score,
            )
            for each, score in ((one, 0.0), (other, 1.0))
        ]  # fmt: skip
        write(tmp_path / "judgements.jsonl", *judged)
        _, out, _ = run("preferences", "two.jsonl", "--json", "--level", "step", "--judgements", "judgements.jsonl")
        assert json.loads(out.splitlines()[0])["chosen"]["episode_id"] == other.episode_id

    def test_folders_of_shards_are_read_and_an_episode_in_two_of_them_counts_once(self, run, some, tmp_path):
        night = write_night(tmp_path / "night", night_of(3, 4))
        _, once, _ = run("preferences", night, "--json", "--max-length-gap", 1)
        copied = write_night(tmp_path / "copy", night_of(3, 4))
        _, twice, _ = run("preferences", night, copied, "--json", "--max-length-gap", 1)
        assert once == twice and len(once.splitlines()) > 1

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["absent.jsonl"], 2, "absent.jsonl is absent"),
            (["{some}", "--domain", "codin"], 2, "did you mean 'coding'?"),
            (["{some}", "--level", "steps"], 2, "levels"),
            (["{some}", "--margin", "0"], 2, "margin"),
            (["{some}", "--labels", "x.jsonl"], 2, "give --winrate too"),
            (["empty.jsonl"], 3, "no trajectories"),
            (["cut.jsonl"], 3, "cut short"),
            (["binary.jsonl"], 3, "binary.jsonl, line 1"),
            (["{some}", "--out", "."], 2, "cannot be written"),
        ],
    )
    def test_wrong_input_is_one_line(self, run, some, tmp_path, words, code, said):
        (tmp_path / "empty.jsonl").write_bytes(b"")
        (tmp_path / "cut.jsonl").write_bytes(some.read_bytes()[:-20])
        (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00\n")
        found, _, err = run("preferences", *(word.format(some=some) for word in words))
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        assert found == code and len(errors) == 1 and said in errors[0]


class TestCompare:
    @pytest.fixture
    def two(self, tmp_path):
        tasks = [f"t{n}" for n in range(8)]
        before = [make_episode(task, 0, success=n < 2) for n, task in enumerate(tasks)]
        after = [make_episode(task, 0, success=n < 7, version="weights-2") for n, task in enumerate(tasks)]
        family = [lambda each, n=n: replace(each, task=replace(each.task, family=f"f{n}")) for n in range(8)]
        return (
            write(tmp_path / "before.jsonl", *(own(each) for own, each in zip(family, before, strict=True))),
            write(tmp_path / "after.jsonl", *(own(each) for own, each in zip(family, after, strict=True))),
        )

    def test_rewards_stand_side_by_side_with_a_paired_interval(self, run, two):
        code, out, _ = run("compare", *two)
        assert code == 0
        assert "after minus before" in out and "total: higher; higher at 5 tasks, lower at 0, equal at 3" in out
        assert "mean total of each task" in out

    def test_for_a_script_it_is_one_json_line(self, run, two):
        _, out, _ = run("compare", *two, "--json")
        found = json.loads(out)
        assert [each["name"] for each in found["sets"]] == ["before", "after"]
        difference = found["differences"][0]
        totals = [b - a for a, b in (each["totals"] for each in found["tasks"])]
        assert difference["parts"]["total"]["value"] == pytest.approx(sum(totals) / 8)
        interval = difference["parts"]["total"]["interval"]
        assert 0 < interval["low"] < difference["parts"]["total"]["value"] < interval["high"]
        assert difference["parts"]["outcome"]["value"] == pytest.approx(5 * 0.75 / 8)

    def test_three_files_and_folders_may_be_mixed(self, run, two, tmp_path):
        night = write_night(tmp_path / "night", [make_episode(f"t{n}", 3, version="weights-3") for n in range(8)])
        code, out, _ = run("compare", *two, night, "--json")
        assert code == 0 and [each["name"] for each in json.loads(out)["sets"]] == ["before", "after", "night"]

    def test_files_of_one_name_are_told_apart_by_their_folders(self, run, two, tmp_path):
        (tmp_path / "other").mkdir()
        again = write(tmp_path / "other" / "before.jsonl", make_episode("t0", 5))
        _, out, _ = run("compare", two[0], again, "--json")
        assert [each["name"] for each in json.loads(out)["sets"]] == [
            f"{tmp_path.name}/before.jsonl",
            "other/before.jsonl",
        ]

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["before.jsonl"], 2, "give two or more files"),
            (["before.jsonl", "before.jsonl"], 2, "is given twice"),
            (["before.jsonl", "absent.jsonl"], 2, "absent.jsonl is absent"),
            (["before.jsonl", "after.jsonl", "--control", "x"], 2, "--control and --role are only valid"),
            (["before.jsonl", "after.jsonl", "--domain", "codin"], 2, "did you mean 'coding'?"),
            (["before.jsonl", "elsewhere.jsonl"], 3, "share no task"),
            (["night", "night", "night"], 2, "holds no finished episodes"),
            (["night", "night", "--domain", "coding"], 2, "are for files"),
        ],
    )
    def test_wrong_input_is_one_line(self, run, two, tmp_path, words, code, said):
        write(tmp_path / "elsewhere.jsonl", make_episode("another", 0))
        (tmp_path / "night").mkdir()
        found, _, err = run("compare", *words)
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        assert found == code and len(errors) == 1 and said in errors[0]
