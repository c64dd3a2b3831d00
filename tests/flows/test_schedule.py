import signal
import subprocess
import sys

import pytest
from patience import LIMIT, until

from components.protocol import ConfigurationError
from flows.schedule import check_times, serve

FLOW = """
from pathlib import Path
from prefect import flow

@flow
def tick(marker: str):
    with Path(marker).open("a") as file:
        file.write("tick\\n")
"""
SERVE = """
import sys
sys.path.insert(0, {folder!r})
from tasks.server import PrefectServer
server = PrefectServer().start()
try:
    server.ready()
    print(server.url, flush=True)
    from prefect.schedules import Interval
    from flows.schedule import serve_flow
    from tiny import tick
    serve_flow(tick, Interval(2), {{"marker": {marker!r}}})
finally:
    server.stop()
"""
ACTIVE = """
import httpx, sys
from tasks.home import home_tag
from tasks.server import PrefectServer
from tasks.servers import authorization
server = PrefectServer().start()
found = httpx.post(server.ready() + "/deployments/filter", json={}, headers=authorization("prefect"), timeout=60).json()
for each in found:
    assert each["tags"] == [home_tag()], each["tags"]
    limits = each["global_concurrency_limit"]["limit"], each["concurrency_options"]["collision_strategy"]
    print(each["name"], each["paused"], [schedule["active"] for schedule in each["schedules"]], *limits)
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
        check_times(cron, timezone)


def test_cron_times_in_a_zone_are_accepted():
    check_times("30 2 * * 1-5", "Europe/Berlin")


def test_a_recipe_that_there_is_none_of_is_said_before_anything_is_started():
    with pytest.raises(ConfigurationError, match="no-such-recipe"):
        serve("0 1 * * *", "UTC", "smoke", 1, recipe="no-such-recipe", say=pytest.fail)


@pytest.mark.slow
@pytest.mark.xdist_group("prefect")
def test_a_scheduled_run_happens_and_the_schedule_outlives_the_process_that_serves_it(prefect, tmp_path):
    (tmp_path / "tiny.py").write_text(FLOW)
    marker = tmp_path / "marker"
    script = SERVE.format(folder=str(tmp_path), marker=str(marker))
    with (tmp_path / "said").open("wb") as said:
        serving = subprocess.Popen([sys.executable, "-c", script], stdout=said, stderr=said, env=prefect)
        until(lambda: (marker.exists() and marker.read_text()) or serving.poll() is not None, 5 * LIMIT)
        serving.send_signal(signal.SIGINT)
        serving.wait(LIMIT)
    assert marker.exists() and marker.read_text().startswith("tick\n"), (tmp_path / "said").read_text()
    assert "Traceback" not in (tmp_path / "said").read_text()
    done = subprocess.run([sys.executable, "-c", ACTIVE], capture_output=True, text=True, env=prefect, check=True)
    assert done.stdout.strip() == "nightly False [True] 1 CANCEL_NEW", done.stderr
