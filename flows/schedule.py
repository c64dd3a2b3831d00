"""The nightly schedule: this process serves the flow, and Prefect starts a run of it when its time has come."""

from collections.abc import Callable
from typing import Any

from components.protocol import ConfigurationError
from tasks.home import home_tag
from tasks.server import PrefectServer

NAME = "nightly"


def serve(
    cron: str, timezone: str, scale: str, port: int, *, recipe: str | None = None, say: Callable[[str], None]
) -> None:
    """Serve the nightly flow until interrupted. Raises ConfigurationError for a time, a zone, a scale or a recipe that cannot
    be read.
    """
    from .recipe import load_recipe
    from .scale import load_scale

    parameters = load_scale(scale)
    load_recipe(recipe or parameters.recipe, parameters.size)
    check_times(cron, timezone)
    server = PrefectServer(port).start()
    try:
        server.ready(on_wait=say)
        from .nightly import nightly

        say(
            f"nights of scale {scale} at '{cron}' ({timezone}); Prefect: {server.url.removesuffix('/api')}; Ctrl-C ends it"
        )
        serve_flow(nightly, schedule_of(cron, timezone), {"scale": scale, "recipe": recipe})
    finally:
        server.stop()


def serve_flow(flow: Any, schedule: Any, parameters: dict[str, Any]) -> None:
    """Serve a flow: no two runs at once, and a restart of this process leaves the schedule as it is."""
    from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy

    flow.serve(
        name=NAME,
        schedules=[schedule],
        parameters=parameters,
        tags=[home_tag()],
        pause_on_shutdown=False,
        print_starting_message=False,
        limit=1,
        global_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
    )


def schedule_of(cron: str, timezone: str) -> Any:
    """A cron schedule of Prefect's."""
    from prefect.schedules import Cron

    return Cron(cron, timezone=timezone)


def check_times(cron: str, timezone: str) -> None:
    """Raises ConfigurationError that says what cannot be read."""
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
