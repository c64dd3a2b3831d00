"""Run a night, or a comparison of recipes, in this process, with its server, log and progress display."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from ratchet.components.core.home import configured_address, home_folder, home_tag, is_healthy, restrict_file_modes
from ratchet.components.core.processes import exit_with_children, own_children
from ratchet.components.core.run_context import log_formatter
from ratchet.components.evaluation.recipe_comparison import ComparisonRecord
from ratchet.components.nights.comparison_plan import RECORD_STEP, ComparisonPlan
from ratchet.components.nights.night_state import begin_night, hold_night_lock, open_state_file, running_night
from ratchet.components.operations.leftovers import COMPARISON_FLOW, close_stale_runs, remove_leftovers_at_start
from ratchet.components.reporting.progress_display import ProgressDisplay, current_display
from ratchet.flows.home_servers import PrefectServer
from ratchet.flows.night_notifications import notify_failure

INTERRUPTED_MESSAGE = "interrupted; finished work is kept, and the same command continues from there"


def run_night(scale: str, seed: int | None, night: str | None, recipe: str | None = None) -> dict[str, Any]:
    """Run a night in this process; return its decision record. Raises the error that ended it. Leaves no process
    running.

    `seed`, `night` and `recipe` as in `begin_night`.
    """
    _check_configuration(scale, recipe)
    state = begin_night(scale, seed, night, recipe)
    with flow_process(f"night {state.id}", state.id) as ready:
        from prefect import tags

        from ratchet.flows.nightly import nightly

        with notify_failure(state.id):
            server = ready()
            if running_night() is None:
                close_stale_runs(server)
        with tags(home_tag()):
            decision: dict[str, Any] = nightly(scale, state.seed, state.id, recipe)
    return decision


def run_comparison(plan: ComparisonPlan) -> ComparisonRecord:
    """Run a comparison of recipes in this process, unless it is finished; return its record. Leaves no process running.

    Raises the error that ended it, and ConfigurationError where another comparison runs in this clone.
    """
    if not plan.state.is_finished:
        with hold_night_lock("comparison") as claim:
            claim(plan.state.id)
            # Read again: until the lock was free another process may have gone on with it.
            plan = msgspec.structs.replace(plan, state=open_state_file(plan.state.folder / "state.json"))
            for line in remove_leftovers_at_start():
                current_display().say(line)
            with flow_process(f"comparison {plan.state.id}", plan.state.id) as ready:
                from prefect import tags

                from ratchet.flows.recipe_comparison import compare_recipes

                close_stale_runs(ready(), COMPARISON_FLOW)
                with tags(home_tag()):
                    compare_recipes(plan)
    record = plan.state.result(RECORD_STEP, ComparisonRecord)
    assert record is not None
    return record


@contextmanager
def flow_process(title: str, log_name: str) -> Iterator[Callable[[], str]]:
    """Prepare this process for a flow: server, log, signals and progress display, which end with the block.

    The block imports its flow, then calls the yielded function, which waits for the Prefect server and returns its URL.
    """
    begun = time.monotonic()
    log = log_to_file(log_name)
    restrict_file_modes()
    own_children()
    server = PrefectServer().start()  # sets the environment that Prefect reads when it is imported
    _exit_on_signals()
    with ProgressDisplay() as display:
        try:
            from ratchet.components.tracking.mlflow_client import preload_mlflow

            preload_mlflow()  # imports mlflow in parallel to Prefect and its server
            yield lambda: server.ready(on_wait=display.say)
        finally:
            server.stop()
        display.say(f"{title} took {(time.monotonic() - begun) / 60:.1f} minutes; log: {log}")


def _check_configuration(scale: str, recipe: str | None) -> None:
    """Report invalid policies, judges, recipes or MLflow credentials before anything is started."""
    from ratchet.components.nights.recipe_config import CONTROL, load_recipe
    from ratchet.components.nights.scale_config import load_scale

    parameters = load_scale(scale)
    parameters.check()
    for name in dict.fromkeys([recipe or parameters.recipe, CONTROL]):
        load_recipe(name, parameters.size)
    if tracking := configured_address("mlflow"):
        is_healthy("mlflow", tracking)  # one that does not answer is no error: records are queued and uploaded later


def log_to_file(name: str) -> Path:
    """Send the logs of libraries to `logs/<name>.log` instead of the terminal; return the file. Call it before Prefect
    is imported.
    """
    path = home_folder("logs") / f"{name}.log"
    path.touch(mode=0o600)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(log_formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    return path


def _exit_on_signals() -> None:
    """On Ctrl-C and SIGTERM end at once, with all child processes, and print that the night can be resumed."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        show_cursor = "\x1b[?25h" if os.isatty(2) else ""
        os.write(2, f"{show_cursor}\nerror: {INTERRUPTED_MESSAGE}\n".encode())
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # steps that end meanwhile would print tracebacks
        exit_with_children(130 if number == signal.SIGINT else 143)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
