"""Hooks of the nightly flow, for notifications and after a cancellation. They run where the flow runs, or, where that process
was killed, in one of the worker or scheduler that started it.

Prefect's automations would do the same, but only in a server that stays up, and a night starts and ends its own.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.errors import BudgetReached, first_line
from ratchet.components.nights.night_state import night_decision, open_night
from ratchet.components.operations.leftovers import remove_leftovers
from ratchet.components.operations.notifications import Event, Notification, send
from ratchet.components.redaction import error_line, sanitise
from ratchet.components.reporting.decision_text import summary_sentence
from ratchet.components.reporting.progress_display import current_display


def notify(notification: Notification) -> None:
    """Send a notification to everybody who wants it. Never raises: what fails is one line."""
    try:
        for receiver, error in send(notification):
            if error is not None:
                current_display().say(f"the notification to {receiver} was not sent: {error}")
    except Exception as error:
        current_display().say(f"no notification was sent: {first_line(error)}")


def failure_notification(night: str, error: BaseException | None, crash: str | None = None) -> Notification:
    """Return the notification of an error that ended a night (None: its process ended, and Prefect says `crash`). Wrong
    configuration and bad data need a person; after anything else the same command goes on.
    """
    fixable = isinstance(error, ConfigurationError | DataError)
    event: Event = "budget" if isinstance(error, BudgetReached) else "person" if fixable else "failure"
    how = {"budget": "stopped at a budget", "person": "needs a person", "failure": "failed"}[event]
    line = error_line(error) if error is not None else sanitise(crash or "its process was killed").text
    advice = "`ratchet night` with the same options goes on from its finished steps; `ratchet report` shows them."
    return Notification(event, f"Ratchet: night {night} {how}", f"{line}\n{advice}", night)


def verdict_notifications(night: str) -> Iterator[Notification]:
    """Yield the notification of a finished night's verdict, and of what it leaves for a person to do."""
    state = open_night(night)
    decision = night_decision(state)
    if decision is None:
        return
    page = state.folder / "report.html"
    verdict = decision.verdict if decision.match is None or not decision.match.rollback else "roll back"
    yield Notification("verdict", f"Ratchet: night {night}: {verdict}", f"{summary_sentence(decision)}\n{page}", night)
    judged, labels = state.results.get("judge") or {}, state.results.get("seal labels") or {}
    if judged.get("judgements") and not labels.get("labels"):
        text = f"{judged['judgements']} judgements wait to be checked by labels: `ratchet label data/rollouts/{night}`"
        yield Notification("person", f"Ratchet: labels wait for night {night}", text, night)


@contextlib.contextmanager
def notify_failure(night: str) -> Iterator[None]:
    """Notify of an error of the block, and raise it: for what a night does before its flow begins."""
    try:
        yield
    except Exception as error:
        notify(failure_notification(night, error))
        raise


def notify_verdict(flow: Any, flow_run: Any, state: Any) -> None:
    """Hook `on_completion` of the nightly flow."""
    for notification in verdict_notifications(flow_run.name.removeprefix("night-")):
        notify(notification)


def notify_error(flow: Any, flow_run: Any, state: Any) -> None:
    """Hook `on_failure` and `on_crashed` of the nightly flow."""
    error = state.result(raise_on_failure=False) if state.is_failed() else None
    notify(failure_notification(flow_run.name.removeprefix("night-"), error, state.message))


def remove_cancelled(flow: Any, flow_run: Any, state: Any) -> None:
    """Hook `on_cancellation` of the nightly flow: remove the sandboxes and files of its process, which Prefect has ended."""
    for line in remove_leftovers():
        current_display().say(line)


# Prefect's runner passes the arguments of hooks by name: flow, flow_run, state.
HOOKS: dict[str, Any] = {
    "on_completion": [notify_verdict],
    "on_failure": [notify_error],
    "on_crashed": [notify_error],
    "on_cancellation": [remove_cancelled],
}
"""Options of the nightly flow."""
