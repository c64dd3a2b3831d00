"""A collection goes on where it was interrupted, plays nothing twice, and keeps no cohort that the world has lost."""

import msgspec
import pytest

from components.environments.sandbox import SandboxEnvironment
from components.protocol import ConfigurationError, InfrastructureError, SandboxUnavailable
from components.rollouts.collect import Progress, collect
from components.rollouts.plan import CollectPlan
from components.trajectories.store import read_folder, read_manifest


def plan(**changes):
    values = {
        "taskset": "repair",
        "role": "audit",
        "limit": 6,
        "policy": "teacher",
        "attempts": 2,
        "cohort_size": 4,
        "workers": 1,
        "retries": 0,
        "sandbox": {"backend": "local"},
    }
    return CollectPlan.load({**values, **changes})


def contents(folder):
    return {each.episode_id: each.content_hash for each in read_folder(folder)}


def test_every_planned_episode_is_there_once_in_shards_of_a_cohort(tmp_path):
    seen = []
    report = collect(plan(), tmp_path, on_progress=lambda progress: seen.append(msgspec.structs.replace(progress)))
    assert (report.episodes, report.successes, report.replayed) == (12, 12, 12)
    assert [entry.episodes for entry in read_manifest(tmp_path)] == [4, 4, 4]
    assert len(contents(tmp_path)) == 12
    assert [each.done for each in seen] == [0, 4, 8, 12]


def test_after_a_kill_finished_shards_stay_and_the_rest_is_played(tmp_path):
    class Killed(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.done == 8:
            raise Killed

    with pytest.raises(Killed):
        collect(plan(), tmp_path / "a", on_progress=kill)
    (tmp_path / "a" / "shard-00002.jsonl").write_bytes(b'{"half')  # a shard that no manifest knows was never finished
    kept = {entry.shard: entry.sha256 for entry in read_manifest(tmp_path / "a")}
    assert len(kept) == 2
    report = collect(plan(), tmp_path / "a")
    assert (report.episodes, report.replayed) == (12, 4)
    assert kept.items() <= {entry.shard: entry.sha256 for entry in read_manifest(tmp_path / "a")}.items()
    collect(plan(), tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_finished_collection_plays_nothing(tmp_path):
    collect(plan(), tmp_path)
    assert collect(plan(), tmp_path).replayed == 0


@pytest.mark.parametrize("change", [{"seed": 9}, {"policy": "clumsy"}, {"attempts": 3}, {"max_turns": 5}])
def test_another_plan_may_not_go_on_in_the_folder(tmp_path, change):
    collect(plan(limit=2), tmp_path)
    with pytest.raises(ConfigurationError, match="another plan"):
        collect(plan(limit=2, **change), tmp_path)


def test_speed_may_change_between_tries(tmp_path):
    collect(plan(limit=2), tmp_path)
    assert collect(plan(limit=2, workers=2, threads=2), tmp_path).replayed == 0


def test_a_cohort_that_the_world_has_lost_is_not_kept_and_can_be_played_later(tmp_path, monkeypatch):
    def away(self, *, task=None, seed=None):
        raise SandboxUnavailable("the engine is away")

    with monkeypatch.context() as patch:
        patch.setattr(SandboxEnvironment, "reset", away)
        with pytest.raises(InfrastructureError, match=r"4 of 4 episodes were lost.*the engine is away"):
            collect(plan(), tmp_path)
    assert read_manifest(tmp_path) == []
    assert collect(plan(), tmp_path).successes == 12


def test_the_same_seeds_for_every_policy(tmp_path):
    collect(plan(limit=3), tmp_path / "a")
    collect(plan(limit=3, policy="random-edit"), tmp_path / "b")
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
    ],
)
def test_what_cannot_be_played_is_said_in_one_line_before_anything_is_written(tmp_path, change, said):
    with pytest.raises(Exception, match=said) as error:
        collect(plan(**change), tmp_path / "spool")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "spool").exists()


@pytest.mark.slow
def test_two_workers_write_what_one_writes(tmp_path):
    collect(plan(), tmp_path / "one")
    collect(plan(workers=2), tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
