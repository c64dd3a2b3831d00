"""The services of a home that plays nights unattended, and their state.

| service | what it is |
|---|---|
| prefect, mlflow | the servers that `ratchet ui` runs until Ctrl-C; none where the environment names a server |
| worker | Prefect's own process worker on the work pool `nights`, with the deployments of `prefect.yaml` |
| watch | flows/service_watch.py: ends a server that hangs, so that it is started again, and restarts crashed nights |
| model | `ratchet serve`, where a model is to be served |
| metrics | `ratchet metrics`, where Prometheus is to scrape this home |
| receive | `ratchet receive`, where a service is to send its spans |

A supervisor (flows/supervision.py) runs `python -m ratchet.flows.services NAME ARGUMENTS…`, which prepares a service,
records its process, and becomes the guard of the service's command. So a service ends with its supervisor, with all its
processes. This module does not import Prefect.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError, RatchetError
from ratchet.components.core.home import (
    authorization_header,
    configured_address,
    credential,
    home,
    home_tag,
    is_healthy,
    private_home,
    record_server,
    recorded_address,
    restrict_file_modes,
    server_title,
    without_password,
)
from ratchet.components.core.processes import GUARD_SCRIPT, require_free_port
from ratchet.components.nights.night_state import running_night
from ratchet.components.operations.leftovers import close_stale_runs
from ratchet.components.tracking.mlflow_client import server_command, server_environment
from ratchet.flows.home_servers import START_SECONDS, PrefectServer, prefect_server_command, prefect_url
from ratchet.flows.scheduled_run import SCHEDULER_VARIABLE

POOL = "nights"
"""Work pool of the worker, as `prefect.yaml` names it."""
SERVERS = ("prefect", "mlflow")
SERVICES = (*SERVERS, "worker", "watch", "model", "metrics", "receive")
"""Names of all services, in the order in which they are shown."""


class Service(msgspec.Struct, frozen=True):
    """A service, and the arguments of this module's command line after its name."""

    name: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The command that a supervisor runs."""
        return [sys.executable, "-m", "ratchet.flows.services", self.name, *self.arguments]

    @property
    def log(self) -> Path:
        """File of its output, shared with `ratchet ui` for the servers."""
        return home() / "logs" / (f"{self.name}-server.log" if self.name in SERVERS else f"{self.name}.log")


def planned_services(
    prefect_port: int, mlflow_port: int, model: Sequence[str] = (), *, metrics: bool = False, receive: bool = False
) -> list[Service]:
    """Return the services of this home, in the order in which they start. `model`: arguments of `ratchet serve`; empty
    for no model server. `metrics`: whether to serve metrics for Prometheus; `receive`: whether to receive spans.
    """
    prefect = configured_address("prefect")
    services = [] if prefect else [Service("prefect", (str(prefect_port),))]
    if configured_address("mlflow") is None:
        services.append(Service("mlflow", (str(mlflow_port),)))
    url = prefect or prefect_url(prefect_port)
    services += [Service("worker", (url,)), Service("watch", (url,))]
    if model:
        services.append(Service("model", tuple(model)))
    wanted = {"metrics": metrics, "receive": receive}
    return [*services, *(Service(name) for name, is_wanted in wanted.items() if is_wanted)]


class ServiceState(msgspec.Struct, frozen=True):
    """A service as `ratchet status` shows it. `address` is None where it does not run; `is_healthy` says whether it
    answers.
    """

    title: str
    address: str | None
    state: str
    is_healthy: bool = False


def service_state(name: str) -> ServiceState:
    """Return the state of a service of this home. Never raises for a service that is down or refuses."""
    if name in SERVERS:
        return _server_state(name)
    address = recorded_address(name)
    if address is None:
        return ServiceState(name, None, "not running")
    if name != "worker":
        return ServiceState(name, address, "running", True)
    online = _worker_is_online(configured_address("prefect") or recorded_address("prefect"))
    return ServiceState(name, address, "healthy" if online else "Prefect does not hear of it", online)


def _server_state(name: str) -> ServiceState:
    title, url = server_title(name), configured_address(name) or recorded_address(name)
    if url is None:
        return ServiceState(title, None, "not running")
    try:
        healthy = is_healthy(name, url)
        state = "healthy" if healthy else "does not answer"
    except ConfigurationError as error:
        healthy, state = False, str(error)
    return ServiceState(title, without_password(url).removesuffix("/api"), state, healthy)


def _worker_is_online(api: str | None) -> bool:
    """Return whether Prefect has heard of this machine's worker lately."""
    import httpx

    try:
        with httpx.Client(headers=authorization_header("prefect"), timeout=5, trust_env=False) as client:
            answer = client.post(f"{api}/work_pools/{POOL}/workers/filter", json={})
            workers = answer.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return False
    return any(worker["name"] == _worker_name() and worker["status"] == "ONLINE" for worker in workers)


def _worker_name() -> str:
    return f"{socket.gethostname()}-{home_tag().removeprefix('home:')}"


def run_service(name: str, arguments: Sequence[str]) -> None:
    """Prepare a service, record this process as it, and replace this process by the guard of its command.

    Raises ConfigurationError, InfrastructureError.
    """
    supervisor = os.getppid()  # read first: where it ends meanwhile, the guard ends at once
    os.umask(0o077)
    private_home()
    restrict_file_modes()
    env: dict[str, str] = {}
    if name in ("model", "metrics", "receive"):  # they record themselves
        command = [sys.executable, "-m", "ratchet.cli", "serve" if name == "model" else name, *arguments]
    elif name == "watch":
        connect(arguments[0])
        command = [sys.executable, "-m", "ratchet.flows.service_watch"]
        record_server(name, "", os.getpid())
    elif name == "worker":
        command, env = prepare_worker(arguments[0])
        record_server(name, f"work pool {POOL}", os.getpid())
    else:
        port = int(arguments[0])
        _wait_for_turn(name, port)
        if name == "prefect":
            command, env = prefect_server_command(port)
            url = prefect_url(port)
        else:
            command, env = server_command(port), server_environment(credential("mlflow"))
            url = f"http://127.0.0.1:{port}"
        record_server(name, url, os.getpid())
    guard = [sys.executable, "-I", str(GUARD_SCRIPT), str(supervisor), *command]
    os.execve(sys.executable, guard, {**os.environ, **env})


def _wait_for_turn(name: str, port: int) -> None:
    """Wait while another process of this home serves: a running night restarts a server that it misses. Raises
    ConfigurationError where the port is taken.
    """
    while recorded_address(name) is not None:
        time.sleep(1)
    require_free_port(port, server_title(name), f"--{name}-port")


def prepare_worker(api: str) -> tuple[list[str], dict[str, str]]:
    """Create the work pool and the deployments of `prefect.yaml` on the Prefect server at `api`; return the worker's
    command, and the variables to add to its environment.

    Runs of this home that a killed worker left are marked as crashed: the watch restarts them. Raises
    ConfigurationError, InfrastructureError.
    """
    if not Path("prefect.yaml").is_file():
        raise ConfigurationError(f"{Path.cwd()} has no prefect.yaml, which lists what the worker runs; restore it")
    connect(api)
    if running_night() is None:
        close_stale_runs(api)
    _make_work_pool(api)
    deploy = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(deploy, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(
            f"prefect.yaml was not deployed: {' '.join((done.stderr or done.stdout).split())[-600:]}"
        )
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", "process", "--pool", POOL]
    # A run ends with this process, which the guard below replaces under the same id.
    return [*command, "--limit", "1", "--name", _worker_name()], {SCHEDULER_VARIABLE: str(os.getpid())}


def connect(api: str) -> None:
    """Wait for the Prefect server at `api`, and set the environment of its clients. Raises InfrastructureError."""
    deadline = time.monotonic() + START_SECONDS
    while not is_healthy("prefect", api):
        if time.monotonic() > deadline:
            raise InfrastructureError(f"the Prefect server at {without_password(api)} does not answer")
        time.sleep(3)
    os.environ["PREFECT_API_URL"] = api
    PrefectServer().start()


def _make_work_pool(api: str) -> None:
    """Create the work pool unless it exists; the worker gives it its template. Raises InfrastructureError."""
    import httpx

    pool = {"name": POOL, "type": "process"}
    try:
        with httpx.Client(headers=authorization_header("prefect"), timeout=30, trust_env=False) as client:
            answer = client.post(f"{api}/work_pools/", json=pool)
            if answer.status_code != httpx.codes.CONFLICT:
                answer.raise_for_status()
    except httpx.HTTPError as error:
        raise InfrastructureError(f"the work pool {POOL} was not created: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    try:
        run_service(sys.argv[1], sys.argv[2:])
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
