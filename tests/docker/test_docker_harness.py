"""A harness in a container: a real client is the agent, the gateway its only way out, and a killed run leaves nothing behind.

RATCHET_TEST_AGENTS_NPM names a folder outside of /tmp where `npm install @anthropic-ai/claude-code @openai/codex opencode-ai
node@22` was run.
"""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import pytest
from installed_packages import copy_packages
from model_stand_in import completion, stand_in
from patience import LIMIT, until

from ratchet.components.core import CommandTimeout, Policy, SandboxUnavailable, processes
from ratchet.components.models.gateway.gateway_server import GatewayServer
from ratchet.components.models.gateway.gateway_sessions import Gateway, SessionLimits
from ratchet.components.models.gateway.policy_queue import PolicyQueue
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.sandboxes import SandboxConfig, container_pool, docker_engine, make_sandbox
from ratchet.components.sandboxes.container_spec import SOCKET_FOLDER
from ratchet.components.sandboxes.local_command import shared_launcher
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder, read_manifest
from ratchet.components.trajectories.token_sidecar import read_tokens

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]

PROBE = """
import socket, sys, urllib.error, urllib.request
for address in sys.argv[1:]:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2)
        print("reached", address)
    except OSError:
        print("nothing at", address)
print([name for _, name in socket.if_nameindex()])
try:
    urllib.request.urlopen("http://127.0.0.1:8377/v1/models")
except urllib.error.HTTPError as error:
    print("without a key:", error.code)
"""
HOSTILE = """
import http.client, json, os, resource, socket, sys, time
path, key, other = sys.argv[1:]
held = []

def connect():
    own = socket.socket(socket.AF_UNIX)
    own.settimeout(10)
    own.connect(path)
    return own

def ask(method, target, body=None, key=key, **headers):
    connection = http.client.HTTPConnection("127.0.0.1")
    connection.sock = connect()
    headers = {"Authorization": "Bearer " + key, **headers}
    connection.request(method, target, json.dumps(body) if body is not None else None, headers)
    return connection.getresponse().status

hello = {"messages": [{"role": "user", "content": "x"}]}
print(ask("POST", "/sessions", {"name": "own"}), ask("POST", "/s/%s/finish" % other, {"success": True}))
print(ask("POST", "/v1/chat/completions", hello, **{"X-Ratchet-Session": other}), ask("POST", "/sessions", {}, key=""))
for action in (lambda: os.unlink(path), lambda: os.rename(path, path + "2"), lambda: open(path + "2", "w"),
               lambda: os.chmod(path, 0), lambda: socket.socket(socket.AF_UNIX).bind(path + "3")):
    try:
        action()
        print("done")
    except OSError as error:
        print(type(error).__name__, error.errno)
text = "POST /v1/chat/completions HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: Bearer %s\\r\\n"
text += "Content-Length: 30000000\\r\\n\\r\\n"
for number in range(100):
    held.append(connect())
    held[-1].sendall((text % key).encode() + b"x" * 100_000)
try:
    while True:
        held.append(connect())
except OSError as error:
    print("held", error.errno, flush=True)
time.sleep(600)
"""
KILLED = """
import sys
from pathlib import Path
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
harness = {"command": ["sleep", "600"]}
settings = {"taskset": "programs", "policy": "teacher", "limit": 2, "attempts": 1, "sandbox": {"backend": "docker"}}
collect(CollectPlan.load({**settings, "concurrency": 2, "harness": harness}), Path(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def _engine_and_nothing_left():
    if docker_engine.image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    yield
    container_pool.drain()
    assert not containers(processes.owner_label())


def containers(owner):
    api = docker_engine.docker_client(30.0).api
    return api.containers(all=True, filters={"label": f"{docker_engine.OWNER_LABEL}={owner}"})


def _running(owner):
    """The mounts of each running container."""
    return [
        [mount["Destination"] for mount in each["Mounts"]] for each in containers(owner) if each["State"] == "running"
    ]


@pytest.fixture(scope="module")
def programs():
    """A folder outside of /tmp with the package openai and all that it requires."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    copy_packages(folder, "openai")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def neighbours():
    """Addresses that this machine reaches: a server of its own, one on the engine's bridge, and another container."""
    client = docker_engine.docker_client(30.0)
    other = client.containers.run(DEFAULT_IMAGE, ["python3", "-m", "http.server", "8000"], detach=True)
    try:
        other.reload()
        bridge = other.attrs["NetworkSettings"]["Networks"]["bridge"]
        with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server((bridge["Gateway"], 0)) as host:
            found = [(bridge["IPAddress"], 8000), own.getsockname(), host.getsockname()]
            for address in found:
                until(lambda address=address: _answers(address))
            yield [f"{address}:{port}" for address, port in found]
    finally:
        other.remove(force=True)


def _answers(address):
    try:
        socket.create_connection(address, 5).close()
    except OSError:
        return False
    return True


class Endpoint:
    """A model server that solves the tasks of `programs` and keeps the ids of every reply: [prompt, sampled, logprobs]."""

    def __init__(self, command):
        self.references = {task.description: task.reference["main.py"] for task in load_taskset("programs").tasks()}
        self.command = command
        self.sampled = []

    def __call__(self, handler):
        if handler.command == "GET":
            handler.reply(200, json.dumps({"data": [{"id": "scripted", "max_model_len": 100000}]}).encode())
            return
        messages = handler.asked["messages"]
        solution = {"path": "main.py", "old": "", "new": self.references[messages[0]["content"]]}
        turns = (("bash", {"command": self.command}), ("edit_file", solution), ("submit", {}))
        turn = sum(message["role"] == "assistant" for message in messages)
        name, arguments = turns[turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls = [{"id": f"c{turn}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": f"turn {turn}", "tool_calls": calls}
        seed = len(self.sampled)
        prompt, ids = [*json.dumps(messages).encode()[:500]], [1000 + seed, 2000 + turn]
        logprobs = [-0.25 * (seed + 1), -0.5]
        self.sampled.append((prompt, ids, logprobs))
        choice = {"token_ids": ids, "logprobs": {"content": [{"token": "t", "logprob": each} for each in logprobs]}}
        handler.reply(
            200, json.dumps(completion(message, "tool_calls", choice=choice, prompt_token_ids=prompt)).encode()
        )


def test_openais_sdk_plays_in_a_container_that_reaches_nothing_but_the_gateway(tmp_path, programs, neighbours):
    addresses = ["1.1.1.1:53", *neighbours]
    endpoint = Endpoint(f"python3 - {' '.join(addresses)} <<'END'\n{PROBE}\nEND")
    harness = {
        "profile": "openai-sdk",
        "programs": [str(programs)],
        "env": {"PYTHONPATH": str(programs)},
        "timeout": LIMIT,
    }
    with stand_in(otherwise=endpoint) as server:
        config = {"model": "scripted", "base_url": server.base_url, "server": "vllm", "logprobs": True}
        (tmp_path / "endpoint.yaml").write_text(json.dumps(config))
        settings = {"taskset": "programs", "policy": f"openai:{tmp_path / 'endpoint.yaml'}", "limit": 2, "attempts": 1}
        sandbox = {"backend": "docker", "cpus": 2}
        plan = {**settings, "retries": 0, "concurrency": 2, "sandbox": sandbox, "harness": harness}
        report = collect(CollectPlan.load(plan), tmp_path / "c")
    assert (report.episodes, report.successes) == (2, 2)
    for record in read_folder(tmp_path / "c"):
        assert record.provenance.sandbox == "docker" and record.agent.scaffold == "ratchet/sandbox openai-sdk"
        assert [call.tool for turn in record.turns for call in turn.calls] == ["bash", "edit_file", "submit"]
        seen = record.turns[0].results[0].content.splitlines()
        assert seen == [*(f"nothing at {each}" for each in addresses), "['lo']", "without a key: 401"]
    rows = [row for entry in read_manifest(tmp_path / "c") for row in read_tokens(tmp_path / "c" / entry.tokens)]
    prompts, recorded = {}, []
    for row in rows:
        prompt = (*prompts.get(row.episode_id, ())[: row.trace.kept], *row.trace.prompt_ids)
        prompts[row.episode_id] = (*prompt, *row.trace.completion_ids)
        recorded.append((list(prompt), list(row.trace.completion_ids), list(row.trace.logprobs)))
    assert len(recorded) == 6 and sorted(recorded) == sorted(endpoint.sampled)


class ShellEndpoint(Endpoint):
    """A model server that solves a task by one call of whatever shell tool the program offers, and says that it is done."""

    def __init__(self):
        super().__init__("")
        self.tools = set()

    def __call__(self, handler):
        if handler.command == "GET":
            super().__call__(handler)
            return
        messages = handler.asked["messages"]
        tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in handler.asked.get("tools", ())}
        (name, schema) = next((each for each in tools.items() if each[0].lower() in SHELL_TOOLS), ("", None))
        asked = " ".join(json.dumps(message) for message in messages if message["role"] == "user")
        task = next((each for each in self.references if json.dumps(each)[1:-1] in asked), None)
        if schema is None or task is None or any(message["role"] == "tool" for message in messages):
            handler.reply(200, json.dumps(completion("Done.")).encode())
            return
        self.tools.add(name)
        arguments = {
            key: f"cat > main.py <<'END'\n{self.references[task]}\nEND"
            if key in ("command", "cmd")
            else "write main.py"
            for key in schema["properties"]
            if key in ("command", "cmd", "description")
        }
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        handler.reply(200, json.dumps(completion(message, "tool_calls")).encode())


SHELL_TOOLS = ("bash", "shell", "shell_command", "exec_command")


@pytest.mark.parametrize("profile", ["claude-code", "codex", "opencode"])
def test_a_program_from_npm_plays_in_a_container(tmp_path, profile):
    modules = Path(os.environ.get("RATCHET_TEST_AGENTS_NPM", "/absent")) / "node_modules"
    if not (modules / ".bin" / profile.partition("-")[0]).exists():
        pytest.skip("RATCHET_TEST_AGENTS_NPM names no folder with the program")
    endpoint = ShellEndpoint()
    with stand_in(otherwise=endpoint) as server:
        config = {"model": "scripted", "base_url": server.base_url, "server": "openai"}
        (tmp_path / "endpoint.yaml").write_text(json.dumps(config))
        settings = {"taskset": "programs", "policy": f"openai:{tmp_path / 'endpoint.yaml'}", "limit": 1, "attempts": 1}
        harness = {"profile": profile, "programs": [str(modules)], "timeout": LIMIT}
        plan = {
            **settings,
            "retries": 0,
            "concurrency": 1,
            "sandbox": {"backend": "docker", "cpus": 2},
            "harness": harness,
        }
        report = collect(CollectPlan.load(plan), tmp_path / "c")
    # A program may ask for a title beside the task: a record of its own.
    (record,) = (each for each in read_folder(tmp_path / "c") if "harness" in each.source_extra)
    assert (report.episodes, report.successes) == (1, 1), (record.source_extra, record.turns)
    assert record.provenance.sandbox == "docker" and record.source_extra["harness"]["exit_code"] == 0
    assert [call.tool for turn in record.turns for call in turn.calls] == [*endpoint.tools]


def test_a_killed_collection_leaves_no_container(tmp_path):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "c")]) as running:
        owner = processes.owner_label(running.pid)
        until(lambda: _running(owner).count([SOCKET_FOLDER]) == 2)
        running.kill()
    until(lambda: not _running(owner))
    docker_engine.remove_orphans(LIMIT)  # as the next start does: one may have been made and not started
    assert not containers(owner)


def test_programs_are_there_at_their_own_path_and_cannot_be_changed(programs):
    config = SandboxConfig(backend="docker", programs=(programs,))
    with make_sandbox(config) as sandbox:
        assert sandbox.run(["ls", str(programs)]).stdout_text.split() == sorted(
            each.name for each in programs.iterdir()
        )
        assert sandbox.run(["touch", f"{programs}/x"]).exit_code == 1
        assert "Read-only" in sandbox.run(f"rm {programs}/openai/__init__.py").stderr_text


def test_a_folder_of_programs_that_is_not_there_is_named():
    with pytest.raises(SandboxUnavailable, match="/var/tmp/absent") as refusal:
        make_sandbox(SandboxConfig(backend="docker", programs=("/var/tmp/absent",))).start()
    assert "\n" not in str(refusal.value)


def test_a_socket_is_shared_with_one_sandbox_whose_files_move_along():
    before = os.umask(0o077)  # as services have it
    path = shared_launcher().new_folder() / "own.sock"
    os.umask(before)
    connect = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{}'); print(s.recv(5).decode())"
    config = SandboxConfig(backend="docker", memory_mb=128, max_containers=1)
    with socket.socket(socket.AF_UNIX) as listener, make_sandbox(config) as sandbox:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        sandbox.run("mkdir -p a; echo one > a/b; echo two > /tmp/c; chmod 700 a")
        inside = sandbox.share_socket(path)
        listener.settimeout(LIMIT)
        answer = threading.Thread(target=lambda: listener.accept()[0].sendall(b"hello"), daemon=True)
        answer.start()
        assert sandbox.run(["python3", "-c", connect.format(inside)]).stdout == b"hello\n"
        assert sandbox.run("cat a/b /tmp/c; stat -c %a a").stdout == b"one\ntwo\n700\n"
        assert sandbox.run(f"rm -f {inside}").exit_code == 1
        with make_sandbox(config) as other:
            assert other.run(["ls", inside]).exit_code != 0


class Silent(Policy):
    """Is never asked."""

    name, version, sampling = "silent", "1", {}

    def act(self, requests):
        raise AssertionError(requests)


def test_a_hostile_program_with_the_socket_reaches_its_own_session_and_starves_nobody():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    policy = Silent()

    async def keep(session, branches):
        """Nothing is sampled."""

    def make():
        return Gateway(policy, "test", keep, key="k" * 32, limits=SessionLimits(), queue=PolicyQueue(policy))

    path = shared_launcher().new_folder() / "gateway.sock"
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limit[1]))
    try:
        with (
            GatewayServer(make, path=path) as server,
            make_sandbox(SandboxConfig(backend="docker", open_files=4096)) as box,
        ):

            async def begin(name):
                return server.gateway.open(name)

            own, other = server.call(begin("mine")), server.call(begin("theirs"))
            argv = ["python3", "-c", HOSTILE, box.share_socket(path), own.key, other.name]
            with pytest.raises(CommandTimeout) as ended:
                box.run(argv, timeout=15)
            lines = ended.value.result.stdout_text.splitlines()
            assert lines[:2] == ["401 403", "403 401"] and "done" not in lines[2:7] and len(lines) > 6, lines
            assert own.running <= own.limits.parallel and not other.ended
            state = urllib.request.urlopen(f"{server.root}/health", timeout=LIMIT)
            assert json.load(state)["sessions"] == 2
            until(lambda: len(server._server.server_state.connections) < 10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
