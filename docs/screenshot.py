"""Opens the comparison of two agents in the MLflow UI, in headless Chromium, and saves what it shows as a PNG.

    python docs/screenshot.py --experiment repair [--night NIGHT] [--out docs/images/mlflow-compare.png]

Needs Debian's `chromium` and `chromium-driver`. Starts its own MLflow server over the local database, on loopback, and
stops it. Exits 1 where the page never shows both runs: a screenshot of an error page is not a screenshot.
"""

import argparse
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from components.tracking.place import client, server_command, server_environment

SWITCHES = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1500,1500"),
]


class Browser:
    """The few commands of the WebDriver protocol (W3C) that a screenshot needs."""

    def __init__(self, driver: str, profile: Path) -> None:
        options = {"args": [*SWITCHES, f"--user-data-dir={profile}"]}
        self._http = httpx.Client(base_url=driver, timeout=120)
        answer = self._send("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        self._session = f"/session/{answer['sessionId']}"

    def open(self, url: str) -> None:
        """Go to a page."""
        self._send("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a JavaScript function body in the page."""
        return self._send("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self) -> str:
        """All visible text of the page."""
        return str(self.run("return document.body.innerText"))

    def png(self) -> bytes:
        """The window as a PNG."""
        return base64.b64decode(self._send("GET", f"{self._session}/screenshot"))

    def close(self) -> None:
        """End the browser."""
        self._send("DELETE", self._session)
        self._http.close()

    def _send(self, method: str, path: str, body: object = None) -> Any:
        response = self._http.request(method, path, json=body)
        value = response.json()["value"]
        if response.is_error:
            raise SystemExit(f"chromedriver: {value['error']}: {value['message'].splitlines()[0]}")
        return value


def free_port() -> int:
    """A port on loopback that nobody holds now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: list[str], healthy: str, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run a server until the block ends; the block starts when `healthy` answers 200."""
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **(environment or {})}, start_new_session=True
        )
        try:
            if not wait(lambda: answers(healthy), 120):
                log.seek(0)
                raise SystemExit(f"{command[0]} did not start: {log.read().decode(errors='replace')[-500:]}")
            yield
        finally:
            os.killpg(server.pid, 15)
            server.wait(20)


def answers(url: str) -> bool:
    """Does a GET of `url` answer 200?"""
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def wait(ready: Callable[[], bool], seconds: float) -> bool:
    """Poll until `ready`, at most so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ready():
            return True
        time.sleep(0.5)
    return False


def agents(experiment: str, night: str | None) -> tuple[str, list[str]]:
    """The experiment's id and the runs of champion and challenger of a night, the newest by default."""
    found = client().get_experiment_by_name(experiment)
    if found is None:
        raise SystemExit(f"no experiment '{experiment}' in MLflow; run a night first")
    runs = client().search_runs(
        [found.experiment_id], "tags.`ratchet.kind` = 'agent'", order_by=["attributes.start_time DESC"]
    )
    newest: dict[str, str] = {}
    for run in runs:
        of_night, _, label = run.data.tags["ratchet.run"].partition("/")
        if night in (None, of_night) and label in ("champion", "challenger"):
            night = of_night
            newest.setdefault(label, run.info.run_id)
    if len(newest) < 2:
        raise SystemExit(f"experiment '{experiment}' holds no champion and challenger of one night")
    return found.experiment_id, [newest["champion"], newest["challenger"]]


def shows_comparison(page: str) -> bool:
    """Does the page's text show both runs side by side with their success?"""
    return "Comparing 2 Runs" in page and all(word in page for word in ("champion", "challenger", "eval/success"))


def capture(browser: Browser, url: str, out: Path) -> None:
    """Open the page, wait until it shows both runs, scroll to the metrics, save."""
    browser.open(url)
    if not wait(lambda: shows_comparison(browser.text()), 90):
        out.with_suffix(".failed.png").write_bytes(browser.png())
        raise SystemExit(f"{url} never showed the comparison; see {out.with_suffix('.failed.png')}")
    time.sleep(2)  # the plot above the table draws itself
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(browser.png())


def main() -> None:
    """Start MLflow and Chromium, take the picture, stop both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="repair")
    parser.add_argument("--night")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images" / "mlflow-compare.png")
    arguments = parser.parse_args()
    driver = shutil.which("chromedriver")
    if driver is None:
        raise SystemExit("chromedriver is absent; install Debian's chromium and chromium-driver")
    experiment, runs = agents(arguments.experiment, arguments.night)
    ui, control = free_port(), free_port()
    query = f"runs={json.dumps(runs, separators=(',', ':'))}&experiments={json.dumps([experiment])}"
    server = process(server_command(ui), f"http://127.0.0.1:{ui}/health", server_environment())
    chrome = process([driver, f"--port={control}"], f"http://127.0.0.1:{control}/status")
    with server, chrome, tempfile.TemporaryDirectory() as profile:
        browser = Browser(f"http://127.0.0.1:{control}", Path(profile))
        try:
            capture(browser, f"http://127.0.0.1:{ui}/#/compare-runs?{query}", arguments.out)
        finally:
            browser.close()
    print(f"saved {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
