"""Commands for a machine that runs unattended: up, down, logs, metrics, notify test, backup, restore."""

import os
import shlex
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.home import home, record_server, require_clone
from ratchet.render.terminal import bytes_text, print_note, print_text


def up(
    prefect_port: Annotated[int, Option(min=1, max=65535, help="Prefect's port on 127.0.0.1.")] = 4200,
    mlflow_port: Annotated[int, Option(min=1, max=65535, help="MLflow's port on 127.0.0.1.")] = 5000,
    serve: Annotated[
        str, Option(metavar="ARGUMENTS", help="Also a model server: the arguments of `ratchet serve`.")
    ] = "",
    with_metrics: Annotated[bool, Option("--metrics", help="Also `ratchet metrics`, for Prometheus.")] = False,
    with_receive: Annotated[bool, Option("--receive", help="Also `ratchet receive`, at port 4318.")] = False,
    systemd: Annotated[bool, Option("--systemd", help="Only write units for systemd, which starts them.")] = False,
    units: Annotated[Path | None, Option(help="With --systemd: their folder; default: this user's.")] = None,
) -> None:
    """Play the nights of prefect.yaml unattended: Prefect's server and worker and MLflow, in the background.

    What ends or hangs is started again. `ratchet status` shows the services, `ratchet logs` their output, `ratchet down`
    ends them. Needs the extra `operate`. Examples: `ratchet up`, `ratchet up --serve "MODEL --port 8000"`,
    `ratchet up --systemd`
    """
    from ratchet.flows.services import planned_services
    from ratchet.flows.supervision import default_unit_folder, start_services, write_units

    require_clone()
    if units is not None and not systemd:
        raise ConfigurationError("--units is only valid with --systemd")
    try:
        services = planned_services(
            prefect_port, mlflow_port, shlex.split(serve), metrics=with_metrics, receive=with_receive
        )
    except ValueError as error:
        raise ConfigurationError(f"--serve: {error}") from error
    if not systemd:
        started = start_services(services, print_note)
        print_text("started; `ratchet status` shows addresses" if started else "running already: see `ratchet status`")
        return
    for path in write_units(services, units or default_unit_folder()):
        print_text(str(path))
    systemctl = "systemctl" if os.geteuid() == 0 else "systemctl --user"
    print_note(f"start them: {systemctl} daemon-reload && {systemctl} enable --now ratchet.target")
    if os.geteuid():
        print_note("that they outlive your login: loginctl enable-linger")


def down() -> None:
    """End what `ratchet up` started, and nothing else. An unfinished night is resumed later.

    Services of systemd are ended by `systemctl --user stop ratchet.target`. Example: `ratchet down`
    """
    from ratchet.flows.supervision import stop_services

    print_text("stopped" if stop_services(print_note) else "nothing of `ratchet up` is running")


def logs(
    name: Annotated[
        str, Argument(help="prefect, mlflow, worker, watch, model, metrics, receive, supervisor, or a night.")
    ] = "",
    lines: Annotated[int, Option("--lines", "-n", min=0, help="Last lines of each log.")] = 20,
    follow: Annotated[bool, Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Show the last lines of the logs of this home: those whose names begin with NAME, or those of all services.

    Examples: `ratchet logs`, `ratchet logs worker --follow`, `ratchet logs 2026-11-27-a1b2 -n 100`
    """
    from ratchet.render.logs import print_logs

    print_logs(name, lines, follow=follow)


notify = typer.Typer(no_args_is_help=True, help="Who is told of a night: webhooks, e-mail, commands.")


@notify.command("test")
def notify_test(event: Annotated[str, Option(help="verdict, failure, person or budget.")] = "verdict") -> None:
    """Send a test to the receivers of an event, as .ratchet/notify.yaml lists them.

    Exit code 4 where one was not told. Example: `ratchet notify test --event person`
    """
    from ratchet.components.operations.notifications import EVENTS, Notification, notify_file, send

    if event not in EVENTS:
        raise ConfigurationError(f"there is no event '{event}'; choose from {', '.join(EVENTS)}")
    note = Notification(event, "Ratchet: a test", f"This is what you are told of: {event}.")
    deliveries = list(send(note))
    if not deliveries:
        raise ConfigurationError(f"nobody is told of '{event}'; list receivers in {notify_file()} (docs/operating.md)")
    for receiver, error in deliveries:
        print_text(f"{receiver}: {'sent' if error is None else f'not sent: {error}'}")
    if failed := sum(error is not None for _, error in deliveries):
        raise InfrastructureError(f"{failed} of {len(deliveries)} receivers were not told")


def metrics() -> None:
    """Serve the state of this home for Prometheus until Ctrl-C: nights, episodes, failures, data, cost.

    The address is OTEL_EXPORTER_PROMETHEUS_HOST (default localhost) and OTEL_EXPORTER_PROMETHEUS_PORT (9464).
    """
    from ratchet.components.operations.home_metrics import metrics_server

    require_clone()
    with suppress(KeyboardInterrupt), metrics_server() as url:
        print_text(url)
        with suppress(OSError):  # a home that is mounted for reading only
            record_server("metrics", url, os.getpid())
        threading.Event().wait()


def backup(
    archive: Annotated[Path, Argument(help="The file to write, such as /backups/tuesday.tar.", metavar="FILE")],
    credentials: Annotated[bool, Option("--credentials", help="With the credentials of the home.")] = False,
) -> None:
    """Write the home, the data of all nights and their git tags to one archive. Nothing may run meanwhile.

    Left out are credentials, Prefect's history, and what lies on a server or in S3. Example: `ratchet backup /backups/a.tar`
    """
    from ratchet.components.operations.home_backup import back_up, remote_places

    require_clone()
    files = back_up(archive, credentials=credentials).files
    size, stored = bytes_text(sum(file.size for file in files)), bytes_text(archive.stat().st_size)
    print_text(f"{archive}: {len(files):,} files, {size}, stored in {stored}")
    for place in remote_places():
        print_note(f"not in it: {place}")


def restore(archive: Annotated[Path, Argument(help="A file of `ratchet backup`.", metavar="FILE")]) -> None:
    """Restore a backup into a fresh clone, at any path, whose home is empty. Every hash is verified.

    Example: `git clone URL again && cd again && make setup && .venv/bin/ratchet restore /backups/a.tar`
    """
    from ratchet.components.operations.home_backup import restore as restore_archive

    require_clone()
    manifest = restore_archive(archive)
    print_text(f"{len(manifest.files):,} files of {manifest.created} restored to {home()} and {Path.cwd()}")
