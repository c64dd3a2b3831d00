"""Tools of MCP servers: the reference package's own server, over stdio and HTTP, and the reference servers from npm.

RATCHET_TEST_MCP_NPM names the folder where `npm install @modelcontextprotocol/server-everything
@modelcontextprotocol/server-filesystem` was run.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from installed_packages import copy_packages
from patience import until

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, Role, TaskSpec, make
from ratchet.components.core.processes import free_port
from ratchet.components.environments.mcp_environment import McpEnvironment
from ratchet.components.sandboxes.docker_engine import docker_client, image_problem
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE

pytest.importorskip("mcp", reason="needs the package mcp (extra `mcp`)")

SERVER = str(Path(__file__).parents[2] / "helpers" / "mcp_reference_server.py")
COUNTER = {"counter": {"command": sys.executable, "args": [SERVER]}}
SUBMIT = {"tool": "submit", "params": {}}


def task(*lines, **fields):
    return TaskSpec(
        "m/1", "m", "m-1", "count", Role.TRAIN, "generic", "Count a to 2.", criteria={"lines": list(lines)}, **fields
    )


def count(name="a", **params):
    return {"tool": "count", "params": {"name": name, **params}}


COUNTED = task(
    {"kind": "state", "path": ["probes", "all", "a"], "equals": 2},
    {"kind": "unchanged"},
    world={"probes": {"all": {"tool": "show"}}},
)


def outcome(env, *actions):
    for action in actions:
        step = env.step(action)
    return step.info["outcome"]["success"]


@pytest.fixture
def counter():
    with McpEnvironment(COUNTER, call_seconds=60) as env:
        yield env


@pytest.mark.slow
def test_the_tools_of_a_server_are_the_tools_of_the_agent_and_its_state_decides(counter):
    assert counter.reset(task=COUNTED).observation == "Count a to 2."
    tools = {tool.name: tool for tool in counter.tools}
    assert list(tools) == ["count", "show", "fail", "leave", "talk", "submit"]
    assert tools["count"].description == "Add to a counter." and tools["count"].parameters["required"] == ["name"]
    assert counter.step(count()).observation == "1"
    assert outcome(counter, count(), SUBMIT) is True
    counter.reset(task=COUNTED)
    assert counter.step(count()).observation == "1"  # another process: the last episode left nothing
    assert outcome(counter, count(), count("b"), SUBMIT) is False  # something else changed too
    counter.reset(task=COUNTED)
    assert outcome(counter, SUBMIT) is False


@pytest.mark.slow
def test_a_wrong_call_is_an_observation_and_the_end_of_the_server_is_no_failure_of_the_agent(counter):
    counter.reset(task=COUNTED)
    wrong = {"tool": "count", "params": {"nam": "a"}}, {"tool": "fail", "params": {}}, {"tool": "none", "params": {}}
    for action in (*wrong, {"tool": "count", "params": "a"}, {"tool": None, "params": {}}):
        assert counter.step(action).info["result"].error
    long = counter.step({"tool": "talk", "params": {"length": 50_000}}).info["result"]
    assert long.truncated and len(long.content) < 9000 and long.error is None
    with pytest.raises(InfrastructureError, match=r"'leave' has ended \("):
        counter.step({"tool": "leave", "params": {}})


@pytest.mark.slow
def test_a_long_answer_is_cut_for_the_agent_and_whole_for_the_grader_and_an_empty_one_is_empty(counter):
    name = "a" * 9000
    counter.reset(
        task=task(
            {"kind": "state", "path": ["probes", "all", name], "equals": 1}, world={"probes": {"all": {"tool": "show"}}}
        )
    )
    assert counter.step({"tool": "talk", "params": {"length": 0}}).observation == ""
    counter.step(count(name))
    assert counter.step({"tool": "show", "params": {}}).info["result"].truncated
    assert outcome(counter, SUBMIT) is True


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_tool_named_submit_is_refused_until_it_is_left_out():
    code = "from mcp.server import MCPServer\nserver = MCPServer('x')\n@server.tool()\ndef submit() -> str: return ''\n"
    code += "@server.tool()\ndef go() -> str: return 'gone'\nserver.run('stdio')\n"
    server = {"command": sys.executable, "args": ["-c", code]}
    with McpEnvironment({"x": server}) as env, pytest.raises(ConfigurationError, match="leave it out by `tools`"):
        env.reset(task=COUNTED)
    with McpEnvironment({"x": {**server, "tools": ["go"]}}) as env:
        env.reset(task=task({"kind": "calls", "tool": "go"}))
        assert [tool.name for tool in env.tools] == ["go", "submit"]


@pytest.mark.slow
def test_a_server_behind_a_url_is_reached_and_one_that_is_not_there_is_an_infrastructure_failure():
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with (
        McpEnvironment({"far": {"url": url}}, call_seconds=5) as env,
        pytest.raises(InfrastructureError, match="'far'"),
    ):
        env.reset(task=COUNTED)
    server = subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: answers(port) or server.poll() is not None)
        with McpEnvironment({"far": {"url": url}, "near": COUNTER["counter"]}) as env:
            env.reset(task=task({"kind": "calls", "tool": "far__count"}))
            assert {"far__count", "near__count"} < {tool.name for tool in env.tools}
            assert outcome(env, {"tool": "far__count", "params": {"name": "a"}}, SUBMIT) is True
    finally:
        server.kill()
        server.wait()


def test_servers_are_configured_as_in_other_clients(tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_MCP_SERVERS", str(tmp_path / "servers.json"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        make("ratchet/mcp")
    (tmp_path / "servers.json").write_text('{"mcpServers": {"a": {"type": "stdio", "command": "no-such-program"}}}')
    with make("ratchet/mcp") as env, pytest.raises(ConfigurationError, match="'no-such-program' is not on the PATH"):
        env.reset(task=COUNTED)
    for wrong, message in (
        ({}, "a command"), ({"command": "a", "url": "b"}, "not both"), ({"comand": "a"}, "unknown key 'mcpServers.a.comand'"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=message):
            McpEnvironment({"a": wrong})
    with pytest.raises(ConfigurationError, match=r"mcpServers\.a\.command.: .*NO_SUCH_VARIABLE is not set"):
        McpEnvironment({"a": {"command": "${NO_SUCH_VARIABLE}"}})
    with McpEnvironment(COUNTER) as env, pytest.raises(DataError, match="outside of its folder"):
        env.reset(task=task({"kind": "unchanged"}, files={"../a": ""}))


def npm_server(name):
    folder = Path(os.environ.get("RATCHET_TEST_MCP_NPM", "/nowhere"))
    script = folder / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"
    if not script.is_file():
        pytest.skip(f"needs @modelcontextprotocol/{name} from npm in RATCHET_TEST_MCP_NPM")
    return str(script)


@pytest.mark.slow
def test_files_that_the_reference_file_server_writes_are_graded():
    servers = {"files": {"command": "node", "args": [npm_server("server-filesystem"), "."]}}
    wanted = task(
        {"kind": "state", "path": ["files", "notes/b.txt"], "equals": "two"},
        {"kind": "unchanged"},
        files={"notes/a.txt": "one"},
    )
    with McpEnvironment(servers) as env:
        env.reset(task=wanted)
        read = env.step({"tool": "read_text_file", "params": {"path": "notes/a.txt"}})
        assert read.observation == "one"
        assert env.step({"tool": "read_text_file", "params": {"path": "/etc/hostname"}}).info["result"].error
        assert outcome(env, {"tool": "write_file", "params": {"path": "notes/b.txt", "content": "two"}}, SUBMIT) is True
        env.reset(task=wanted)
        assert (
            outcome(env, {"tool": "write_file", "params": {"path": "notes/a.txt", "content": "two"}}, SUBMIT) is False
        )


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "streamableHttp"])
def test_the_reference_server_with_everything_plays_over_both_transports(transport):
    script = npm_server("server-everything")
    server = None
    servers = {"all": {"command": "node", "args": [script, "stdio"]}}
    if transport != "stdio":
        port = free_port()
        server = subprocess.Popen(
            ["node", script, transport],
            env=os.environ | {"PORT": str(port)},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        servers = {"all": {"url": f"http://127.0.0.1:{port}/mcp"}}
        until(lambda: answers(port) or server.poll() is not None)
    try:
        with McpEnvironment(servers) as env:
            env.reset(task=task({"kind": "calls", "tool": "echo"}))
            assert len(env.tools) > 8
            assert env.step({"tool": "echo", "params": {"message": "hi"}}).observation == "Echo: hi"
            assert env.step({"tool": "get-sum", "params": {"a": 2, "b": 3}}).observation == "The sum of 2 and 3 is 5."
            assert "[image " in env.step({"tool": "get-tiny-image", "params": {}}).observation
            assert outcome(env, SUBMIT) is True
    finally:
        if server is not None:
            server.kill()
            server.wait()


IN_CONTAINER = """
import os, pathlib
from mcp.server import MCPServer
server = MCPServer("files")
@server.tool()
def shout(path: str) -> str:
    "Make a file's text upper case."
    file = pathlib.Path(path)
    file.write_text(file.read_text().upper())
    return f"{os.getcwd()} {os.listdir('/sys/class/net')}"
server.run("stdio")
"""


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
def test_a_server_in_a_container_works_in_the_episodes_folder_and_is_gone_afterwards(tmp_path):
    if image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    copy_packages(tmp_path, "mcp")
    limits = ["--network", "none", "--user", f"{os.getuid()}:{os.getgid()}", "-v", ".:/work", "-w", "/work"]
    packages = ["-v", f"{tmp_path}:/srv:ro", "-e", "PYTHONPATH=/srv", "-e", "PYTHONDONTWRITEBYTECODE=1"]
    label = f"test={tmp_path}"
    command = ["run", "-i", "--rm", "--label", label, *limits, *packages, DEFAULT_IMAGE, "python3", "-c", IN_CONTAINER]
    loud = task({"kind": "state", "path": ["files", "a.txt"], "equals": "HELLO"}, files={"a.txt": "hello"})
    with McpEnvironment({"files": {"command": "docker", "args": command}}, call_seconds=120) as env:
        env.reset(task=loud)
        assert env.step({"tool": "shout", "params": {"path": "a.txt"}}).observation == "/work ['lo']"
        assert outcome(env, SUBMIT)
    until(lambda: not docker_client(30.0).containers.list(all=True, filters={"label": label}))
