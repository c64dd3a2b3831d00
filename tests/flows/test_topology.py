"""The stack of infra/compose.yaml from processes: a night by a worker, while each server is stopped and started again."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from patience import LIMIT, until
from prefect_client import ask
from small_project import make_night_small

from ratchet.components.core.processes import free_port
from ratchet.components.trajectories.shards import read_folder

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((INFRA / "compose.yaml").read_text())["services"]
PORTS = {"postgres": 5432, "s3": 7070, "prefect": 4200, "mlflow": 5000}
HEALTH = {"s3": "/", "prefect": "/api/ready", "mlflow": "/health"}
S3_SERVER, S3_KEY = "s3rver@3.7.1", "S3RVER"
"""A server of the npm registry that keeps objects in files, and the only key that it knows, also its secret."""
MLFLOW_NEEDS = ("flask-wtf", "wtforms", "psycopg2-binary")
"""What MLflow's full image holds and this environment does not."""
DOWN_SECONDS = 3.0
START = 3 * LIMIT

pytestmark = [pytest.mark.long, pytest.mark.slow]


class Stack:
    """The services as processes on loopback, with the commands, variables and secrets of the compose file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.secrets = folder, folder / "secrets"
        self.ports = {name: free_port() for name in PORTS}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        subprocess.run(["sh", str(INFRA / "make_secrets.sh"), str(self.secrets)], check=True, capture_output=True)
        for path in self.secrets.iterdir():
            path.write_text(path.read_text().replace("@postgres/", f"@127.0.0.1:{self.ports['postgres']}/"))
        (self.secrets / "AWS_SECRET_ACCESS_KEY").write_text(S3_KEY)

    def local(self, text: str) -> str:
        """A text of the compose file with the addresses and folders of this stack."""
        text = text.replace("/tmp", str(self.folder / "tmp")).replace("/run/secrets", str(self.secrets))
        for name, port in PORTS.items():
            text = text.replace(f"{name}:{port}", f"127.0.0.1:{self.ports[name]}").replace(
                f"127.0.0.1:{port}", f"127.0.0.1:{self.ports[name]}"
            )
        return re.sub(r"\$\{RATCHET_DOMAIN:-(\w+)\}", r"\1", text)

    def environment(self, name: str) -> dict[str, str]:
        outside = {
            key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "MLFLOW_", "RATCHET_"))
        }
        path = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "drivers"),
        }
        own = {key: self.local(value) for key, value in SERVICES[name]["environment"].items()}
        if "AWS_ACCESS_KEY_ID" in own:
            # boto3's new checksums in trailers are unknown to this server, which is of 2021.
            own |= {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}
        for secret in SERVICES[name]["secrets"]:
            source, target = (secret, secret) if isinstance(secret, str) else (secret["source"], secret["target"])
            file = {"MLFLOW_TRACKING_PASSWORD": "mlflow_password"}.get(source, source)
            if target[0].isupper():
                own[target] = (self.secrets / file).read_text()
        return outside | path | own

    def start(self, name: str) -> None:
        if name == "postgres":
            command = [*as_postgres(), *self.postgres_command()]
            environment = dict(os.environ)
        elif name == "s3":
            server = self.folder / "node_modules/.bin/s3rver"
            command = [
                str(server),
                "--directory",
                str(self.folder / "s3"),
                "--address",
                "127.0.0.1",
                "--port",
                str(self.ports["s3"]),
            ]
            environment = dict(os.environ)
        elif name == "worker":
            command, environment = ["sh", str(INFRA / "worker/start.sh"), "nights"], self.worker_environment()
        else:
            parts = SERVICES[name]["entrypoint"][2:] + SERVICES[name]["command"]
            local = {"0.0.0.0": "127.0.0.1", str(PORTS[name]): str(self.ports[name])}
            command, environment = [local.get(part, part) for part in parts], self.environment(name)
        cwd = self.folder / "project" if name == "worker" else self.folder
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, cwd=cwd, stdout=log, stderr=log, start_new_session=True
            )
        if name in PORTS:
            until(lambda: self.is_healthy(name), START)

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)
        try:
            process.wait(timeout=5 * LIMIT)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def is_healthy(self, name: str) -> bool:
        time.sleep(0.2)
        assert self.processes[name].poll() is None, f"{name}: {(self.folder / f'{name}.log').read_text()[-3000:]}"
        if name == "postgres":
            return subprocess.run(["pg_isready", *self.at_postgres()], capture_output=True, check=False).returncode == 0
        try:
            url = f"http://127.0.0.1:{self.ports[name]}{HEALTH[name]}"
            return httpx.get(url, timeout=5, trust_env=False).status_code < 500
        except httpx.HTTPError:
            return False

    def at_postgres(self) -> list[str]:
        return ["--host", "127.0.0.1", "--port", str(self.ports["postgres"])]

    def postgres_command(self) -> list[str]:
        return [
            postgres_program("postgres"),
            "-D",
            str(self.folder / "postgres"),
            "-p",
            str(self.ports["postgres"]),
            "-k",
            "",
        ]

    def make_databases(self) -> None:
        """Make PostgreSQL's cluster, with the script that its image would run."""
        data = self.folder / "postgres"
        data.mkdir()
        if as_postgres():
            shutil.chown(data, "postgres", "postgres")
        initdb = [postgres_program("initdb"), "--pgdata", str(data), "--username", "postgres", "--auth-local", "reject"]
        password = self.folder / "postgres.password"
        password.write_text((self.secrets / "postgres_password").read_text() + "\n")
        password.chmod(0o644)
        subprocess.run([*as_postgres(), *initdb, "--auth-host", "scram-sha-256", "--pwfile", str(password)], check=True)
        self.start("postgres")
        script = self.local((INFRA / "kubernetes/base/create_databases.sh").read_text())
        address = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.ports["postgres"]),
            "PGPASSWORD": password.read_text().strip(),
        }
        subprocess.run(["sh", "-c", script], env=os.environ | address, check=True)

    def worker_environment(self) -> dict[str, str]:
        return self.environment("worker") | {
            "RATCHET_HOME": str(self.folder / "project/.ratchet"),
            "DOCKER_HOST": "unix:///nonexistent/docker.sock",
            "PYTHONPATH": "",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_FLOWS_DEFAULT_RETRY_DELAY_SECONDS": "20",
            "PREFECT_WORKER_WEBSERVER_PORT": str(free_port()),
        }

    def ask_prefect(self, path: str, body: dict[str, Any]) -> Any:
        return ask(self.environment("worker"), path, body)

    def ask_mlflow(self, path: str, method: str) -> Any:
        login = ("ratchet", (self.secrets / "mlflow_password").read_text())
        url = f"http://127.0.0.1:{self.ports['mlflow']}/api/2.0/mlflow/{path}"
        return httpx.request(method, url, auth=login, timeout=LIMIT, trust_env=False).raise_for_status().json()


def postgres_program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    return str(found[-1])


def as_postgres() -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"] if os.geteuid() == 0 else []


def install(folder: Path) -> None:
    """Install the S3 server, and what MLflow's image has more than this environment, below `folder`."""
    pip = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python", sys.executable, "--target"]
    commands = (
        [*pip, str(folder / "drivers"), *MLFLOW_NEEDS],
        ["npm", "install", "--silent", "--prefix", str(folder), S3_SERVER],
    )
    for command in commands:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"not to be had here: {' '.join(command[-3:])}: {done.stderr.strip()[-200:]}")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    postgres_program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-stack-"))
    folder.chmod(0o755)  # PostgreSQL's user goes through it
    (folder / "tmp").mkdir()
    stack = Stack(folder)
    try:
        install(folder)
        stack.make_databases()
        for name in ("s3", "prefect", "mlflow"):
            stack.start(name)
        init = [sys.executable, "-m", "ratchet.cli", "init", str(folder / "project")]
        subprocess.run(init, env=stack.worker_environment(), check=True, capture_output=True)
        make_night_small(folder / "project")
        stack.start("worker")
        yield stack
    finally:
        for name in reversed(list(stack.processes)):
            stack.stop(name)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_night_loses_and_repeats_nothing_while_each_server_is_stopped_and_started(stack: Stack) -> None:
    found: list[dict[str, Any]] = []

    def deployed() -> bool:
        time.sleep(0.5)
        assert stack.processes["worker"].poll() is None, (stack.folder / "worker.log").read_text()[-3000:]
        found[:] = stack.ask_prefect("/deployments/filter", {})
        return bool(found)

    until(deployed, START)
    run = stack.ask_prefect(f"/deployments/{found[0]['id']}/create_flow_run", {"parameters": {"scale": "smoke"}})["id"]

    def state() -> str:
        time.sleep(0.5)
        (record,) = stack.ask_prefect("/flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return str(record["state_type"])

    until(lambda: state() == "RUNNING", START)
    for name in ("s3", "postgres", "prefect", "mlflow"):
        time.sleep(DOWN_SECONDS)
        until(lambda: state() not in ("SCHEDULED", "PENDING"), START)
        assert state() == "RUNNING", f"the night was over before {name} was stopped"
        stack.stop(name)
        time.sleep(DOWN_SECONDS)
        stack.start(name)
    # Where it met an absent server, the flow waits for its next attempt, which resumes the night.
    until(lambda: state() in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), 15 * LIMIT)
    assert state() == "COMPLETED", (stack.folder / "worker.log").read_text()[-6000:]
    check_outcome(stack)


def check_outcome(stack: Stack) -> None:
    """One night, every episode once, MLflow told everything, and the data restored from S3 alone with the same hashes."""
    project = stack.folder / "project"
    (night,) = (tag.removeprefix("night/") for tag in git(project, "tag").split())
    played = list(read_folder(project / "data/rollouts" / night))
    identities = [episode.episode_id for episode in played]
    assert len(identities) == len(set(identities)) == 20  # ten tasks, two attempts
    runs = [run for run in stack.ask_prefect("/flow_runs/filter", {}) if run["name"] == f"night-{night}"]
    assert [run["state_type"] for run in runs] == ["COMPLETED"]
    subprocess.run(
        [sys.executable, "-m", "ratchet.cli", "sync"], cwd=project, env=stack.worker_environment(), check=True
    )
    assert not list((project / ".ratchet/spool/mlflow").glob("*.jsonl")), "MLflow was not told everything"

    clone = stack.folder / "clone"
    git(stack.folder, "clone", "--quiet", str(project), str(clone))
    checkout = [sys.executable, "-m", "ratchet.cli", "data", "checkout", night, "--into", str(clone / "night")]
    subprocess.run(
        checkout, cwd=clone, env=stack.worker_environment() | {"RATCHET_HOME": str(clone / ".ratchet")}, check=True
    )
    restored = read_folder(clone / "night/data/rollouts" / night)
    assert [episode.content_hash for episode in restored] == [episode.content_hash for episode in played]
    versions = stack.ask_mlflow("model-versions/search", method="GET")["model_versions"]
    assert len({version["version"] for version in versions}) == len(versions) > 0


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout
