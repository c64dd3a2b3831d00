"""A class with `reset`, `step` and `available_tools` is an environment: what is missing has a stated default."""

import pytest

from ratchet.components.core import (
    ConfigurationError,
    Environment,
    TimeStep,
    as_environment,
    environment_registry,
    make,
    register,
    spec,
    wrap,
)
from ratchet.components.core.environment_wrappers import EpisodeStatistics, MaxSteps


class Corridor:
    """The environment of the original's documentation: these three members and a domain."""

    domain = "my_domain"

    def reset(self, *, task=None, seed=None):
        self.place = 0
        return TimeStep("at 0")

    def step(self, action):
        self.place += 1
        return TimeStep(f"at {self.place}", reward=1.0, terminated=action["tool"] == "submit")

    @property
    def available_tools(self):
        return ["walk", "submit"]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(environment_registry, "_specs", dict(environment_registry._specs))


def test_it_registers_and_is_made_as_it_is():
    register("my-project/my-env", Corridor, domain="my_domain")
    env = make("my-project/my-env")
    assert isinstance(env, Environment) and env.domain == "my_domain" and spec("my-project/my-env").turns == 20
    assert env.available_tools == ("walk", "submit") and env.reset(seed=1).observation == "at 0"
    assert env.step({"tool": "submit", "params": {}}).done
    env.close()


def test_its_tools_take_any_parameters():
    (walk, _) = as_environment(Corridor()).tools
    assert walk.parameter_error({"far": 3, "where": ["left"]}) is None
    assert walk.parameter_error("left") is not None


def test_finish_ends_an_episode_without_a_grade():
    last = as_environment(Corridor()).finish("no_call")
    assert last.truncated and not last.terminated and last.info["outcome"] == {"reason": "no_call"}


def test_its_own_optional_methods_are_used():
    class Closing(Corridor):
        closed = False

        def finish(self, reason):
            return TimeStep("over", truncated=True, info={"outcome": {"success": True, "reason": reason}})

        def close(self):
            self.closed = True

    inner = Closing()
    with as_environment(inner) as env:
        assert env.finish("stop").info["outcome"]["success"] is True
    assert inner.closed


def test_a_step_limit_is_kept_for_a_class_that_takes_none():
    register("my-project/long", Corridor, domain="my_domain")
    env = make("my-project/long", max_steps=2)
    env.reset()
    env.step({"tool": "walk", "params": {}})
    assert env.step({"tool": "walk", "params": {}}).info["outcome"] == {"reason": "max_steps"}


def test_a_subclass_of_environment_needs_no_more():
    class Mine(Environment):
        available_tools = ("go",)

        def reset(self, *, task=None, seed=None):
            return TimeStep("go")

        def step(self, action):
            return TimeStep("gone", terminated=True)

    assert [tool.name for tool in Mine().tools] == ["go"] and Mine().finish("x").truncated


def test_it_is_wrapped_and_played_by_a_loop():
    env = wrap(Corridor(), MaxSteps, EpisodeStatistics)
    ts = env.reset()
    while not ts.done:
        ts = env.step({"tool": "submit" if ts.observation == "at 3" else "walk", "params": {}})
    assert ts.info["episode"]["r"] == 4.0


@pytest.mark.parametrize(
    ("value", "why"), [(object(), "has no `reset`"), (type("Half", (), {"reset": 1, "step": 2})(), "`available_tools`")]
)
def test_what_is_no_environment_is_refused(value, why):
    with pytest.raises(ConfigurationError, match=why):
        as_environment(value)


def test_a_step_that_returns_something_else_names_the_class_and_the_remedy():
    class Tuples(Corridor):
        def step(self, action):
            return ("at 1", 0.0, False, False, {})

    with pytest.raises(ConfigurationError, match=r"Tuples\.step returned tuple; return a ratchet\.TimeStep"):
        as_environment(Tuples()).step({})
