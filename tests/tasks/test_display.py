import io
import logging
import time

import pytest
from patience import until

from ratchet.components.reporting import progress_display
from ratchet.components.reporting.progress_display import ProgressDisplay, ProgressStep


@pytest.fixture
def clock(monkeypatch):
    now = {"seconds": 100.0}
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now["seconds"])
    return now


@pytest.fixture
def step(clock):
    return ProgressStep(ProgressDisplay(quiet=True), "collect")


def test_progress_has_done_total_rate_and_the_time_left(step, clock):
    step.update(200, 5600, "62.1 % succeed")
    clock["seconds"] = 220.0
    step.update(1400)
    assert step.progress(now=220.0) == "collect: 1,400/5,600, 10.0/s, 7:00 left; 62.1 % succeed"


def test_the_rate_of_a_resumed_step_leaves_out_what_was_done_before(step, clock):
    step.update(5000, 5600)
    clock["seconds"] = 160.0
    step.update(5006)
    assert step.progress(now=160.0) == "collect: 5,006/5,600, 6.0/min, 1:39:00 left"


def test_the_time_left_falls_while_nothing_is_reported(step, clock):
    step.update(20, 100)
    clock["seconds"] = 120.0
    step.update(40)
    for clock["seconds"], left in ((125.0, "0:55"), (150.0, "0:30"), (300.0, "0:00")):
        step.update(40)
        assert step.progress(now=clock["seconds"]) == f"collect: 40/100, 1.0/s, {left} left"


def test_a_step_that_goes_back_to_a_checkpoint_is_measured_from_there(step, clock):
    step.update(90, 100)
    step.update(60)
    clock["seconds"] = 110.0
    step.update(70)
    assert step.progress(now=110.0) == "collect: 70/100, 1.0/s, 0:30 left"


@pytest.mark.parametrize(
    ("done", "total", "told"),
    [
        (None, None, "0:30 so far"),
        (0, 0, "0"),
        (0, 10, "0/10"),
        (7, None, "7"),
        (12, 10, "12/10"),
    ],
)
def test_progress_says_only_what_is_known(step, done, total, told):
    step.update(done, total)
    assert step.progress(now=130.0) == f"collect: {told}"


def test_a_long_step_is_reported_again_and_again_where_there_is_no_terminal(monkeypatch, capsys, caplog):
    monkeypatch.setattr(progress_display, "REPORT_SECONDS", 0.01)
    with (
        caplog.at_level(logging.INFO, "ratchet"),
        ProgressDisplay() as display,
        display.step("train challenger") as step,
    ):
        step.update(20, 600, "loss 1.234")
        until(lambda: sum("20/600" in line for line in caplog.messages) >= 2)
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == "… train challenger" and printed[-1].startswith("✓ train challenger")
    assert sum("… train challenger: 20/600; loss 1.234" in line for line in printed) >= 2


def test_a_terminal_has_bars_and_the_log_has_the_lines(monkeypatch, caplog):
    monkeypatch.setattr(progress_display, "REPORT_SECONDS", 0.01)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with caplog.at_level(logging.INFO, "ratchet"), ProgressDisplay() as display, display.step("build") as step:
        step.update(remark="score")
        until(lambda: any("so far; score" in line for line in caplog.messages))
    assert "so far" not in terminal.getvalue()


def test_no_progress_line_follows_the_closing_line(monkeypatch, caplog):
    monkeypatch.setattr(progress_display, "REPORT_SECONDS", 0.0)
    logged = logging.getLogger("ratchet")
    slow = logging.Handler()
    slow.emit = lambda record: time.sleep(0.02)  # a reporter is met in the middle of its line
    logged.addHandler(slow)
    try:
        with caplog.at_level(logging.INFO, "ratchet"), ProgressDisplay() as display, display.step("build"):
            until(lambda: len(caplog.messages) >= 3)
        time.sleep(0.05)
    finally:
        logged.removeHandler(slow)
    assert caplog.messages[-1].startswith("✓ build")


def test_a_display_that_was_never_opened_prints_nothing_and_logs_its_lines(capsys, caplog):
    with caplog.at_level(logging.INFO, "ratchet"):
        progress_display.current_display().say("declared: 150 tasks")
    assert capsys.readouterr().err == "" and caplog.messages == ["declared: 150 tasks"]
