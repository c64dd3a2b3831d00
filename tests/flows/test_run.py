"""The night's frame on a real Prefect server: what a person sees, how it ends, and that nothing is left running."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from patience import LIMIT, gone, until
from prefect_client import ask

from ratchet import cli
from ratchet.components.core.home import home_tag

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("prefect")]

FRAME = """
import contextlib, json, os, sys, time
from pathlib import Path
import ratchet.flows.run_night, ratchet.commands.night, ratchet.render.comparison
from ratchet.components.core import DataError
from ratchet.components.tracking import mlflow_client
from ratchet import cli
from ratchet.flows.home_servers import PrefectServer

how, marker = "", ""
ready = PrefectServer.ready

class NoRun:  # MLflow has tests of its own, and to import it takes as long as Prefect
    def __getattr__(self, name):
        return lambda *args, **options: self

def with_a_body(self, **options):
    import ratchet.flows.nightly
    from prefect import task
    from ratchet.components.reporting.progress_display import current_display

    @task
    def step(number):
        with current_display().step(f"step {number}"):
            if how == "data error" and number == 1:
                raise DataError("shard 3 is cut short; restore it")
            if how == "bug" and number == 1:
                raise ZeroDivisionError("no such luck")
            if how == "long" and number == 1:
                Path(marker).touch()
                time.sleep(600)
        return number

    def body(tonight):
        steps = [run.result() for run in [step.submit(number) for number in range(3)]]
        return {"verdict": "keep", "why": "no lead is shown", "steps": steps}

    ratchet.flows.nightly.run_steps = body
    ratchet.flows.nightly.night_run = lambda *args, **options: contextlib.nullcontext(NoRun())
    return ready(self, **options)

PrefectServer.ready = with_a_body
mlflow_client.preload_mlflow = lambda: None
ratchet.render.comparison.show_decision = lambda decision: None
"""
NIGHT = (
    FRAME
    + """
how, marker = "long", sys.argv[1]
sys.argv = ["ratchet", "night", "--json"]
cli.main()
"""
)
NIGHTS = (
    FRAME
    + """
CREDENTIALS = ("PREFECT_API_AUTH_STRING", "PREFECT_API_KEY")
for how in ("well", "data error", "bug", "none", "wrong login", "wrong key"):
    if how in ("none", "wrong login", "wrong key"):
        for name in CREDENTIALS:
            os.environ.pop(name, None)
    if how.startswith("wrong"):
        os.environ[CREDENTIALS[how == "wrong key"]] = "ratchet:wrong"
    code = cli.run(["night", "--json"])
    for stream in (sys.stdout, sys.stderr):
        print(f"END {how}: {code}", file=stream, flush=True)
"""
)


@pytest.fixture(scope="module")
def other_home(prefect, tmp_path_factory):
    """The environment of another home, which shares the server: the environment names it, with its credential."""
    return prefect.other_home(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def nights(other_home):
    """What nights of one home print that end in different ways: by way exit code, lines of stdout and lines of stderr."""
    done = subprocess.run([sys.executable, "-c", NIGHTS], env=other_home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for stream in (done.stdout, done.stderr):
        lines = []
        for line in stream.splitlines():
            if line.startswith("END "):
                how, _, code = line.removeprefix("END ").partition(": ")
                found.setdefault(how, [int(code)]).append(lines)
                lines = []
            else:
                lines.append(line)
    return found


def errors(lines):
    return [line for line in lines if line.startswith("error")]


@pytest.mark.parametrize("credential", ["none", "wrong login", "wrong key"])
def test_a_server_with_authentication_is_asked_with_the_credential_of_the_environment(nights, credential):
    assert nights["well"][0] == 0
    code, _, err = nights[credential]
    assert code == 2 and errors(err) == [err[-1]]
    assert "refuses the credentials (HTTP 401); check PREFECT_API_AUTH_STRING or PREFECT_API_KEY" in err[-1]
    assert "Traceback" not in "\n".join(err) and "wrong" not in "\n".join(err)


def test_the_last_line_is_the_record_and_an_error_is_one_line_with_its_exit_code(nights):
    code, out, err = nights["well"]
    assert code == 0 and json.loads(out[-1])["steps"] == [0, 1, 2]
    assert "Traceback" not in "\n".join(err) and "… step 2" in err

    code, _, err = nights["data error"]
    assert code == 3 and "Traceback" not in "\n".join(err)
    assert errors(err) == ["error: shard 3 is cut short; restore it"]

    code, _, err = nights["bug"]
    assert code == 1 and "Traceback" not in "\n".join(err)
    assert "goes on" not in "\n".join(err), "no step was finished"
    assert err[-1].startswith("error: ZeroDivisionError: no such luck; the traceback is in ")


LOGS = """
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
answer = {}
for run in client.read_flow_runs():
    logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])), limit=200)
    answer[run.name] = [log.message for log in logs]
"""


def test_a_flow_run_is_named_by_its_night_and_a_pipe_and_prefect_show_its_steps(prefect, nights):
    _, _, err = nights["well"]
    began = next(line.split()[1] for line in err if line.startswith("night ") and " starts" in line)
    assert "… step 2" in err
    logged = prefect.run(LOGS)[f"night-{began}"]
    assert "… step 2" in logged and any(line.startswith("✓ step 2 ") for line in logged), "Prefect's Logs tab"


RUNS = """
answer = [[run.name, run.state.type.value, run.state.message, run.tags] for run in client.read_flow_runs(limit=200)]
"""


def test_the_page_of_a_run_says_the_verdict_or_why_the_night_failed_and_how_to_go_on(prefect, nights):
    runs = prefect.run(RUNS)  # a night that goes on after a failure has several runs of one name
    ends = {(state, message) for _, state, message, _ in runs}
    assert ("COMPLETED", "Kept the champion: no lead is shown") in ends
    why = "shard 3 is cut short; restore it; finished work is kept, and the same command continues from there"
    assert ("FAILED", why) in ends
    began = next(line.split()[1] for line in nights["well"][2] if line.startswith("night "))
    tags = [set(tags) for name, state, _, tags in runs if name == f"night-{began}" and state == "COMPLETED"]
    assert tags and all({"scale:smoke", "recipe:sft", "verdict:keep"} < each for each in tags)


def long_night(environment, marker):
    """Start a night, and return its process once a step runs that does not end."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    running = subprocess.Popen([sys.executable, "-c", NIGHT, str(marker)], env=environment, **streams)
    until(lambda: marker.exists() or running.poll() is not None, 5 * LIMIT)
    assert marker.exists(), running.communicate()[1]
    return running


def reaped(environment, monkeypatch, capsys):
    """What `ratchet reap` prints in a home."""
    for name in ("RATCHET_HOME", "PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.setenv(name, environment[name]) if name in environment else monkeypatch.delenv(name, raising=False)
    assert cli.run(["reap"]) == 0
    return capsys.readouterr().out


def test_a_home_closes_the_stale_runs_that_it_began_and_no_other_homes(
    prefect, other_home, tmp_path, monkeypatch, capsys
):
    running = long_night(other_home, tmp_path / "it runs")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    monkeypatch.setenv("RATCHET_HOME", str(prefect.home))
    foreign = "home:0123456789abcdef"
    flow = ask(prefect.address, "/flows/", {"name": "nightly"})["id"]
    for tag in (home_tag(), foreign):
        ask(prefect.address, "/flow_runs/", {"flow_id": flow, "state": {"type": "RUNNING"}, "tags": [tag]})
    before = running_runs(prefect)
    assert len(before) == 3

    assert "1 stale Prefect runs closed" in reaped(other_home, monkeypatch, capsys)
    assert len(running_runs(prefect)) == 2
    assert "1 stale Prefect runs closed" in reaped(prefect.environment, monkeypatch, capsys)
    assert "0 stale Prefect runs closed" in reaped(prefect.environment, monkeypatch, capsys)
    (left,) = running_runs(prefect)
    assert left["tags"] == [foreign]


def running_runs(prefect):
    """Runs of nights that the server believes to be running."""
    states = {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}}
    return ask(prefect.address, "/flow_runs/filter", states | {"flows": {"name": {"any_": ["nightly"]}}})


def test_ctrl_c_ends_a_night_at_once_and_leaves_nothing_running(prefect, tmp_path):
    running = long_night(prefect.copy_database(tmp_path / "home"), tmp_path / "it runs")  # it starts a server itself
    tree = psutil.Process(running.pid).children(recursive=True)
    assert tree, "the server is a child"
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=2 * LIMIT)  # the step would have taken longer
    assert running.returncode == 130
    assert err.splitlines()[-1].startswith("error: interrupted;") and "Traceback" not in err
    until(lambda: all(gone(process.pid) for process in tree))
