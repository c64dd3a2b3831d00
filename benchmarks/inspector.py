"""`ratchet inspect` over 100,000 episodes: time to index, first page, search, step to step, and the server's memory.

    python benchmarks/inspector.py [--episodes 100000] [--requests 200] [--keep FOLDER] [--json]

The episodes are made: eight attempts at each task, six steps of 600 characters each, in shards of 500 with a table of scores. The
server is a separate process, and one client sends it its requests over HTTP, one after the other:

- `index`: from the start of the server until every record and score is indexed; the list is asked for meanwhile.
- `first_page`: after a restart with the finished index, the home and the first list.
- `search`: one list of 50 episodes with all facets, for words, phrases, conditions, filters and orders by turns.
- `step`: the next episode, which is its head and its turns; and a group of attempts.
- `page`: the same in Chromium, with the screen painted, where Chromium is installed and the page built. `page_first_paint` and
  `page_list` (the episodes are shown) are the slowest of five new tabs, the first of them after a restart; `page_search` is the
  time from the last letter of words that are typed at ten letters a second; `page_step` is the key `j`, and `page_attempt` the key
  `n`.

`processor`: milliseconds that the server's threads ran on a processor, which other programs on the machine do not change.

Exit code 1 where a search takes more than 300 ms or a step more than 100 ms at p95, the first page more than a second (over HTTP,
or in Chromium), or the server more than 300 MiB at any moment.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
from trajectories_made import WORDS, text

from ratchet.components.core import ConfigurationError, ToolCall, ToolResult, Usage
from ratchet.components.core.processes import free_port
from ratchet.components.environments.browser.chromium_process import find_chromium, require_playwright
from ratchet.components.inspector.app import ASSETS
from ratchet.components.rewards.episode_score import EpisodeScore, LayerScore, StepScore
from ratchet.components.rewards.score_table import ScoreColumnsBuilder, write_score_table
from ratchet.components.trajectories.shards import write_shard
from ratchet.components.trajectories.trajectory import (
    Agent,
    Message,
    Outcome,
    Provenance,
    TaskRef,
    Trajectory,
    Turn,
    episode_id,
    group_id,
)

NIGHT, SHARD, ATTEMPTS, STEPS = "2026-11-01-made", 500, 8, 6
KINDS = ("off_by_one", "wrong_operator", "missing_case", "swapped_arguments", "stale_cache")
LIMITS = {
    **{"first_page_ms": 1_000, "search_p95_ms": 300, "step_p95_ms": 100, "group_p95_ms": 100, "peak_mib": 300},
    **{"page_list_ms": 1_000, "page_search_p95_ms": 300, "page_step_p95_ms": 100},
}
TABS, PAGE_SAMPLES, LETTER_MS = 5, 40, 100
TIMERS = """
const painted = then => requestAnimationFrame(() => setTimeout(() => then(performance.now())));
const watch = (done, then) => new MutationObserver((_, self) => {
    if (done()) { self.disconnect(); painted(then); }
}).observe(document, {childList: true, subtree: true, attributes: true});
const listed = () => document.querySelector('.line') && !document.querySelector('.line.waiting');
const chosen = () => document.querySelector('[aria-current=step]')?.getAttribute('aria-label');
window.listedAt = new Promise(then => watch(listed, then));
const timed = (act, done) => new Promise(then => {
    const begin = performance.now();
    watch(done, end => then(end - begin));
    act();
});
window.search = async (words, interval) => {
    const box = document.querySelector('input[type=search]');
    const type = length => {
        box.value = words.slice(0, length);
        box.dispatchEvent(new InputEvent('input', {bubbles: true}));
    };
    for (let length = 1; length < words.length; length++) {
        type(length);
        await new Promise(then => setTimeout(then, interval));
    }
    return timed(() => type(words.length), () => location.hash.includes(new URLSearchParams({q: words})) && listed());
};
window.press = (key, asks) => {
    const [place, step] = [location.hash.split('?')[0], chosen()];
    return timed(
        () => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})),
        () => asks ? location.hash.split('?')[0] !== place && chosen() : chosen() !== step,
    );
};
"""
"""Times in the page, up to the frame that is painted after a change of the document."""


def made_episodes(count: int) -> Iterator[Trajectory]:
    """Yield episodes of random words; each also contains one word that no other has."""
    draw = random.Random(7)
    texts = [text(draw, 600) for _ in range(5_000)]
    for number in range(count):
        task, success = number // ATTEMPTS, draw.random() < 0.5
        name, kind = f"made/train-{task:05d}", KINDS[task % len(KINDS)]
        turns = tuple(
            Turn(
                step,
                "agent",
                "",
                f"{draw.choice(WORDS)} {draw.choice(WORDS)} next",
                (
                    ToolCall(
                        f"{step}-0", draw.choice(("bash", "read_file", "edit_file")), {"path": f"module_{step}.py"}
                    ),
                ),
                (ToolResult(f"{step}-0", f"run{number} {draw.choice(texts)}", 0 if success else 1),),
                usage=Usage(500, 40),
                seconds=1.5,
            )
            for step in range(STEPS)
        )
        yield Trajectory(
            episode_id=episode_id(name, "hash", "v1", number % ATTEMPTS, number),
            group_id=group_id(name, "hash", "v1"),
            attempt=number % ATTEMPTS,
            seed=number,
            task=TaskRef(name, "hash", "made", f"family-{task % 500}", kind, "train", "coding", f"Mend fault {task}."),
            agent=Agent("agent", f"policy-{number % 4}", "v1"),
            messages=(Message("user", f"Mend fault {task}."),),
            turns=turns,
            outcome=Outcome(
                success, None, 4 if success else 1, 4, True, False, "submitted" if success else "max_turns"
            ),
            provenance=Provenance(collected_at=f"2026-11-{1 + number % 28:02d}T13:00:00+00:00"),
        )


def make_night(root: Path, count: int) -> list[str]:
    """Write a sealed night with its table of scores below `root`, and return the episodes' ids."""
    folder, builder, draw = root / "data/rollouts" / NIGHT, ScoreColumnsBuilder(), random.Random(3)
    folder.mkdir(parents=True)
    ids: list[str] = []
    shard: list[Trajectory] = []
    for number, episode in enumerate(made_episodes(count), start=1):
        ids.append(episode.episode_id)
        shard.append(episode)
        steps = [StepScore(step, 0, value := draw.random(), {"valid": 1.0, "useful": value}) for step in range(STEPS)]
        layers: dict[Any, LayerScore] = {"rules": LayerScore(0.5), "guards": LayerScore(1.0)}
        total = draw.random()
        builder.add(EpisodeScore(episode.episode_id, total, total, 0.5, 0.7, steps, layers, version="reward-made"))
        if len(shard) == SHARD or number == count:
            write_shard(folder, (number - 1) // SHARD, shard)
            shard = []
    (root / "data/scores").mkdir()
    write_score_table(root / f"data/scores/{NIGHT}.parquet", builder.columns())
    return ids


class Inspector:
    """A running server and its client."""

    def __init__(self, process: subprocess.Popen[str], client: httpx.Client, link: str) -> None:
        self.process, self.client, self.link = process, client, link

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer of the API."""
        answer = self.client.get(f"/api/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cost(self, *requests: tuple[str, dict[str, Any]]) -> "Cost":
        """Return what requests, one after the other, take together."""
        processor, begin = self._processor_seconds(), time.perf_counter()
        for path, query in requests:
            self.get(path, **query)
        wall = time.perf_counter() - begin
        return Cost(1_000 * wall, 1_000 * (self._processor_seconds() - processor))

    def _processor_seconds(self) -> float:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def memory(self, name: str) -> int:
        """Return VmRSS or VmHWM of the server in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(name))


class Cost(NamedTuple):
    """Milliseconds of one measurement: on the clock, and of the server's threads on a processor."""

    wall: float
    processor: float


@contextmanager
def inspecting(root: Path) -> Iterator[Inspector]:
    """Start a server for the project `root`, and stop it at the end."""
    command = [sys.executable, "-m", "ratchet.cli", "inspect", "--port", str(free_port())]
    environment = {**os.environ, "RATCHET_HOME": str(root / ".ratchet")}
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = httpx.URL(process.stdout.readline().strip().partition("#")[0])
    with httpx.Client(base_url=address.copy_with(query=None, path="/"), timeout=600, trust_env=False) as client:
        try:
            client.get(address)  # leaves its cookie in the client
            yield Inspector(process, client, str(address))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def searches(draw: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Parameters of searches, from rare to frequent words, alone and with conditions."""
    for number in range(count):
        word, other = draw.choice(WORDS), draw.choice(WORDS)
        forms: list[dict[str, Any]] = [
            {"q": f"run{draw.randrange(100_000)}"},
            {"q": f"{word}_{draw.randrange(100)} {other}_{draw.randrange(100)}"},
            {"q": f"{word} {other}"},
            {"q": f'"{word} {other}"'},
            {"q": word, "outcome": "failure", "sort": "-reward"},
            {"where": "success and reward > 0.8 and kind in ('off_by_one', 'stale_cache')", "offset": 200},
            {"kind": draw.choice(KINDS), "outcome": "success", "sort": "reward"},
            {"q": f"{word[:3]}", "where": "turns >= 2"},
        ]
        yield forms[number % 8]


def p95(values: Iterable[float]) -> float:
    """Return the 95th percentile."""
    ordered = sorted(values)
    return round(ordered[int(0.95 * len(ordered))], 1)


def figures_of(name: str, costs: list[Cost]) -> dict[str, float]:
    """Return the 95th percentiles of measurements."""
    wall = p95(cost.wall for cost in costs)
    return {f"{name}_p95_ms": wall, f"{name}_p95_processor_ms": p95(cost.processor for cost in costs)}


def measure(root: Path, ids: list[str], requests: int) -> dict[str, float]:
    """Return the figures."""
    draw, figures = random.Random(5), dict[str, float]()
    begin = time.perf_counter()
    with inspecting(root) as server:
        during: list[Cost] = []
        while (found := server.get("episodes", limit=1, reward="unscored"))["total"] or not found["facets"]["reward"]:
            during.append(server.cost(("episodes", {"q": draw.choice(WORDS)})))
            time.sleep(1)
        assert server.get("episodes")["total"] == len(ids)
        figures["index_seconds"] = round(time.perf_counter() - begin, 1)
        figures |= figures_of("search_while_indexing", during or [Cost(0, 0)])
        figures["index_peak_mib"] = server.memory("VmHWM")
    figures["index_mib"] = sum(file.stat().st_size for file in (root / ".ratchet").rglob("index.sqlite*")) >> 20
    with inspecting(root) as server:
        first = server.cost(("home", {}), ("episodes", {}))
        figures |= {"first_page_ms": round(first.wall, 1), "first_page_processor_ms": round(first.processor, 1)}
        figures |= figures_of("search", [server.cost(("episodes", each)) for each in searches(draw, requests)])
        opened = draw.sample(ids, min(requests, len(ids)))
        steps: list[Any] = [((f"episodes/{name}", {}), (f"episodes/{name}/turns", {})) for name in opened]
        figures |= figures_of("step", [server.cost(*each) for each in steps])
        groups = {server.get(f"episodes/{name}")["group_id"] for name in draw.sample(ids, min(50, len(ids)))}
        figures |= figures_of("group", [server.cost((f"groups/{each}", {})) for each in sorted(groups)])
        figures["rss_mib"] = server.memory("VmRSS")
        figures["peak_mib"] = max(server.memory("VmHWM"), figures["index_peak_mib"])
    return figures


def measure_page(root: Path, ids: list[str]) -> dict[str, float]:
    """Return the figures of the page in Chromium; none, with the reason on stderr, where it cannot be opened."""
    try:
        require_playwright()
        path = find_chromium()
        if not (ASSETS / "index.html").is_file():
            raise ConfigurationError("the page is not built: make inspector")
    except ConfigurationError as error:
        print(f"the page is not measured: {error}", file=sys.stderr)
        return {}
    from playwright.sync_api import sync_playwright

    draw = random.Random(9)
    with inspecting(root) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--disable-gpu"])
        paints, lists = [], []
        for _ in range(TABS):
            context = browser.new_context(viewport={"width": 1360, "height": 900})
            context.add_init_script(TIMERS)
            page = context.new_page()
            page.goto(server.link)
            lists.append(page.evaluate("listedAt"))
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        searches, steps, attempts = [], [], []
        for number in range(PAGE_SAMPLES):
            words = f"run{draw.randrange(len(ids))}" if number % 2 else " ".join(draw.sample(WORDS, 2))
            searches.append(page.evaluate("([words, interval]) => search(words, interval)", [words, LETTER_MS]))
        for name in draw.sample(range(0, len(ids) - ATTEMPTS, ATTEMPTS), PAGE_SAMPLES // 4):
            page.goto(f"{server.client.base_url}#/episode/{ids[name]}?turn=0&step=0")
            page.locator("[aria-current=step]").wait_for()
            steps += [page.evaluate("press('j', false)") for _ in range(STEPS - 2)]
            attempts += [page.evaluate("press('n', true)") for _ in range(ATTEMPTS // 2)]
        browser.close()
    samples = {"search": searches, "step": steps, "attempt": attempts}
    return {
        "page_first_paint_ms": round(max(paints), 1),
        "page_list_ms": round(max(lists), 1),
        **{f"page_{name}_p95_ms": p95(values) for name, values in samples.items()},
    }


def main() -> int:
    """Run the benchmark and print its figures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="make the night in this folder, or use the one that is there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = options.keep or Path(place)
        listing = root / "ids.json"
        if not listing.is_file():
            listing.parent.mkdir(parents=True, exist_ok=True)
            listing.write_bytes(msgspec.json.encode(make_night(root, options.episodes)))
        ids = msgspec.json.decode(listing.read_bytes(), type=list[str])
        figures: dict[str, float] = {
            "episodes": len(ids),
            "cores": os.cpu_count() or 0,
            **measure(root, ids, options.requests),
            **measure_page(root, ids),
        }
    print(json.dumps(figures) if options.json else "\n".join(f"{name:30} {value:,}" for name, value in figures.items()))
    over = [
        f"{name} is {figures[name]:,}, at most {limit:,} is allowed"
        for name, limit in LIMITS.items()
        if figures.get(name, 0) > limit
    ]
    print("\n".join(over), end="\n" if over else "", file=sys.stderr)
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
