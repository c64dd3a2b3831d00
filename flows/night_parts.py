"""Parts of a night as flows of their own, for the deployments of `prefect.yaml`: an evaluation, a data build, a backup.

Each does what the command of its name does, and a run after a time-out continues from what was kept.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow

from ratchet.components.core.home import home
from ratchet.components.datasets.versioning import BuildRequest
from ratchet.components.operations.home_backup import back_up
from ratchet.components.operations.manual_evaluation import build_nights, evaluate_agent
from ratchet.flows.scheduled_run import end_with_scheduler, tag_own_run
from ratchet.flows.steps.report import end_flow_run

HOUR = 3600


@flow(name="evaluate", timeout_seconds=6 * HOUR)
def evaluate(
    policy: str = "champion", taskset: str | None = None, scale: str = "smoke", seed: int = 0, tasks: int | None = None
) -> Any:
    """Evaluate a policy on held-out tasks; return the results. Parameters as in `evaluate_agent`."""
    _begin()
    return end_flow_run(
        lambda: evaluate_agent(policy, taskset, seed=seed, scale=scale, tasks=tasks),
        lambda done: f"{policy}: {len(done.result.tasks)} tasks played; episodes in {done.folder}",
    )


@flow(name="build", timeout_seconds=6 * HOUR)
def build(nights: list[str] | None = None, scale: str | None = None) -> Any:
    """Build the datasets from sealed nights (default: those of the last build); return the BuildReport as JSON values."""
    _begin()
    request = BuildRequest(nights=tuple(nights or ()), scale=scale)
    return end_flow_run(
        lambda: build_nights(request, force=False),
        lambda report: f"built {', '.join(report['nights'])}: {report['lock_hash']}",
    )


@flow(name="backup", timeout_seconds=6 * HOUR)
def backup(folder: str, keep: int = 7) -> Any:
    """Back the home up to `folder/ratchet-DATE.tar`, and remove all but the `keep` newest of these archives."""
    _begin()

    def work() -> dict[str, Any]:
        archive = Path(folder) / f"ratchet-{datetime.now(UTC):%Y-%m-%d}.tar"
        archive.parent.mkdir(parents=True, exist_ok=True)
        manifest = back_up(archive)
        for old in sorted(archive.parent.glob("ratchet-????-??-??.tar"))[: -max(keep, 1)]:
            old.unlink()
        return {"archive": str(archive), "files": len(manifest.files), "created": manifest.created}

    return end_flow_run(work, lambda made: f"{made['files']:,} files of {home()} in {made['archive']}")


def _begin() -> None:
    end_with_scheduler()
    tag_own_run()
