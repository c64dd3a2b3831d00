"""An environment of ours behind Gymnasium's contract."""

import subprocess
import sys

import pytest

from ratchet.components.core import (
    ConfigurationError,
    Environment,
    InfrastructureError,
    Role,
    TaskSpec,
    TimeStep,
    ToolSpec,
    as_gymnasium,
    list_envs,
    make,
    spec,
)
from ratchet.components.core import environment_wrappers as adapter
from ratchet.components.sandboxes import SandboxConfig
from ratchet.components.tasksets import load_taskset, tasksets_played_in

TASK = TaskSpec("t-1", "echoes", "f", "k", Role.TRAIN, "generic", "Say something with ünïcode.")


class Echo(Environment):
    """Repeats what it is told, five times at most."""

    domain = "generic"

    def __init__(self) -> None:
        self.said = 0
        self.task: TaskSpec | None = None
        self.closed = 0

    @property
    def tools(self):
        return ToolSpec("echo", "Repeats.", {"type": "object"}), ToolSpec("submit", "Ends.", {"type": "object"})

    def reset(self, *, task=None, seed=None):
        self.said, self.task = 0, task or self.task or TASK
        return TimeStep(f"{self.task.description} (seed {seed})", info={"task_id": self.task.task_id})

    def step(self, action):
        self.said += 1
        over = action["tool"] == "submit"
        return TimeStep(f"{action['params']} — {self.said}", float(over), over, self.said >= 5, {"said": self.said})

    def finish(self, reason):
        return TimeStep(truncated=True, info={"outcome": {"reason": reason}})

    def close(self):
        self.closed += 1


def test_gymnasiums_own_checker_finds_nothing():
    from gymnasium.utils.env_checker import check_env

    check_env(as_gymnasium(Echo()), skip_render_check=True)


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(id, marks=[pytest.mark.long] * (id == "ratchet/browser"))
        for id in list_envs()
        if spec(id).domain != "generic"  # the tools are those of another package or server
    ],
)
def test_every_registered_environment_passes_gymnasiums_own_checker(environment):
    """On the first task of a bundled taskset that is played in it."""
    from gymnasium.utils.env_checker import check_env

    known = tasksets_played_in(environment)
    assert known, f"no bundled taskset is played in {environment}"
    options = {"sandbox": SandboxConfig(backend="local")} if spec(environment).sandboxed else {}
    with make(environment, max_steps=5, **options) as made:
        try:
            check_env(as_gymnasium(made, load_taskset(known[0]).tasks()[0]), skip_render_check=True)
        except (ConfigurationError, InfrastructureError) as error:  # no Chromium here
            if environment != "ratchet/browser":
                raise
            pytest.skip(str(error))


def test_reset_and_step_have_gymnasiums_form():
    env = as_gymnasium(Echo())
    observation, info = env.reset(seed=7, options={"task": TASK})
    assert observation == "Say something with ünïcode. (seed 7)" and info == {"task_id": "t-1"}
    assert env.step({"tool": "echo", "params": {"text": "hi"}}) == (
        "{'text': 'hi'} — 1",
        0.0,
        False,
        False,
        {"said": 1},
    )
    assert env.step({"tool": "submit", "params": {}})[1:4] == (1.0, True, False)
    assert as_gymnasium(Echo(), TASK).reset(seed=7)[0] == observation
    env.close()
    assert env.env.closed == 1


def test_the_spaces_know_what_is_an_action_and_what_is_not():
    env = as_gymnasium(Echo())
    env.action_space.seed(3)
    assert {env.action_space.sample()["tool"] for _ in range(50)} == {"echo", "submit"}
    assert {"tool": "anything", "params": {}, "thought": "hm"} in env.action_space
    for wrong in ("echo", {"tool": "echo"}, {"tool": 1, "params": {}}, {"tool": "echo", "params": {}, "colour": 1}):
        assert wrong not in env.action_space
    assert "any text, ünïcode\n" in env.observation_space and 3 not in env.observation_space
    assert env.observation_space.sample() in env.observation_space
    assert as_gymnasium(Echo()).action_space == env.action_space


def test_without_gymnasium_one_line_says_what_to_install(monkeypatch):
    adapter._gymnasium_adapter.cache_clear()
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigurationError, match="pip install gymnasium"):
        as_gymnasium(Echo())
    adapter._gymnasium_adapter.cache_clear()


def test_the_protocol_does_not_import_gymnasium_until_it_is_asked():
    code = "import sys, ratchet.components.core; assert 'gymnasium' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
