"""Wrappers: each adds one thing, any order composes, and the contract beneath stays."""

from functools import partial

import pytest
from cpu_time import cpu_seconds

from ratchet.components.core import (
    Environment,
    EpisodeStatistics,
    MaxSteps,
    ObservationTruncate,
    Reward,
    Timeout,
    TimeStep,
    ToolResult,
    ToolSpec,
    Wrapper,
    wrap,
)


class Long(Environment):
    """Goes on until `stop`; each step is worth 1, the end 10."""

    domain = "testing"

    def __init__(self, text: str = "x") -> None:
        self.text, self.count, self.closed, self.finished = text, 0, 0, []

    @property
    def tools(self):
        return (ToolSpec("go", "Goes on.", {"type": "object"}), ToolSpec("stop", "Stops.", {"type": "object"}))

    def reset(self, *, task=None, seed=None):
        self.count, self.over = 0, None
        return TimeStep(self.text, info={"seed": seed})

    def step(self, action):
        if self.over:
            return self.over
        self.count += 1
        result = ToolResult(str(self.count), self.text)
        step = TimeStep(self.text, 1.0, info={"result": result})
        if action["tool"] == "stop":
            step = self.over = TimeStep("bye", 10.0, True, info={"result": result, "outcome": {"reason": "passed"}})
        return step

    def finish(self, reason):
        self.finished.append(reason)
        self.over = TimeStep(
            "", 10.0, truncated=True, info={"result": ToolResult("", ""), "outcome": {"reason": reason}}
        )
        return self.over

    def close(self):
        self.closed += 1


GO, STOP = {"tool": "go", "params": {}}, {"tool": "stop", "params": {}}


def test_thirty_steps_by_default_and_the_last_keeps_its_result():
    inner = Long()
    env = MaxSteps(inner)
    env.reset()
    steps = [env.step(GO) for _ in range(30)]
    assert [step.done for step in steps] == [False] * 29 + [True]
    last = steps[-1]
    assert (last.truncated, last.terminated, last.observation, last.reward) == (True, False, "x", 11.0)
    assert last.info["outcome"] == {"reason": "max_steps"} and last.info["result"].call_id == "30"
    assert env.step(GO) is last and inner.count == 30
    env.reset()
    assert not env.step(GO).done


def test_an_end_of_the_tasks_own_on_the_last_step_stays_its_own():
    env = MaxSteps(Long(), limit=2)
    env.reset()
    env.step(GO)
    last = env.step(STOP)
    assert last.terminated and not last.truncated and last.info["outcome"] == {"reason": "passed"}
    assert env.finish("late") is last and env.unwrapped.finished == []


def test_time_runs_out_by_the_clock_since_the_reset():
    now = [0.0]
    env = Timeout(Long(), clock=lambda: now[0])
    for _ in range(2):
        env.reset()
        assert not env.step(GO).done
        now[0] += 299.9
        assert not env.step(GO).done
        now[0] += 0.2
        last = env.step(GO)
        assert last.truncated and last.info["outcome"] == {"reason": "timeout"}


def test_a_reward_of_ones_own_sees_the_action_and_what_it_would_have_been():
    env = Reward(Long(), lambda action, step: -step.reward if action == GO else 0.5)
    env.reset()
    assert env.step(GO).reward == -1.0 and env.step(STOP).reward == 0.5
    env.reset()
    assert env.finish("no_call").reward == 0.5


def test_the_last_step_has_the_statistics_of_its_episode():
    env = EpisodeStatistics(Long())
    for _ in range(2):
        env.reset()
        assert "episode" not in env.step(GO).info
        found = env.step(STOP).info["episode"]
        assert (found["r"], found["l"]) == (11.0, 2) and 0 <= found["t"] < 60
    env.reset()
    env.step(GO)
    assert env.finish("no_call").info["episode"]["l"] == 1, "an end from outside is no step"


def test_observations_are_cut_at_8000_characters_and_say_so():
    env = ObservationTruncate(Long("é" * 8001))
    cut = "é" * 8000 + "\n[cut: 1 more characters]"
    assert env.reset().observation == cut
    step = env.step(GO)
    assert step.observation == cut and step.info["result"].content == cut and step.info["result"].truncated
    short = ObservationTruncate(Long("é" * 8000))
    short.reset()
    assert short.step(GO).observation == "é" * 8000 and not short.step(GO).info["result"].truncated


def test_wrappers_compose_the_first_innermost_and_pass_the_contract_on():
    inner = Long()
    env = wrap(inner, partial(MaxSteps, limit=3), EpisodeStatistics, partial(ObservationTruncate, limit=100), Timeout)
    assert (env.unwrapped, env.domain, env.available_tools) == (inner, "testing", ("go", "stop"))
    assert isinstance(env, Timeout) and wrap(inner) is inner
    with env:
        assert env.reset(seed=4).info == {"seed": 4}
        env.step(GO)
        env.step(GO)
        last = env.step(GO)
        assert last.info["outcome"] == {"reason": "max_steps"} and last.info["episode"]["r"] == 13.0
    assert inner.closed == 1


def test_an_outer_limit_ends_what_is_wrapped_within_and_its_statistics_are_seen():
    env = wrap(Long(), EpisodeStatistics, partial(MaxSteps, limit=2))
    env.reset()
    env.step(GO)
    last = env.step(GO)
    assert last.info["episode"]["l"] == 2 and last.info["outcome"] == {"reason": "max_steps"}


def test_a_wrapper_of_ones_own_needs_one_method():
    class Shout(Wrapper):
        def transform_step(self, action, step):
            return TimeStep(step.observation.upper(), *list(step)[1:])

    env = Shout(Long())
    env.reset()
    assert env.step(GO).observation == "X"


@pytest.mark.slow
def test_a_step_through_all_wrappers_costs_microseconds_however_long_the_episode():
    reward = partial(Reward, reward=lambda action, step: 0.0)
    env = wrap(Long(), partial(MaxSteps, limit=10**9), Timeout, reward, EpisodeStatistics, ObservationTruncate)
    env.reset()

    def cost(steps):
        return cpu_seconds(lambda: [env.step(GO) for _ in range(steps)]) / steps * 1e6

    early = min(cost(200) for _ in range(9))
    for _ in range(20_000):
        env.step(GO)
    late = min(cost(200) for _ in range(9))
    assert early < 20 and late < 3 * early + 2
