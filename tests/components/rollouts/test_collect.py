"""A collection goes on where it was interrupted, plays nothing twice, and keeps no more losses than its plan allows."""

import msgspec
import pytest
import tiny
from tiny import Tiny

from ratchet.components.core import ConfigurationError, InfrastructureError, SandboxUnavailable
from ratchet.components.environments.sandbox_environment import SandboxEnvironment
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan
from ratchet.components.rollouts.collection_progress import CollectionProgress
from ratchet.components.trajectories.shards import read_folder, read_manifest


def plan(**changes):
    values = {
        "taskset": "repair",
        "role": "audit",
        "limit": 6,
        "policy": "teacher",
        "attempts": 2,
        "cohort_size": 4,
        "retries": 0,
        "sandbox": {"backend": "local"},
    }
    return CollectPlan.load({**values, **changes})


def contents(folder):
    return {each.episode_id: each.content_hash for each in read_folder(folder)}


class Killed(BaseException):
    pass


def test_every_planned_episode_is_once_in_the_shards_of_its_cohort(tmp_path):
    seen = []
    report = collect(plan(), tmp_path, on_progress=lambda progress: seen.append(msgspec.structs.replace(progress)))
    assert (report.episodes, report.successes, report.replayed) == (12, 12, 12)
    assert [entry.episodes for entry in read_manifest(tmp_path)] == [4, 4, 4]
    assert len(contents(tmp_path)) == 12
    assert (seen[0].done, seen[0].eta) == (0, None) and (seen[-1].done, seen[-1].eta) == (12, 0.0)
    assert seen[-1].rate > 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "plan.txt") == [
        "manifest.jsonl",
        *(f"shard-0000{index}.jsonl" for index in range(3)),
    ]


@pytest.mark.parametrize("ended_at", [1, 5, 11])
def test_an_interrupted_collection_resumes_by_task_agent_and_attempt(make_plan, tmp_path, monkeypatch, ended_at):
    """Defect 4: resuming keyed on the task alone, and 10 of 12 episodes were there in the end."""

    def kill(progress: CollectionProgress) -> None:
        if progress.done >= ended_at:
            raise Killed

    monkeypatch.setattr("ratchet.components.rollouts.collection.REPORT_SECONDS", 0.0)
    planned = make_plan(tasks=3, attempts=4, concurrency=1)
    with pytest.raises(Killed):
        collect(planned, tmp_path / "a", on_progress=kill)
    before = len(Tiny.resets)
    report = collect(planned, tmp_path / "a")
    assert (report.episodes, report.successes) == (12, 12)
    assert report.replayed == len(Tiny.resets) - before <= 12 - ended_at
    rows = list(read_folder(tmp_path / "a"))
    assert len({each.episode_id for each in rows}) == len(rows) == 12
    assert sorted((each.task.task_id, each.attempt) for each in rows) == [
        (f"t{t}", a) for t in range(3) for a in range(4)
    ]
    collect(planned, tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_shard_that_no_manifest_knows_is_written_again(make_plan, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "shard-00002.jsonl").write_bytes(b'{"half')
    assert collect(make_plan(), tmp_path / "out").episodes == 12
    assert len(contents(tmp_path / "out")) == 12


def test_a_finished_collection_plays_nothing(make_plan, tmp_path):
    collect(make_plan(), tmp_path / "out")
    assert collect(make_plan(), tmp_path / "out").replayed == 0


def test_the_environment_is_the_one_that_the_taskset_names(make_plan, tmp_path):
    collect(make_plan(), tmp_path / "out")
    assert {each.agent.scaffold for each in read_folder(tmp_path / "out")} == {tiny.ENVIRONMENT}
    collect(plan(limit=1, attempts=1), tmp_path / "sandboxed")
    assert {each.agent.scaffold for each in read_folder(tmp_path / "sandboxed")} == {"ratchet/sandbox"}


def test_a_folder_that_holds_a_plan_and_no_episode_takes_another_plan(make_plan, tmp_path):
    collect(make_plan(), tmp_path / "out")
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "plan.txt").write_bytes((tmp_path / "out" / "plan.txt").read_bytes())
    report = collect(make_plan().model_copy(update={"seed": 9}), tmp_path / "failed")
    assert report.episodes == len(list(read_folder(tmp_path / "failed")))


@pytest.mark.parametrize("change", [{"seed": 9}, {"policy": "clumsy"}, {"attempts": 3}, {"max_turns": 5}])
def test_another_plan_may_not_go_on_in_the_folder(make_plan, tmp_path, change):
    collect(make_plan(), tmp_path / "out")
    with pytest.raises(ConfigurationError, match="another plan"):
        collect(make_plan(**change), tmp_path / "out")


@pytest.mark.parametrize(
    "change", [{"workers": 2, "concurrency": 2}, {"retries": 5, "patience": 1}, {"timeouts": {"step": 1}}]
)
def test_concurrency_and_patience_may_change_between_runs(make_plan, tmp_path, change):
    collect(make_plan(), tmp_path / "out")
    assert collect(make_plan(**change), tmp_path / "out").replayed == 0


def test_two_processes_never_collect_into_one_folder(make_plan, tmp_path):
    def again(progress):
        with pytest.raises(ConfigurationError, match="another process collects into"):
            collect(make_plan(), tmp_path / "out")

    assert collect(make_plan(), tmp_path / "out", on_progress=again).episodes == 12


def test_a_collection_stopped_by_an_outage_can_be_resumed_later(tmp_path, monkeypatch):
    def away(self, *, task=None, seed=None):
        raise SandboxUnavailable("the engine is away")

    with monkeypatch.context() as patch:
        patch.setattr(SandboxEnvironment, "reset", away)
        with pytest.raises(InfrastructureError, match=r"12 of 12 episodes were lost.*the engine is away"):
            collect(plan(patience=1.0), tmp_path)
    assert read_manifest(tmp_path) == []
    assert collect(plan(), tmp_path).successes == 12


def test_the_same_seeds_for_every_policy(make_plan, tmp_path):
    collect(make_plan(), tmp_path / "a")
    collect(make_plan(policy="random-edit"), tmp_path / "b")
    first, second = (list(read_folder(tmp_path / name)) for name in "ab")
    assert [each.seed for each in first] == [each.seed for each in second]
    assert {each.episode_id for each in first}.isdisjoint(each.episode_id for each in second)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"taskset": "repairs"}, "did you mean 'repair'"),
        ({"policy": "techer"}, "unknown policy 'techer'"),
        ({"policy": "transformers:absent"}, "absent is not a folder"),
        ({"task_ids": ["repair/nope"]}, "has no task 'repair/nope'"),
        ({"timeouts": {"stpe": 3}}, "did you mean 'step'"),
    ],
)
def test_an_unplayable_plan_gives_a_one_line_error_before_anything_is_written(tmp_path, change, said):
    with pytest.raises(Exception, match=said) as error:
        collect(plan(**change), tmp_path / "spool")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "spool").exists()


def test_an_unknown_environment_is_an_error_before_anything_is_written(tmp_path):
    taskset = tiny.write_taskset(tmp_path / "odd", 2, environment="ratchet/sandboxes")
    with pytest.raises(ConfigurationError, match="did you mean 'ratchet/sandbox'"):
        collect(plan(taskset=taskset), tmp_path / "spool")
    assert not (tmp_path / "spool").exists()
