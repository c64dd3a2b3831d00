"""The deployments of prefect.yaml, played by Prefect's own worker under `ratchet up`: cancelled, and overlapping."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import LIMIT, until
from prefect_client import ask
from small_project import make_night_small

from ratchet.components.core.processes import free_port
from ratchet.components.trajectories.shards import read_folder

pytestmark = [pytest.mark.long, pytest.mark.slow]
START = 15 * LIMIT
UP = f"""
import sys
from ratchet import cli
from ratchet.flows import supervision
supervision.START_SECONDS = {START}  # the first start of a busy machine
sys.exit(cli.run(["up", *sys.argv[1:]]))
"""


class Project:
    """A project of its own whose services run, and its deployments."""

    def __init__(self, folder: Path) -> None:
        outside = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "MLFLOW_", "RATCHET_"))
        }
        self.folder, self.home = folder, folder / ".ratchet"
        self.environment = outside | {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
        self.ports = [free_port(), free_port()]
        self.ratchet("init", str(folder), cwd=folder.parent)
        make_night_small(folder)

    def ratchet(self, *arguments: str, cwd: Path | None = None) -> str:
        return self.python("-m", "ratchet.cli", *arguments, cwd=cwd)

    def python(self, *arguments: str, cwd: Path | None = None) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.stdout, done.stderr, self.logs())
        return done.stdout

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted((self.home / "logs").glob("*.log"))
        )

    def up(self) -> None:
        prefect, mlflow = map(str, self.ports)
        self.python("-c", UP, "--prefect-port", prefect, "--mlflow-port", mlflow)

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        password = (self.home / "credentials/prefect").read_text()
        address = {
            "PREFECT_API_URL": f"http://127.0.0.1:{self.ports[0]}/api",
            "PREFECT_API_AUTH_STRING": f"ratchet:{password}",
        }
        return ask(address, path, body)

    def start(self, deployment: str, **parameters: Any) -> str:
        deployments = {each["name"]: each["id"] for each in self.ask("/deployments/filter", {})}
        return str(
            self.ask(f"/deployments/{deployments[deployment]}/create_flow_run", {"parameters": parameters})["id"]
        )

    def run(self, id: str) -> dict[str, Any]:
        time.sleep(0.5)
        (record,) = self.ask("/flow_runs/filter", {"flow_runs": {"id": {"any_": [id]}}})
        return dict(record)

    def state(self, id: str) -> str:
        return str(self.run(id)["state_type"])

    def set_state(self, id: str, state: str) -> None:
        self.ask(f"/flow_runs/{id}/set_state", {"state": {"type": state}, "force": False})

    def processes(self) -> dict[int, str]:
        """Every process of this project, by its folder in the environment: also one whose parent was killed."""
        found = {}
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and str(self.folder) in process.environ().get("PWD", ""):
                    found[process.pid] = " ".join(process.cmdline())
            except psutil.Error:
                continue
        return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory):
    project = Project(tmp_path_factory.mktemp("deployments") / "project")
    project.environment["PWD"] = str(project.folder)  # marks every process
    try:
        project.up()
        yield project
    finally:
        project.ratchet("down")


def test_a_cancelled_night_leaves_nothing_and_an_overlapping_one_waits_and_then_finishes_it(project: Project) -> None:
    services = set(project.processes())
    first = project.start("nightly", scale="smoke")
    until(
        lambda: list(project.home.glob("nights/*/training/*")) or project.state(first) in ("FAILED", "CRASHED"), START
    )
    second = project.start("nightly", scale="smoke")
    assert project.state(first) == "RUNNING", project.logs()
    during = set(project.processes()) - services
    assert len(during) > 1
    for _ in range(5):
        assert project.state(second) in ("SCHEDULED", "PENDING")
    project.set_state(first, "CANCELLING")
    until(lambda: project.state(first) == "CANCELLED", START)
    until(lambda: not during & set(project.processes()))
    assert "containers without an owner" in (project.home / "logs/worker.log").read_text()
    until(lambda: project.state(second) == "RUNNING", START)
    until(lambda: project.state(second) in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), START)
    assert project.state(second) == "COMPLETED", project.logs()
    (night,) = [path.parent for path in project.home.glob("nights/*/state.json")]
    assert project.run(second)["name"] == project.run(first)["name"] == f"night-{night.name}"
    episodes = [episode.episode_id for episode in read_folder(project.folder / "data/rollouts" / night.name)]
    assert len(episodes) == len(set(episodes)) == 20


def test_the_services_are_shown_and_nothing_is_left_of_them(project: Project) -> None:
    status = project.ratchet("status")
    assert status.count("healthy") == 3, status
    project.ratchet("down")
    until(lambda: not project.processes())
    assert "not running" in project.ratchet("status")
