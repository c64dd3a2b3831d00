"""Notifications reach real receivers, and a failed one is a line without secrets."""

import email
import json
import logging
import sys

import pytest
import yaml
from receivers import MailServer, Webhook, serving

from ratchet import cli
from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import write_credential
from ratchet.components.operations.notifications import Notification, load_receivers, notify_file, send

NOTE = Notification("failure", "Ratchet: night a failed", "the disk is full\ngo on: `ratchet night`", "a")


@pytest.fixture
def receivers(tmp_path, monkeypatch):
    """Writes the receivers of a home."""
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    def write(*entries):
        notify_file().parent.mkdir(exist_ok=True)
        notify_file().write_text(yaml.safe_dump({"receivers": list(entries)}))

    return write


@pytest.fixture
def webhook():
    with serving(Webhook()) as server:
        yield server


def test_a_webhook_is_posted_slacks_message_and_keeps_its_own_query(receivers, webhook, monkeypatch):
    monkeypatch.setenv("TEAM_HOOK", f"http://127.0.0.1:{webhook.server_port}/services/T0/B%20x?token=a%26b")
    receivers({"url": "env:TEAM_HOOK"})
    assert list(send(NOTE)) == [("env:TEAM_HOOK", None)]
    assert webhook.posts == [("/services/T0/B%20x?token=a%26b", {"text": f"{NOTE.title}\n{NOTE.text}"})]


def test_a_url_of_apprise_is_read_from_a_credential(receivers, webhook):
    receivers({"url": "credential:pager"})
    write_credential("pager", f"json://127.0.0.1:{webhook.server_port}/page\n")
    assert list(send(NOTE)) == [("credential:pager", None)]
    ((path, body),) = webhook.posts
    assert path == "/page" and (body["title"], body["message"], body["type"]) == (NOTE.title, NOTE.text, "failure")


def test_a_mail_is_delivered(receivers):
    with serving(MailServer()) as server:
        address = f"mailto://127.0.0.1:{server.server_address[1]}?from=ratchet@example.org&to=you@example.org"
        receivers({"url": f"{address}&mode=insecure&format=text"})
        assert list(send(NOTE)) == [("mailto URL", None)]
        (mail,) = server.mails
    message = email.message_from_string(mail)
    assert message["Subject"] == NOTE.title and "you@example.org" in message["To"]
    (part,) = [part for part in message.walk() if part.get_content_type() == "text/plain"]
    assert part.get_payload(decode=True).decode().split("\n")[0].rstrip() == "the disk is full"


def test_a_command_reads_the_notification_as_json(receivers, tmp_path):
    script = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    receivers({"command": [sys.executable, "-c", script, str(tmp_path / "told")]})
    assert [error for _, error in send(NOTE)] == [None]
    told = json.loads((tmp_path / "told").read_text())
    assert told == {"event": "failure", "title": NOTE.title, "text": NOTE.text, "night": "a"}


def test_only_receivers_of_the_event_are_told(receivers, webhook):
    url = f"json://127.0.0.1:{webhook.server_port}"
    receivers({"url": f"{url}/all"}, {"url": f"{url}/verdicts", "events": ["verdict"]})
    assert len(list(send(NOTE))) == 1 and [path for path, _ in webhook.posts] == ["/all"]


def test_what_fails_says_why_hides_secrets_and_hinders_no_other_receiver(receivers, webhook):
    logged, webhook.answer = [], 500
    url = f"http://127.0.0.1:{webhook.server_port}/hook/secret-token"
    receivers(
        {"url": url},
        {"url": "env:NOT_SET"},
        {"url": "no-such-service://user:secret-token@host"},
        {"command": [sys.executable, "-c", "import sys; sys.exit('no paper')"]},
        {"command": ["/no/such/program"]},
        {"command": [sys.executable, "-c", "pass"]},
    )
    (log := logging.Handler()).emit = logged.append
    logging.getLogger().addHandler(log)  # as a night's log is; pytest's own reads loggers that pass nothing on
    deliveries = list(send(NOTE))
    logging.getLogger().removeHandler(log)
    errors = [error for _, error in deliveries]
    assert "500" in errors[0] and "NOT_SET" in errors[1] and "Apprise" in errors[2]
    assert errors[3] == "exit code 1: no paper" and "No such file" in errors[4] and errors[5] is None
    assert "secret-token" not in str(deliveries)
    assert not any("secret-token" in record.getMessage() for record in logged)


def test_a_command_that_does_not_end_is_killed(receivers, monkeypatch):
    monkeypatch.setattr("ratchet.components.operations.notifications.COMMAND_SECONDS", 0.2)
    receivers({"command": [sys.executable, "-c", "import time; time.sleep(60)", "secret-token"]})
    error = next(send(NOTE))[1]
    assert "it took longer than" in error and "secret-token" not in error


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({}, "give a url or a command"),
        ({"url": "json://x", "command": ["y"]}, "give a url or a command"),
        ({"url": "json://x", "events": ["verdicts"]}, "verdict"),
        ({"urls": "json://x"}, "unknown key"),
        ({"url": "json://x", "events": []}, "events"),
    ],
)
def test_wrong_receivers_are_an_error_of_one_line(receivers, entry, wanted):
    receivers(entry)
    with pytest.raises(ConfigurationError, match=wanted) as error:
        load_receivers()
    assert "notify.yaml" in str(error.value) and "\n" not in str(error.value) and "json://x" not in str(error.value)


def test_a_home_without_the_file_tells_nobody(receivers):
    assert load_receivers() == () and list(send(NOTE)) == []


def test_notify_test_says_who_was_told(receivers, webhook, capsys):
    assert cli.run(["notify", "test"]) == 2 and "nobody is told" in capsys.readouterr().err
    receivers({"url": f"json://127.0.0.1:{webhook.server_port}", "events": ["person"]})
    assert cli.run(["notify", "test", "--event", "person"]) == 0
    assert capsys.readouterr().out == "json URL: sent\n" and len(webhook.posts) == 1
    webhook.answer = 404
    assert cli.run(["notify", "test", "--event", "person"]) == 4
    assert "not sent" in capsys.readouterr().out
    assert cli.run(["notify", "test", "--event", "x"]) == 2
