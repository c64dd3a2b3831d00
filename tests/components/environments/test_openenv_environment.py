"""OpenEnv by the real package `openenv-core`: our server under its validator and client, and its servers under our client."""

import socket
import subprocess
import sys
import time

import msgspec
import pytest

pytest.importorskip("openenv", reason="needs the package openenv-core (extra `openenv`)")

from openenv import GenericEnvClient
from openenv.cli._validation import validate_running_environment

from ratchet.components.core import ConfigurationError, InfrastructureError, TaskSpec, make
from ratchet.components.core.processes import free_port
from ratchet.components.environments.openenv_environment import peer_tasks
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.peer_import import import_peer_tasks

pytestmark = pytest.mark.slow

ORDERS = load_taskset("orders").tasks("train")

TOOL_SERVER = """
import sys, uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State

class Echo(MCPEnvironment):
    def __init__(self):
        server = FastMCP("echo")
        @server.tool
        def echo(text: str) -> str:
            "Repeat a text."
            if text == "bad":
                raise ValueError("no such text")
            return text + "!"
        super().__init__(server)
        self._state = State()
    def reset(self, seed=None, episode_id=None, **kwargs):
        return Observation(done=False, metadata={})
    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=True)
    @property
    def state(self):
        return self._state

app = create_fastapi_app(Echo, CallToolAction, CallToolObservation)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


def serve(arguments):
    port = free_port()
    process = subprocess.Popen([sys.executable, *arguments, str(port)])
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    return process, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def ours():
    process, url = serve(["-c", "from ratchet.cli import main; main()", "tasks", "serve", "orders", "--port"])
    yield url
    process.kill()
    process.wait()


def test_openenvs_own_validator_accepts_the_server(ours):
    report = validate_running_environment(ours, timeout_s=60)
    assert report["passed"] and report["summary"]["passed_count"] == 6, report["criteria"]


def test_openenvs_own_client_plays_a_task_to_our_grade(ours):
    with GenericEnvClient(base_url=ours).sync() as client:
        first = client.reset(task_id=ORDERS[1].task_id)
        assert "look_up_order" in {tool["function"]["name"] for tool in first.observation["tools"]}
        for action in ORDERS[1].reference_actions:
            result = client.step(action)
        assert (result.done, result.reward, result.observation["outcome"]["success"]) == (True, 1.0, True)
        client.reset(seed=1)
        lazy = client.step({"tool": "answer", "params": {"text": "Done."}})
        assert lazy.done and lazy.observation["outcome"]["success"] is False


def test_a_server_is_played_by_its_url(ours, tmp_path):
    import_peer_tasks(tmp_path / "theirs", peer_tasks(ours, {}, 3))
    taskset = load_taskset(tmp_path / "theirs")
    task = taskset.by_id["theirs/seed-1"]
    with make("ratchet/openenv") as env:
        env.reset(task=task)
        assert [tool.name for tool in env.tools] == ["act"] and "tool" in env.tools[0].parameters["required"]
        for wrong in ({"tol": "respond"}, {"tool": 3}):
            assert env.step({"tool": "act", "params": wrong}).info["result"].error
        assert "unknown tool" in env.step({"tool": "act", "params": {"tool": "nothing"}}).observation
        for action in ORDERS[1].reference_actions:
            step = env.step({"tool": "act", "params": action})
        assert step.done and step.info["outcome"]["success"] is True and step.info["outcome"]["score"] == 1.0
        env.reset(task=task)
        assert env.finish("max_turns").info["outcome"]["success"] is False


def test_the_tools_of_a_server_of_mcp_tools_are_offered_as_they_are(tmp_path):
    (tmp_path / "server.py").write_text(TOOL_SERVER)
    process, url = serve([str(tmp_path / "server.py")])
    try:
        (peer, _) = next(peer_tasks(url, {}, 1))
        task = TaskSpec("o/1", "o", "o", "k", "train", "generic", "Echo.", criteria=msgspec.to_builtins(peer))
        with make("ratchet/openenv") as env:
            env.reset(task=task)
            assert [tool.name for tool in env.tools] == ["echo"]
            assert env.step({"tool": "echo", "params": {"text": "hi"}}).observation == "hi!"
            failed = env.step({"tool": "echo", "params": {"text": "bad"}})
            assert "no such text" in failed.observation and "no such text" in failed.info["result"].error
            process.kill()
            process.wait()
            with pytest.raises(InfrastructureError):
                env.step({"tool": "echo", "params": {"text": "hi"}})
            with pytest.raises(InfrastructureError):
                env.reset(task=task)
    finally:
        process.kill()
        process.wait()


def test_a_server_that_is_not_there_is_one_line():
    with pytest.raises(ConfigurationError, match="no OpenEnv server answers at http"):
        list(peer_tasks("http://127.0.0.1:1", {}, 1))
