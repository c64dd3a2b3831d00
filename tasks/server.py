"""The Prefect server of a home: a real one, on loopback, as our child. This module does not import Prefect.

A first run migrates its database for many seconds, longer than Prefect's own temporary server waits; so we start it
at once, let other work go on, and ask for its health with a generous limit. `PREFECT_API_URL` names a server to be
used as it is; one that already serves this home (`ratchet ui`) is used and left running.
"""

import atexit
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.protocol import ConfigurationError, InfrastructureError
from components.trajectories.store import write_atomically

from .home import folder, home
from .process import Process

LIMIT = 240.0
"""Seconds that a server has to become healthy; a first start on a slow, busy machine took 60."""
ATTEMPTS = 3
"""A free port may be taken by another before the server has it."""


def settings() -> dict[str, str]:
    """The environment under which Prefect runs here, server and client alike: local, quiet, without telemetry."""
    return {
        "PREFECT_HOME": str(home() / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_CLI_PROMPT": "false",
    }


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_free(port: int, what: str) -> None:
    """Raises ConfigurationError where a loopback port is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} for {what} is taken; end what listens there or choose another port"
            ) from error


def healthy(url: str, timeout: float = 2.0) -> bool:
    """Whether an HTTP server answers 200 at `url`."""
    import httpx

    try:
        return httpx.get(url, timeout=timeout, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


class PrefectServer:
    """`start` returns at once, `ready` waits for health and points Prefect's client at it, `stop` ends what we started."""

    def __init__(self, port: int | None = None) -> None:
        self._fixed = port is not None
        self._port = port
        self._process: Process | None = None
        self._attempts = 0
        self.url = ""
        """The API's address, ending in /api."""

    @property
    def ours(self) -> bool:
        """Whether this object started it."""
        return self._process is not None

    def start(self) -> "PrefectServer":
        """Use the server that is there, or start one. Sets Prefect's environment; call it before Prefect is imported."""
        given = os.environ.get("PREFECT_API_URL")
        os.environ.update({key: value for key, value in settings().items() if key not in os.environ})
        if given:
            self.url = given.rstrip("/")
        elif (running := recorded()) is not None:
            self.url = running
        else:
            self._launch()
        os.environ["PREFECT_API_URL"] = self.url
        return self

    def _launch(self) -> None:
        port = self._port if self._fixed and self._port is not None else free_port()
        if self._fixed:
            require_free(port, "Prefect")
        self._attempts += 1
        self.url = f"http://127.0.0.1:{port}/api"
        folder("prefect")
        command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning", "--timeout-keep-alive", "5"]
        env = {
            **settings(),
            "PREFECT_API_URL": self.url,
            "PREFECT_UI_API_URL": self.url,
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_UI_STATIC_DIRECTORY": str(home() / "prefect" / "ui"),
            "PREFECT__SERVER_FINAL": "1",
        }
        self._process = Process(command, log=folder("logs") / "prefect-server.log", env=env).start()
        atexit.register(self.stop)
        pids = (self._process.pid, os.getpid())
        record = {"url": self.url, "processes": [[pid, _started(pid)] for pid in pids]}
        write_atomically(_record(), json.dumps(record).encode())

    def ready(self, *, on_wait: Callable[[str], None] | None = None, limit: float = LIMIT) -> str:
        """Wait until it answers; its address. Raises InfrastructureError with the place of its log."""
        begin = time.monotonic()
        first = not (home() / "prefect" / "prefect.db").is_file()
        told = False
        while not healthy(f"{self.url}/health"):
            waited = time.monotonic() - begin
            if self._process is not None and self._process.poll() is not None:
                self._again()
            if self._process is None and waited > 10:
                raise InfrastructureError(f"the Prefect server at {self.url} does not answer; start it or unset PREFECT_API_URL")
            if waited > limit:
                raise InfrastructureError(f"the Prefect server did not answer in {limit:.0f} s; see {self._log()}")
            if on_wait is not None and not told:
                on_wait("the Prefect server prepares its database, once" if first else "the Prefect server starts")
                told = True
            time.sleep(0.1)
        os.environ["PREFECT_API_URL"] = self.url
        return self.url

    def _again(self) -> None:
        """The server ended before it answered: another port, or a clear error."""
        assert self._process is not None
        said = self._process.last_lines()
        if "address already in use" in said.lower() and not self._fixed and self._attempts < ATTEMPTS:
            self._launch()
            return
        raise InfrastructureError(f"the Prefect server ended at its start: {said or 'it said nothing'}; see {self._log()}")

    def _log(self) -> Path:
        return self._process.log if self._process is not None else home() / "logs"

    def stop(self) -> None:
        """End the server if we started it; safe to call twice."""
        if self._process is None:
            return
        process, self._process = self._process, None
        atexit.unregister(self.stop)
        process.stop()
        _record().unlink(missing_ok=True)


def recorded() -> str | None:
    """The address of the server that serves this home now; None where it, or the process that started it, is gone."""
    try:
        record: dict[str, Any] = json.loads(_record().read_bytes())
        alive = all(_started(int(pid)) == started for pid, started in record["processes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(record["url"]) if alive else None


def _record() -> Path:
    return folder("run") / "prefect.json"


def _started(pid: int) -> float | None:
    """When a process began: with its pid, its identity. None where it is gone."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
