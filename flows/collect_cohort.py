"""Play one cohort of a collection that another machine's night has shared: a run of the work pool `rollouts`."""

import os
from uuid import UUID

from prefect import flow, get_client, runtime

from ratchet.components.operations.shared_collection import shared_cohort
from ratchet.components.reporting.progress_display import current_display
from ratchet.tasks.collect import play_here
from ratchet.tasks.prefect_executor import WORKER_LABEL


@flow(name="collect-cohort", flow_run_name="cohort-{number}")
def collect_cohort(location: str, number: int) -> None:
    """Play cohort `number` of the plan at `location` in this machine's home, and store its shard there."""
    with get_client(sync_client=True) as client:
        label: dict[str, bool | int | float | str] = {WORKER_LABEL: os.environ.get("PREFECT__WORKER_NAME", "")}
        client.update_flow_run_labels(UUID(runtime.flow_run.id), label)
    with shared_cohort(location, number) as (plan, folder), current_display().step(f"cohort {number}") as step:
        play_here(plan, folder, step, cohort=number)
