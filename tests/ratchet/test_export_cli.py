"""`ratchet export`: from the tables of the last build to folders that trainers read."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml
from built import Built
from dead_owner import dead_token
from episodes import night_of

from ratchet.components.core.files import temporary_path


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder that looks like a clone in which three stages before the export have run."""
    built = Built(tmp_path / "data", {"n1": night_of(12, 4)})
    build = {
        "nights": ["n1"],
        "inputs": {},
        "files": {"rollouts": ["data/rollouts/n1"], "scores": ["data/scores/n1.parquet"]},
        "folders": {"rollouts": ["data/rollouts/n1"]},
        "as_of": "2026-11-21",
        "scale": "smoke",
        "seed": 0,
        "baseline": None,
        "on_policy_only": False,
    }
    (tmp_path / "data/build.yaml").write_text(yaml.safe_dump(build))
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params.yaml").write_text("export: {}\n")
    monkeypatch.chdir(tmp_path)
    return built


def rows(path):
    return [msgspec.json.decode(line) for line in Path(path).read_bytes().splitlines()]


def test_sft_is_written_into_a_new_folder_and_counted(run, clone):
    code, out, _ = run("export", "--format", "sft", "-o", "out/sft")
    assert code == 0 and "written: out/sft" in out
    names = {path.name for path in Path("out/sft").iterdir()}
    assert names == {"README.md", "manifest.json", "rows.parquet", "train.jsonl", "validation.jsonl"}
    assert not list(Path("out").glob(".*"))


def test_what_a_killed_export_left_beside_is_removed_by_the_next_and_what_runs_is_not(run, clone):
    dead, running = Path(f"out/.sft.{dead_token()}.tmp"), temporary_path(Path("out/sft.old"))
    for path in (dead, running):
        path.mkdir(parents=True)
    assert run("export", "--format", "sft", "-o", "out/sft")[0] == 0
    assert not dead.exists() and {path.name for path in Path("out").iterdir()} == {"sft", running.name}


def test_filters_take_fewer_rows(run, clone):
    run("export", "--format", "sft", "-o", "all")
    code, out, _ = run("export", "--format", "sft", "-o", "some", "--where", "task_id == 'repair/train-0001'", "--json")
    assert code == 0
    assert 0 < json.loads(out)["rows"]["sft"]["train"] < len(rows("all/train.jsonl"))
    assert {row["task_id"] for row in rows("some/train.jsonl")} == {"repair/train-0001"}
    code, _, err = run("export", "--format", "sft", "-o", "none", "--min-reward", "0.95")
    assert code == 0 and rows("none/train.jsonl") == [] and "no episode matches" in err
    assert run("export", "--format", "sft", "-o", "good", "--min-gdi", "0.5")[0] == 0
    assert rows("good/train.jsonl") == rows("all/train.jsonl")


def test_grpo_is_tasks_to_play_and_groups_that_were_played(run, clone):
    assert run("export", "--format", "grpo", "-o", "out")[0] == 0
    assert {path.name for path in Path("out").iterdir()} == {"README.md", "grpo", "groups"}
    assert len(rows("out/groups/train.jsonl")[0]["advantages"]) == 4


def test_the_layout_of_the_hub_lists_every_dataset_in_one_card(run, clone):
    assert run("export", "--format", "huggingface", "-o", "out", "--parquet")[0] == 0
    front = yaml.safe_load(Path("out/README.md").read_text().split("---\n")[1])
    assert [each["config_name"] for each in front["configs"]] == ["sft", "dpo", "grpo", "groups", "benchmark"]
    for config in front["configs"]:
        for part in config["data_files"]:
            assert Path("out", part["path"]).is_file() and part["path"].endswith(".parquet")


def test_traces_are_read_back_as_they_were_played(run, clone, tmp_path):
    for format in ("verifiers", "prime-rl"):
        assert run("export", "--format", format, "-o", format)[0] == 0
        code, out, err = run("trajectories", "convert", f"{format}/train.jsonl", "-o", f"{format}.jsonl", "--json")
        assert code == 0, err
        report = json.loads(out)
        assert report["trajectories"] == len(rows(f"{format}/train.jsonl")) and not report.get("rejected")
    first = rows("prime-rl.jsonl")[0]
    assert [turn["calls"][0]["tool"] for turn in first["turns"]] == ["read_file", "edit_file", "submit"]
    assert first["outcome"]["score"] in (0.9, 0.2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "csv", "-o", "x"], "'csv' is no format of export; known: sft, dpo, grpo"),
        (["--format", "sft", "-o", "x", "--where", "gdi >"], "the expression is wrong at character 5"),
        (["--format", "sft", "-o", "x", "--where", "__import__('os')"], "the expression is wrong at character 1"),
        (["--format", "sft", "-o", "x", "--min-gdi", "7"], "min_gdi"),
        (["--format", "dpo", "-o", "x", "--level", "word"], "pair_levels"),
        (["--format", "sft", "-o", "data"], "data is there already; give a new folder"),
        (["--format", "sft", "-o", "params.yaml"], "params.yaml is there already"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(run, clone, words, said):
    code, out, err = run("export", *words)
    assert code == 2 and said in err and err.count("\n") == 1 and out == ""
    assert not Path("x").exists() and not list(Path().glob(".x*"))


def test_a_damaged_table_is_one_line_and_leaves_nothing(run, clone):
    clone.ranked.write_bytes(b"PAR1")
    code, _, err = run("export", "--format", "sft", "-o", "x")
    assert code == 3 and err.count("\n") == 1 and "ranked.parquet" in err and not Path("x").exists()


def test_outside_of_a_clone_nothing_is_exported(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("export", "--format", "sft", "-o", "x")
    assert code == 2 and "is not the root of a clone" in err


def test_the_page_of_help_has_an_example(run):
    code, out, _ = run("export", "--help")
    assert code == 0 and "ratchet export --format sft" in " ".join(out.split())


def test_pairs_of_a_level_that_the_build_did_not_make_are_refused_with_the_setting(run, clone):
    Path("params.yaml").write_text("export: {}\npairs: {levels: [step]}\n")
    code, _, err = run("export", "--format", "dpo", "--level", "trajectory", "-o", "x")
    assert code == 2 and "pairs.levels of params.yaml is [step]" in err and not Path("x").exists()


class TestLogs:
    """Logs are exported without a build, in any folder."""

    @pytest.fixture
    def chats(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        reply = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "a"}]
        chats = [{"messages": [{"role": "user", "content": f"Task {n}"}, *reply]} for n in range(2)]
        Path("chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        return Path("chats.jsonl")

    def test_without_a_known_success_the_reward_selects_and_the_card_says_so(self, run, chats):
        code, _, err = run("export", chats, "--format", "sft", "-o", "sft")
        assert code == 3 and "--min-reward" in err and not Path("sft").exists()
        code, out, err = run("export", chats, "--format", "sft", "--min-reward", "0.5", "-o", "sft")
        assert code == 0 and "written: sft" in out and "tools that their log does not define" in err
        assert [row["source"] for row in rows("sft/train.jsonl")] == ["imported", "imported"]
        card = Path("sft/README.md").read_text()
        assert "successful" not in card and "a reward of at least 0.5, whatever the outcome" in card

    def test_what_only_a_build_has_is_refused(self, run, chats):
        for option in (["--where", "gdi > 0"], ["--parquet"], ["--min-gdi", "0.5"]):
            code, _, err = run("export", chats, "--format", "sft", "-o", "x", *option)
            assert code == 2 and "without a build" in err, option
        for format in ("benchmark", "sfd"):
            assert run("export", chats, "--format", format, "-o", "x")[0] == 2
        assert run("export", chats, "--format", "grpo", "--min-reward", "1", "-o", "x")[0] == 2

    def test_no_pair_says_why(self, run, chats):
        code, _, err = run("export", chats, "--format", "dpo", "-o", "x")
        assert code == 3 and "no step-level pair among 2 episodes" in err and not Path("x").exists()

    def test_a_build_of_a_file_says_how_logs_are_built_or_exported(self, run, chats):
        Path("dvc.yaml").write_text("stages: {}\n")
        code, _, err = run("build", "logs/chats.jsonl")
        assert code == 2 and "data.rollouts" in err and "ratchet export LOG" in err
