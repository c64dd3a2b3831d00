"""The night's frame on a real Prefect server: what a person sees, how it ends, and that nothing is left running."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from patience import LIMIT, gone, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("prefect")]

NIGHT = """
import sys, time
from pathlib import Path
import flows.run, ratchet.night
from components.protocol import DataError
from ratchet import cli
from tasks.server import PrefectServer

how, marker = [*sys.argv[1:], ""][:2]
ready = PrefectServer.ready

def with_a_body(self, **options):
    import flows.nightly
    from prefect import task
    from tasks.display import display

    @task
    def step(number):
        with display().step(f"step {number}"):
            if how == "data error" and number == 1:
                raise DataError("shard 3 is cut short; restore it")
            if how == "bug" and number == 1:
                raise ZeroDivisionError("no such luck")
            if how == "long" and number == 1:
                Path(marker).touch()
                time.sleep(600)
        return number

    def body(tonight):
        return {"steps": [run.result() for run in [step.submit(number) for number in range(3)]]}

    flows.nightly.play = body
    return ready(self, **options)

PrefectServer.ready = with_a_body
ratchet.night.show_decision = lambda decision: None
sys.argv = ["ratchet", "night", "--json"]
cli.main()
"""


def night(environment, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", NIGHT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def test_the_last_line_is_the_record_and_an_error_is_one_line_with_its_exit_code(prefect):
    good = night(prefect, "well")
    out, err = good.communicate(timeout=5 * LIMIT)
    assert good.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == {"steps": [0, 1, 2]}
    assert "Traceback" not in err and "step 2" in err

    bad = night(prefect, "data error")
    out, err = bad.communicate(timeout=5 * LIMIT)
    assert bad.returncode == 3 and "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("error")] == [
        "error: shard 3 is cut short; restore it"
    ]

    broken = night(prefect, "bug")
    out, err = broken.communicate(timeout=5 * LIMIT)
    assert broken.returncode == 1 and "Traceback" not in err
    assert "goes on" not in err, "no step was finished"
    assert err.splitlines()[-1].startswith("error: ZeroDivisionError: no such luck; the traceback is in ")


def test_ctrl_c_ends_a_night_at_once_and_leaves_nothing_running(prefect, tmp_path):
    environment = prefect | {"RATCHET_HOME": str(tmp_path / "home")}  # where it starts a server itself
    running = night(environment, "long", str(tmp_path / "it runs"))
    until(lambda: (tmp_path / "it runs").exists() or running.poll() is not None, 5 * LIMIT)
    tree = psutil.Process(running.pid).children(recursive=True)
    assert tree, "the server is a child"
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=2 * LIMIT)  # the step would have taken longer
    assert running.returncode == 130
    assert err.splitlines()[-1].startswith("error: interrupted;") and "Traceback" not in err
    until(lambda: all(gone(process.pid) for process in tree))
