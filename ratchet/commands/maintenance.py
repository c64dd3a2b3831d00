"""Commands on this installation: doctor, ui, status, reap, sync."""

import threading
from typing import Annotated
from urllib.parse import urlsplit

from typer import Option

from ratchet.commands import AsJson
from ratchet.components.core import InfrastructureError
from ratchet.components.core.home import BASIC_AUTH_USER, credential_path, require_clone
from ratchet.render.terminal import print_json, print_note, print_table, print_text


def doctor(as_json: AsJson = False) -> int:
    """Check what this machine needs for a night, and suggest what to do.

    Exit code 1 where something essential is missing.
    """
    from rich.text import Text

    from ratchet.components.operations.host_checks import CheckState, check_host

    checks = list(check_host())
    if as_json:
        for check in checks:
            print_json(check)
    else:
        styles = {CheckState.OK: "green", CheckState.ABSENT: "yellow", CheckState.MISSING: "red"}
        rows = [(check.name, Text(check.state, styles[check.state]), check.found, check.advice) for check in checks]
        print_table(("check", "state", "found", "what to do"), rows)
    return int(any(check.state is CheckState.MISSING for check in checks))


def ui(
    prefect_port: Annotated[int, Option(min=1, max=65535, help="Prefect's port on 127.0.0.1.")] = 4200,
    mlflow_port: Annotated[int, Option(min=1, max=65535, help="MLflow's port on 127.0.0.1.")] = 5000,
) -> None:
    """Serve the pages of Prefect (runs) and MLflow (results) until Ctrl-C.

    Stops only what it started: a server that was already running is used and left running. Example: `ratchet ui
    --mlflow-port 5001`
    """
    from ratchet.flows.home_servers import home_servers

    require_clone()
    try:
        print_note("starting Prefect and MLflow (the first start takes about 20 s)")
        with home_servers(prefect_port, mlflow_port) as servers:
            for (name, url, login), port in zip(servers, (prefect_port, mlflow_port), strict=True):
                print_text(f"{name:<8} {url}")
                if urlsplit(url).port != port:
                    print_note(f"         it was running already, so --{name.lower()}-port {port} is not used")
                if login is not None:
                    _say_login(name, login)
            print_note("in MLflow, choose `Model training` at the top left once; Ctrl-C stops what was started here")
            threading.Event().wait()
    except KeyboardInterrupt:
        print_note("stopped")


def _say_login(name: str, login: str) -> None:
    """Print how to log in; the password itself only on a terminal, so that no log holds it."""
    import sys

    if not sys.stdout.isatty():
        print_note(
            f"         user: {BASIC_AUTH_USER}  password: see {credential_path(name.lower())}  (Prefect asks for user:password)"
        )
    elif name == "Prefect":
        print_text(f"         password: {login}")
    else:
        print_text(f"         user: {BASIC_AUTH_USER}  password: {login}")


def status(as_json: AsJson = False) -> None:
    """List the nights and comparisons of recipes of this clone, their progress, and the services with their health.

    What the next night would do: `ratchet plan`. What one night showed: `ratchet report`.
    """
    from ratchet.components.nights.comparison_plan import list_comparisons
    from ratchet.components.nights.night_history import describe_progress, night_rows
    from ratchet.components.nights.night_state import running_night
    from ratchet.flows.services import SERVERS, SERVICES, service_state
    from ratchet.flows.supervision import supervised_names

    require_clone()
    rows = night_rows()
    if as_json:
        for row in rows:
            print_json(row)
        return
    if rows:
        print_table(
            ("night", "scale", "seed", "state", "verdict", "champion", "challenger", "control"),
            [
                (row.night, row.scale, row.seed, row.state, row.verdict, row.champion, row.challenger, row.control)
                for row in rows
            ],
        )
    else:
        print_text("no nights yet: `ratchet night` starts one")
    running = running_night("comparison")
    for state in list_comparisons():
        print_text(f"{state.id}: {describe_progress(state, running)}, in {state.folder}")
    supervised = supervised_names()
    for name in SERVICES:
        service = service_state(name)
        if service.address is not None:
            print_text(f"{service.title:<8} {f'{service.address}  {service.state}'.strip()}")
        elif name in supervised:
            print_text(f"{service.title:<8} not running: see `ratchet logs {name}`")
        elif name in SERVERS:
            print_text(f"{service.title:<8} not running (`ratchet up` or `ratchet ui`)")


def reap(dry_run: Annotated[bool, Option("--dry-run", help="Only list what would be removed.")] = False) -> None:
    """Remove what killed processes left behind: processes, sandboxes, temporary files, stale Prefect runs.

    Nothing that a running process owns is touched, and no data is removed. Example: `ratchet reap --dry-run`
    """
    from ratchet.components.operations.leftovers import remove_leftovers as sweep

    for line in sweep(dry_run=dry_run):
        print_text(line)


def sync(as_json: AsJson = False) -> int:
    """Upload queued records to MLflow, in order. Nights and training jobs do this automatically; repeating it is safe.

    Exit code 4 where MLflow still does not answer. Records that it rejects are kept in rejected.jsonl, beside the spool.
    """
    from ratchet.components.tracking.record_upload import REJECTED, spool_folder
    from ratchet.components.tracking.record_upload import sync as tell

    report = tell()
    if as_json:
        print_json(report)
    else:
        print_text(f"uploaded {report.told} records" if report.told or report.waiting else "nothing is queued")
        if report.rejected:
            print_text(f"{report.rejected} were rejected by MLflow: see {spool_folder() / REJECTED}")
        if report.cut:
            print_text(f"{report.cut} incomplete lines of killed writers were dropped")
    if report.waiting:
        raise InfrastructureError(
            f"{report.waiting} files are still queued in {spool_folder()}; start MLflow and repeat the command"
        )
    return 0
