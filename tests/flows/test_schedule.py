import contextlib
import json
import signal
import subprocess
import sys

import httpx
import psutil
import pytest
from patience import LIMIT, gone, until
from prefect_client import ask

from ratchet.components.core import ConfigurationError
from ratchet.flows import night_schedule
from ratchet.flows.night_schedule import MAX_RESTARTS, check_schedule, serve_nights

FLOW = """
import os, time
from pathlib import Path
from prefect import flow, task
from ratchet.flows.scheduled_run import end_with_scheduler

@task
def step(number, folder):
    while number and not (folder / "go on").exists():
        time.sleep(0.05)
    with (folder / "steps").open("a") as file:
        file.write(f"{number}\\n")

@flow
def tick(folder: str):
    end_with_scheduler()
    folder = Path(folder)
    (folder / "pid").write_text(str(os.getpid()))
    for number in range(3):
        step(number, folder)
    with (folder / "ends").open("a") as file:
        file.write("end\\n")
"""
SERVE = """
import json, os, sys, threading
sys.path.insert(0, {folder!r})
import ratchet.flows.night_schedule
from ratchet.flows.night_schedule import serve_flow
from ratchet.flows.home_servers import PrefectServer
ratchet.flows.night_schedule.CRASH_CHECK_SECONDS = 0.5
if __name__ == "__main__":
    server = PrefectServer().start()
    try:
        server.ready()
        own = {{"server": server._process.pid if server.ours else 0}}
        address = {{name: os.environ[name] for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")}}
        print(json.dumps(own | address), flush=True)
        from prefect.schedules import Interval
        from tiny import tick
        options = {{"stopping": threading.Event(), "say": lambda line: print(line, flush=True)}}
        serve_flow(tick, Interval(3600), {{"folder": {folder!r}}}, **options)
    finally:
        server.stop()
"""


@pytest.mark.parametrize(
    ("cron", "timezone", "said"),
    [
        ("61 * * * *", "UTC", "is not a cron time"),
        ("at dawn", "UTC", "is not a cron time"),
        ("0 1 * * *", "X/Y", "time zone"),
    ],
)
def test_a_time_that_cannot_be_read_is_said_before_anything_is_started(cron, timezone, said):
    with pytest.raises(ConfigurationError, match=said):
        check_schedule(cron, timezone)


def test_cron_times_in_a_zone_are_accepted():
    check_schedule("30 2 * * 1-5", "Europe/Berlin")


def test_a_recipe_that_there_is_none_of_is_said_before_anything_is_started():
    with pytest.raises(ConfigurationError, match="no-such-recipe"):
        serve_nights("0 1 * * *", "UTC", "smoke", 1, recipe="no-such-recipe", say=pytest.fail)


def test_nights_are_not_served_twice(monkeypatch):
    monkeypatch.setattr(night_schedule, "is_up", lambda: True)
    with pytest.raises(ConfigurationError, match="`ratchet up`"):
        serve_nights("0 1 * * *", "UTC", "smoke", 1, say=pytest.fail)


def serving(folder, environment):
    """A process that serves the flow of FLOW, and the address of its server once it is ready; its output goes to `said`."""
    (folder / "tiny.py").write_text(FLOW)
    script = folder / "serve.py"
    script.write_text(SERVE.format(folder=str(folder)))
    environment = environment | {"PREFECT_RUNNER_POLL_FREQUENCY": "1"}  # by default it asks for due runs every 10 s
    with (folder / "said").open("wb") as said:
        served = subprocess.Popen([sys.executable, str(script)], stdout=said, stderr=said, env=environment)
    until(lambda: "{" in (folder / "said").read_text() or served.poll() is not None, 5 * LIMIT)
    return served, json.loads((folder / "said").read_text().splitlines()[0])


def start_run(address, folder):
    """Run the flow once; the id of the run."""

    def deployments():
        found = ask(address, "/deployments/filter", {})
        return [each["id"] for each in found if each["parameters"].get("folder") == str(folder)]

    until(deployments, 5 * LIMIT)
    return ask(address, f"/deployments/{deployments()[0]}/create_flow_run", {})["id"]


def state_of(address, run):
    (found,) = ask(address, "/flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
    return found["state_type"]


def answers(url):
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code < 500
    return False


@pytest.mark.slow
@pytest.mark.xdist_group("prefect")
def test_a_run_outlives_the_death_of_its_server_which_is_started_again(prefect, tmp_path):
    served, first = serving(tmp_path, prefect.copy_database(tmp_path / "home"))
    try:
        run = start_run(first, tmp_path)
        until(lambda: (tmp_path / "steps").exists(), 5 * LIMIT)
        for process in [*psutil.Process(first["server"]).children(recursive=True), psutil.Process(first["server"])]:
            with contextlib.suppress(psutil.NoSuchProcess):  # the guard ends by itself once its server is gone
                process.kill()
        assert not (tmp_path / "ends").exists()
        (tmp_path / "go on").touch()
        until(lambda: (tmp_path / "ends").exists(), 5 * LIMIT)
        assert (tmp_path / "steps").read_text().split() == ["0", "1", "2"]
        until(lambda: answers(first["PREFECT_API_URL"]), 5 * LIMIT)
        until(lambda: state_of(first, run) == "COMPLETED", 5 * LIMIT)
    finally:
        served.send_signal(signal.SIGINT)
        served.wait(LIMIT)


@pytest.mark.slow
@pytest.mark.xdist_group("prefect")
def test_a_run_ends_with_a_scheduler_that_was_killed_and_the_next_one_starts_it_again_at_once(prefect, tmp_path):
    environment = prefect.other_home(tmp_path / "home")
    served, address = serving(tmp_path, environment)
    crashed = start_run(address, tmp_path)
    until(lambda: (tmp_path / "steps").exists(), 5 * LIMIT)
    process = int((tmp_path / "pid").read_text())
    served.kill()
    served.wait()
    until(lambda: gone(process))
    (tmp_path / "pid").unlink()
    served, _ = serving(tmp_path, environment)
    try:
        state = {"type": "CRASHED", "name": "Crashed"}  # what `ratchet schedule` does where no night runs
        ask(address, f"/flow_runs/{crashed}/set_state", {"state": state, "force": True})
        until(lambda: (tmp_path / "pid").exists(), 5 * LIMIT)
        assert f"it is restarted (1 of {MAX_RESTARTS})" in (tmp_path / "said").read_text()
    finally:
        served.send_signal(signal.SIGTERM)
        served.wait(LIMIT)
    process = int((tmp_path / "pid").read_text())
    assert served.returncode == 0 and "stopped" in (tmp_path / "said").read_text()
    until(lambda: gone(process))


BOUNDED = """
from prefect import flow
from prefect.states import Crashed, Completed
from ratchet.flows.night_schedule import restart_if_crashed
client_flow = flow(lambda: None, name="bounded")
found = client.create_deployment(client.create_flow(client_flow), name="nightly", parameters={"scale": "smoke"})
newest = client.create_flow_run_from_deployment(found).id
answer = [restart_if_crashed(client, "bounded/nightly")]
for _ in range(6):
    client.set_flow_run_state(newest, Crashed(), force=True)
    answer.append(restart_if_crashed(client, "bounded/nightly"))
    answer.append(restart_if_crashed(client, "bounded/nightly"))
    runs = client.read_flow_runs(sort="EXPECTED_START_TIME_DESC")
    newest = next(run.id for run in runs if run.deployment_id == found)  # other deployments have runs to come
answer = [None if line is None else line.partition("crashed; ")[2] for line in answer]
"""


@pytest.mark.slow
@pytest.mark.xdist_group("prefect")
def test_a_run_that_crashes_again_and_again_is_started_again_a_bounded_number_of_times(prefect):
    again = [f"it is restarted ({number} of {MAX_RESTARTS})" for number in range(1, MAX_RESTARTS + 1)]
    expected = [None] + [each for line in again for each in (line, None)]
    said = prefect.run(BOUNDED)
    assert said[: len(expected)] == expected and set(said[len(expected) :]) <= {None}
