"""Cohorts on a Ray cluster of two nodes, each of several processes and with a home of its own."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import LIMIT, until

from ratchet.components.core import InfrastructureError
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_episodes
from ratchet.components.rollouts.episode_runner import planned_version
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder, read_manifest
from ratchet.tasks import ray_executor
from ratchet.tasks.collect import play

ray = pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = [pytest.mark.long, pytest.mark.slow]
AGENT = """
import os, time

def answer(request):
    time.sleep(0.2)
    return os.environ["RATCHET_HOME"]
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CollectPlan:
    """500 episodes of one reply, which is the home of the process that gives it; in 50 cohorts."""
    for name in ("flow", "first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ray_agents.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path / "flow")
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "flow/.ratchet"))
    monkeypatch.setenv("RATCHET_ARTIFACTS", str(tmp_path / "store"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    tasks = [task.task_id for task in load_taskset("orders").tasks("train")][:125]
    plan = {"taskset": "orders", "task_ids": tasks, "policy": "ray_agents:answer", "attempts": 4, "cohort_size": 10}
    return CollectPlan.load({**plan, "concurrency": 4, "executor": "ray"})


@pytest.fixture
def cluster(tmp_path: Path, plan: CollectPlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    monkeypatch.setattr(ray_constants, "RAY_DASHBOARD_STARTUP_TIMEOUT_S", 4 * LIMIT)
    cluster = Cluster()
    add = cluster.add_node

    def add_node(name: str, **options: Any) -> Any:
        home = {"RATCHET_HOME": str(tmp_path / name / ".ratchet")}
        lean = {
            "object_store_memory": 100 << 20,
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,
        }
        end = time.monotonic() + 10 * LIMIT
        while True:
            try:
                node = add(env_vars=home, **lean, **options)
                break
            except Exception:  # Ray gives a node's agents 15 seconds to start, and a busy machine needs more
                if time.monotonic() > end:
                    raise
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        return node

    cluster.add_node = add_node
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        for process in psutil.Process().children(recursive=True):  # of a node that did not start
            if any("/ray/" in word for word in process.cmdline()):
                process.kill()


def cohorts_of(home: Path) -> set[str]:
    """The cohorts that were begun in a home."""
    return {path.stem for path in home.glob(".ratchet/cohorts/*/*.lock")}


def planned_ids(plan: CollectPlan) -> list[str]:
    taskset = load_taskset(plan.taskset)
    return [episode.episode_id for episode in plan_episodes(plan, taskset, planned_version(plan, taskset))]


def check(plan: CollectPlan, folder: Path) -> list[Any]:
    """All planned identities, none twice, with intact shards; return the episodes."""
    played = list(read_folder(folder))
    assert [episode.episode_id for episode in played] == planned_ids(plan)
    assert len({episode.episode_id for episode in played}) == len(played) == 500
    assert len(read_manifest(folder)) == 50
    return played


def test_a_lost_node_costs_no_episode_and_repeats_none(plan: CollectPlan, cluster: Any, tmp_path: Path) -> None:
    begin = time.monotonic()
    collect(plan.model_copy(update={"executor": "local"}), tmp_path / "alone")
    alone = 500 / (time.monotonic() - begin)
    check(plan, tmp_path / "alone")

    cluster.add_node("first", num_cpus=1)
    second = cluster.add_node("second", num_cpus=1)
    begin = time.monotonic()
    play.fn("collect", plan, tmp_path / "undisturbed")
    both = 500 / (time.monotonic() - begin)
    check(plan, tmp_path / "undisturbed")
    assert len(cohorts_of(tmp_path / "first")) > 5 and len(cohorts_of(tmp_path / "second")) > 5

    changed = plan.model_copy(update={"seed": 1})
    folder, killed = tmp_path / "disturbed", []

    def kill_midway() -> None:
        until(lambda: folder.exists() and len(read_manifest(folder)) >= 20, 10 * LIMIT)
        killed.append(len(read_manifest(folder)))
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill_midway)
    killer.start()
    report = play.fn("collect", changed, folder)
    killer.join()
    assert 20 <= killed[0] < 50
    assert report["episodes"] == report["replayed"] == 500
    check(changed, folder)
    assert cohorts_of(tmp_path / "first") and cohorts_of(tmp_path / "second")
    assert not any(path.is_file() for path in (tmp_path / "store").rglob("*")), (
        "the store holds nothing of what was sealed"
    )
    print(
        f"\nepisodes/s: one process {alone:.1f}, two nodes {both:.1f}, first of them lost midway {500 / report['seconds']:.1f}"
    )


def test_the_policy_is_asked_on_the_node_with_the_gpu_and_the_episodes_run_on_the_other(
    plan: CollectPlan, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "started_server_gpus", lambda policy: 1)
    cluster.add_node("first", num_cpus=2)
    cluster.add_node("second", num_cpus=0, num_gpus=1)
    play.fn("collect", plan, tmp_path / "out")
    replies = {turn.text for episode in check(plan, tmp_path / "out") for turn in episode.turns}
    assert replies == {str(tmp_path / "second/.ratchet")}
    assert cohorts_of(tmp_path / "first") and not cohorts_of(tmp_path / "second")


def test_without_a_cluster_the_error_says_how_to_start_one(
    plan: CollectPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(InfrastructureError, match="ray start --head"):
        play.fn("collect", plan, tmp_path / "out")
