"""The names of what runs, in logs and in child processes."""

import json
import logging
import subprocess
import sys
import threading

import pytest

from ratchet.components.core import run_context
from ratchet.components.core.run_context import child_environment, log_formatter, working_on


@pytest.fixture
def as_json(monkeypatch):
    monkeypatch.setenv(run_context.LOG_FORMAT, "json")
    factory = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(factory)


def line(message, **options):
    formatter = log_formatter()
    record = logging.getLogRecordFactory()("ratchet.x", logging.WARNING, "f.py", 1, message, (), None, **options)
    return formatter.format(record)


def test_the_context_is_that_of_the_block():
    with working_on(night="monday", step="build"), working_on(step="evaluate", task="a/1"):
        assert run_context.run_context() == {"night": "monday", "step": "evaluate", "task": "a/1"}
    assert run_context.run_context() == {}


def test_a_child_process_inherits_it_beside_the_users_own_baggage(monkeypatch):
    monkeypatch.setenv("BAGGAGE", "team=a,ratchet.night=an%20old%20one")
    with working_on(night="1, 2", step="collect=attempts %"):
        environment = child_environment()
    assert environment["BAGGAGE"].startswith("team=a,ratchet.night=")
    code = "from ratchet.components.core.run_context import run_context; print(run_context())"
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout == "{'night': '1, 2', 'step': 'collect=attempts %'}\n"


def test_no_variable_is_set_outside_of_a_night():
    assert child_environment() == {}


def test_logs_are_plain_unless_they_are_asked_for_as_json(monkeypatch):
    monkeypatch.delenv(run_context.LOG_FORMAT, raising=False)
    with working_on(night="monday"):
        assert line("the disk is full").endswith(" WARNING ratchet.x: the disk is full")


def test_a_line_of_json_names_night_step_task_and_episode(as_json):
    names = {"night": "monday", "step": "evaluate", "task": "a/1", "episode": "ep-1"}
    with working_on(**names):
        written = line("two\nlines of “text”")
    assert "\n" not in written
    read = json.loads(written)
    assert (
        read.items() >= {**names, "level": "WARNING", "logger": "ratchet.x", "message": "two\nlines of “text”"}.items()
    )
    assert read["time"].endswith("+00:00")


def test_a_thread_without_a_context_writes_lines_without_names(as_json):
    lines = []
    with working_on(night="monday"):
        thread = threading.Thread(target=lambda: lines.append(json.loads(line("from a thread"))))
        thread.start()
        thread.join()
    assert "night" not in lines[0] and lines[0]["message"] == "from a thread"


def test_a_traceback_is_a_field_of_its_line(as_json):
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "it failed", (), sys.exc_info())
    assert "ValueError: no" in json.loads(log_formatter().format(record))["traceback"]
