"""Opens MLflow's pages of a night, and a group of the inspector, in headless Chromium and saves what they show as PNGs.

    python docs/screenshot.py [--experiment repair] [--night NIGHT] [--out docs/images] [--only trace …]

The start page, the leaderboard of agents, champion and challenger side by side, the nights, the lost tasks, the trace of a
task that was won or lost, and the registry with its aliases. `inspector-group` is the first group of the night in which attempts
ended differently. Needs Debian's `chromium` and the built inspector. Starts its own servers over the local home, on loopback, and
stops them. Exits 1 where a page never shows what it is there for: a screenshot of an error page
is not a screenshot.
"""

import argparse
import io
import json
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.components.core.home import BASIC_AUTH_USER, credential
from ratchet.components.core.processes import free_port
from ratchet.components.tracking.agent_rows import LEADERBOARD_VIEW, LOST_VIEW, NIGHTS_VIEW, agents_experiment
from ratchet.components.tracking.mlflow_client import client
from ratchet.components.tracking.model_registry import AGENT
from ratchet.flows.home_servers import MlflowServer

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

WIDTH, HEIGHT = 1400, 1000
SECONDS = 300.0
"""That a page has to show what it is there for; the first one waits for the server's own imports."""
LOOPBACK = "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
QUIET = """
localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');
localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');
"""
"""MLflow opens a panel over every first page; here it is no first page."""
COLOURS = 256
GROUP = "inspector-group"
TIDY = """
for (const each of document.querySelectorAll('*')) {
    if (each.childElementCount === 0 && each.textContent.includes('file:///')) each.style.visibility = 'hidden';
    const hides = getComputedStyle(each).overflowY !== 'visible' && each.scrollHeight > each.clientHeight + 4;
    if (hides && each.clientHeight > 100 && each.clientHeight < 500)
        Object.assign(each.style, {height: 'auto', maxHeight: 'none', overflow: 'visible'});
}
"""
"""Where the files of this machine lie is nobody's business, and what is only seen by scrolling is seen in no picture."""


class Page(NamedTuple):
    """A page of MLflow: what its picture is called, where it is, all that it must show (the last of it is scrolled to), the
    window's size in pixels, and the element (a CSS selector) that it draws last."""

    name: str
    path: str
    shows: tuple[str, ...]
    width: int = WIDTH
    height: int = HEIGHT
    draws: str | None = None


def pages(experiment: str, night: str | None = None) -> list[Page]:
    """The pages of a night, the newest by default. Raises SystemExit where MLflow holds no such night."""
    found = client().get_experiment_by_name(experiment)
    if found is None:
        raise SystemExit(f"no experiment '{experiment}' in MLflow; run a night first")
    place, rows = found.experiment_id, client().get_experiment_by_name(agents_experiment(experiment))
    if rows is None:
        raise SystemExit("the experiment holds no agents: no night was logged to its end")
    agents = _agents(place, night)
    both = {"runs": [_row(rows.experiment_id, agents[name]) for name in ("champion", "challenger")]}
    both |= {"experiments": [rows.experiment_id]}
    query = "&".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in both.items())
    trace = _flipped(place, agents["challenger"])
    training = "workflowType=machine_learning"
    return [
        Page("home", f"/?{training}", ("Recent Experiments", f"{experiment} agents")),
        Page(
            "leaderboard",
            f"/experiments/{rows.experiment_id}/runs?{training}&viewStateShareKey={LEADERBOARD_VIEW}",
            ("Leaderboard", "success", "lead", "eval/audit_success", "cost/tokens", "challenger"),
            width=1800,
            height=700,
        ),
        Page(
            "compare",
            f"/compare-runs?{query}",
            ("Comparing 2 Runs", "night", "result", "eval/success", "eval/audit_success"),
            height=2000,
            draws=".js-plotly-plot .main-svg",
        ),
        Page(
            "nights",
            f"/experiments/{place}/runs?{training}&viewStateShareKey={NIGHTS_VIEW}",
            ("Nights", "verdict", "why"),
            width=1800,
            height=600,
        ),
        Page(
            "lost",
            f"/experiments/{place}/traces?{training}&startTimeLabel=ALL&traceViewShareKey={LOST_VIEW}",
            ("Lost tasks", "lost:"),
            width=1800,
            height=600,
        ),
        Page(
            "trace",
            f"/experiments/{place}/traces?selectedEvaluationId={trace.info.trace_id}",
            (trace.info.tags["ratchet.task"], "turn 0", "outcome"),
        ),
        Page("registry", f"/models/{AGENT}", ("Version 1", "@ champion")),
    ]


def _row(place: str, agent: Any) -> str:
    """The run of an agent in the experiment of agents."""
    own = f"tags.`ratchet.run` = '{agent.data.tags['policy_version']}'"
    return str(client().search_runs([place], own)[0].info.run_id)


def _agents(place: str, night: str | None) -> dict[str, Any]:
    """The newest runs of champion and challenger of one night."""
    runs = client().search_runs([place], "tags.`ratchet.kind` = 'agent'", order_by=["attributes.start_time DESC"])
    found: dict[str, Any] = {}
    for run in runs:
        of_night, agent = run.data.tags.get("ratchet.night"), run.data.tags.get("ratchet.agent")
        if night in (None, of_night) and agent in ("champion", "challenger"):
            night = of_night
            found.setdefault(agent, run)
    if len(found) < 2:
        raise SystemExit("the experiment holds no champion and challenger of one night")
    return found


def _flipped(place: str, challenger: Any) -> Any:
    """The challenger's trace of a task that it won; else of one that it lost; else of one that both played alike."""
    of_run = f"tags.`ratchet.run` = '{challenger.data.tags['ratchet.run']}'"
    for flip in ("won", "lost", "tied"):
        found = client().search_traces(
            locations=[place], filter_string=f"{of_run} AND tags.`ratchet.flip` = '{flip}'", max_results=1
        )
        if found:
            return found[0]
    raise SystemExit("the night has no trace of a flipped task")


@contextmanager
def mlflow() -> Iterator[str]:
    """The address of a server over the local database, for as long as the block lasts."""
    server = MlflowServer(free_port()).start()
    try:
        yield server.ready()
    finally:
        server.stop()


@contextmanager
def chromium() -> Iterator["Tab"]:
    """A tab of the system's Chromium that reaches loopback and nothing else."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("chromium is absent; install Debian's package of that name")
    with sync_playwright() as driver:
        switches = [
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--host-resolver-rules={LOOPBACK}",
        ]
        browser = driver.chromium.launch(executable_path=program, args=switches)
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            locale="en-US",
            timezone_id="UTC",
            http_credentials={"username": BASIC_AUTH_USER, "password": credential("mlflow")},
        )
        context.add_init_script(QUIET)
        context.set_default_timeout(SECONDS * 1000)
        yield context.new_page()
        browser.close()


def take(tab: "Tab", server: str, wanted: Iterable[Page], out: Path) -> list[Path]:
    """Open each page, wait until all that it must show is to be seen, and save it as `mlflow-<name>.png` in the folder.

    Raises SystemExit where something is not shown; the page as it was is `mlflow-<name>.failed.png`.
    """
    from playwright.sync_api import TimeoutError as TooLate

    saved = []
    for page in wanted:
        tab.set_viewport_size({"width": page.width, "height": page.height})
        tab.goto(f"{server}/#{page.path}")
        path = out / f"mlflow-{page.name}.png"
        try:
            for text in page.shows:
                seen = tab.get_by_text(text).locator("visible=true").first
                seen.wait_for()
            seen.scroll_into_view_if_needed()
            if page.draws is not None:
                text = page.draws
                tab.locator(page.draws).first.wait_for()
        except TooLate:
            tab.screenshot(path=path.with_suffix(".failed.png"))
            raise SystemExit(f"{tab.url} never showed '{text}'; see {path.with_suffix('.failed.png')}") from None
        tab.wait_for_timeout(2000)  # plots draw themselves, and drawers slide in
        tab.evaluate(TIDY)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(small(tab.screenshot()))
        saved.append(path)
    return saved


def take_group(tab: "Tab", out: Path) -> Path:
    """Save the first group of which some attempts succeeded as `inspector-group.png`. Raises SystemExit where there is none."""
    from ratchet.components.inspector.app import ASSETS, serve
    from ratchet.components.inspector.served_episodes import ServedEpisodes

    if not (ASSETS / "index.html").is_file():
        raise SystemExit("the inspector's page is not built: make inspector")
    served = ServedEpisodes()
    served.update()
    outcomes: dict[str, set[bool | None]] = {}
    for row in served.find("", "", {}, "", 0, 500).items:
        outcomes.setdefault(row.group_id, set()).add(row.success)
    mixed = next((group for group, ends in outcomes.items() if {True, False} <= ends), None)
    if mixed is None:
        raise SystemExit("no group of the home has both a success and a failure")
    path = out / f"{GROUP}.png"
    with serve(served, free_port()) as (address, run):
        threading.Thread(target=run, daemon=True).start()
        tab.set_viewport_size({"width": 1360, "height": 620})
        tab.goto(address)
        tab.goto(f"{address.partition('?')[0]}#/group/{mixed}?row=1")
        tab.locator(".cell").first.wait_for()
        tab.wait_for_timeout(1000)
        path.write_bytes(small(tab.screenshot()))
    return path


def small(png: bytes) -> bytes:
    """The picture in few colours: a page has not many, and the file is a third."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Start MLflow and Chromium, take the pictures, stop both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="repair")
    parser.add_argument("--night")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    parser.add_argument("--only", nargs="+", help="names of pages")
    given = parser.parse_args(arguments)
    only = set(given.only or ())
    wanted = (
        [page for page in pages(given.experiment, given.night) if not only or page.name in only]
        if only != {GROUP}
        else []
    )
    with chromium() as tab:
        if not only or GROUP in only:
            print(f"saved {take_group(tab, given.out)}", file=sys.stderr)
        if wanted:
            with mlflow() as server:
                for path in take(tab, server, wanted, given.out):
                    print(f"saved {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
