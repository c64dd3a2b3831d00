"""Remove what killed processes leave behind: processes, sandboxes, temporary files, heartbeats and stale Prefect runs.

What is removed names its owner by process id and start time (`owner_label`, `owner_token`), and that process has ended.
Where this cannot be known (another boot or pid namespace, an older Ratchet), temporary files are removed after a day.

Locks need no removal: the kernel releases those of a dead process (core/files.py). DVC's own are checked before each call
(datasets/versioning/dvc_client.py), and the GPU slots of a Prefect server have a lease (tasks/train.py).
"""

import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import get_args

from ratchet.components.core import InfrastructureError, RatchetError
from ratchet.components.core.files import lock_owner
from ratchet.components.core.home import (
    authorization_header,
    configured_address,
    home,
    home_tag,
    is_healthy,
    recorded_address,
    without_password,
)
from ratchet.components.core.processes import (
    OWNER_TOKEN,
    kill_process,
    orphaned_processes,
    owner_is_dead,
    token_owner_is_dead,
)
from ratchet.components.nights.night_state import Locked, lock_path
from ratchet.components.sandboxes.orphaned_resources import (
    OrphanedResource,
    orphaned_containers,
    orphaned_folders,
    orphaned_persistent_sandboxes,
)
from ratchet.components.training.heartbeat import HEARTBEAT_FILE, read_heartbeat

_log = logging.getLogger(__name__)
ABANDONED_SECONDS = 3600.0
"""Age at which a download is taken for abandoned."""
UNKNOWN_OWNER_SECONDS = 24 * 3600.0
"""Age at which a temporary file is removed whose owner cannot be checked."""
OTHER_TEMPORARY_NAME = re.compile(r"\.(.+\.)?(\d+|[\w-]{22})\.tmp")
"""Name of a temporary file of an older Ratchet (with a process id), or of DVC."""
COMPARISON_FLOW = "compare-recipes"
"""Name of the Prefect flow of a comparison of recipes."""


def remove_leftovers(*, dry_run: bool = False) -> Iterator[str]:
    """Remove leftovers and yield a line for each, then their number by kind; with `dry_run` only list them."""
    yield from _sweep(dry_run, count=True)
    running = [f"{kind} {owner}" for kind in get_args(Locked) if (owner := lock_owner(lock_path(kind))) is not None]
    if running:
        yield f"{' and '.join(running).strip()} is running: its Prefect runs stay"
    elif not dry_run:
        yield _prefect_runs()


def remove_leftovers_at_start() -> Iterator[str]:
    """Remove leftovers at the start of a night, and yield a line for each. What could not be removed is logged: it is no
    reason to play no night. Prefect's stale runs are closed by the caller, who knows the server.
    """
    return (line.strip() for line in _sweep(dry_run=False, count=False))


def _sweep(dry_run: bool, *, count: bool) -> Iterator[str]:
    """Yield a line for each leftover and, with `count`, for their number by kind and for each error."""
    for name, leftovers in (
        # First: an orphan may hold the lock of a collection or a build, and write more files.
        ("processes without an owner", _processes()),
        ("containers without an owner", orphaned_containers()),
        ("standing sandboxes past their time", orphaned_persistent_sandboxes()),
        ("folders of local sandboxes", orphaned_folders()),
        ("half-written files", abandoned_files()),
        ("stale heartbeats", _heartbeats()),
        ("half-fetched repositories", abandoned_downloads()),
    ):
        number = 0
        try:
            for leftover in leftovers:
                if not dry_run:
                    leftover.remove()
                yield f"  {'would remove' if dry_run else 'removed'} {leftover.kind} {leftover.name}"
                number += 1
        except (RatchetError, OSError) as error:
            _log.warning("%s: %s", name, error)
            if count:
                yield f"{name}: {' '.join(str(error).split())}"
            continue
        if count:
            yield f"{number} {name} {'found' if dry_run else 'removed'}"


def _processes() -> Iterator[OrphanedResource]:
    """Yield what a night or a comparison started and what outlived it."""
    for pid, command in orphaned_processes():
        yield OrphanedResource("process", f"{pid} ({command[:80]})", partial(kill_process, pid))


def abandoned_files() -> Iterator[OrphanedResource]:
    """Yield temporary files and folders whose writer has died: in the home, in the clone or project of the working
    directory, and in the machine's folder of temporary files.
    """
    hidden = [*_temporary_files(home())]
    if Path("dvc.yaml").is_file():
        hidden += [*Path().glob(".*.tmp"), *_temporary_files(Path("data")), *_temporary_files(Path(".dvc"))]
    # Only with a token: anybody may name a folder ratchet-something.
    named = [*(home() / "run").glob("*-*"), *Path(tempfile.gettempdir()).glob("ratchet-*")]
    for path in (*hidden, *(path for path in named if _is_ours(path.name))):
        if _is_abandoned(path):
            remove = partial(_remove_tree, path) if path.is_dir() else partial(path.unlink, missing_ok=True)
            yield OrphanedResource("folder" if path.is_dir() else "file", str(path), remove)


def _temporary_files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files) if name.startswith(".") and name.endswith(".tmp"))


def _is_ours(name: str) -> bool:
    # A sandbox's folder is removed once its launcher has ended too: `orphaned_folders`.
    return OWNER_TOKEN.search(name) is not None and not name.startswith("ratchet-sandboxes-")


def _is_abandoned(path: Path) -> bool:
    if (is_dead := token_owner_is_dead(path.name)) is not None:
        return is_dead
    if not OWNER_TOKEN.search(path.name) and not OTHER_TEMPORARY_NAME.fullmatch(path.name):
        return False
    try:
        return time.time() - path.lstat().st_mtime > UNKNOWN_OWNER_SECONDS
    except OSError:  # renamed meanwhile
        return False


def _heartbeats() -> Iterator[OrphanedResource]:
    """Yield the heartbeats of training jobs that were killed."""
    for place in ("nights/*/training/*", "comparisons/**/training/*"):
        for path in home().glob(f"{place}/{HEARTBEAT_FILE}"):
            heartbeat = read_heartbeat(path.parent)
            if heartbeat is not None and owner_is_dead(heartbeat.owner):
                yield OrphanedResource("heartbeat", str(path), partial(path.unlink, missing_ok=True))


def abandoned_downloads() -> Iterator[OrphanedResource]:
    """Yield mirrors of repositories whose download was killed."""
    # Their names hold no process id: one that has not changed for an hour is taken for abandoned.
    for path in (home() / "repositories").glob("new-*"):
        if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
            yield OrphanedResource("mirror", str(path), partial(_remove_tree, path))


def _remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _prefect_runs() -> str:
    server = configured_address("prefect") or recorded_address("prefect")
    try:
        if server is None or not is_healthy("prefect", server):
            return "Prefect does not run: its stale runs are closed when the next night begins"
        return f"{close_stale_runs(server) + close_stale_runs(server, COMPARISON_FLOW)} stale Prefect runs closed"
    except RatchetError as error:
        return f"Prefect's stale runs stay: {error}"


def close_stale_runs(api: str, flow: str = "nightly") -> int:
    """Mark runs of a flow of this home that Prefect believes to be running as crashed; return their number.

    Call it only while no such flow runs. Runs of other homes on the same server are not changed.
    """
    import httpx

    running = {
        "flows": {"name": {"any_": [flow]}},
        "flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}, "tags": {"all_": [home_tag()]}},
    }
    crashed = {
        "type": "CRASHED",
        "name": "Crashed",
        "message": "its process was killed; the next start went on from its state",
    }
    with httpx.Client(base_url=api, headers=authorization_header("prefect"), timeout=10, trust_env=False) as client:
        try:
            stale_runs = client.post("/flow_runs/filter", json=running).raise_for_status().json()
            for run in stale_runs:
                client.post(
                    f"/flow_runs/{run['id']}/set_state", json={"state": crashed, "force": True}
                ).raise_for_status()
        except httpx.HTTPError as error:
            message = f"the Prefect server at {without_password(api)} refused: {type(error).__name__}"
            raise InfrastructureError(f"{message}; see `ratchet doctor`") from error
    return len(stale_runs)
