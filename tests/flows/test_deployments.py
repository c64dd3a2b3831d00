"""The deployments of prefect.yaml, played by Prefect's own worker under `ratchet up`: cancelled, overlapping, and killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import LIMIT, until
from prefect_client import ask
from receivers import Webhook, serving
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
SET_SECRET = """
import sys
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolUpdate
Secret(value=sys.argv[1]).save("team-hook")
with get_client(sync_client=True) as client:
    template = client.read_work_pool("nights").base_job_template
    template["variables"]["properties"]["env"]["default"] = {"TEAM_HOOK": "{{ prefect.blocks.secret.team-hook }}"}
    client.update_work_pool("nights", WorkPoolUpdate(base_job_template=template))
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

    def python(self, *arguments: str, cwd: Path | None = None, **variables: str) -> str:
        command, env = [sys.executable, *arguments], self.environment | variables
        done = subprocess.run(command, cwd=cwd or self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout, done.stderr, self.logs())
        return done.stdout

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted((self.home / "logs").glob("*.log"))
        )

    def up(self) -> None:
        prefect, mlflow = map(str, self.ports)
        self.python("-c", UP, "--prefect-port", prefect, "--mlflow-port", mlflow)

    def address(self) -> dict[str, str]:
        password = (self.home / "credentials/prefect").read_text()
        return {
            "PREFECT_API_URL": f"http://127.0.0.1:{self.ports[0]}/api",
            "PREFECT_API_AUTH_STRING": f"ratchet:{password}",
        }

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        return ask(self.address(), path, body)

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


def test_a_night_whose_worker_is_killed_is_restarted_finishes_and_is_told_to_the_url_in_a_secret_block(
    project: Project,
) -> None:
    with serving(Webhook()) as hook:
        secret = f"json://127.0.0.1:{hook.server_port}/night"
        project.python("-c", SET_SECRET, secret, **project.address())
        (project.home / "notify.yaml").write_text("receivers: [{url: env:TEAM_HOOK, events: [verdict]}]")
        before = set(project.home.glob("nights/*"))
        first = project.start("nightly", scale="smoke")
        until(lambda: project.state(first) == "RUNNING", START)
        until(
            lambda: [path for path in project.home.glob("nights/*/training/*") if path.parents[1] not in before], START
        )
        for process, command in project.processes().items():
            if "-m prefect worker start" in command and "process_guard" not in command:
                os.kill(process, signal.SIGKILL)
        until(lambda: project.state(first) == "CRASHED", START)
        deployment = project.run(first)["deployment_id"]
        chosen = {"deployments": {"id": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_DESC", "limit": 5}

        def again() -> list[str]:
            time.sleep(0.5)
            runs = project.ask(
                "/flow_runs/filter", chosen | {"flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
            )
            return [run["id"] for run in runs if run["idempotency_key"] == f"{first}-again"]

        until(again, START)
        (night,) = set(project.home.glob("nights/*")) - before
        (second,) = again()
        assert project.run(second)["name"] == project.run(first)["name"] == f"night-{night.name}"
        episodes = [episode.episode_id for episode in read_folder(project.folder / "data/rollouts" / night.name)]
        assert len(episodes) == len(set(episodes)) == 20
        until(lambda: hook.posts)  # hooks run after the state is set
        ((path, post),) = hook.posts
        assert path == "/night" and night.name in post["title"]
        records = [project.ask(f"/{kind}/filter", {}) for kind in ("flow_runs", "deployments", "work_pools")]
        assert secret not in json.dumps(records) + project.logs()


def test_the_services_are_shown_and_nothing_is_left_of_them(project: Project) -> None:
    status = project.ratchet("status")
    assert status.count("healthy") == 3, status
    project.ratchet("down")
    until(lambda: not project.processes())
    assert "not running" in project.ratchet("status")
