"""Cohorts by two Prefect workers, each in a home of its own, that share an S3 store; one of them is killed midway."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from faulty_s3 import BUCKET, s3_client, s3_server
from patience import LIMIT, until
from prefect_client import SharedPrefect, ask

from ratchet.components.core.processes import free_port
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_episodes
from ratchet.components.rollouts.episode_runner import planned_version
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder, read_manifest

pytestmark = [pytest.mark.long, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
AGENT = """
import time

def answer(request):
    time.sleep(0.1)
    return "done"
"""
PLAY = """
import json, sys
from pathlib import Path
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_episodes
from ratchet.components.rollouts.episode_runner import planned_version
from ratchet.tasks.collect import play
report = play.fn("collect", CollectPlan.load(json.loads(sys.argv[1])), Path("out"))
print(json.dumps(report), file=sys.__stdout__)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of every machine: a Prefect server and an S3 store."""
    server = SharedPrefect(tmp_path_factory.mktemp("server"))
    try:
        with s3_server() as url:
            keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
            stores = {"AWS_ENDPOINT_URL": url, "RATCHET_ARTIFACTS": f"s3://{BUCKET}/artifacts"}
            yield server.environment | server.address | keys | stores
    finally:
        server.stop()


class Machine:
    """A project with a home of its own; `serve` starts a worker of the pool `rollouts` there."""

    def __init__(self, folder: Path, address: dict[str, str]) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "dvc.yaml").touch()  # a project, as far as its worker looks
        (folder / "cohort_agents.py").write_text(AGENT)
        self.environment = address | {
            "RATCHET_HOME": str(folder / ".ratchet"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_HEARTBEAT_SECONDS": "15",
            "PREFECT_WORKER_WEBSERVER_PORT": str(free_port()),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        with (self.folder / "worker.log").open("wb") as log:
            command = ["sh", str(ROOT / "infra/worker/start.sh"), "rollouts", "--name", self.folder.name]
            streams: Any = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, cwd=self.folder, env=self.environment, **streams)

    def kill(self) -> None:
        """As a power failure does: the worker and everything that it started end at once."""
        if self.process is not None and self.process.poll() is None:
            family = [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]
            for process in family:
                process.suspend()  # none may notice that another has ended
            for process in family:
                process.kill()
            self.process.wait()

    def is_playing(self) -> bool:
        return any(self.folder.glob(".ratchet/cohorts/*/*/plan.txt"))

    def cohorts(self) -> set[str]:
        return {path.stem for path in self.folder.glob(".ratchet/cohorts/*/*.lock")}


def test_two_workers_play_every_episode_once_although_one_is_lost(
    address: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [task.task_id for task in load_taskset("orders").tasks("train")][:100]
    values = {
        "taskset": "orders",
        "task_ids": tasks,
        "policy": "cohort_agents:answer",
        "attempts": 4,
        "cohort_size": 40,
    }
    flow, first, second = (Machine(tmp_path / name, address) for name in ("flow", "first", "second"))
    played = flow.folder / "out"
    try:
        for machine in (first, second):
            machine.serve()
        until(lambda: workers_of(address) == 2, 5 * LIMIT)

        def lose_second() -> None:
            until(lambda: second.is_playing() and played.exists() and len(read_manifest(played)) >= 1, 10 * LIMIT)
            second.kill()

        loser = threading.Thread(target=lose_second)
        loser.start()
        command = [sys.executable, "-c", PLAY, json.dumps(values | {"executor": "prefect", "concurrency": 4})]
        done = subprocess.run(
            command,
            cwd=flow.folder,
            env=flow.environment,
            capture_output=True,
            text=True,
            timeout=10 * LIMIT,
            check=False,
        )
        loser.join()
    finally:
        for machine in (first, second):
            machine.kill()
    log = (first.folder / "worker.log").read_text()[-3000:]
    assert done.returncode == 0, done.stderr[-3000:] + log
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["episodes"] == report["replayed"] == 400
    episodes = list(read_folder(played))
    monkeypatch.chdir(flow.folder)
    assert [episode.episode_id for episode in episodes] == planned_ids(CollectPlan.load(values))
    assert len({episode.episode_id for episode in episodes}) == 400
    assert first.cohorts() and second.cohorts() and second.process is not None and second.process.returncode == -9
    left = s3_client(address["AWS_ENDPOINT_URL"]).list_objects_v2(Bucket=BUCKET, Prefix="artifacts/rollouts/")
    assert left["KeyCount"] == 0, "the store holds nothing of what was sealed"
    states = {run["state_type"] for run in ask(address, "/flow_runs/filter", {})}
    assert "RUNNING" not in states and "CRASHED" in states, "the run of the lost worker is closed, and was played again"


def planned_ids(plan: CollectPlan) -> list[str]:
    taskset = load_taskset(plan.taskset)
    return [episode.episode_id for episode in plan_episodes(plan, taskset, planned_version(plan, taskset))]


def workers_of(address: dict[str, str]) -> int:
    pools = [pool["name"] for pool in ask(address, "/work_pools/filter", {})]
    return len(ask(address, "/work_pools/rollouts/workers/filter", {})) if "rollouts" in pools else 0
