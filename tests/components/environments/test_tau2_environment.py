# ruff: noqa: E501
"""τ² tasks of inspect-evals: played with a scripted user, and graded as the package grades the same messages.

RATCHET_TAU2_PYTHON names the interpreter of an environment with the packages inspect-evals and openai, and
RATCHET_TAU2_TASKS the number of tasks of each domain that are compared (default 1, at most 50).
"""

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from model_stand_in import gives, never, reset, says, stand_in

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, PolicyRequest, ToolSpec, make
from ratchet.components.environments import tau2_environment
from ratchet.components.environments.peer_task import PeerTask
from ratchet.components.environments.tau2_environment import (
    DOMAINS,
    STOP,
    ScriptedTau2User,
    Tau2Environment,
    ask_bridge,
    peer_tasks,
)
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.peer_import import import_peer_tasks
from ratchet.components.trajectories.shards import read_folder

PYTHON = os.environ.get("RATCHET_TAU2_PYTHON")
TASKS = int(os.environ.get("RATCHET_TAU2_TASKS", "1"))
needs_package = pytest.mark.skipif(not PYTHON, reason="needs the package inspect-evals in RATCHET_TAU2_PYTHON")
REFERENCE = """
import asyncio, contextlib, contextvars, importlib, json, sys
from inspect_ai.agent import AgentState
from inspect_ai.model import GenerateConfig, ModelName, ModelOutput, _model, get_model
from inspect_ai.solver import TaskState
from inspect_ai.util import Store
from inspect_ai.util._store import init_subtask_store
_model.count_text_tokens = len  # else it loads an encoding from the network, to count tokens that nobody needs
def mock(messages):
    outputs = [ModelOutput.for_tool_call("mockllm/model", m["call"]["tool"], m["call"]["arguments"]) if m["call"]
               else ModelOutput.from_content("mockllm/model", m["text"]) for m in messages]
    return get_model("mockllm/model", custom_outputs=outputs, memoize=False)
def user(played):
    if "user_url" not in played:
        return mock(played["user"])
    return get_model("openai-api/local/ann", base_url=played["user_url"], api_key="x", memoize=False)
async def verdict(played):
    # The package's own samples, user simulator and scorer. Without the log of an evaluation, which takes most of its time.
    module = lambda part: importlib.import_module(f"inspect_evals.tau2.{played['domain']}.{part}")
    init_subtask_store(Store())
    _model.init_active_model(mock(played["agent"]), GenerateConfig())
    _model.init_model_roles({"user": user(played)})
    instance = played["domain"].capitalize() + "Agent"
    (sample,) = [s for s in module("dataset").read_dataset(instance) if s.id == played["id"]]
    state = TaskState(ModelName("mockllm/model"), sample.id, 1, sample.input, list(sample.input), metadata=sample.metadata)
    if played["domain"] in ("telecom", "banking"):
        await getattr(module("solver"), played["domain"] + "_initializer")()(state, None)
    # The simulator repeats its loop where a model has no output left.
    agent = module("agents").get_user_agent(instance=instance, message_limit=len(played["user"]))
    state.messages = (await agent(AgentState(messages=state.messages))).messages
    return (await getattr(module("scorer"), played["domain"] + "_scorer")()(state, None)).value == "C"
answers = []
for played in json.load(sys.stdin):
    with contextlib.redirect_stdout(sys.stderr):
        answers.append(contextvars.copy_context().run(asyncio.run, verdict(played)))
print(json.dumps(answers))
"""


def agent_actions(record, conduct):
    """The actions of an agent that does and says what the task expects, or nothing."""
    criteria = record["evaluation_criteria"] or {}
    for action in criteria.get("actions") or [] if conduct == "expected" else []:
        if action["requestor"] == "user":
            yield "respond", {"text": f"Please use {action['name'].replace('_', ' ')}."}
        else:
            yield action["name"], action["arguments"]
    information = criteria.get("communicate_info") or [] if conduct == "expected" else []
    yield "respond", {"text": f"Done: {', '.join(information)}."}


def play(task, conduct):
    """Play a task; return its outcome, and what both sides said and called, in the order of each."""
    record = {key: value for key, value in task.criteria["data"].items() if key != "name"}
    said = {"agent": [], "user": []}

    class Recorded(Tau2Environment):
        def _turn(self, by, text, call=None):
            said[by].append({"text": text, "call": call})
            return super()._turn(by, text, call)

    environment = Recorded()
    step = environment.reset(task=task)
    for tool, params in agent_actions(record, conduct):
        known = [spec.name for spec in environment.tools if f"_{spec.name}".endswith(f"_{tool}")]
        if not step.done and known:
            step = environment.step({"tool": known[0], "params": params})
    step = step if step.done else environment.finish("stopped")
    return step.info["outcome"], {"domain": task.kind, "id": record["id"], **said}


def verdicts_of_the_package(played):
    done = subprocess.run(
        [PYTHON, "-c", REFERENCE], input=json.dumps(played), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@needs_package
def test_every_verdict_is_that_of_the_packages_own_simulator_and_scorer(tmp_path):
    played = []
    for domain in DOMAINS:
        import_peer_tasks(tmp_path / domain, peer_tasks(domain, {}, TASKS))
        tasks = load_taskset(str(tmp_path / domain)).tasks()
        played += [play(task, conduct) for task in tasks for conduct in ("expected", "nothing")]
    ours = [outcome["success"] for outcome, _ in played]
    theirs = verdicts_of_the_package([messages for _, messages in played])
    print(f"{sum(a == b for a, b in zip(ours, theirs, strict=True))} of {len(ours)} equal, {sum(ours)} with success")
    assert ours == theirs and True in ours and False in ours


NEEDED_BY_INSPECT = {"model": "ann", "created": 0}


def said_by_a_model(record):
    """The answers of a model that does what the task expects of its user, call by call."""

    def calls_tool(action):
        def answer(handler):
            names = [tool["function"]["name"] for tool in handler.asked["tools"]]
            found = (name for name in names if f"_{name}".endswith(f"_{action['name']}"))
            calls(next(found, action["name"]), json.dumps(action["arguments"]))(handler)

        return answer

    actions = (record["evaluation_criteria"] or {}).get("actions") or []
    actions = [action for action in actions if action["requestor"] == "user"]
    hello, done, stop = (says(text, **NEEDED_BY_INSPECT) for text in ("Hello.", "Done.", STOP))
    return [hello, *(answer for action in actions for answer in (calls_tool(action), done)), stop]


def prompt_of(body):
    calls = [
        [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", ())
        ]
        for message in body["messages"]
    ]
    texts = [(message["role"], message["content"] or "") for message in body["messages"]]
    tools = [tool["function"] for tool in body.get("tools") or ()]
    return texts, calls, [(tool["name"], tool["description"], tool["parameters"]) for tool in tools]


@pytest.mark.slow
@needs_package
def test_a_model_user_is_asked_what_the_package_asks_its_own(tmp_path):
    with stand_in() as user:
        tasks = []
        for domain in DOMAINS:
            import_peer_tasks(tmp_path / domain, peer_tasks(domain, {"user": f"ann@{user.base_url}"}, TASKS))
            tasks += load_taskset(str(tmp_path / domain)).tasks()
        script = [answer for task in tasks for answer in said_by_a_model(task.criteria["data"])]
        user.script = list(script)
        played = [play(task, "expected") for task in tasks]
        ours, user.asked, user.script = user.asked, [], script
        theirs = verdicts_of_the_package([{**messages, "user_url": user.base_url} for _, messages in played])
    print(f"{len(played)} episodes, {len(ours)} requests")
    assert [prompt_of(body) for body in ours] == [prompt_of(body) for body in user.asked]
    assert [outcome["success"] for outcome, _ in played] == theirs and not script


@pytest.mark.slow
@needs_package
def test_a_domain_becomes_a_taskset_whose_answers_stay_hidden(tmp_path):
    import_peer_tasks(tmp_path / "airline", peer_tasks("airline", {"user": "gpt@http://127.0.0.1:1/v1"}, 50))
    taskset = load_taskset(str(tmp_path / "airline"))
    assert (len(taskset.tasks()), taskset.head.environment) == (50, "ratchet/tau2")
    task = taskset.tasks()[0]
    assert task.criteria["config"] == {"user": "gpt@http://127.0.0.1:1/v1"}
    assert "reservation" not in task.description


@pytest.mark.slow
@needs_package
def test_faults_of_calls_are_observations_and_episodes_share_no_database(tmp_path):
    import_peer_tasks(tmp_path / "telecom", peer_tasks("telecom", {}, 1))
    (task,) = load_taskset(str(tmp_path / "telecom")).tasks()
    with make("ratchet/tau2") as first, make("ratchet/tau2") as second:
        assert "The user says: " in first.reset(task=task).observation
        second.reset(task=task)
        for tool, params in (("nope", {}), ("respond", {}), ("get_details_by_id", {"x": 1}), ("get_details_by_id", [])):
            step = first.step({"tool": tool, "params": params})
            assert step.info["result"].error and not step.done
        asked = {"tool": "get_details_by_id", "params": {"id": "L1002"}}
        before = second.step(asked).observation
        changed = first.step(
            {"tool": "suspend_line", "params": {"customer_id": "C1001", "line_id": "L1002", "reason": "x"}}
        )
        assert changed.info["result"].error is None
        assert first.step(asked).observation != before == second.step(asked).observation
        assert first.answer("Goodbye.").info["outcome"]["reason"] == "criteria_failed"


TASK = {
    "user_scenario": {
        "instructions": {"reason_for_call": "No signal.", "known_info": "I am Ann.", "task_instructions": "Be kind."}
    },
    "evaluation_criteria": {"actions": [{"name": "set_mode", "arguments": {"mode": "4g"}, "requestor": "user"}]},
}
USER_TOOLS = tuple(
    ToolSpec(name, "", {"type": "object", "required": needed}) for name, needed in (("bank_set_mode", ["mode"]), ("reboot", []), ("pay", ["x"]))
)  # fmt: skip


def converse(*agent_lines):
    """What the scripted user answers to each line of an agent."""
    user, messages, answers = ScriptedTau2User(TASK), [{"role": "user", "content": "Begin."}], []
    for line in (None, *agent_lines):
        if line is not None:
            messages.append({"role": "user", "content": line})
        while (reply := user.act([PolicyRequest("e", "t", 0, 0, tuple(messages), USER_TOOLS)])[0]).calls:
            (call,) = reply.calls
            messages.append({"role": "assistant", "content": "", "tool_calls": []})
            messages.append(
                {
                    "role": "tool",
                    "content": f"{call.tool} {call.arguments}",
                    "tool_call_id": call.call_id,
                    "name": call.tool,
                }
            )
        messages.append({"role": "assistant", "content": reply.text})
        answers.append(reply.text)
    return answers


def test_the_scripted_user_answers_questions_from_its_instructions_and_ends_at_a_statement():
    assert converse("Who are you?", "And else?", "Anything more?") == ["No signal.", "I am Ann.", "Be kind.", STOP]
    assert converse("It works now.") == ["No signal.", STOP]


def test_the_scripted_user_calls_the_tools_that_the_agent_names():
    assert converse("Please reboot, then bank set mode.")[1] == "bank_set_mode {'mode': '4g'}\nreboot {}"
    assert converse("Please pay.") == ["No signal.", STOP]  # nothing says what to pay


class FakeBridge:
    """A domain with one tool of the user; `turns` are what both sides did, in order."""

    def __init__(self):
        self.turns = []

    def __call__(self, do, **fields):
        if do == "begin":
            tools = [{"name": "reboot", "description": "", "parameters": {"type": "object", "properties": {}}}]
            opening = [{"role": "system", "content": "You are Ann."}, {"role": "user", "content": "How can I help?"}]
            return {"policy": "Be kind.", "tools": [], "user_tools": tools, "user_messages": opening}
        if do == "turn" and fields["call"]:
            self.turns.append((fields["by"], fields["call"]["tool"]))
            return {"content": "on again", "error": None}
        if do == "turn":
            self.turns.append((fields["by"], fields["text"]))
            return {"over": fields["by"] == "user" and STOP in fields["text"]}
        return {"success": True, "explanation": ""}


def calls(tool, arguments="{}"):
    function = {"name": tool, "arguments": arguments}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    return says(message, "tool_calls", **NEEDED_BY_INSPECT)


RESPONDS = calls("respond", '{"text": "Please reboot."}')


@pytest.fixture
def converse_served(tmp_path, monkeypatch):
    """Play an episode with a model as agent and one as user, each behind a server of its own; the user's gives `answers`."""

    def play_served(*answers, otherwise=None):
        bridge = FakeBridge()
        monkeypatch.setattr(tau2_environment, "ask_bridge", bridge)
        with stand_in(otherwise=RESPONDS) as agent, stand_in(*answers, otherwise=otherwise) as user:
            endpoint = tmp_path / "user.yaml"
            endpoint.write_text(f"base_url: {user.base_url}\nmodel: ann\nretries: 1\nback_off: 0\n")
            peer = PeerTask("tau2", "telecom", {"user": str(endpoint)}, {"name": "one", **TASK})
            import_peer_tasks(tmp_path / "served", [(peer, "Serve a user.")])
            plan = {"policy": f"openai:bot@{agent.base_url}", "attempts": 1, "retries": 0, "max_turns": 3}
            settings = {"taskset": str(tmp_path / "served"), "task_ids": ["served/one"], "min_completed": 0.0}
            collect(CollectPlan.load(plan | settings), tmp_path / "out")
        (record,) = read_folder(tmp_path / "out")
        return record, bridge.turns, user

    return play_served


def test_a_model_user_speaks_first_uses_its_own_tools_between_two_words_and_ends_the_episode(converse_served):
    record, turns, user = converse_served(says("No signal."), calls("reboot"), says("It works."), says(f"Bye. {STOP}"))
    assert record.outcome.success and record.outcome.terminated and len(record.turns) == 2
    assert turns == [
        *(("user", "No signal."), ("agent", "Please reboot."), ("user", "reboot"), ("user", "It works.")),
        *(("agent", "Please reboot."), ("user", f"Bye. {STOP}")),
    ]
    roles = [message["role"] for message in user.asked[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert [[tool["function"]["name"] for tool in asked["tools"]] for asked in user.asked] == [["reboot"]] * 4
    assert user.asked[-1]["messages"][5]["content"] == "on again"


def test_a_call_of_the_user_that_cannot_be_read_is_answered_with_its_fault(converse_served):
    record, turns, user = converse_served(says("Hi."), calls("reboot", "{no"), says(STOP))
    assert record.outcome.success and ("user", "reboot") not in turns
    assert "no JSON object" in user.asked[-1]["messages"][-1]["content"]


@pytest.mark.parametrize("tool", ["", "../../x", "a\nb", "x" * 1_000_000, "__class__", "respond", "\u202e\x00"])
def test_a_hostile_name_of_a_tool_reaches_the_package_as_a_name_and_nothing_else(converse_served, tool):
    record, turns, user = converse_served(says("Hi."), calls(tool), says(f"{'long ' * 2_000_000}{STOP}"))
    assert record.failure is None and record.outcome.success
    assert len(record.turns) == 1 and all(
        len(result.content) < 100_000 for turn in record.turns for result in turn.results
    )
    assert turns[0] == ("user", "Hi.") and len(user.asked) == 3


def test_a_user_whose_server_points_elsewhere_is_not_followed(converse_served):
    with pytest.raises(ConfigurationError, match=r"the user: .*HTTP 302.*use that as base_url"):
        converse_served(otherwise=lambda handler: handler.reply(302, b"{}", Location="http://169.254.169.254/v1"))


def test_the_agents_limit_of_turns_ends_a_conversation_that_the_user_never_ends(converse_served):
    record, _, user = converse_served(otherwise=says("Go on."))
    assert record.outcome.reason == "max_turns" and record.failure is None and len(user.asked) == 4


def drips(handler):
    """A byte now and then, in time for any limit on silence."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.closing.wait(0.05):
        handler.wfile.write(b" ")


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (gives(500, {"error": "down"}), r"the user: model server http.*\(model 'ann'\) failed 2 times: HTTP 500 down"),
        (gives(200, b"<html>"), r"the user: model server http.*its answer cannot be read"),
        (gives(200, {"choices": []}), r"the user: model server http.*no choices"),
        (reset, r"the user: model server http.*failed 2 times"),
        (never, r"the user: no word within 0\.5 s"),
        (drips, r"the user: no word within 0\.5 s"),
        (says("  "), "the user says nothing.*'stop'"),
        (says("<think>Hm", "length"), "the user says nothing.*'length'"),
        (calls("reboot"), "the user called tools 20 times without a word"),
    ],
)
def test_a_user_that_fails_is_named_and_is_no_failure_of_the_agent(converse_served, monkeypatch, answer, cause):
    monkeypatch.setattr(tau2_environment, "USER_SECONDS", 0.5 if answer in (never, drips) else 60)
    record, _, _ = converse_served(says("Hi."), otherwise=answer)
    assert (record.failure.kind, record.failure.type) == ("infrastructure", "UserUnavailable")
    assert record.outcome.success is None and re.search(cause, record.failure.message)


def test_a_user_that_ends_the_conversation_before_the_agent_speaks_is_lost(converse_served):
    record, _, _ = converse_served(says(STOP))
    assert record.failure.type == "UserUnavailable" and not record.turns


def test_a_user_that_no_server_knows_ends_the_collection_with_one_line(converse_served):
    with pytest.raises(ConfigurationError, match=r"the user: model server .*HTTP 404.*check base_url and model"):
        converse_served(otherwise=gives(404, {"error": "no such model"}))


def test_a_missing_package_and_a_wrong_domain_are_named(monkeypatch):
    monkeypatch.setenv("RATCHET_TAU2_PYTHON", sys.executable)
    with pytest.raises(ConfigurationError, match="RATCHET_TAU2_PYTHON"):
        list(peer_tasks("airline", {}, 1))
    with pytest.raises(ConfigurationError, match="airline, retail, telecom, banking"):
        list(peer_tasks("hotel", {}, 1))
    with pytest.raises(ConfigurationError, match="setting `user`"):
        list(peer_tasks("airline", {"model": "x"}, 1))
    with pytest.raises(ConfigurationError, match="setting `user`"):
        list(peer_tasks("airline", {"user": 5}, 1))
    with pytest.raises(ConfigurationError, match="MODEL@URL"):
        list(peer_tasks("airline", {"user": "gpt"}, 1))
    monkeypatch.setenv("RATCHET_TAU2_PYTHON", "/nonexistent/python")
    with pytest.raises(ConfigurationError, match="no interpreter"):
        list(peer_tasks("airline", {}, 1))


def test_episodes_that_begin_together_share_one_process_and_the_next_after_its_end_gets_another(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\nwhile read line; do case $line in *leave*) exit;; esac; echo "{\\"ok\\": $$}"; done\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("RATCHET_TAU2_PYTHON", str(python))
    together = threading.Barrier(8)

    def begin(_):
        together.wait()
        return ask_bridge("begin")

    with ThreadPoolExecutor(8) as pool:
        (process,) = set(pool.map(begin, range(8)))
    with pytest.raises(InfrastructureError, match="inspect-evals ended"):
        ask_bridge("leave")
    assert ask_bridge("begin") != process


def test_a_bridge_that_dies_or_hangs_is_an_infrastructure_failure(tmp_path, monkeypatch):
    python = tmp_path / "python"
    monkeypatch.setenv("RATCHET_TAU2_PYTHON", str(python))
    for body in ("false", "sleep 600", "printf half"):
        python.write_text(f"#!/bin/sh\nexec {body}\n")
        python.chmod(0o755)
        with monkeypatch.context() as patch, pytest.raises(InfrastructureError, match="inspect-evals ended"):
            patch.setattr(tau2_environment, "SECONDS", 0.5)
            ask_bridge("tasks", domain="airline")
    python.write_text('#!/bin/sh\nread line; echo \'{"error": "KeyError: 1", "kind": "KeyError"}\'\nread line\n')
    with pytest.raises(DataError, match="KeyError"):
        ask_bridge("begin", domain="airline")
