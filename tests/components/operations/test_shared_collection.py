"""A collection that several machines play: each in a home of its own, over a store that they share."""

import json
import shutil
from pathlib import Path

import pytest
import tiny

from ratchet.components.core import ConfigurationError, InfrastructureError, Role
from ratchet.components.operations.shared_collection import read_shared_plan, share_collection, shared_cohort
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_cohort, plan_cohorts, plan_episodes
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder, read_manifest

pytestmark = pytest.mark.usefixtures("tiny_home")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectPlan:
    monkeypatch.setenv("RATCHET_ARTIFACTS", str(tmp_path / "store"))
    taskset = tiny.write_taskset(tmp_path / "tiny", 6, role=Role.TRAIN)
    return CollectPlan(taskset=str(taskset), policy="teacher", attempts=2, cohort_size=3, concurrency=1, executor="ray")


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Play a cohort on a machine, by name."""
    monkeypatch.chdir(tmp_path)

    def play(machine: str, location: str, number: int) -> None:
        (tmp_path / machine).mkdir(exist_ok=True)
        with monkeypatch.context() as patch:
            patch.setenv("RATCHET_HOME", str(tmp_path / machine / ".ratchet"))
            with shared_cohort(location, number) as (plan, folder):
                collect(plan, folder, cohort=number)

    return play


def played(folder: Path) -> list[str]:
    return [episode.episode_id for episode in read_folder(folder)]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_two_machines_play_what_one_would_and_leave_nothing_in_the_store(plan, play, tmp_path):
    with share_collection(plan, tmp_path / "out") as shared:
        assert shared.unfinished == [0, 1, 2, 3]
        for number in (2, 0, 3, 1):
            assert not shared.adopt(number)
            play(("first", "second")[number % 2], shared.location, number)
            assert shared.adopt(number)
        assert shared.unfinished == []
        shared.remove()
    assert files(tmp_path / "store") == []
    tiny.Tiny.forget()
    report = collect(plan, tmp_path / "out")
    assert (report.episodes, report.replayed, tiny.Tiny.resets) == (12, 0, [])
    collect(plan, tmp_path / "alone")
    assert played(tmp_path / "out") == played(tmp_path / "alone")
    assert len(read_manifest(tmp_path / "out")) == 4


def test_a_cohort_that_two_machines_have_played_is_taken_once(plan, play, tmp_path):
    with share_collection(plan, tmp_path / "out") as shared:
        for machine in ("first", "second"):
            play(machine, shared.location, 1)
        assert shared.adopt(1) and shared.unfinished == [0, 2, 3]
        assert shared.episodes(1) == len(played(tmp_path / "out")) == 3


def test_a_killed_flow_finds_what_was_stored_meanwhile(plan, play, tmp_path):
    with share_collection(plan, tmp_path / "out") as shared:
        location = shared.location
    play("first", location, 0)
    with share_collection(plan, tmp_path / "out") as shared:
        assert shared.location == location and shared.adopt(0)


def test_a_damaged_shard_is_refused_and_can_be_played_again(plan, play, tmp_path):
    with share_collection(plan, tmp_path / "out") as shared:
        play("first", shared.location, 0)
        line = Path(shared.location) / "cohort-00000.json"
        shard = Path(shared.location) / json.loads(line.read_bytes())["sha256"]
        shard.write_bytes(shard.read_bytes()[:-9])
        with pytest.raises(InfrastructureError, match="played again"):
            shared.adopt(0)
        assert not shared.adopt(0)
        play("second", shared.location, 0)
        assert shared.adopt(0)


def test_a_machine_with_another_taskset_is_refused_in_one_line(plan, play, tmp_path):
    with share_collection(plan, tmp_path / "out") as shared:
        shutil.rmtree(tmp_path / "tiny")
        tiny.write_taskset(tmp_path / "tiny", 7, role=Role.TRAIN)
        with pytest.raises(ConfigurationError, match="same commit") as refused:
            play("first", shared.location, 0)
        assert "\n" not in str(refused.value)


def test_a_machine_forgets_collections_that_have_ended_and_plays_none_of_them(plan, play, tmp_path):
    with share_collection(plan, tmp_path / "out") as shared:
        play("first", shared.location, 0)
        shared.remove()
    with pytest.raises(ConfigurationError, match="has ended"):
        play("first", shared.location, 1)
    with share_collection(plan.model_copy(update={"seed": 1}), tmp_path / "next") as following:
        play("first", following.location, 0)
    (kept,) = (tmp_path / "first/.ratchet/cohorts").iterdir()
    assert kept.name == following.location.rpartition("/")[2]


def test_a_checkpoint_travels_with_the_plan(plan, tmp_path, monkeypatch):
    checkpoint = tmp_path / "flow/checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    plan = plan.model_copy(update={"policy": f"transformers:{checkpoint}"})
    with share_collection(plan, tmp_path / "out") as shared:
        monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "first/.ratchet"))
        here = read_shared_plan(shared.location)
        folder = Path(here.policy.removeprefix("transformers:"))
        assert folder.is_relative_to(tmp_path / "first") and (here.executor, here.workers) == ("local", 1)
        assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}


def test_without_a_shared_store_nothing_is_published(plan, tmp_path, monkeypatch):
    monkeypatch.delenv("RATCHET_ARTIFACTS")
    with pytest.raises(ConfigurationError, match="RATCHET_ARTIFACTS"), share_collection(plan, tmp_path / "out"):
        pass
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("until", [None, 2])
def test_a_cohort_is_planned_alone_as_among_all(plan, until):
    plan = plan.model_copy(update={"parts": (2, 5), "until": until})
    taskset = load_taskset(plan.taskset)
    for number, cohort in plan_cohorts(plan, plan_episodes(plan, taskset, "version")).items():
        assert plan_cohort(plan, taskset, "version", number) == cohort
