"""`ratchet trajectories`: logs in, records out, and what a person or a script sees of them."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from episodes import make_episode, turn
from log_files import ROOT, SAMPLES, fixtures_of
from msgspec.structs import replace
from records import recorded

from ratchet import cli
from ratchet.components.core import ToolCall, ToolResult
from ratchet.components.interop.reader_registry import BUNDLED
from ratchet.components.rewards.score_table import WHOLE, ScoreRow, write_parquet
from ratchet.components.trajectories.shards import read_jsonl
from ratchet.components.trajectories.store.store_reader import TrajectoryStore
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.terminal_rendering import render_trajectory
from ratchet.components.trajectories.trajectory import Turn, schema_text

needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no folder of real logs: name it in RATCHET_SAMPLES")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))


@pytest.fixture
def run(capsys):
    def run(*words):
        code = cli.run(["trajectories", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def write(path, *records):
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
    return path


@pytest.fixture
def some(tmp_path):
    return write(tmp_path / "some.jsonl", *(make_episode(attempt=i, success=i < 2, edit=f"x = {i}") for i in range(4)))


class TestConvert:
    def test_a_log_becomes_records_and_the_counts_are_told(self, run, some, tmp_path):
        code, out, err = run("convert", some, "-o", tmp_path / "out.jsonl")
        assert code == 0 and err == ""
        assert "4 trajectories of 12 steps from 1 file (ratchet 4)" in out and "2 yes, 2 no, 0 unknown" in out
        assert len(list(read_jsonl(tmp_path / "out.jsonl"))) == 4

    def test_for_a_script_the_counts_are_one_json_line(self, run, some, tmp_path):
        _, out, _ = run("convert", some, "-o", tmp_path / "out.jsonl", "--json")
        counts = json.loads(out)
        assert (counts["trajectories"], counts["rejected"], counts["to"]) == (4, 0, "ratchet")

    def test_stdin_and_stdout_are_a_dash(self, some):
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from ratchet import cli; sys.exit(cli.run(sys.argv[1:]))",
             "trajectories", "convert", "-", "-o", "-"],
            input=some.read_bytes(), capture_output=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout == some.read_bytes() and b"4 trajectories" in done.stderr

    def test_bad_parts_are_kept_beside_and_counted(self, run, some, tmp_path):
        with some.open("ab") as file:
            file.write(b'{"episode_id": 1}\n')
        code, _, err = run("convert", some, "-o", tmp_path / "out.jsonl")
        assert code == 3 and "line 5" in err and "--skip-bad" in err and not (tmp_path / "out.jsonl").exists()
        code, out, _ = run("convert", some, "-o", tmp_path / "out.jsonl", "--skip-bad")
        assert code == 0 and "1 part could not be read" in out
        assert len((tmp_path / "out.rejected.jsonl").read_text().splitlines()) == 1

    def test_of_a_folder_what_is_no_log_is_named(self, run, some, tmp_path):
        (tmp_path / "notes.txt").write_text("nothing")
        code, _, err = run("convert", tmp_path, "-o", tmp_path / "out" / "all.jsonl")
        assert code == 0 and "left out, of no known format" in err and "notes.txt" in err

    def test_what_another_format_has_no_place_for_is_said(self, run, some, tmp_path):
        code, out, _ = run("convert", some, "-o", tmp_path / "out.jsonl", "--to", "openai_chat")
        assert code == 0 and "openai_chat cannot represent: " in out and "outcome" in out
        again = json.loads(run("stats", tmp_path / "out.jsonl", "--json")[1])
        assert (again["episodes"], again["steps"]["total"]) == (4, 12)

    def test_long_work_says_how_far_it_has_come(self, run, some, tmp_path, monkeypatch):
        monkeypatch.setattr("ratchet.commands.trajectories.PROGRESS_SECONDS", -1.0)
        _, _, err = run("convert", some, "-o", tmp_path / "out.jsonl")
        assert "4 trajectories so far, from 1 files" in err

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["convert", "absent.traj", "-o", "x.jsonl"], 3, "absent.traj cannot be read"),
            (["convert", "{some}", "-o", "x.jsonl", "--format", "swe-agnt"], 2, "did you mean 'swe_agent'?"),
            (["convert", "{some}", "-o", "{some}"], 2, "is the log itself"),
            (["convert", "{some}"], 2, "--out"),
            (["stats", "absent.jsonl"], 3, "absent.jsonl cannot be read"),
            (["show", "{some}", "--episode", "ep-none"], 3, "has no episode 'ep-none'"),
            (["validate"], 2, "Missing argument"),
        ],
    )
    def test_a_wrong_command_line_is_one_line_and_writes_nothing(
        self, run, some, tmp_path, monkeypatch, words, code, said
    ):
        monkeypatch.chdir(tmp_path)
        found, _, err = run(*(word.format(some=some) for word in words))
        assert found == code and said in err and len(err.strip().splitlines()) == 1
        assert [each.name for each in tmp_path.iterdir()] == ["some.jsonl"]

    def test_a_folder_without_an_episode_is_no_wrong_episode(self, run, tmp_path):
        (tmp_path / "plan.txt").write_text("none was played")
        code, _, err = run("show", tmp_path)
        assert code == 3 and "holds no episode" in err


class TestValidate:
    def test_a_valid_file_says_so(self, run, some):
        code, out, _ = run("validate", some)
        assert code == 0 and "4 records in 1 file: 0 errors, 0 warnings" in out

    def test_every_problem_is_one_line_and_the_exit_code_is_3(self, run, some):
        bad = make_episode(attempt=9, turns=(replace(turn(0, "run"), index=4),))
        write(some, make_episode(), replace(bad, group_id="gr-\x1b[2J"))
        with some.open("ab") as file:
            file.write(b"{")
        code, out, _ = run("validate", some)
        problems = [line for line in out.splitlines() if line.startswith("error: ")]
        assert code == 3 and len(problems) == 3 and "\x1b" not in out
        assert all("some.jsonl, line " in line for line in problems)
        assert "2 records in 1 file: 3 errors" in out

    def test_for_a_script_each_problem_is_a_json_line_and_the_summary_the_last(self, run, some):
        with some.open("ab") as file:
            file.write(b"[]\n")
        code, out, _ = run("validate", some, "--json")
        problem, summary = map(json.loads, out.splitlines())
        assert code == 3 and summary["valid"] is False and summary["summary"]["errors"] == 1
        assert (problem["line"], problem["severity"]) == (5, "error") and problem["advice"]

    def test_a_warning_alone_is_valid(self, run, some):
        write(some, make_episode(attempt=0), make_episode(attempt=1))
        code, out, _ = run("validate", some)
        assert code == 0 and "warning: " in out and "repeated: 0 identities, 1 content" in out


class TestDiff:
    def test_the_same_is_0_and_one_line_of_sums(self, run, some, tmp_path):
        copy = write(tmp_path / "copy.jsonl", *reversed(list(read_jsonl(some))))
        code, out, _ = run("diff", some, copy)
        assert code == 0 and "4 pairs: 4 the same, 0 different" in out

    def test_what_differs_is_3_and_told_with_the_place_where_they_part(self, run, tmp_path):
        left = write(tmp_path / "left.jsonl", make_episode(success=True), make_episode("other"))
        right = write(tmp_path / "right.jsonl", make_episode(success=False, version="weights-2"))
        code, out, _ = run("diff", left, right, "--content")
        assert code == 3
        assert "they diverge at turn 1" in out and 'arguments.new: "return good" | "return bad 0"' in out
        assert "success: true | false" in out and "3 differences" in out
        assert "1 pair: 0 the same, 1 different" in out and f"1 only in {left}" in out

    def test_long_values_are_shown_where_they_differ(self, run, tmp_path):
        one, other = (
            make_episode(turns=(turn(0, "run", text="x" * 5000 + end + "y" * 5000),)) for end in ("left", "right")
        )
        _, out, _ = run("diff", write(tmp_path / "a.jsonl", one), write(tmp_path / "b.jsonl", other))
        assert "xleftyyy" in out and "xrightyyy" in out and len(out) < 2000

    def test_for_a_script_each_pair_that_differs_is_a_json_line(self, run, tmp_path):
        left, right = (write(tmp_path / f"{s}.jsonl", make_episode(success=s)) for s in (True, False))
        code, out, _ = run("diff", left, right, "--json")
        pair, summary = map(json.loads, out.splitlines())
        assert code == 3 and summary["same"] is False and summary["summary"]["different"] == 1
        assert pair["divergence"]["turn"] == 1 and {"field", "left", "right"} <= pair["differences"][0].keys()


class TestStats:
    def test_numbers_for_a_person(self, run, some):
        code, out, _ = run("stats", some)
        lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
        assert code == 0
        assert "4 of 1 task" in lines["episodes"] and "2 of 4 known (50.0 %), 0 unknown" in lines["success"]
        assert "unknown" in lines["tokens"] and "unknown" in lines["cost"]
        assert "█" in out and "edit_file" in out

    def test_numbers_for_a_script(self, run, some):
        _, out, _ = run("stats", some, "--json")
        found = json.loads(out)
        assert (found["episodes"], found["success_rate"], found["cost"]) == (4, 0.5, None)
        assert found["tools"]["submit"] == {"calls": 4, "answered": 4, "errors": 0, "unreadable": 0, "error_rate": 0.0}

    def test_names_out_of_a_log_steer_nothing(self, run, tmp_path):
        calls = (ToolCall("a", "[/red]\x1b[2J"), ToolCall("b", "[link=x]"))
        record = make_episode(turns=(Turn(0, "a", "", calls=calls, results=(ToolResult("a", ""),)),))
        code, out, _ = run("stats", write(tmp_path / "odd.jsonl", record))
        assert code == 0 and "\x1b" not in out and "[/red]" in out and "[link=x]" in out


class TestShow:
    def test_every_episode_step_by_step(self, run, some):
        code, out, _ = run("show", some)
        assert code == 0 and out.count("episode  ep-") == 4 and out.count("step 1.0  edit_file(") == 4

    def test_one_by_the_beginning_of_its_id(self, run, some):
        wanted = list(read_jsonl(some))[2].episode_id
        _, out, _ = run("show", some, "--episode", wanted[:10])
        assert out.count("episode  ep-") == 1 and wanted in out

    def test_nothing_is_cut_in_full(self, run, tmp_path):
        long = make_episode(turns=(replace(turn(0, "run"), text="line\n" * 500 + "end"),))
        path = write(tmp_path / "long.jsonl", long)
        assert run("show", path)[1].count("  line") < 100 < run("show", path, "--full")[1].count("  line")


def test_the_schema_is_the_published_one(run):
    assert run("schema") == (0, schema_text(), "")


STEPS = {
    "swe-agent/pydicom__pydicom-1458.traj": (
        12,
        {"create": 1, "edit": 5, "find_file": 1, "open": 1, "bash": 3, "submit": 1},
    ),
    "swe-agent/humanevalfix-python-0.traj": (5, {"edit": 1, "open": 1, "bash": 2, "submit": 1}),
    "swe-agent/marshmallow-1867-function-calling.traj": (
        11,
        {"create": 1, "bash": 4, "edit": 3, "find_file": 1, "open": 1, "submit": 1},
    ),
    "swe-agent/function_calling_simple.traj": (5, {"find_file": 1, "open": 1, "edit": 1, "bash": 1, "submit": 1}),
    "mini-swe-agent/local.traj.json": (2, None),
    "openhands/output.jsonl": (9, {"execute_bash": 8, "finish": 1}),
}


@needs_samples
@pytest.mark.parametrize("name", STEPS)
def test_defect_39_real_logs_are_read_from_end_to_end(name, run, tmp_path):
    steps, tools = STEPS[name]
    out = tmp_path / "out.jsonl"
    assert run("convert", SAMPLES / name, "-o", out)[0] == 0
    assert run("validate", out)[0] == 0
    found = json.loads(run("stats", out, "--json")[1])
    assert found["episodes"] == 1 and found["steps"]["total"] == steps
    assert found["succeeded"] == 0, "none of these logs proves a success: they were handed in, or not"
    if tools is not None:
        assert {tool: use["calls"] for tool, use in found["tools"].items()} == tools
    assert run("show", out)[1].count("\n  step ") == steps
    assert run("diff", SAMPLES / name, out)[0] == 0, "one log has one identity, however it is read"


@needs_samples
def test_defect_39_a_renamed_log_is_what_it_is(run, tmp_path):
    """The original took a `.traj` renamed to `.json` for an episode of 0 steps that succeeded."""
    renamed = tmp_path / "renamed.json"
    renamed.write_bytes((SAMPLES / "swe-agent" / "pydicom__pydicom-1458.traj").read_bytes())
    found = json.loads(run("stats", renamed, "--json")[1])
    assert (found["steps"]["total"], found["succeeded"]) == (12, 0)


@pytest.mark.parametrize("format", BUNDLED)
def test_whatever_is_read_keeps_the_rules_of_a_record_and_can_be_shown(format, run, tmp_path):
    assert fixtures_of(format)
    for number, log in enumerate(fixtures_of(format)):
        out = tmp_path / f"{number}.jsonl"
        code, said, err = run("convert", log, "-o", out, "--format", format, "--skip-bad", "--json")
        assert code == 0 and json.loads(said)["trajectories"] > 0, (log, err)
        code, said, _ = run("validate", out)
        assert code == 0, (log, said)
        assert run("show", out)[0] == 0 and run("stats", out)[0] == 0 and run("diff", out, out)[0] == 0


@needs_samples
def test_a_folder_of_real_logs_is_one_file_of_records(run, tmp_path):
    code, out, err = run("convert", SAMPLES, "-o", tmp_path / "all.jsonl", "--json")
    counts = json.loads(out)
    assert code == 0 and counts["trajectories"] == 6 and counts["steps"] == sum(steps for steps, _ in STEPS.values())
    assert counts["formats"] == {"swe_agent": 4, "mini_swe_agent": 1, "openhands": 1}
    assert [Path(each).name for each in counts["strangers"]] == ["README.md"] and "README.md" in err
    assert run("validate", tmp_path / "all.jsonl")[0] == 0


def a_chat(**more):
    messages = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "This one."}]
    return {"id": "c-1", "messages": messages, **more}


def a_trace(**more):
    """An MLflow trace that people have looked at."""
    span = {
        "name": "chat",
        "span_id": "a1",
        "trace_id": "tr-1",
        "start_time_unix_nano": 1,
        "end_time_unix_nano": 2,
        "attributes": {
            "mlflow.spanType": '"CHAT_MODEL"',
            "mlflow.spanInputs": json.dumps({"messages": [{"role": "user", "content": "Which?"}]}),
            "mlflow.spanOutputs": json.dumps({"choices": [{"message": {"role": "assistant", "content": "This one."}}]}),
        },
    }
    return {"info": {"trace_id": "tr-1", "state": "OK", **more}, "data": {"spans": [span]}}


CONVERSATION = [{"from": "human", "value": "Which?"}, {"from": "gpt", "value": "This one."}]
VERDICT = {"by": "anna", "better": "left", "votes": [2, 1], "why": "It tested what it wrote."}


@pytest.mark.parametrize(
    ("log", "format"),
    [
        (a_chat(judgement=VERDICT), "openai_chat"),
        (a_trace(assessments=[VERDICT]), "mlflow"),
        (recorded(judgement=VERDICT), "ratchet"),
        ({"conversations": CONVERSATION, "judgement": VERDICT}, "sharegpt"),
    ],
)  # fmt: skip
def test_defect_36_a_judgement_that_was_pulled_is_kept_wherever_the_record_goes(log, format, run, tmp_path):
    """The original counted the judgements that it pulled, and threw them away."""
    write(tmp_path / "pulled.jsonl", log)
    code, out, _ = run("convert", tmp_path / "pulled.jsonl", "-o", tmp_path / "out.jsonl", "--json")
    assert code == 0 and json.loads(out)["formats"] == {format: 1}
    (record,) = read_jsonl(tmp_path / "out.jsonl")
    with StoreWriter(tmp_path / "store", raw=True) as store:
        store.put([record])
    for kept in (record, TrajectoryStore(tmp_path / "store").get(record.episode_id)):
        extra = kept.source_extra
        assert VERDICT in (extra.get("judgement"), *extra.get("assessments", ()))
        assert kept.outcome.success is None, "a judgement is no outcome"


def test_defect_36_scores_by_people_stay_with_their_episode_and_are_shown(run, some, tmp_path):
    record = next(read_jsonl(some))
    rows = [
        ScoreRow(record.episode_id, 1, 0, "human", "anna", 0.25),
        ScoreRow(record.episode_id, WHOLE, WHOLE, "total", "anna", 0.75),
    ]
    write_parquet(tmp_path / "judged.parquet", ScoreRow, rows)
    with StoreWriter(tmp_path / "store", raw=True) as store:
        store.put([record])
        store.attach_table(tmp_path / "judged.parquet")
    scores = TrajectoryStore(tmp_path / "store").scores(record.episode_id)
    assert scores[(1, 0)]["human"] == 0.25
    page = render_trajectory(record, scores)
    assert "total 0.750" in page and "[human 0.250]" in page


def test_every_command_names_what_it_leaves_out_of_a_folder(run, some, tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    for words in (["stats", tmp_path], ["show", tmp_path], ["diff", tmp_path, some]):
        code, _, err = run(*words)
        assert code == 0 and "left out, of no known format" in err and "notes.txt" in err


@pytest.mark.parametrize("cut", ['{\n "trajectory": [\n', '{"trajectory": ['])
def test_store_add_sets_a_damaged_log_of_a_folder_aside_and_names_strangers(some, tmp_path, capsys, cut):
    folder = tmp_path / "logs"
    folder.mkdir()
    some.rename(folder / "some.jsonl")
    (folder / "cut.json").write_text(cut)
    (folder / "notes.txt").write_text("nothing")
    assert cli.run(["store", "add", str(folder), "--store", str(tmp_path / "store")]) == 3
    said = capsys.readouterr()
    assert "cut.json" in said.err and "left out, of no known format" in said.err and "notes.txt" in said.err
    assert "4 added" in said.out and "1 rejected parts" in said.out
    (line,) = map(json.loads, (tmp_path / "store" / "rejected.jsonl").read_text().splitlines())
    assert "cut.json" in line["where"] and line["why"] and line["text"] == cut
