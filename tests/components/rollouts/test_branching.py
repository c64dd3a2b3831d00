"""A branch is its parent up to a turn, in the parent's world, and then a policy's own; what is otherwise is never a reward."""

import pickle

import msgspec
import pytest
import tiny
from small_model import make_checkpoint
from tiny import Tiny

from ratchet.components.core import (
    ConfigurationError,
    DataError,
    InfrastructureError,
    Policy,
    PolicyReply,
    ToolCall,
    Usage,
)
from ratchet.components.rewards.monte_carlo_labels import monte_carlo_labels, prefix_values
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.rollouts.episode_branching import branch, plan_branch, plan_branches
from ratchet.components.rollouts.episode_runner import Episode, prepare_settings
from ratchet.components.rollouts.lockstep_play import LockstepPlayer
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.record_rules import rule_violations
from ratchet.components.trajectories.shards import read_folder, read_manifest
from ratchet.components.trajectories.token_sidecar import read_tokens
from ratchet.components.trajectories.trajectory import Parent


@pytest.fixture
def parents(make_plan, tmp_path):
    """Two episodes of three turns each."""
    collect(make_plan(2), tmp_path / "parents")
    return list(read_folder(tmp_path / "parents"))


@pytest.fixture
def settings(make_plan):
    plan = make_plan(2)
    taskset = load_taskset(plan.taskset)
    return lambda policy: prepare_settings(plan, taskset, policy)


class Listening(Policy):
    """Submits at once, and keeps what it was asked."""

    name, version, sampling = "listening", "listening-1", {}

    def __init__(self):
        self.asked = []

    def act(self, requests):
        self.asked += requests
        return [PolicyReply("", (ToolCall(f"{request.turn}-0", "submit"),)) for request in requests]


def played(planned, settings, policy=None):
    episode = Episode(planned, settings(policy or Listening()), policy or Listening())
    episode.run()
    episode.release()
    return episode


def test_a_branch_is_its_parent_up_to_a_turn_and_then_the_policys_own(make_plan, parents, tmp_path):
    report = branch(parents, make_plan(2, attempts=2), tmp_path / "out", turns=[1])
    found = list(read_folder(tmp_path / "out"))
    assert (report.episodes, report.successes) == (4, 4)
    for each in found:
        parent = next(one for one in parents if one.episode_id == each.parent.episode_id)
        assert each.parent == Parent(parent.episode_id, 1) and each.task == parent.task
        assert each.turns[0] == msgspec.structs.replace(
            parent.turns[0], usage=None, seconds=None, call_seconds=msgspec.UNSET
        )
        assert len(each.turns) == 3 and each.turns[1].calls == parent.turns[1].calls
        assert each.content_hash == parent.content_hash  # the teacher does again what it did
    assert len({each.episode_id for each in found} | {each.episode_id for each in parents}) == 6


def test_a_branch_is_a_valid_record_and_costs_only_its_own_turns(parents, settings, make_plan):
    paid = msgspec.structs.replace(parents[0].turns[0], usage=Usage(10, 5, 0.1))
    parent = msgspec.structs.replace(parents[0], turns=(paid, *parents[0].turns[1:]))
    planned = plan_branch(parent, load_taskset(make_plan(2).taskset).by_id[parent.task.task_id], 2, "0", "listening-1")
    trajectory = played(planned, settings).trajectory
    assert not [fault for fault in rule_violations(trajectory) if fault.severity == "error"]
    assert [turn.usage for turn in trajectory.turns[:2]] == [None, None]
    assert [turn.index for turn in trajectory.turns] == [0, 1, 2]
    assert 0 <= trajectory.attempt < 2**31  # fits the columns of our tables


def test_every_turn_is_branched_where_none_is_named_and_those_an_episode_lacks_are_left_out(make_plan, parents):
    taskset = load_taskset(make_plan(2).taskset)
    every = list(plan_branches(parents, taskset, None, 3, "v"))
    assert [each.branch.turn for each in every[:9]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len({each.episode_id for each in every}) == len(every) == 18
    assert [each.branch.turn for each in plan_branches(parents, taskset, [2, 3, 99], 1, "v")] == [2, 2]
    assert list(plan_branches(parents, taskset, None, 3, "v")) == every
    assert pickle.loads(pickle.dumps(every)) == every, "as a worker receives them"


def test_samples_share_the_parents_world_and_have_random_streams_of_their_own(parents, settings, make_plan):
    taskset, policy = load_taskset(make_plan(2).taskset), Listening()
    Tiny.forget()
    for planned in plan_branches(parents[:1], taskset, [1], 3, policy.version):
        assert played(planned, settings, policy).trajectory.seed == parents[0].seed
    assert {seed for _, seed in Tiny.resets} == {parents[0].seed}
    assert len({request.seed for request in policy.asked}) == 3
    assert {request.turn for request in policy.asked} == {1}
    assert all(len(request.messages) == 3 for request in policy.asked)


def test_a_branch_can_be_branched_again(parents, settings, make_plan):
    task = load_taskset(make_plan(2).taskset).by_id[parents[0].task.task_id]
    child = played(plan_branch(parents[0], task, 1, "0", "listening-1"), settings).trajectory
    grandchild = played(plan_branch(child, task, 1, "0", "listening-1"), settings).trajectory
    assert grandchild.parent.episode_id == child.episode_id
    assert grandchild.content_hash == child.content_hash and grandchild.episode_id != child.episode_id


@pytest.mark.parametrize("change", ["content", "exit_code", "opening"])
def test_a_world_that_goes_otherwise_is_an_infrastructure_failure_and_never_a_reward(
    parents, settings, make_plan, change
):
    task = load_taskset(make_plan(2).taskset).by_id[parents[0].task.task_id]
    first = parents[0].turns[0]
    if change == "opening":
        said = msgspec.structs.replace(parents[0].messages[0], content="another task")
        parent = msgspec.structs.replace(parents[0], messages=(said,))
    else:
        other = {"content": "something else"} if change == "content" else {"exit_code": 3}
        result = msgspec.structs.replace(first.results[0], **other)
        turn = msgspec.structs.replace(first, results=(result,))
        parent = msgspec.structs.replace(parents[0], turns=(turn, *parents[0].turns[1:]))
    episode = played(plan_branch(parent, task, 1, "0", "listening-1"), settings)
    assert episode.trajectory is None and isinstance(episode.infrastructure_error, InfrastructureError)
    assert parent.episode_id in str(episode.infrastructure_error) and "\n" not in str(episode.infrastructure_error)
    assert episode.lost_record().outcome.success is None


def test_a_parent_that_ends_before_the_turn_is_told_so(parents, settings, make_plan):
    task = load_taskset(make_plan(2).taskset).by_id[parents[0].task.task_id]
    longer = msgspec.structs.replace(parents[0], turns=(*parents[0].turns, parents[0].turns[0]))
    episode = played(plan_branch(longer, task, 3, "0", "v"), settings)
    assert "ends the episode now; branch from that turn or an earlier one" in str(episode.infrastructure_error)


def test_branching_goes_on_where_it_was_ended_and_plays_nothing_twice(make_plan, parents, tmp_path):
    plan = make_plan(2, attempts=2)
    first = branch(parents, plan, tmp_path / "out")
    assert (first.episodes, first.replayed) == (12, 12)
    again = branch(parents, plan, tmp_path / "out")
    assert (again.episodes, again.replayed) == (12, 0)
    with pytest.raises(ConfigurationError, match="another plan"):
        branch(parents, plan, tmp_path / "out", turns=[1])


def test_nothing_to_branch_and_a_changed_task_are_told_in_one_line(make_plan, parents, tmp_path):
    with pytest.raises(ConfigurationError, match=r"nothing to branch: 2 episodes of at most 3 turns, and --turn \[7\]"):
        branch(parents, make_plan(2), tmp_path / "out", turns=[7])
    other = msgspec.structs.replace(parents[0].task, task_hash="0" * 16)
    with pytest.raises(DataError, match="has changed since it was played"):
        branch([msgspec.structs.replace(parents[0], task=other)], make_plan(2), tmp_path / "out")


def test_a_policy_that_plays_in_lock_step_branches_too(parents, settings, make_plan):
    policy = Listening()
    planned = list(plan_branches(parents, load_taskset(make_plan(2).taskset), [0, 2], 2, policy.version))
    result = LockstepPlayer(policy, settings(policy)).play(planned)
    assert [len(each.turns) for each in result.trajectories] == [1, 1, 3, 3] * 2
    assert all(each.parent is not None and each.outcome.success for each in result.trajectories)


def test_what_a_wrong_step_cost_is_seen_in_what_follows_it(tmp_path):
    """In a real sandbox: the teacher solves the task from the start and after a look, and not after a wrong edit."""
    plan = CollectPlan.load(
        {
            "taskset": "repair",
            "policy": "random-edit",
            "limit": 2,
            "attempts": 1,
            "sandbox": {"backend": "local"},
        }
    )
    collect(plan, tmp_path / "parents")
    parents = list(read_folder(tmp_path / "parents"))
    branch(parents, plan.model_copy(update={"policy": "teacher"}), tmp_path / "out")
    branches = list(read_folder(tmp_path / "out"))
    assert [(value.turn, value.rate) for value in prefix_values(branches)] == [(0, 1.0), (1, 1.0), (2, 0.0)] * 2
    labels = [(label.turn, label.value) for label in monte_carlo_labels(parents, branches)]
    assert labels == [(-1, 1.0), (0, 1.0), (1, 0.0), (2, 0.0)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_model_branches_and_has_tokens_of_its_own_turns_alone(tmp_path, workers):
    pytest.importorskip("transformers")
    values = {
        "taskset": "repair",
        "policy": "teacher",
        "limit": 2,
        "attempts": 1,
        "sandbox": {"backend": "local"},
        "max_turns": 3,
        "max_new_tokens": 8,
        "cohort_size": 4,
        "workers": workers,
        "model_threads": 1,
    }
    collect(CollectPlan.load(values), tmp_path / "parents")
    parents = list(read_folder(tmp_path / "parents"))
    model = f"transformers:{make_checkpoint(tmp_path / 'model')}"
    plan = CollectPlan.load(values | {"policy": model, "attempts": 2})
    assert branch(parents, plan, tmp_path / "out", turns=[1, 2]).episodes == 8
    for entry in read_manifest(tmp_path / "out"):
        rows = list(read_tokens(tmp_path / "out" / entry.tokens))
        for each in read_folder(tmp_path / "out"):
            own = [row.turn for row in rows if row.episode_id == each.episode_id]
            if each.episode_id in entry.episode_ids:
                assert own == list(range(each.parent.turn, len(each.turns)))


def test_tiny_is_left_clean():
    assert tiny.Tiny.alive == set()
