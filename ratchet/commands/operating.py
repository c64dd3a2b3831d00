"""Commands for a machine that runs unattended: notify test."""

from typing import Annotated

import typer
from typer import Option

from ratchet.components.core import ConfigurationError, InfrastructureError
from ratchet.render.terminal import print_text

notify = typer.Typer(no_args_is_help=True, help="Who is told of a night: webhooks, e-mail, commands.")


@notify.callback()
def _group() -> None:
    """Keep `test` a command of a group: Typer would make the only one the group itself."""


@notify.command("test")
def notify_test(
    event: Annotated[str, Option(help="verdict, failure, person or budget.")] = "verdict",
) -> None:
    """Send a test to the receivers of an event, as .ratchet/notify.yaml lists them.

    Exit code 4 where one was not told. Example: `ratchet notify test --event person`
    """
    from ratchet.components.operations.notifications import EVENTS, Notification, notify_file, send

    if event not in EVENTS:
        raise ConfigurationError(f"there is no event '{event}'; choose from {', '.join(EVENTS)}")
    note = Notification(event, "Ratchet: a test", f"This is what you are told of: {event}.")
    failed, deliveries = 0, list(send(note))
    if not deliveries:
        raise ConfigurationError(f"nobody is told of '{event}'; list receivers in {notify_file()} (docs/operating.md)")
    for receiver, error in deliveries:
        print_text(f"{receiver}: {'sent' if error is None else f'not sent: {error}'}")
        failed += error is not None
    if failed:
        raise InfrastructureError(f"{failed} of {len(deliveries)} receivers were not told")
