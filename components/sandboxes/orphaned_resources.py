"""Find containers, persistent sandboxes and folders whose owner processes were killed, for `ratchet reap`.

Talks HTTP to the Docker engine instead of importing its SDK, which is slow to import.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.components.core import SandboxUnavailable
from ratchet.components.core.processes import owner_is_dead, token_owner_is_dead

from . import persistent_sandboxes
from .docker_engine import LABEL, OWNER_LABEL
from .local_sandbox import remove_folder

ENGINE_SECONDS = 10.0
DEFAULT_SOCKET = "unix:///var/run/docker.sock"
MIN_AGE_SECONDS = 60.0
GONE_STATUSES = (404, 409)


class OrphanedResource(NamedTuple):
    """A resource without an owner: its kind, its name, and the function that removes it."""

    kind: str
    name: str
    remove: Callable[[], object]


def _request(address: str, method: str, path: str) -> Any:
    """Send a request to the engine; return the decoded JSON body, None if it is empty or the resource is already removed.

    Raises SandboxUnavailable.
    """
    connection = _connection(address)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise SandboxUnavailable(
            f"the Docker engine at {address} does not answer: {error}; is dockerd running?"
        ) from error
    finally:
        connection.close()
    if answer.status in GONE_STATUSES:
        return None
    if answer.status >= 400:
        raise SandboxUnavailable(f"the Docker engine refused {method} {path}: {body.decode(errors='replace').strip()}")
    return json.loads(body) if body else None


def _connection(address: str) -> http.client.HTTPConnection:
    kind, _, rest = address.partition("://")
    if kind in ("tcp", "http") and not os.environ.get("DOCKER_TLS_VERIFY"):
        return http.client.HTTPConnection(rest.rstrip("/"), timeout=ENGINE_SECONDS)
    if kind != "unix":
        raise SandboxUnavailable(f"cannot search the Docker engine at {address}: only unix:// and plain tcp:// work")
    return _UnixConnection(rest)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ENGINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def orphaned_containers() -> Iterator[OrphanedResource]:
    """Yield the containers whose owner processes have died; none without an engine. Raises SandboxUnavailable."""
    address = os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET
    if address.startswith("unix://") and not Path(address.removeprefix("unix://")).is_socket():
        return
    filters = urllib.parse.quote(json.dumps({"label": [f"{LABEL}=1"]}))
    for container in _request(address, "GET", f"/containers/json?all=1&filters={filters}") or ():
        if owner_is_dead(container["Labels"].get(OWNER_LABEL, "")):
            name = (container["Names"] or [container["Id"][:12]])[0].lstrip("/")
            removal = f"/containers/{container['Id']}?force=1&v=1"
            yield OrphanedResource("container", name, partial(_request, address, "DELETE", removal))


def orphaned_persistent_sandboxes() -> Iterator[OrphanedResource]:
    """Yield persistent sandboxes whose daemon has died or outlived its lifetime, and folders without a record."""
    for sandbox in persistent_sandboxes.recorded_sandboxes():
        if not sandbox.alive:
            yield OrphanedResource("sandbox", sandbox.id, partial(persistent_sandboxes.stop_sandbox, sandbox.id))
        elif _daemon_age(sandbox.pid) > sandbox.expires - sandbox.created + MIN_AGE_SECONDS:
            yield OrphanedResource("sandbox", sandbox.id, partial(_kill_daemon, sandbox))
    for folder in persistent_sandboxes.sandboxes_folder().glob("*"):
        if (
            not (folder / persistent_sandboxes.RECORD_FILE).is_file()
            and _age(folder) > persistent_sandboxes.START_SECONDS
        ):
            yield OrphanedResource("sandbox", folder.name, partial(remove_folder, folder))


def _daemon_age(pid: int) -> float:
    """Return for how many seconds a process has run, also where the clock of the machine was set meanwhile: psutil derives
    the start from the present clock.
    """
    import psutil

    try:
        return time.time() - float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _kill_daemon(sandbox: persistent_sandboxes.PersistentSandbox) -> None:
    with contextlib.suppress(OSError):
        os.kill(sandbox.pid, signal.SIGKILL)
    persistent_sandboxes.stop_sandbox(sandbox.id)


def orphaned_folders() -> Iterator[OrphanedResource]:
    """Yield folders of local sandboxes whose launcher process has ended; nothing where /proc is not available."""
    if not Path("/proc/self/cmdline").is_file():
        return
    folders = [folder for folder in Path(tempfile.gettempdir()).glob("ratchet-sandboxes-*") if _owned_by_us(folder)]
    old_folders = [folder for folder in folders if _is_abandoned(folder)]
    arguments = _running_arguments() if old_folders else set()
    for folder in old_folders:
        if str(folder) not in arguments:
            yield OrphanedResource("folder", str(folder), partial(remove_folder, folder))


def _is_abandoned(folder: Path) -> bool:
    """Return whether the process that made a folder has ended; where that is unknown, whether it is old enough: a launcher
    makes its folder before it starts.
    """
    is_dead = token_owner_is_dead(folder.name)
    return _age(folder) > MIN_AGE_SECONDS if is_dead is None else is_dead


def _owned_by_us(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid()
    return False


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _running_arguments() -> set[str]:
    """Return the command-line arguments of all processes; the last argument of a launcher is its folder."""
    arguments: set[str] = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments.update(path.read_bytes().decode("utf-8", "replace").split("\0"))
    return arguments
