"""What the scripted policies promise, played against a file tool simulated in memory."""

from typing import Any

import pytest

from data.generators.repair.generate import call_result, load_function
from ratchet.components.core import ConfigurationError, PolicyRequest, Role, TaskSpec
from ratchet.components.environments.customer_service import ConversationEnvironment
from ratchet.components.models.scripted_policies import Clumsy, RandomEdit, Rewriter, ScriptedPolicy, Teacher, line_edit
from ratchet.components.tasksets import Taskset, load_taskset


@pytest.fixture(scope="module")
def taskset() -> Taskset:
    return load_taskset("repair")


def play(
    policy: ScriptedPolicy, task: TaskSpec, seed: int, limit: int = 8
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The files at the end and the calls, as (tool, arguments, carried out)."""
    files = dict(task.files)
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.description}]
    calls: list[dict[str, Any]] = []
    for turn in range(limit):
        (reply,) = policy.act([PolicyRequest("ep", task.task_id, turn, seed, tuple(messages), ())])
        (call,) = reply.calls
        assert (call.call_id, reply.text) == (f"{turn}-0", "")
        old = call.arguments.get("old")
        done = not old or files[call.arguments["path"]].count(old) == 1
        if call.tool == "edit_file" and done:
            path, old, new = (call.arguments[name] for name in ("path", "old", "new"))
            files[path] = files[path].replace(old, new) if old else new
        calls.append({"tool": call.tool, "arguments": call.arguments, "done": done})
        function_call = {"name": call.tool, "arguments": call.arguments}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": function_call}]})
        messages.append({"role": "tool", "tool_call_id": call.call_id, "name": call.tool, "content": "done"})
        if call.tool == "submit":
            break
    return files, calls


def solved(task: TaskSpec, files: dict[str, str]) -> bool:
    """The lines that the file's function gives for the hidden cases, computed by exec, equal the expected ones."""
    script = task.tests["run_cases.py"].splitlines()
    name = script[2].removeprefix("from main import ")
    cases = eval(script[3].removeprefix("for case in ").removesuffix(":"))
    call = load_function(files["main.py"], name)
    return [call_result(call, case) for case in cases] == list(task.expected_output)


def test_the_teacher_solves_every_task_in_three_moves(taskset: Taskset) -> None:
    for task in taskset.tasks():
        files, calls = play(Teacher(taskset), task, seed=0)
        assert files == task.reference
        assert [call["tool"] for call in calls] == ["read_file", "edit_file", "submit"]
        assert all(call["done"] for call in calls)
    assert all(solved(task, play(Teacher(taskset), task, seed=0)[0]) for task in taskset.tasks(Role.PROMOTE))


def test_the_teachers_edit_is_the_whole_line(taskset: Taskset) -> None:
    for task in taskset.tasks(Role.PROMOTE):
        edit = play(Teacher(taskset), task, seed=0)[1][1]["arguments"]
        line = task.metadata["line"] - 1
        assert edit["old"] == task.files["main.py"].splitlines()[line]
        assert edit["new"] == task.reference["main.py"].splitlines()[line]


def test_the_rewriter_reads_the_file_and_writes_it_as_a_whole(taskset: Taskset) -> None:
    for task in taskset.tasks(Role.PROMOTE):
        files, calls = play(Rewriter(taskset), task, seed=0)
        assert files == task.reference
        assert [call["tool"] for call in calls] == ["read_file", "edit_file", "submit"]
        assert calls[1]["arguments"] == {"path": "main.py", "old": "", "new": task.reference["main.py"]}


def test_clumsy_repairs_about_half_and_always_stumbles(taskset: Taskset) -> None:
    tasks = taskset.tasks(Role.PROMOTE)
    played = [(task, *play(Clumsy(taskset), task, seed)) for task in tasks for seed in (1, 2)]
    rate = sum(solved(task, files) for task, files, _ in played) / len(played)
    assert 0.4 < rate < 0.65
    for _, _, calls in played:
        assert [call["tool"] for call in calls[:3]] == ["read_file", "read_file", "edit_file"]
        assert not calls[2]["done"]
        assert calls[-1]["tool"] == "submit"
        assert len(calls) <= 6
    assert {call["tool"] for _, _, calls in played for call in calls} >= {"bash", "grep"}


def test_random_edits_change_the_file_and_rarely_repair_it(taskset: Taskset) -> None:
    tasks = taskset.tasks(Role.PROMOTE)
    ends = [(task, play(RandomEdit(taskset), task, seed=3)) for task in tasks]
    assert all(files["main.py"] not in (task.files["main.py"], task.reference["main.py"]) for task, (files, _) in ends)
    assert all(call["done"] for _, (_, calls) in ends for call in calls)
    assert sum(solved(task, files) for task, (files, _) in ends) / len(ends) < 0.1


@pytest.mark.parametrize("make", [Teacher, Rewriter, Clumsy, RandomEdit])
def test_moves_depend_on_seed_and_task_alone(taskset: Taskset, make: type[ScriptedPolicy]) -> None:
    tasks = taskset.tasks(Role.AUDIT)
    first = [play(make(taskset), task, seed=5) for task in tasks]
    assert first == list(reversed([play(make(taskset), task, seed=5) for task in reversed(tasks)]))
    if make not in (Teacher, Rewriter):
        assert first != [play(make(taskset), task, seed=6) for task in tasks]


def test_versions_name_the_script_and_the_taskset(taskset: Taskset) -> None:
    versions = {make(taskset).version for make in (Teacher, Rewriter, Clumsy, RandomEdit)}
    assert len(versions) == 4
    assert Teacher(taskset).version == Teacher(taskset).version
    smaller = Taskset(taskset.head, tuple(taskset.tasks(Role.AUDIT)))
    assert Teacher(smaller).version != Teacher(taskset).version


def test_an_unknown_task_is_refused(taskset: Taskset) -> None:
    with pytest.raises(ConfigurationError, match="teacher does not know task 'repair/none'"):
        Teacher(taskset).act([PolicyRequest("ep", "repair/none", 0, 0, (), ())])


@pytest.mark.parametrize(
    ("before", "after", "edit"),
    [
        ("def f():\n    a\n", "def f():\n    b\n", ("    a", "    b")),
        ("x = 1\n\nx = 1\ny\n", "x = 1\n\nx = 2\ny\n", ("\nx = 1\ny", "\nx = 2\ny")),
        ("one\ntwo\n", "one\nand\ntwo\n", ("one\ntwo", "one\nand\ntwo")),
        ("one\ntwo\n", "two\n", ("one\n", "")),
    ],
)
def test_an_edit_takes_in_as_many_lines_as_make_it_unique(before: str, after: str, edit: tuple[str, str]) -> None:
    assert line_edit(before, after) == edit
    assert before.count(edit[0]) == 1
    assert before.replace(*edit) == after


def play_dialogue(policy: ScriptedPolicy, task: TaskSpec, seed: int) -> tuple[dict[str, Any], int]:
    """The outcome of an episode in the conversation environment, and the number of calls that were refused."""
    env = ConversationEnvironment()
    messages: list[dict[str, Any]] = [{"role": "user", "content": env.reset(task=task).observation}]
    refused = 0
    for turn in range(20):
        (reply,) = policy.act([PolicyRequest("ep", task.task_id, turn, seed, tuple(messages), env.tools)])
        step = env.step({"tool": reply.calls[0].tool, "params": reply.calls[0].arguments})
        refused += step.info["result"].error is not None
        if step.done:
            break
        messages += [{"role": "assistant", "content": ""}, {"role": "tool", "content": step.observation}]
    return step.info["outcome"], refused


def test_the_teacher_plays_a_reference_of_actions_and_the_clumsy_stumbles_over_it() -> None:
    orders = load_taskset("orders")
    tasks = orders.tasks(Role.PROMOTE)
    assert all(play_dialogue(Teacher(orders), task, 0) == (PASSED, 0) for task in tasks)
    played = [play_dialogue(Clumsy(orders), task, seed) for task in tasks for seed in (1, 2)]
    assert 0.4 < sum(outcome["success"] for outcome, _ in played) / len(played) < 0.8
    assert all(refused >= 1 for _, refused in played)


PASSED = {"success": True, "score": 1.0, "tests_passed": None, "tests_total": None, "reason": "passed"}
