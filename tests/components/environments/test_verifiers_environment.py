"""Tasksets of the real package `verifiers` played here, and ours played there. Run with an environment that has it."""

import asyncio
import os
import subprocess
import sys
import threading

import msgspec
import pytest

pytest.importorskip("verifiers.v1", reason="needs the package verifiers (extra `verifiers`)")

import verifiers.v1 as vf

from ratchet.components.core import ConfigurationError, TaskSpec, make
from ratchet.components.environments.peer_task import read_peer_task
from ratchet.components.environments.turn_server import TurnServer
from ratchet.components.environments.verifiers_environment import peer_tasks
from ratchet.components.environments.verifiers_package import write_package
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.peer_import import import_peer_tasks
from ratchet.components.tasksets.taskset_files import taskset_folder

pytestmark = pytest.mark.slow

ADDER = '''
import verifiers.v1 as vf

class AdderTools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    TOOL_PREFIX = None
    @vf.tool
    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

class AdderData(vf.TaskData):
    answer: int

class AdderTask(vf.Task[AdderData]):
    @classmethod
    def toolsets(cls, config):
        return [AdderTools(vf.ToolsetConfig())]
    @vf.reward
    async def right(self, trace) -> float:
        return float(str(self.data.answer) in (trace.last_reply or ""))

class AdderConfig(vf.TasksetConfig):
    start: int = 1

class AdderTaskset(vf.Taskset[AdderTask, AdderConfig]):
    def load(self):
        for n in range(self.config.start, self.config.start + 10):
            yield AdderTask(AdderData(name=f"add-{n}", prompt=f"What is {n} + {n}?", answer=2 * n), self.config.task)

__all__ = ["AdderTaskset"]
if __name__ == "__main__":
    AdderTools.run()
'''


@pytest.fixture
def adder(tmp_path, monkeypatch):
    (tmp_path / "adder_v1.py").write_text(ADDER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_package_is_played_by_name_with_its_own_tools_and_rewards(adder):
    folder = adder / "sums"
    import_peer_tasks(folder, peer_tasks("adder-v1", {"start": 3}, 4))
    taskset = load_taskset(folder)
    assert len(taskset.tasks()) == 4 and taskset.head.environment == "ratchet/verifiers"
    task = taskset.by_id["sums/add-3"]
    assert read_peer_task(task.criteria).data["answer"] == 6 and "6" not in task.description
    with make("ratchet/verifiers", max_steps=10) as env:
        assert env.reset(task=task).observation == "What is 3 + 3?"
        assert [tool.name for tool in env.tools] == ["add"] and env.tools[0].description == "Add two numbers."
        assert env.step({"tool": "add", "params": {"a": 3, "b": 3}}).observation == "6"
        assert env.step({"tool": "subtract", "params": {}}).info["result"].error
        right = env.answer("It is 6.")
        assert right.info["outcome"]["success"] is True and right.info["rewards"] == {"right": 1.0}
        env.reset(task=task)
        assert env.finish("max_turns").info["outcome"] | {"reason": "max_turns"} == {
            "success": False, "score": 0.0, "tests_passed": None, "tests_total": None, "reason": "max_turns",
        }  # fmt: skip


def test_an_unknown_package_and_wrong_settings_are_one_line(adder):
    for package, config in (("no-such-package", {}), ("adder-v1", {"strat": 3}), ("adder-v1", {"start": "x"})):
        with pytest.raises(ConfigurationError, match=f"verifiers cannot load '{package}'"):
            list(peer_tasks(package, config, 1))


@pytest.fixture
def exported(tmp_path, monkeypatch):
    package = write_package(taskset_folder("orders"), "orders", "2", tmp_path / "package")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "package"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(tmp_path / "package"))
    return package


def test_verifiers_own_validator_proves_an_exported_taskset(exported, tmp_path):
    code = "import sys; from verifiers.v1.cli.validate import main; sys.exit(main())"
    argv = [
        sys.executable,
        "-c",
        code,
        exported,
        "--select.limit",
        "20",
        "--runtime.type",
        "subprocess",
        "-o",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=500, check=False)
    (summary,) = (tmp_path / "out").glob("*/summary.json")
    outcomes = msgspec.json.decode(summary.read_bytes())["outcomes"]
    assert outcomes["valid"] == 20 and sum(outcomes.values()) == 20, done.stdout


def test_verifiers_own_harness_plays_an_exported_task_and_gets_our_score(exported):
    seat = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    environment = vf.load_environment(vf.resolve_env_config({"taskset": {"id": exported}, "agent": seat}))
    task = next(iter(environment.taskset))

    def rollout(actions):
        with TurnServer(300) as server:
            client = vf.EvalClientConfig(base_url=server.base_url, api_key_var="RATCHET_NO_KEY")

            async def play():
                async with environment.serving():
                    return await environment.run_episode(task, vf.ModelContext("scripted", client))

            def answer():
                for number, action in enumerate(actions):
                    if server.next_request() is None:
                        return
                    server.reply("", (f"call_{number}", action["tool"], action["params"]))
                while server.next_request() is not None:
                    server.reply("It is done.")

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            (trace,) = asyncio.run(play()).traces
            server.end()
            thread.join()
            return trace

    reference = msgspec.convert(task.data.spec, TaskSpec).reference_actions
    played = rollout(reference)
    assert (played.reward, played.stop_condition) == (1.0, "episode_ended")
    assert rollout(reference[:1]).reward == 0.0
