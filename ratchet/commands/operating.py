"""Commands for a machine that runs unattended: notify test, metrics, backup, restore."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.components.core.home import home, require_clone
from ratchet.render.terminal import bytes_text, print_note, print_text

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
