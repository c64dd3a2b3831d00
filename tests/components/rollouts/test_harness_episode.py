"""A program plays the tasks of a collection: in a sandbox whose only way out is the gateway, graded by the task."""

import json
from pathlib import Path

import pytest

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.models.gateway.gateway_sessions import Gateway
from ratchet.components.nights.scale_config import Scale, load_scale
from ratchet.components.rollouts.collection import LoadedAgent, collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.rollouts.episode_runner import prepare_policy
from ratchet.components.rollouts.harness_config import PROFILES, HarnessConfig
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.sandboxes.docker_engine import image_problem
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder

AGENT = """
import json, os, urllib.request
def ask(messages):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": json.loads(os.environ["RATCHET_TOOLS"])}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
messages = [{"role": "user", "content": os.environ["RATCHET_TASK"]}]
PROBE
while True:
    reply = ask(messages)
    messages.append(reply)
    for call in reply.get("tool_calls", ()):
        arguments, name = json.loads(call["function"]["arguments"]), call["function"]["name"]
        if name == "submit":
            raise SystemExit
        if name == "edit_file":
            text, old = open(arguments["path"]).read(), arguments["old"]
            open(arguments["path"], "w").write(text.replace(old, arguments["new"]) if old else arguments["new"])
        result = open(arguments["path"]).read() if name == "read_file" else "ok"
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
"""
NO_WAY_OUT = """
import socket
for address in (("1.1.1.1", 53), ("127.0.0.1", 22)):
    try:
        socket.create_connection(address, 2)
    except OSError:
        continue
    raise SystemExit("a way out")
messages[0]["content"] += " " + os.environ["OPENAI_API_KEY"]
"""


DOCKER = pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")])


def plan(backend="local", **harness):
    if backend == "docker" and image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    settings = {"taskset": "programs", "policy": "teacher", "limit": 2, "attempts": 1, "retries": 0, "patience": 5}
    sandbox = {"backend": backend} if backend == "local" else {"backend": backend, "egress": ["example.org"]}
    return CollectPlan.load({**settings, "sandbox": sandbox, "concurrency": 2, "harness": harness})


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", DOCKER])
def test_a_command_plays_and_the_task_decides(tmp_path, backend):
    agent = AGENT.replace("PROBE", NO_WAY_OUT)
    report = collect(plan(backend, command=["python3", "$HOME/a.py"], files={"$HOME/a.py": agent}), tmp_path / "c")
    assert (report.episodes, report.successes) == (2, 2)
    for record in read_folder(tmp_path / "c"):
        assert [call.tool for turn in record.turns for call in turn.calls][-1] == "submit"
        assert record.agent.scaffold == "ratchet/sandbox python3" and record.provenance.sandbox == backend
        assert record.source_extra["harness"]["exit_code"] == 0
        assert record.turns[-1].env_reward == 1.0
        assert "rgw-" not in json.dumps(record.messages[0].content) and "[GATEWAY_KEY]" in record.messages[0].content


@pytest.mark.slow
def test_a_policy_that_the_caller_has_loaded_is_the_model_of_the_harness(tmp_path):
    settings = plan(command=["python3", "$HOME/a.py"], files={"$HOME/a.py": AGENT.replace("PROBE", "")})
    agent = LoadedAgent(prepare_policy(settings, load_taskset("programs")))
    assert collect(settings, tmp_path / "c", agent=agent).successes == 2
    assert {record.agent.scaffold for record in read_folder(tmp_path / "c")} == {"ratchet/sandbox python3"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", DOCKER])
def test_work_is_graded_as_it_stands_when_the_time_is_over(tmp_path, backend):
    agent = AGENT.replace("PROBE", "ask(messages); import time; time.sleep(60)")
    settings = plan(backend, command=["python3", "$HOME/a.py"], files={"$HOME/a.py": agent}, timeout=10)
    report = collect(settings, tmp_path / "c")
    assert report.failures == {"harness_timeout": 2} and report.infrastructure_failures == 0


@pytest.mark.slow
def test_a_program_that_asks_for_nothing_is_lost_with_its_own_words_and_its_session_ends(tmp_path, monkeypatch):
    left, close = [], Gateway.close
    monkeypatch.setattr(Gateway, "close", lambda self: left.append(self.state()["sessions"]) or close(self))
    with pytest.raises(InfrastructureError, match="no such program in here"):
        collect(plan(command=["sh", "-c", "echo no such program in here >&2; exit 3"]), tmp_path / "c")
    assert left == [0]


@pytest.mark.slow
def test_a_sub_conversation_of_a_training_task_is_kept_beside_the_episode(tmp_path):
    agent = AGENT.replace("PROBE", "ask([{'role': 'user', 'content': 'aside'}])")
    settings = plan(command=["python3", "$HOME/a.py"], files={"$HOME/a.py": agent})
    report = collect(settings, tmp_path / "c")
    records = list(read_folder(tmp_path / "c"))
    assert report.episodes == 2 and len(records) == 4
    assert len({record.episode_id for record in records}) == 4
    assert [record.messages[0].content for record in records].count("aside") == 2
    assert len({record.group_id for record in records}) == 2
    assert collect(settings, tmp_path / "c").episodes == 2  # a finished collection is only read


def test_words_in_braces_are_replaced_once_and_others_stay():
    config = HarnessConfig.load({"command": ["x", "{task}", "{other}"], "env": {"A": "{base_url}"}})
    command, _, env = config.job({"task": "say {key}", "key": "secret", "base_url": "http://b"})
    assert command == ["x", "say {key}", "{other}"] and env == {"A": "http://b"}


@pytest.mark.parametrize("values", [{}, {"profile": "emacs"}, {"command": ["x"], "timeout": 0}, {"comand": ["x"]}])
def test_a_wrong_harness_is_refused_before_anything_plays(values):
    with pytest.raises(ConfigurationError):
        HarnessConfig.load(values)


def test_address_space_is_limited_where_it_counts_and_memory_where_that_is_limited():
    config = HarnessConfig(profile="codex")
    assert config.sandbox(SandboxConfig(backend="local")).memory_mb > 200_000
    assert config.sandbox(SandboxConfig(backend="docker")).memory_mb == 4096


def test_programs_that_could_not_start_are_refused_before_anything_plays(tmp_path, monkeypatch):
    def refusal(*folders):
        with pytest.raises(ConfigurationError) as caught:
            HarnessConfig(command=("x",), programs=folders).sandbox(SandboxConfig(backend="local"))
        return str(caught.value)

    python = tmp_path / "python"
    environment = tmp_path / "environment"
    for folder in (python, environment):
        (folder / "bin").mkdir(parents=True)
        folder.chmod(0o755)  # whatever the umask is
    (python / "bin" / "python3").touch()
    (environment / "bin" / "python3").symlink_to(python / "bin" / "python3")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "which the sandbox does not show" in refusal(environment)
    both = HarnessConfig(command=("x",), programs=(environment, python))
    assert both.sandbox(SandboxConfig(backend="local")).programs == (environment, python)
    assert "is no folder" in refusal(tmp_path / "absent")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    tmp_path.chmod(0o700)
    assert f"because {tmp_path} is closed to them" in refusal(python)


def test_folders_that_a_container_cannot_show_are_refused_before_a_model_is_loaded_and_a_night_begins(
    monkeypatch, tmp_path
):
    loaded = []
    monkeypatch.setattr("ratchet.components.rollouts.collection.prepare_policy", lambda *plan: loaded.append(plan))
    settings = {"taskset": "programs", "policy": "teacher", "limit": 1, "sandbox": {"backend": "docker"}}
    smoke = load_scale("smoke").model_dump(mode="json", exclude={"name"}) | {"sandbox": settings["sandbox"]}
    for folder, message in (("/tmp", "a container has a /tmp of its own"), ("/absent", "is no folder of this machine")):
        harness = {"command": ["x"], "programs": [folder]}
        with pytest.raises(ConfigurationError, match=message):
            collect(CollectPlan.load({**settings, "harness": harness}), tmp_path / "c")
        with pytest.raises(ConfigurationError, match=message):
            Scale.load({**smoke, "policy": {"harness": harness}}).check()
    assert not loaded
    harness = HarnessConfig(command=("x",), programs=(Path("/usr"),))
    assert harness.sandbox(SandboxConfig(backend="docker")).programs == (Path("/usr"),)


@pytest.mark.parametrize("profile", sorted(set(PROFILES) - {"openai-sdk"}))
def test_a_task_that_begins_with_a_dash_is_no_option_of_the_program(profile):
    command = PROFILES[profile]["command"]
    assert command[command.index("{task}") - 1] in ("--", "-t")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_can_be_started_with_the_words_it_knows(profile):
    words = dict.fromkeys(("task", "model", "base_url", "root_url", "key"), "w")
    command, files, _ = HarnessConfig(profile=profile).job(words)
    assert command and not any("{task}" in each for each in (*command, *files.values()))


def test_a_plan_without_a_harness_keeps_the_hash_that_it_had():
    from ratchet.components.rollouts.collection_plan import plan_hash

    settings = {"taskset": "programs", "policy": "teacher"}
    assert plan_hash(CollectPlan.load(settings), "v", "t") != plan_hash(
        CollectPlan.load({**settings, "harness": {"command": ["x"]}}), "v", "t"
    )


def test_a_harness_and_a_system_prompt_exclude_each_other():
    settings = {"taskset": "programs", "policy": "teacher", "system": "Be brief.", "harness": {"command": ["x"]}}
    with pytest.raises(ConfigurationError, match="system"):
        CollectPlan.load(settings)
