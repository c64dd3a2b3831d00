import msgspec
import pytest
from patience import LIMIT

from ratchet.components.core import CommandResult, InfrastructureError, Role, SandboxUnavailable, TaskSpec, make
from ratchet.components.environments.sandbox_environment import SandboxEnvironment
from ratchet.components.environments.sandbox_tools import TOOLS, ToolSettings
from ratchet.components.environments.task_grading import FilesLayout, Grade, grade_files, grade_output
from ratchet.components.sandboxes import SandboxConfig, make_sandbox

LOCAL = SandboxConfig(backend="local")
FAULTY = "def double(x):\n    return x + 3\n"
RIGHT = "def double(x):\n    return x + x\n"
CASES = "from main import double\nfor x in (1, 3, 10):\n    print(double(x), flush=True)\n"
TASK = TaskSpec(
    task_id="t/1",
    taskset="t",
    family="double",
    kind="wrong_operator",
    role=Role.TRAIN,
    domain="coding",
    description="double(x): twice x.",
    files={"main.py": FAULTY, "helper.py": "import main\n"},
    editable=("main.py",),
    tests={"hidden_cases.py": CASES},
    test_command="python3 hidden_cases.py",
    expected_output=("2", "6", "20"),
)
BY_EXIT = TaskSpec(
    **{
        **{name: getattr(TASK, name) for name in TASK.__struct_fields__},
        "tests": {"hidden_cases.py": "from main import double\nassert double(1) == 2\n"},
        "expected_output": (),
    }
)


def local():
    return make_sandbox(LOCAL)


@pytest.fixture
def env():
    with SandboxEnvironment(LOCAL, tools=ToolSettings(observation_limit=200)) as made:
        made.first = made.reset(task=TASK)
        yield made


def act(env, tool, **params):
    return env.step({"tool": tool, "params": params})


def test_the_registry_knows_it_and_it_tells_of_its_tools():
    made = make("ratchet/sandbox", sandbox=LOCAL, max_steps=3)
    assert isinstance(made, SandboxEnvironment)
    assert made.available_tools == ("read_file", "edit_file", "bash", "grep", "submit")
    assert made.domain == "coding"


def test_the_first_step_says_where_commands_run(env):
    from ratchet.components.sandboxes.local_sandbox import strongest_isolation

    assert env.first.info["sandbox"] == {
        "sandbox": "local",
        "isolation": strongest_isolation().value,
        "image_digest": None,
    }


def test_the_first_observation_is_the_description(env):
    assert env.first.observation == "double(x): twice x."
    assert not env.first.done


def test_read_file_gives_the_text_and_nothing_else(env):
    step = act(env, "read_file", path="main.py")
    assert step.observation == FAULTY
    assert (step.reward, step.done, step.info["result"].error) == (0.0, False, None)


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ({"start_line": 2}, "    return x + 3\n"),
        ({"end_line": 1}, "def double(x):\n"),
        ({"start_line": 2, "end_line": 9}, "    return x + 3\n"),
    ],
)
def test_read_file_gives_a_range_of_lines(env, lines, seen):
    assert act(env, "read_file", path="main.py", **lines).observation == seen


def test_edit_file_replaces_what_occurs_once(env):
    assert act(env, "edit_file", path="main.py", old="x + 3", new="x + x").observation == "ok"
    assert act(env, "read_file", path="main.py").observation == RIGHT


@pytest.mark.parametrize("path", ["new/file.txt", "main.py"])
def test_edit_file_with_an_empty_old_writes_the_whole_file(env, path):
    assert act(env, "edit_file", path=path, old="", new="content").observation == "ok"
    assert act(env, "read_file", path=path).observation == "content"


@pytest.mark.parametrize(
    ("tool", "params", "said"),
    [
        ("edit_file", {"path": "main.py", "old": "x - 3", "new": ""}, "old not found in main.py"),
        ("edit_file", {"path": "main.py", "old": "x", "new": ""}, "occurs 2 times"),
        ("edit_file", {"path": "absent.py", "old": "x", "new": "y"}, "no such file"),
        ("read_file", {"path": "absent.py"}, "no such file"),
        ("read_file", {"path": "../../etc/passwd"}, "outside the workspace"),
        ("read_file", {"path": "/etc/passwd"}, "outside the workspace"),
        ("read_file", {"path": "main.py", "start_line": 9}, "has 2 lines"),
        ("read_file", {"path": "main.py", "start_line": 0}, "has 2 lines"),
        ("read_file", {"path": "main.py", "start_line": "1"}, "must be an integer"),
        ("read_file", {"path": "main.py", "start_line": True}, "must be an integer"),
        ("read_file", {"path": 3}, "must be a string"),
        ("read_file", {}, "missing parameter 'path'"),
        ("read_file", {"file": "main.py"}, "unknown parameter 'file'"),
        ("read_file", "main.py", "params must be an object"),
        ("read_file", {"path": "a\0b"}, "not a path"),
        ("bash", {"command": "true", "timeout": -1}, "timeout must be"),
        ("read_file", {"path": "a\ud800b"}, "not a path"),
        ("edit_file", {"path": "main.py", "old": "\ud800", "new": "x"}, "old not found"),
        ("edit_file", {"path": "x" * 5000, "old": "", "new": "x"}, "too long"),
        ("bash", {"command": "a\0b"}, "null"),
        ("grep", {"pattern": "(", "path": "main.py"}, "grep:"),
        ("grep", {"pattern": "x", "path": "absent.py"}, "No such file"),
        ("fly", {}, "unknown tool 'fly'; tools: read_file, edit_file, bash, grep, submit"),
        (None, {}, "unknown tool None"),
        (["bash"], {}, "unknown tool"),
    ],
)
def test_a_wrong_call_is_an_observation_of_one_line_with_an_error(env, tool, params, said):
    step = env.step({"tool": tool, "params": params})
    assert said in step.observation
    assert step.observation.startswith("error: ")
    assert "\n" not in step.observation
    assert step.info["result"].error is not None
    assert not step.done
    assert act(env, "read_file", path="main.py").observation == FAULTY


def test_bash_gives_both_outputs_in_order_and_an_exit_code_that_is_not_0(env):
    step = act(env, "bash", command="echo a; echo b >&2; echo c; exit 4")
    assert step.observation == "a\nb\nc\n[exit 4]"
    assert (step.info["result"].exit_code, step.info["result"].error) == (4, None)


def test_words_on_standard_error_are_no_failure(env):
    step = act(env, "bash", command="echo all is well >&2")
    assert step.observation == "all is well\n"
    assert (step.info["result"].exit_code, step.info["result"].error) == (0, None)


def test_a_new_task_keeps_nothing_of_the_old_ones_files(env):
    env.reset(task=msgspec.structs.replace(TASK, files={"other.py": "x = 1\n"}, editable=("other.py",)))
    assert act(env, "bash", command="ls -A").observation == "other.py\n"


@pytest.mark.slow
def test_bash_that_runs_too_long_is_killed_and_says_so(env):
    step = act(env, "bash", command="echo begun; sleep 60", timeout=1)
    assert step.observation == "begun\n[timed out after 1 s]"
    assert step.info["result"].error == "timed out after 1 s"


def test_a_command_that_cannot_be_passed_on_is_the_policys_failure(env):
    for command in ("echo \ud800", "true " + "x" * 200_000):
        result = act(env, "bash", command=command).info["result"]
        assert result.exit_code == 126


def test_grep_finds_lines_in_the_order_of_paths(env):
    assert act(env, "grep", pattern="^(def|import)").observation == "helper.py:1:import main\nmain.py:1:def double(x):"
    assert act(env, "grep", pattern="return", path="main.py").observation == "main.py:2:    return x + 3"
    assert act(env, "grep", pattern="nowhere").observation == "no match"


def test_neither_pattern_nor_path_reaches_a_shell_or_is_an_option(env):
    act(env, "grep", pattern="$(touch harmed)", path="main.py")
    act(env, "grep", pattern="x", path="; touch harmed")
    act(env, "read_file", path="$(touch harmed)")
    act(env, "grep", pattern="--help")
    assert act(env, "bash", command="ls").observation == "helper.py\nmain.py\n"
    assert act(env, "grep", pattern="x", path="--version").info["result"].error is not None


def test_a_long_observation_is_cut_with_a_marker(env):
    step = act(env, "bash", command="head -c 1000 /dev/zero | tr '\\0' x")
    assert step.observation == "x" * 200 + "\n[cut: 800 more characters]"
    assert step.info["result"].truncated


def test_submit_ends_the_episode_and_grades_it(env):
    act(env, "edit_file", path="main.py", old="x + 3", new="x + x")
    step = act(env, "submit")
    assert (step.terminated, step.truncated, step.reward) == (True, False, 1.0)
    assert step.info["outcome"] == {
        "success": True,
        "score": 1.0,
        "tests_passed": 3,
        "tests_total": 3,
        "reason": "passed",
    }
    assert act(env, "submit") is step


def test_a_faulty_answer_scores_nothing_and_the_tests_that_it_passes_are_counted(env):
    step = act(env, "submit")
    assert step.info["outcome"] == {
        "success": False,
        "score": 0.0,
        "tests_passed": 1,
        "tests_total": 3,
        "reason": "tests_failed",
    }
    assert step.reward == 0.0


def test_finish_grades_as_truncated_with_its_reason(env):
    act(env, "edit_file", path="main.py", old="x + 3", new="x + x")
    step = env.finish("no_call")
    assert (step.terminated, step.truncated) == (False, True)
    assert (step.info["outcome"]["success"], step.info["outcome"]["reason"]) == (True, "no_call")


def test_the_last_of_max_steps_is_carried_out_and_ends_the_episode():
    with SandboxEnvironment(LOCAL, max_steps=2) as env:
        env.reset(task=TASK)
        assert not act(env, "read_file", path="main.py").done
        step = act(env, "edit_file", path="main.py", old="x + 3", new="x + x")
        assert step.truncated and step.observation == "ok"
        assert (step.info["outcome"]["success"], step.info["outcome"]["reason"]) == (True, "max_steps")


def test_reset_leaves_nothing_of_the_episode_before(env):
    act(env, "bash", command="echo changed > main.py; touch left; touch $TMPDIR/left")
    assert env.reset().observation == TASK.description
    assert act(env, "read_file", path="main.py").observation == FAULTY
    assert act(env, "bash", command="ls . $TMPDIR | grep -v :").observation == "helper.py\nmain.py\n\n"


@pytest.mark.slow
def test_the_agent_never_sees_the_tests(env):
    assert "hidden_cases" not in act(env, "bash", command="find / -name hidden_cases.py 2>/dev/null").observation


def test_what_was_planted_beside_the_answer_is_not_graded(env):
    plant = "import builtins; builtins.print = lambda *a, **k: None"
    for name in ("conftest.py", "sitecustomize.py", "usercustomize.py", "builtins.py", "hidden_cases.py"):
        act(
            env,
            "edit_file",
            path=name,
            old="",
            new=f"{plant}\nfor line in (2, 6, 20): print(line)\nraise SystemExit(0)\n",
        )
        env._steps = 0
    act(env, "bash", command="chmod 777 .; echo 'def double(x): return 2 * x' > helper.py; (setsid sleep 50 &)")
    assert act(env, "submit").info["outcome"]["tests_passed"] == 1


@pytest.mark.parametrize("command", ["rm main.py", "rm main.py; ln -s helper.py main.py", "rm main.py; mkdir main.py"])
def test_a_missing_file_is_the_policys_failure(env, command):
    act(env, "bash", command=command)
    assert act(env, "submit").info["outcome"] == {
        "success": False, "score": 0.0, "tests_passed": 0, "tests_total": 3, "reason": "missing_file",
    }  # fmt: skip


def test_an_answer_that_is_too_large_is_left_out():
    with local() as sandbox:
        sandbox.write("main.py", b"#" * (1 << 20) + b"#")
        assert FilesLayout(TASK).collect_answer(sandbox) == {}


def test_the_reference_passes_and_an_empty_answer_fails():
    assert grade_files(TASK, {"main.py": RIGHT.encode()}, local, timeout=LIMIT) == Grade(True, 1.0, 3, 3, "passed")
    assert grade_files(TASK, {"main.py": b""}, local, timeout=LIMIT) == Grade(False, 0.0, 0, 3, "crashed")
    assert grade_files(TASK, {}, local, timeout=LIMIT) == Grade(False, 0.0, 0, 3, "missing_file")


def test_only_editable_files_of_an_answer_count():
    answer = {"main.py": FAULTY.encode(), "hidden_cases.py": b"print(2); print(6); print(20)"}
    assert grade_files(TASK, answer, local, timeout=LIMIT).tests_passed == 1


@pytest.mark.parametrize(
    "trick",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "for line in range(100): print(line)\ndef double(x): return 0",
        "print(2)\nprint(6)\nprint(20)\ndef double(x): return 0",
        "import os\nprint(2, flush=True)\nprint(6, flush=True)\nprint(20, flush=True)\nos._exit(1)",
        "raise SystemExit(0)",
        "import sys; sys.stdout.close()\ndef double(x): return 0",
    ],
)
def test_leaving_early_and_printing_guesses_earn_nothing(trick):
    graded = grade_files(TASK, {"main.py": trick.encode()}, local, timeout=LIMIT)
    assert (graded.success, graded.score, graded.tests_passed) == (False, 0.0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "seconds", "reason"),
    [
        ("while True: pass", 1.0, "timeout"),
        ("while True: print('x' * 10000)", LIMIT, "output_limit"),
        ("x = bytearray(10**10)", LIMIT, "crashed"),
        ("import os\nwhile True: os.fork()", 1.0, None),
    ],
)
def test_a_runaway_answer_is_the_policys_failure(answer, seconds, reason):
    graded = grade_files(TASK, {"main.py": answer.encode()}, local, timeout=seconds)
    assert (graded.success, graded.score) == (False, 0.0)
    assert reason is None or graded.reason == reason


def test_without_expected_output_the_exit_code_decides():
    assert grade_files(BY_EXIT, {"main.py": RIGHT.encode()}, local, timeout=LIMIT) == Grade(True, 1.0, 1, 1, "passed")
    assert grade_files(BY_EXIT, {"main.py": FAULTY.encode()}, local, timeout=LIMIT) == Grade(
        False, 0.0, 0, 1, "tests_failed"
    )


@pytest.mark.parametrize(
    ("stdout", "exit_code", "passed", "success"),
    [
        ("2\n6\n20\n", 0, 3, True),
        ("2\n6\n20", 0, 3, True),
        ("2\r\n6\r\n20\r\n", 0, 0, False),
        ("2\n6\n", 0, 2, False),
        ("2\n6\n", 1, 2, False),
        ("2\n0\n20\n", 0, 2, False),
        ("2\n6\n20\n\n", 0, 0, False),
        ("2\n6\n20\n", 1, 0, False),
        ("", 0, 0, False),
    ],
)
def test_each_expected_line_is_one_test(stdout, exit_code, passed, success):
    graded = grade_output(TASK, CommandResult(exit_code, stdout.encode()))
    assert (graded.tests_passed, graded.success, graded.score) == (passed, success, float(success))


def test_a_sandbox_that_cannot_start_is_never_a_grade(env):
    def broken():
        raise SandboxUnavailable("no sandbox")

    with pytest.raises(InfrastructureError):
        grade_files(TASK, {"main.py": RIGHT.encode()}, broken)
    env._factory = broken
    with pytest.raises(InfrastructureError):
        act(env, "submit")


def test_a_step_before_reset_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="reset"):
        act(SandboxEnvironment(LOCAL), "submit")


def test_the_schema_of_every_tool_is_closed():
    for tool in TOOLS:
        assert tool.parameters["additionalProperties"] is False
        assert set(tool.parameters["required"]) <= set(tool.parameters["properties"])
