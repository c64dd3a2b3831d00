"""Play one cohort of a collection that another machine's night has shared: a run of the work pool `rollouts`."""

from prefect import flow

from ratchet.components.operations.shared_collection import shared_cohort
from ratchet.components.reporting.progress_display import current_display
from ratchet.tasks.collect import play_here


@flow(name="collect-cohort", flow_run_name="cohort-{number}")
def collect_cohort(location: str, number: int) -> None:
    """Play cohort `number` of the plan at `location` in this machine's home, and store its shard there."""
    with shared_cohort(location, number) as (plan, folder), current_display().step(f"cohort {number}") as step:
        play_here(plan, folder, step, cohort=number)
