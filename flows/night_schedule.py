"""Serve the nightly flow on a schedule: Prefect starts each run in a child process of this one.

A Prefect server that ends is restarted (flows/home_servers.py) while the night continues. A crashed run is restarted at
once, at most MAX_RESTARTS times in a row, and resumes from the night's state. A run ends with the process that serves it.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import TYPE_CHECKING, Any

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import home_tag
from ratchet.components.core.processes import exit_with_children
from ratchet.components.nights.night_state import running_night
from ratchet.components.operations.leftovers import close_stale_runs
from ratchet.flows.home_servers import PrefectServer
from ratchet.flows.scheduled_run import SCHEDULER_VARIABLE
from ratchet.flows.supervision import is_up

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

DEPLOYMENT = "nightly"
MAX_RESTARTS = 3
"""Restarts in a row of a crashed run before the next scheduled time."""
CRASH_CHECK_SECONDS = 10.0
"""Seconds between two checks for a crashed run."""
logger = logging.getLogger(__name__)


def serve_nights(
    cron: str, timezone: str, scale: str, port: int, *, recipe: str | None = None, say: Callable[[str], None]
) -> None:
    """Serve the nightly flow until interrupted. `port`: of the Prefect server; `say`: called with each message for the
    user. Raises ConfigurationError for an invalid time, time zone, scale (with its teacher and judge) or recipe.
    """
    from ratchet.components.nights.recipe_config import load_recipe
    from ratchet.components.nights.scale_config import load_scale

    parameters = load_scale(scale)
    parameters.check()
    load_recipe(recipe or parameters.recipe, parameters.size)
    check_schedule(cron, timezone)
    if is_up():
        raise ConfigurationError(
            "`ratchet up` plays the nights of prefect.yaml; change the schedule there, or `ratchet down`"
        )
    server = PrefectServer(port).start()
    stopping = threading.Event()
    try:
        server.ready(on_wait=say)
        if running_night() is None:
            close_stale_runs(server.url)
        from prefect.schedules import Cron

        from ratchet.flows.nightly import nightly

        say(
            f"nights of scale {scale} at '{cron}' ({timezone}); Prefect: {server.url.removesuffix('/api')}; Ctrl-C stops it"
        )
        serve_flow(
            nightly, Cron(cron, timezone=timezone), {"scale": scale, "recipe": recipe}, stopping=stopping, say=say
        )
    finally:
        stopping.set()
        server.stop()


def serve_flow(
    flow: Any, schedule: Any, parameters: dict[str, Any], *, stopping: threading.Event, say: Callable[[str], None]
) -> None:
    """Serve a flow, one run at a time, until this process is interrupted. A restart of this process keeps the schedule.

    `stopping`: set it to end the restarts of crashed runs. `say`: called with each message for the user.
    `limit` belongs to this process. A limit on the deployment would give each run a lease, and a run whose lease is
    lost with the server ends.
    """
    os.environ[SCHEDULER_VARIABLE] = str(os.getpid())
    options: dict[str, Any] = {
        "name": DEPLOYMENT,
        "schedules": [schedule],
        "parameters": parameters,
        "tags": [home_tag()],
        "pause_on_shutdown": False,
        "print_starting_message": False,
        "limit": 1,
    }
    watch = threading.Thread(target=_restart_crashed, args=(f"{flow.name}/{DEPLOYMENT}", stopping, say), daemon=True)
    # Prefect's runner waits for its runs when it is interrupted in the main thread; signals end both here.
    with ThreadPoolExecutor(1) as executor:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _exit_on_signal)
        watch.start()
        executor.submit(flow.serve, **options).result()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\nstopped; an unfinished night is resumed when nights are served again\n")
    # Threads that end meanwhile would print tracebacks; a handler may only write by file descriptor.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    exit_with_children(0)


def _restart_crashed(deployment: str, stopping: threading.Event, say: Callable[[str], None]) -> None:
    """Restart crashed runs of the deployment until `stopping` is set. If the server does not answer, the next check tries again."""
    from prefect.client.orchestration import get_client

    while not stopping.wait(CRASH_CHECK_SECONDS):
        try:
            with get_client(sync_client=True) as client:
                if (message := restart_if_crashed(client, deployment)) is not None:
                    say(message)
        except Exception as error:
            logger.info("could not check for crashed runs: %s", error)


def restart_if_crashed(client: "SyncPrefectClient", deployment: str) -> str | None:
    """Restart the deployment's newest run if it crashed, and return a message for the user; None if there is nothing to
    restart.

    After MAX_RESTARTS crashes in a row nothing is restarted before the next scheduled run.
    """
    from datetime import UTC, datetime
    from itertools import takewhile

    from prefect.client.schemas.filters import (
        DeploymentFilter,
        DeploymentFilterId,
        FlowRunFilter,
        FlowRunFilterExpectedStartTime,
    )
    from prefect.client.schemas.sorting import FlowRunSort

    response = client.read_deployment_by_name(deployment)
    runs = client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[response.id])),
        flow_run_filter=FlowRunFilter(expected_start_time=FlowRunFilterExpectedStartTime(before_=datetime.now(UTC))),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=MAX_RESTARTS + 1,
    )
    crashes = len(list(takewhile(lambda run: run.state is not None and run.state.is_crashed(), runs)))
    if not 1 <= crashes <= MAX_RESTARTS:
        return None
    crashed = runs[0]
    client.create_flow_run_from_deployment(
        response.id, parameters=crashed.parameters, idempotency_key=f"{crashed.id}-again"
    )
    return f"run {crashed.name} crashed; it is restarted ({crashes} of {MAX_RESTARTS})"


def check_schedule(cron: str, timezone: str) -> None:
    """Raise ConfigurationError for an invalid cron time or time zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from cronsim import CronSim, CronSimError

    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(f"unknown time zone '{timezone}'; give one such as Europe/Berlin or UTC") from error
    try:
        from datetime import datetime

        next(CronSim(cron, datetime.now(zone)))
    except (CronSimError, StopIteration) as error:
        raise ConfigurationError(
            f"'{cron}' is not a cron time; give minute, hour, day of month, month and day of week, such as '0 1 * * *'"
        ) from error
