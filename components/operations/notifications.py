"""Notifications to people: webhooks, e-mail, a hundred services by Apprise's URLs, or a command of one's own.

`.ratchet/notify.yaml` lists the receivers. It belongs to the home, not to a scale: who is called does not depend on the
scale, and no repository should hold it. A notification that fails is one line of the log and never an error.
"""

import logging
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self, get_args
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from pydantic import Field, ValidationError, model_validator

from ratchet.components.core import ConfigurationError
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.home import existing_credential, home
from ratchet.components.redaction import sanitise

Event = Literal["verdict", "failure", "person", "budget"]
"""`verdict`: a night has decided. `failure`: a machine or a server failed; the same command goes on. `person`: somebody must
change something first, such as data at which a gate closed. `budget`: a night stopped before a budget was exceeded.
"""
EVENTS: tuple[Event, ...] = get_args(Event)
COMMAND_SECONDS = 30.0
"""Seconds after which a command that notifies is killed."""
_SECRET = re.compile(r"(env|credential):([A-Za-z0-9_.-]+)")
_TYPES: dict[Event, str] = {"verdict": "success", "failure": "failure", "person": "warning", "budget": "warning"}


class Receiver(Configuration):
    """A receiver of notifications, and the `events` that are sent to it; give `url` or `command`.

    - `url`: an Apprise URL, such as `mailto://…` or `slack://…`; or the `https://` address of a webhook that takes Slack's
      messages. A URL with a secret stays out of the file: `env:NAME` takes it from an environment variable,
      `credential:NAME` from the file `credentials/NAME` of the home.
    - `command`: program and arguments. It reads the notification as a line of JSON from stdin.
    """

    url: str | None = None
    command: tuple[str, ...] = ()
    events: frozenset[Event] = Field(frozenset(EVENTS), min_length=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise ValueError("give a url or a command")
        return self

    @property
    def label(self) -> str:
        """Name of the receiver in a log, without secrets."""
        if self.url is None:
            return f"command {Path(self.command[0]).name}"
        return self.url if _SECRET.fullmatch(self.url) else f"{self.url.partition(':')[0]} URL"

    def address(self) -> str:
        """Return the URL, read from the environment or the credential that it names. Raises ConfigurationError."""
        assert self.url is not None
        if (secret := _SECRET.fullmatch(self.url)) is None:
            return self.url
        kind, name = secret.groups()
        value = os.environ.get(name) if kind == "env" else existing_credential(name)
        if not value:
            where = f"the environment variable {name}" if kind == "env" else f"the file {home() / 'credentials' / name}"
            raise ConfigurationError(f"{where} is absent or empty")
        return value


class NotifyConfig(Configuration):
    """The file `notify.yaml` of a home."""

    receivers: tuple[Receiver, ...] = ()


class Notification(msgspec.Struct, frozen=True):
    """One event of a night. `night`: its id, or None. `text`: one or more lines for a person."""

    event: Event
    title: str
    text: str
    night: str | None = None


def notify_file() -> Path:
    """Return the file of the receivers, which may not exist."""
    return home() / "notify.yaml"


def load_receivers() -> tuple[Receiver, ...]:
    """Return the receivers of this home; none without a file. Raises ConfigurationError."""
    if not notify_file().is_file():
        return ()
    try:
        return NotifyConfig.load(notify_file()).receivers
    except ConfigurationError as error:  # its text shows what the file holds, which may be a secret
        known = isinstance(error.__cause__, ValidationError)
        why = re.sub(r" \(found .*", "", str(error)) if known else f"{notify_file()}: it is no valid YAML"
        raise ConfigurationError(why) from None


def send(notification: Notification) -> Iterator[tuple[str, str | None]]:
    """Tell every receiver of the event, one after another; yield its label, and why it was not told (None: it was).

    Raises ConfigurationError for a file that cannot be read.
    """
    for receiver in load_receivers():
        if notification.event in receiver.events:
            try:
                error = _run(receiver, notification) if receiver.command else _post(receiver, notification)
            except Exception as failure:  # of a library or a server: a night must not end with it
                error = str(failure) or type(failure).__name__
            yield receiver.label, error and sanitise(" ".join(error.split())).text


def _run(receiver: Receiver, notification: Notification) -> str | None:
    line = msgspec.json.encode(notification) + b"\n"
    try:
        done = subprocess.run(receiver.command, input=line, capture_output=True, timeout=COMMAND_SECONDS, check=False)
    except subprocess.TimeoutExpired:  # its text holds the arguments, which may be secret
        return f"it took longer than {COMMAND_SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"exit code {done.returncode}" + (f": {said[-1]}" if said else "")


def _post(receiver: Receiver, notification: Notification) -> str | None:
    import apprise

    # Its loggers name parts of URLs, secrets included; what it says of a server's answer is read below.
    logging.getLogger("apprise").propagate = False
    address, title, text = receiver.address(), notification.title, notification.text
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as output:  # type: ignore[no-untyped-call]
        service = apprise.Apprise.instantiate(address, suppress_exceptions=True)
        if service is None and address.startswith(("http://", "https://")):
            service = apprise.Apprise.instantiate(_slack_compatible(address), suppress_exceptions=True)
            title, text = "", f"{title}\n{text}"
        if not isinstance(service, apprise.NotifyBase):
            return "it is no URL that Apprise knows; see https://appriseit.com/services"
        parsed = output.tell()
        sent = service.notify(
            body=text,
            title=title,
            notify_type=apprise.NotifyType(_TYPES[notification.event]),
            body_format=apprise.NotifyFormat.TEXT,  # else a service that takes HTML would be sent the text as it is
        )
        lines = output.getvalue()[parsed:].splitlines()
    return None if sent else lines[-1] if lines else "the server refused it"


def _slack_compatible(address: str) -> str:
    """Return the Apprise URL that posts `{"text": …}` to a webhook, as Slack, Mattermost and others expect it."""
    parts = urlsplit(address)
    fields = {":message": "text", **dict.fromkeys((":title", ":version", ":type", ":attachments"), "")}
    query = [*fields.items(), *((f"-{name}", value) for name, value in parse_qsl(parts.query))]
    scheme = "jsons" if parts.scheme == "https" else "json"
    return f"{scheme}://{parts.netloc}{quote(parts.path, safe='/%')}?{urlencode(query)}"
