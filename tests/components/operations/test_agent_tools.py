"""The tools of `ratchet mcp`, called as functions: what they return, and which level they need."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError

import ratchet
from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.operations.agent_tools import AGENT_TOOLS
from ratchet.components.operations.tool_scope import ToolScope

ORIGINAL = """
create_sandbox execute_tool reset_sandbox replay_trajectory sandbox_snapshot
convert_logs validate_logs get_schema recorder_diff
score_trajectory build_preferences calibrate_reward list_rubrics reward_leaderboard
run_pipeline export_dataset process_log process_logs_batch pipeline_status
""".split()  # noqa: SIM905
"""The tools of the earlier system's four servers."""


@pytest.fixture(scope="module")
def episodes():
    good = ratchet.collect("orders", agent="teacher", tasks=3)
    bad = ratchet.collect("orders", agent=lambda request: {"tool": "respond", "params": {"text": "No."}}, tasks=3)
    return [*good, *bad]


@pytest.fixture
def scope(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    (tmp_path / "runs").mkdir()
    return ToolScope.of("write", [tmp_path / "runs"])


@pytest.fixture
def log(scope, episodes):
    return str(ratchet.write(episodes, scope.roots[0] / "log.jsonl"))


def call(scope, name, **arguments):
    tool = AGENT_TOOLS[name]
    checked = tool.arguments.model_validate(arguments)
    result = tool.function(scope, **{field: getattr(checked, field) for field in tool.arguments.model_fields})
    return msgspec.json.decode(msgspec.json.encode(result))


def test_every_tool_of_the_earlier_system_is_there_and_described():
    assert len(ORIGINAL) == 19 and set(ORIGINAL) <= AGENT_TOOLS.keys()
    for tool in AGENT_TOOLS.values():
        schema = tool.arguments.model_json_schema()
        assert (
            len(tool.description) > 20
            and schema["additionalProperties"] is False
            and "scope" not in schema["properties"]
        )


def test_each_tool_stands_in_the_table_of_the_page_with_its_level():
    page = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"\| `(\w+)` \| (\w+) \|", page))
    assert table == {name: tool.level for name, tool in AGENT_TOOLS.items()}


def test_a_log_is_converted_in_the_answer_or_into_a_new_file(scope, log, episodes):
    converted = call(scope, "convert_logs", log_path=log, limit=2)["trajectories"]
    assert [each["episode_id"] for each in converted] == [each.episode_id for each in episodes[:2]]
    out = scope.roots[0] / "out.jsonl"
    assert call(scope, "convert_logs", log_path=log, output_path=str(out))["trajectories"] == 6
    assert call(scope, "validate_logs", log_path=str(out))["valid"]
    assert call(scope, "recorder_diff", trajectory_a=log, trajectory_b=str(out))["summary"]["same"]


def test_a_server_that_only_reads_writes_nothing(scope, log):
    reading = ToolScope("read", scope.home, scope.roots)
    with pytest.raises(ConfigurationError, match="--allow write"):
        call(reading, "convert_logs", log_path=log, output_path=str(scope.roots[0] / "new.jsonl"))
    assert [path.name for path in scope.roots[0].iterdir()] == ["log.jsonl"]


def test_what_stands_beside_an_output_is_not_overwritten(scope, log):
    (scope.roots[0] / "out.rejected.jsonl").write_text("mine")
    for name in ("out.jsonl", "out.txt", "log.jsonl"):
        with pytest.raises(ConfigurationError):
            call(scope, "convert_logs", log_path=log, output_path=str(scope.roots[0] / name))
    assert (scope.roots[0] / "out.rejected.jsonl").read_text() == "mine"


def test_a_record_is_scored_like_the_file_that_holds_it(scope, log, episodes):
    whole = call(scope, "score_trajectory", trajectory=log)
    assert whole["episodes"] == 6 and whole["mean"]["outcome"] == 0.5
    record = msgspec.to_builtins(episodes[0])
    (one,) = call(scope, "score_trajectory", trajectory=record)["scores"]
    assert one["outcome"] == whole["scores"][0]["outcome"] == 1.0


def test_pairs_come_from_files_or_records_of_a_task(scope, log, episodes):
    pairs = call(scope, "build_preferences", trajectories_by_task={"all": [log]})
    assert pairs["found"] == 3 and pairs["pairs"][0]["why"]
    by_task = {}
    for each in episodes:
        by_task.setdefault(each.task.task_id, []).append(msgspec.to_builtins(each))
    assert call(scope, "build_preferences", trajectories_by_task=by_task)["found"] == 3
    with pytest.raises(ConfigurationError, match="names no trajectories"):
        call(scope, "build_preferences", trajectories_by_task={"a": []})


def test_agreement_with_people_is_that_of_the_definition(scope):
    scores = [0.1, 0.4, 0.35, 0.8]
    agreement = call(scope, "calibrate_reward", reward_scores=scores, human_scores=[0.0, 0.5, 0.5, 1.0])
    assert agreement["count"] == 4 and agreement["mae"]["value"] == pytest.approx(0.1375)
    assert agreement["spearman"]["value"] == pytest.approx(0.9486833)
    with pytest.raises(ConfigurationError, match="one of each"):
        call(scope, "calibrate_reward", reward_scores=scores, human_scores=[0.1, 0.2])


def test_rubrics_and_the_schema_are_those_of_the_commands(scope):
    assert {each["name"] for each in call(scope, "list_rubrics")} >= {"coding", "conversation", "advisory"}
    assert call(scope, "get_schema")["$defs"]["Trajectory"]


def test_logs_are_processed_one_by_one_or_by_folder(scope, log):
    one = call(scope, "process_log", log_path=log, limit=1)
    assert one["conversion"]["trajectories"] == one["episodes"] == 6 and len(one["scores"]) == 1
    (scope.roots[0] / "broken.jsonl").write_text('{"episode_id": 3}\n')
    batch = call(scope, "process_logs_batch", log_dir=str(scope.roots[0]))
    assert batch["episodes"] == 6
    with pytest.raises(ConfigurationError, match="process_log"):
        call(scope, "process_logs_batch", log_dir=log)


@pytest.mark.slow
def test_a_dataset_is_exported_into_a_new_folder(scope, log):
    out = scope.roots[0] / "sft"
    assert (
        call(scope, "export_dataset", trajectories_path=log, format="sft", output_path=str(out))["rows"]["sft"]["train"]
        == 3
    )
    row = json.loads((out / "train.jsonl").read_text().splitlines()[0])
    assert row["messages"][0]["role"] in ("system", "user")
    with pytest.raises(ConfigurationError, match="nothing is overwritten"):
        call(scope, "export_dataset", trajectories_path=log, format="sft", output_path=str(out))


@pytest.mark.slow
def test_agents_are_ranked_and_compared_by_file(scope, episodes):
    good, bad = scope.roots[0] / "good.jsonl", scope.roots[0] / "bad.jsonl"
    ratchet.write(episodes[:3], good)
    ratchet.write(episodes[3:], bad)
    board = call(scope, "reward_leaderboard", trajectory_files=[str(bad), str(good)])
    assert [place["name"] for place in board["places"]] == ["good", "bad"]
    compared = call(scope, "compare_agents", agents=[str(bad), str(good)])["comparisons"][0]
    assert compared["difference"]["value"] == 1.0


@pytest.mark.slow
def test_a_pipeline_plays_scores_and_goes_on(scope):
    running = ToolScope("run", scope.home, scope.roots)
    folder = str(scope.roots[0] / "played")
    arguments = {"output_dir": folder, "task_source": "orders", "policy": "teacher", "tasks": 2}
    first = call(running, "run_pipeline", **arguments)
    assert first["report"]["episodes"] == first["report"]["replayed"] == first["scores"]["episodes"] == 2
    assert call(running, "run_pipeline", **arguments)["report"]["replayed"] == 0
    assert call(running, "pipeline_status", output_dir=folder) == {"running": False, "episodes": 2, "in_journals": 0}


@pytest.mark.parametrize(
    "policy", ["os:system", "best-of-8:x:y", "openai:m@http://127.0.0.1:1/v1", "transformers:/etc", "-x"]
)
def test_a_policy_imports_no_code_and_reads_no_file_outside(scope, policy):
    running = ToolScope("run", scope.home, scope.roots)
    with pytest.raises(ConfigurationError):
        call(running, "run_pipeline", output_dir=str(scope.roots[0] / "new"), policy=policy)


@pytest.mark.parametrize(
    "source", ["/etc", "ext::sh -c id", "ssh://-oProxyCommand=id/x", "file:///etc", "--upload-pack=id"]
)
def test_a_repository_is_an_https_url_or_a_path_that_may_be_read(scope, source):
    with pytest.raises(ConfigurationError):
        call(ToolScope("run", scope.home, scope.roots), "create_sandbox", repo_url=source)


@pytest.mark.slow
def test_a_sandbox_holds_a_repository_runs_tools_and_returns_to_a_snapshot(scope):
    import subprocess

    repository = scope.roots[0] / "repository"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q", str(repository)], check=True)
    (repository / "main.py").write_text("print(6 * 7)\n")
    subprocess.run([*git, "-C", str(repository), "add", "."], check=True)
    subprocess.run([*git, "-C", str(repository), "commit", "-qm", "base"], check=True)
    running = ToolScope("run", scope.home, scope.roots)
    made = call(running, "create_sandbox", repo_url=str(repository), backend="local", lifetime=120)
    sandbox = made["sandbox_id"]
    try:

        def use(tool_name, **params):
            return call(running, "execute_tool", sandbox_id=sandbox, tool_name=tool_name, params=params)

        assert use("bash", command="python3 main.py; rm main.py")["content"] == "42\n"
        use("edit_file", path="new.py", old="", new="x = 1\n")
        later = call(running, "sandbox_snapshot", sandbox_id=sandbox)["snapshot_id"]
        call(running, "reset_sandbox", sandbox_id=sandbox, snapshot_id=made["snapshot_id"])
        assert use("read_file", path="main.py")["content"] == "print(6 * 7)\n"
        call(running, "reset_sandbox", sandbox_id=sandbox, snapshot_id=later)
        assert use("read_file", path="new.py")["content"] == "x = 1\n"
        for wrong in ({"tool_name": "nope"}, {"tool_name": "read_file", "path": "/etc/passwd"}, {"tool_name": "bash"}):
            with pytest.raises(ConfigurationError):
                use(**wrong)
    finally:
        assert call(running, "stop_sandbox", sandbox_id=sandbox) == {"stopped": sandbox}
    with pytest.raises(ConfigurationError, match="no sandbox"):
        call(running, "execute_tool", sandbox_id="../../x", tool_name="bash", params={"command": "id"})


@pytest.mark.slow
def test_a_replay_says_whether_the_results_are_the_same(scope):
    running = ToolScope("run", scope.home, scope.roots)
    (episode,) = ratchet.collect("repair", agent="teacher", tasks=1)
    record = msgspec.to_builtins(episode)
    made = call(running, "create_sandbox", backend="local", lifetime=60)
    try:  # an empty sandbox: the files of the task are not there
        report = call(running, "replay_trajectory", trajectory=record, sandbox_id=made["sandbox_id"])
        assert not report["same"] and report["divergences"][0]["replayed"].startswith("error: ")
    finally:
        call(running, "stop_sandbox", sandbox_id=made["sandbox_id"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_schema", {"extra": 1}),
        ("validate_logs", {"log_path": ["a"]}),
        ("validate_logs", {"log_path": "a", "limit": 10**9}),
        ("validate_logs", {"log_path": "x" * 5000}),
        ("create_sandbox", {"lifetime": float("inf")}),
        ("calibrate_reward", {"reward_scores": [float("nan"), 1], "human_scores": [1, 2]}),
        ("run_pipeline", {"output_dir": "x", "tasks": -1}),
        ("export_dataset", {"output_path": "x", "format": "pickle"}),
    ],
)
def test_arguments_of_another_shape_are_refused(name, arguments):
    with pytest.raises(ValidationError):
        AGENT_TOOLS[name].arguments.model_validate(arguments)


def test_a_record_that_is_no_trajectory_is_an_error_of_data(scope):
    with pytest.raises(DataError):
        call(scope, "score_trajectory", trajectory={"episode_id": {"$ref": "x"}})
