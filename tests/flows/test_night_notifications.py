"""What a night tells people: by hooks of its flow, and never at the cost of the night."""

import inspect
import json
import sys
from itertools import chain

import night_world
import pytest
import yaml

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.errors import BudgetReached
from ratchet.components.nights.night_state import open_night
from ratchet.components.operations.notifications import Notification, notify_file
from ratchet.flows import night_notifications
from ratchet.flows.night_notifications import HOOKS, failure_notification, notify, notify_failure, verdict_notifications

pytestmark = pytest.mark.slow

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (InfrastructureError("the engine does not answer"), "failure"),
        (ZeroDivisionError("a bug"), "failure"),
        (None, "failure"),
        (DataError("the gate closed: 0 rows"), "person"),
        (ConfigurationError("no recipe 'x'"), "person"),
        (BudgetReached("hours"), "budget"),
    ],
)
def test_an_error_is_told_to_those_who_can_do_something_about_it(error, event):
    told = failure_notification("a", error)
    assert told.event == event and told.night == "a"
    assert error is None or str(error) in told.text


def test_secrets_of_an_error_are_not_sent():
    told = failure_notification("a", InfrastructureError("refused: sk-proj-4fT9wQz7LmNp2RsVx8Ya1BcD3eFgHj5K"))
    assert "sk-proj" not in told.text


def test_a_finished_night_tells_its_verdict_and_where_the_report_is(world):
    night, decision = night_world.run()
    (told,) = verdict_notifications(night.id)
    assert told.event == "verdict" and told.title.endswith(": promote")
    assert decision["why"] in told.text and str(night.folder / "report.html") in told.text


def test_judgements_that_no_label_checks_call_for_a_person(world):
    night, _ = night_world.run()
    state = open_night(night.id)
    state.results["judge"]["judgements"] = 7
    state._save()
    _, told = verdict_notifications(night.id)
    assert told.event == "person" and f"`ratchet label data/rollouts/{night.id}`" in told.text
    state.results["seal labels"]["labels"] = 3
    state._save()
    assert len(list(verdict_notifications(night.id))) == 1


def test_a_notification_that_fails_is_a_line_and_no_error(world, caplog):
    notify_file().parent.mkdir(exist_ok=True)
    notify_file().write_text("receivers: [{command: [/no/such/program]}]")
    notify(Notification("verdict", "t", "x"))
    assert "the notification to command program was not sent" in caplog.text
    notify_file().write_text("receivers: 7")
    notify(Notification("verdict", "t", "x"))
    assert "no notification was sent" in caplog.text


def test_what_fails_before_the_flow_begins_is_told_too(world, tmp_path):
    notify_file().parent.mkdir(exist_ok=True)
    entry = {"command": [sys.executable, "-c", APPEND, str(tmp_path / "told")]}
    notify_file().write_text(yaml.safe_dump({"receivers": [entry]}))
    with pytest.raises(InfrastructureError), notify_failure("a"):
        raise InfrastructureError("the Prefect server did not answer")
    assert json.loads((tmp_path / "told").read_text())["text"].startswith("the Prefect server did not answer")


def test_hooks_take_the_names_by_which_prefects_runner_passes_their_arguments():
    for hook in chain.from_iterable(HOOKS.values()):
        inspect.signature(hook).bind(flow=None, flow_run=None, state=None)


def test_a_cancelled_night_is_cleaned_up_and_a_line_says_what_was_removed(world, caplog, monkeypatch):
    monkeypatch.setattr(
        night_notifications, "remove_leftovers", lambda: iter(["1 containers without an owner removed"])
    )
    (hook,) = HOOKS["on_cancellation"]
    hook(flow=None, flow_run=None, state=None)
    assert "1 containers without an owner removed" in caplog.text


FLOW = """
import os
before = os.environ["RATCHET_HOME"]
os.environ["RATCHET_HOME"] = {home!r}
from prefect import flow
from ratchet.components.core import DataError
from ratchet.components.nights import night_state
from ratchet.flows import night_notifications as module
module.verdict_notifications = lambda night: [module.Notification("verdict", "done", "well", night)]

def body(how):
    if how == "data":
        raise DataError("the gate closed")
    if how == "crash":
        raise KeyboardInterrupt

answer = []
for how in ("well", "data", "crash"):
    try:
        flow(name="notified", flow_run_name="night-" + how, **module.HOOKS)(body)(how)
    except BaseException as error:
        answer.append(type(error).__name__)
os.environ["RATCHET_HOME"] = before
"""


@pytest.mark.xdist_group("prefect")
def test_the_hooks_of_a_flow_tell_how_it_ended(prefect, tmp_path):
    home = tmp_path / "other"
    home.mkdir()
    told = tmp_path / "told"
    entry = {"command": [sys.executable, "-c", APPEND, str(told)]}
    (home / "notify.yaml").write_text(yaml.safe_dump({"receivers": [entry]}))
    prefect.run(FLOW.format(home=str(home)))
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    assert [(line["event"], line["night"]) for line in lines] == [
        ("verdict", "well"),
        ("person", "data"),
        ("failure", "crash"),
    ]
    assert "the gate closed" in lines[1]["text"]


def test_the_nightly_flow_has_the_hooks():
    from ratchet.flows.nightly import nightly

    assert nightly.on_failure_hooks == HOOKS["on_failure"] and nightly.on_completion_hooks == HOOKS["on_completion"]
    assert nightly.on_crashed_hooks == HOOKS["on_crashed"]
