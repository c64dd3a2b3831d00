"""What killed nights leave behind, removed: sandboxes without an owner, scratch files, runs that Prefect still believes in."""

import shutil
from collections.abc import Iterator

from components.protocol import InfrastructureError, SandboxUnavailable
from tasks.home import folder
from tasks.servers import healthy, recorded

from .lock import holder


def reap() -> Iterator[str]:
    """What was removed, a line each. A running night's own things stay."""
    yield _sandboxes()
    if holder() is not None:
        yield f"night {holder()} is running: its processes and runs stay"
        return
    scratch = list(folder("run").glob("player-*"))
    for each in scratch:
        shutil.rmtree(each, ignore_errors=True)
    yield f"{len(scratch)} scratch folders of players removed"
    server = recorded("prefect")
    if server is None or not healthy(f"{server}/health"):
        yield "Prefect does not run: its stale runs are closed when the next night begins"
        return
    yield f"{close_stale_runs(server)} stale Prefect runs closed"


def close_stale_runs(api: str) -> int:
    """Mark nightly runs that Prefect takes for running as crashed: call it only while no night runs. Their number."""
    import httpx

    running = {
        "flows": {"name": {"any_": ["nightly"]}},
        "flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}},
    }
    crashed = {
        "type": "CRASHED",
        "name": "Crashed",
        "message": "its process was killed; the next start went on from its state",
    }
    with httpx.Client(base_url=api, timeout=10, trust_env=False) as client:
        try:
            found = client.post("/flow_runs/filter", json=running).raise_for_status().json()
            for run in found:
                client.post(
                    f"/flow_runs/{run['id']}/set_state", json={"state": crashed, "force": True}
                ).raise_for_status()
        except httpx.HTTPError as error:
            raise InfrastructureError(f"the Prefect server at {api} refused: {error}; see `ratchet doctor`") from error
    return len(found)


def _sandboxes() -> str:
    from components.sandboxes.engine import sweep

    try:
        return f"{sweep(timeout=10)} containers without an owner removed"
    except SandboxUnavailable:
        return "Docker does not answer: no container to remove"
