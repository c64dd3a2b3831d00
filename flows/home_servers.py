"""Start and stop the Prefect and MLflow servers of this home, on loopback. This module does not import Prefect.

A first run migrates Prefect's database for many seconds, longer than Prefect's own temporary server waits. So the
server is started at once and asked for its health later, with a generous limit. A server that `PREFECT_API_URL` names,
or that already serves this home (`ratchet ui`), is used and left running.

Our server requires the home's credential by Prefect's own authentication, which covers HTTP and websockets, and refuses
foreign hosts and origins (`RequestGuard`). `start` passes the credential to the client in `PREFECT_API_AUTH_STRING`.
"""

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.home import (
    credential,
    forget_server,
    home,
    home_folder,
    is_healthy,
    record_server,
    recorded_address,
    restrict_file_modes,
    server_title,
    user_and_password,
    without_password,
)
from ratchet.components.core.processes import BackgroundProcess, free_port, require_free_port
from ratchet.components.tracking.mlflow_client import server_command, server_environment, tracking_uri

logger = logging.getLogger(__name__)
START_SECONDS = 240.0
"""Seconds that a server may take to become healthy: a first start takes 13 on an idle machine, a minute on a busy one.
"""
MAX_START_ATTEMPTS = 3
"""Starts on different ports: another process may take a free port before the server does."""
ANSWER_SECONDS = 10.0
"""Seconds that a server named by `PREFECT_API_URL` may take to answer; one of this home may still be starting."""
WATCH_SECONDS = 1.0
"""Seconds between two checks of the server."""
MAX_RESTART_PAUSE = 60.0
"""Longest pause in seconds before a failing server is started again; pauses double up to it."""


def prefect_settings() -> dict[str, str]:
    """Return environment variables for Prefect's server and client: local, quiet, without telemetry."""
    return {
        "PREFECT_HOME": str(home() / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_CLI_PROMPT": "false",
        "PREFECT_CLIENT_MAX_RETRIES": "6",  # 2 + 4 + ... + 64 s: longer than a server takes to be started again
        "PREFECT_LOGGING_EXTRA_LOGGERS": "ratchet",  # progress lines appear in the Logs tab of a run
    }


def create_app() -> Any:
    """Return Prefect's ASGI application behind `RequestGuard`, for uvicorn in the server's process."""
    from prefect.server.api.server import create_app

    from ratchet.components.core.request_guard import RequestGuard

    return RequestGuard(create_app())


def prefect_url(port: int) -> str:
    """Return the address of the API of a Prefect server of this home."""
    return f"http://127.0.0.1:{port}/api"


def prefect_server_command(port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves Prefect on 127.0.0.1, and the variables to add to its environment."""
    command = [sys.executable, "-m", "uvicorn", "--factory", f"{__name__}:create_app"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", "--timeout-keep-alive", "5"]
    return command, {
        **prefect_settings(),
        "PREFECT_API_URL": prefect_url(port),
        "PREFECT_SERVER_API_AUTH_STRING": user_and_password("prefect"),
        "PREFECT_UI_API_URL": prefect_url(port),
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_UI_STATIC_DIRECTORY": str(home_folder("prefect") / "ui"),
        "PREFECT__SERVER_FINAL": "1",  # the only server of its process: Prefect may optimise for that
    }


class _HomeServer:
    """A server of this home, or one whose address is in the environment variable `variable`, which is never stopped."""

    name: str
    variable: str

    def __init__(self, port: int | None = None) -> None:
        self._port = port
        self._process: BackgroundProcess | None = None
        self.given = False
        """Whether its address came from the environment."""
        self.url = ""

    def _run(self, command: list[str], env: dict[str, str]) -> None:
        """Start the server's process, and record it for other processes of this home."""
        restrict_file_modes()
        log = home_folder("logs") / f"{self.name}-server.log"
        self._process = BackgroundProcess(command, log=log, env=env, umask=0o077).start()
        record_server(self.name, self.url, self._process.pid)

    def ready(self, *, on_wait: Callable[[str], None] | None = None, limit: float = START_SECONDS) -> str:
        """Wait until the server answers, and return its address.

        Raises InfrastructureError that names the log, ConfigurationError where the server refuses the credentials.
        """
        begin, title, is_announced = time.monotonic(), server_title(self.name), False
        first = not (home() / "prefect" / "prefect.db").is_file()
        while not is_healthy(self.name, self.url):
            waited = time.monotonic() - begin
            if self.given and waited > ANSWER_SECONDS:
                advice = f"start it, or unset {self.variable} to have one started"
                raise InfrastructureError(
                    f"the {title} server at {without_password(self.url)} does not answer; {advice}"
                )
            if self._process is not None and self._process.poll() is not None:
                self._again(self._process)
            if waited > limit:
                raise InfrastructureError(f"the {title} server did not answer in {limit:.0f} s; see {home() / 'logs'}")
            if on_wait is not None and not is_announced:
                on_wait(f"{title} prepares its database (once)" if first else f"{title} starts")
                is_announced = True
            time.sleep(0.1)
        return self.url

    def _again(self, ended: BackgroundProcess) -> None:
        """Handle a server process that ended before it answered: raise InfrastructureError with its output."""
        printed = ended.last_lines() or "it printed nothing"
        title = server_title(self.name)
        raise InfrastructureError(f"the {title} server ended at its start: {printed}; see {ended.log}")

    def stop(self) -> None:
        """End the server if this object started it. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            forget_server(self.name)


class PrefectServer(_HomeServer):
    """The Prefect server of a home. `start` returns at once, `ready` waits for health, `stop` ends a server that this
    object started. `url` ends in /api.

    Between `ready` and `stop`, a server that ends is restarted at the same address, so that a running night can continue.
    A server that `PREFECT_API_URL` names is neither restarted nor stopped.
    """

    name = "prefect"
    variable = "PREFECT_API_URL"

    def __init__(self, port: int | None = None) -> None:
        super().__init__(port)
        self._attempts = 0
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    @property
    def ours(self) -> bool:
        """Whether this object started it."""
        return self._process is not None

    def start(self) -> "PrefectServer":
        """Use a running server or start one. Sets Prefect's environment variables: call it before Prefect is imported."""
        address = os.environ.get("PREFECT_API_URL")
        self.given = address is not None
        for name, value in prefect_settings().items():
            os.environ.setdefault(name, value)
        if address:
            self.url = address.rstrip("/")
        elif running := recorded_address("prefect"):
            self.url = running
        else:
            self._launch()
        if not address or (self.url == recorded_address("prefect") and not os.environ.get("PREFECT_API_AUTH_STRING")):
            os.environ["PREFECT_API_AUTH_STRING"] = user_and_password("prefect")
        os.environ["PREFECT_API_URL"] = self.url
        return self

    def _launch(self) -> None:
        if self._port is not None:
            require_free_port(self._port, "Prefect", "--prefect-port")
        self._attempts += 1
        self._serve(self._port or free_port())

    def _serve(self, port: int) -> None:
        self.url = prefect_url(port)
        self._run(*prefect_server_command(port))
        atexit.register(
            self.stop
        )  # handlers run in reverse: registered before Prefect is imported, it runs after Prefect's own

    def ready(self, *, on_wait: Callable[[str], None] | None = None, limit: float = START_SECONDS) -> str:
        """Wait until the server answers, and return its address; from then on it is watched."""
        os.environ["PREFECT_API_URL"] = super().ready(on_wait=on_wait, limit=limit)
        if self._watcher is None and not self.given:
            self._watcher = threading.Thread(target=self._watch, name="prefect-watch", daemon=True)
            self._watcher.start()
        return self.url

    def _watch(self) -> None:
        """Start the server again whenever it has ended: ours, or one of this home that its owner stopped."""
        pause = WATCH_SECONDS
        while not self._stopping.wait(pause):
            gone = (
                self._process.poll() is not None if self._process is not None else recorded_address("prefect") is None
            )
            if self._process is not None and not gone and recorded_address("prefect") is None:
                # Another process of this home tried to start the server at the same moment, and left its own record or none.
                record_server("prefect", self.url, self._process.pid)
            if not gone or self._answers():
                pause = WATCH_SECONDS
                continue
            pause = min(2 * pause, MAX_RESTART_PAUSE)
            logger.warning("the Prefect server at %s has ended and is restarted", self.url)
            with self._lock, contextlib.suppress(InfrastructureError, OSError):
                if not self._stopping.is_set():
                    self._serve(urlsplit(self.url).port or 80)

    def _answers(self) -> bool:
        try:
            return is_healthy("prefect", self.url)
        except ConfigurationError:  # another server has the port, and refuses our credential
            return False

    def _again(self, ended: BackgroundProcess) -> None:
        port_in_use = "address already in use" in ended.last_lines().lower()
        if not port_in_use or self._port is not None or self._attempts == MAX_START_ATTEMPTS:
            super()._again(ended)
        self._launch()  # at another port

    def stop(self) -> None:
        """End the server if this object started it. Safe to call twice."""
        self._stopping.set()
        _flush_prefect_logs()
        with self._lock:  # the watcher may be starting it again at this moment
            super().stop()
        atexit.unregister(self.stop)


def _flush_prefect_logs() -> None:
    """Let Prefect send its last logs and events while the server still listens; later it would retry for minutes."""
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        APILogWorker.drain_all(timeout=5)
        EventsWorker.drain_all(timeout=5)


class MlflowServer(_HomeServer):
    """The MLflow server over the home's database. `start` returns at once, `ready` waits, `stop` ends it.

    It requires the home's credential by basic authentication and refuses foreign hosts and origins (`RequestGuard`).
    """

    name = "mlflow"
    variable = "MLFLOW_TRACKING_URI"

    def start(self) -> "MlflowServer":
        """Start the server, or use one that is configured or serves this home. Raises ConfigurationError for a port
        that is taken.
        """
        port = self._port or free_port()
        if tracking_uri().startswith("http"):
            self.given, self.url = True, tracking_uri().rstrip("/")
        elif running := recorded_address("mlflow"):
            self.url = running
        else:
            require_free_port(port, "MLflow", "--mlflow-port")
            self.url = f"http://127.0.0.1:{port}"
            self._run(server_command(port), server_environment(credential("mlflow")))
        return self


class ServerPages(NamedTuple):
    """Address and login of a server's web pages; `login` is None for a server that an environment variable names."""

    title: str
    url: str
    login: str | None


@contextlib.contextmanager
def home_servers(prefect_port: int, mlflow_port: int) -> Iterator[tuple[ServerPages, ServerPages]]:
    """Run both servers during the block; yield their pages once they answer. Servers that were already running stay."""
    prefect, mlflow = PrefectServer(prefect_port), MlflowServer(mlflow_port)
    with contextlib.ExitStack() as stack:
        for server in (prefect, mlflow):
            stack.callback(server.stop)
            server.start()
        pages = prefect.ready().removesuffix("/api")
        yield (
            ServerPages("Prefect", pages, None if prefect.given else user_and_password("prefect")),
            ServerPages("MLflow", mlflow.ready(), None if mlflow.given else credential("mlflow")),
        )
