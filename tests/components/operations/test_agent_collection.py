"""`collect` plays any agent in a taskset or an environment and returns the episodes."""

import threading

import pytest

from ratchet.components.core import ConfigurationError, Role, TaskSpec, TimeStep, environment_registry, register
from ratchet.components.operations.agent_collection import collect
from ratchet.components.tasksets import load_taskset


class Count:
    """Ends after as many steps as its task says."""

    domain = "counting"
    available_tools = ("next",)

    def reset(self, *, task=None, seed=None):
        self.left = task.world["steps"] if task else 1
        self.reset_with = task
        return TimeStep(f"{self.left} left")

    def step(self, action):
        self.left -= 1
        outcome = {"outcome": {"success": True}} if self.left == 0 else {}
        return TimeStep(f"{self.left} left", reward=0.5, terminated=self.left == 0, info=outcome)


@pytest.fixture(autouse=True)
def counting(monkeypatch, tmp_path):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(environment_registry, "_specs", dict(environment_registry._specs))
    register("test/count", Count, domain="counting")


def go(request):
    return {"tool": "next", "params": {}}


def tasks(*steps):
    return [
        TaskSpec(f"count/{n}", "count", f"f{n}", "k", Role.TRAIN, "counting", "Count.", world={"steps": n})
        for n in steps
    ]


def test_an_environment_without_tasks_is_reset_without_one():
    env = Count()
    (episode,) = collect(env, agent=go)
    assert env.reset_with is None and episode.outcome.success and episode.turns[0].env_reward == 0.5
    assert episode.turns[0].results[0].content == "0 left"


def test_tasks_of_ones_own_are_passed_to_a_registered_environment():
    episodes = collect("test/count", agent=go, tasks=tasks(1, 3), attempts=2)
    assert [(each.task.task_id, each.attempt, len(each.turns)) for each in episodes] == [
        ("count/1", 0, 1), ("count/1", 1, 1), ("count/3", 0, 3), ("count/3", 1, 3),
    ]  # fmt: skip
    assert len({each.seed for each in episodes}) == 4


def test_an_environment_object_plays_one_episode_at_a_time_and_stays_open():
    class Counted(Count):
        closed = 0

        def step(self, action):
            assert threading.current_thread().name == "rollout"
            return super().step(action)

        def close(self):
            self.closed += 1

    env = Counted()
    assert collect(env, agent=go, tasks=tasks(2, 3), attempts=4).success_rate == 1.0
    assert env.closed == 0


def test_tasks_are_a_number_a_list_of_ids_or_all_of_a_role():
    orders = load_taskset("orders")
    two = [task.task_id for task in orders.tasks("train")[:2]]
    assert [each.task.task_id for each in collect(orders, agent=lambda request: "no", tasks=two)] == two
    assert {each.task.role for each in collect("orders", agent=lambda request: "no", tasks=2, role="audit")} == {
        "audit"
    }


@pytest.mark.parametrize("wrong", ["orders/train-0001", 0, 1.5])
def test_other_tasks_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="tasks="):
        collect("orders", agent=go, tasks=wrong)


def test_equal_seeds_play_equal_tasks_with_equal_seeds_for_every_agent():
    first, second = (collect("orders", agent=agent, tasks=3, seed=5) for agent in (go, lambda request: "no"))
    assert [(each.task.task_id, each.seed) for each in first] == [(each.task.task_id, each.seed) for each in second]


def test_a_folder_keeps_the_episodes_and_the_same_call_plays_nothing_again(tmp_path):
    calls = []

    def agent(request):
        calls.append(request.episode_id)
        return "no"

    agent.version = "1"
    first = collect("orders", agent=agent, tasks=2, folder=tmp_path / "kept")
    assert len(calls) == 2 and first.folder == tmp_path / "kept"
    assert list(collect("orders", agent=agent, tasks=2, folder=tmp_path / "kept")) == list(first) and len(calls) == 2
    with pytest.raises(ConfigurationError, match="another plan"):
        collect("orders", agent=lambda request: "other", tasks=2, folder=tmp_path / "kept")


def test_a_system_prompt_is_recorded_sent_and_makes_another_agent():
    seen = []

    def agent(request):
        seen.append([message["role"] for message in request.messages])
        return "no"

    plain, briefed = (collect("orders", agent=agent, tasks=1, system=system)[0] for system in (None, "Be brief."))
    assert seen == [["user"], ["system", "user"]]
    assert briefed.messages[0].content == "Be brief."
    assert plain.agent.policy_version != briefed.agent.policy_version and plain.episode_id != briefed.episode_id


def test_an_exception_of_the_agent_is_its_failure_and_the_others_play_on():
    def agent(request):
        if "1 left" in request.messages[-1]["content"]:
            raise KeyError("lost")
        return go(request)

    episodes = collect("test/count", agent=agent, tasks=tasks(2))
    assert episodes.causes == {"policy: KeyError": 1} and len(episodes[0].turns) == 1
    assert episodes.failures == {"policy: KeyError": "'lost'"} and "policy: KeyError: 'lost'" in repr(episodes)


def test_a_reply_of_a_wrong_type_ends_the_collection_at_once():
    with pytest.raises(ConfigurationError, match=r"return a ratchet\.PolicyReply"):
        collect("orders", agent=lambda request: 3, tasks=4)


def test_an_outcome_with_an_unknown_field_names_it():
    class Wrong(Count):
        def step(self, action):
            return TimeStep("over", terminated=True, info={"outcome": {"sucess": True}})

    with pytest.raises(ConfigurationError, match="sucess"):
        collect(Wrong(), agent=go)


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean 'max_turns'"):
        collect("orders", agent=go, tasks=1, max_turn=3)


def test_a_batched_policy_answers_all_episodes_in_one_call():
    from ratchet.components.core import Policy, PolicyReply, ToolCall

    class Batched(Policy):
        name, version, sampling, lockstep = "batched", "1", {}, True

        def __init__(self):
            self.sizes = []

        def act(self, requests):
            self.sizes.append(len(requests))
            return [PolicyReply("", (ToolCall("c", "next"),)) for _ in requests]

    policy = Batched()
    assert collect("test/count", agent=policy, tasks=tasks(1, 2), attempts=3).success_rate == 1.0
    assert policy.sizes == [6, 3]


def test_rewards_are_kept_beside_the_episodes_and_used_by_name_or_function():
    episodes = collect("test/count", agent=go, tasks=tasks(1, 2), reward=lambda each: len(each.turns))
    assert sorted(episodes.rewards.values()) == [1.0, 2.0]
    with pytest.raises(ConfigurationError, match="unknown reward 'short'"):
        collect("test/count", agent=go, reward="short")
