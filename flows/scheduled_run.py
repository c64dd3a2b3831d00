"""What a flow run of a night knows of its surroundings: its name, its home, and the scheduler that started it."""

import logging
import os

from ratchet.components.core import RatchetError
from ratchet.components.core.home import home_tag
from ratchet.components.core.processes import exit_when_process_ends
from ratchet.components.nights.night_state import begin_night

SCHEDULER_VARIABLE = "RATCHET_SCHEDULER_PID"
"""Environment variable of a scheduled run: process id of the scheduler."""
logger = logging.getLogger(__name__)


def end_with_scheduler() -> None:
    """In a scheduled run, end this process when the scheduler's process ends. Elsewhere do nothing."""
    if pid := os.environ.get(SCHEDULER_VARIABLE):
        exit_when_process_ends(int(pid))


def night_run_name() -> str:
    """Return the name of a flow run: `night-` and the id of the night that it begins or resumes."""
    from prefect.runtime import flow_run

    params = flow_run.get_parameters()
    try:
        return f"night-{begin_night(params['scale'], params['seed'], params['night'], params['recipe']).id}"
    except RatchetError:  # the flow itself fails with it
        return f"night-{params['scale']}"


def tag_own_run(*tags: str) -> None:
    """Add tags to the current flow run, and tag it as one of this home's: a deployment on a shared server may have been
    created for another home.
    """
    from uuid import UUID

    from prefect import get_client, runtime

    if (run := runtime.flow_run.id) is None:
        return
    try:
        with get_client(sync_client=True) as client:
            before = set(client.read_flow_run(UUID(run)).tags)
            after = {tag for tag in before if not tag.startswith("home:")} | {home_tag(), *tags}
            if after != before:
                client.update_flow_run(UUID(run), tags=sorted(after))
    except Exception:
        # `close_stale_runs` then cannot find the run if this process is killed: no reason to fail the night.
        logger.warning("the flow run was not tagged with its home", exc_info=True)
