"""From measured units on paper to a million episodes a night: what grows, what it costs, and what breaks first.

Measured here, on small runs: an episode (bytes, and seconds with a scripted policy in a local sandbox), planning, the manifest
at growing numbers of shards, the requests of a shared collection to its store, reading and hashing records, and with `--prefect`
a flow run (seconds, requests, rows of the server's database). The data build is not run: the bounds that `data.py --build`
enforces stand for it. Everything else is multiplication. What the night's own process does alone, and no further machine makes
faster, is compared with the night: the first three are the bottlenecks.

    python benchmarks/scale.py [--episodes 1000000] [--hours 8] [--cohort 500] [--prefect] [--json] [--quick]

Prices are assumptions, given as options; tokens are not part of it, since they depend on the model alone.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import psutil
from data_build import LIMIT_EXPONENT, LIMIT_MEMORY, LIMIT_SECONDS

from ratchet.components.core.home import home, recorded_process
from ratchet.components.operations import shared_collection
from ratchet.components.rollouts.collection import collect
from ratchet.components.rollouts.collection_plan import CollectPlan, plan_episodes
from ratchet.components.tasksets import load_taskset
from ratchet.components.trajectories.shards import read_folder, write_shard_lines

TASKSET = "programs"
BUILT = 100_000
"""Trajectories of the data build for which `benchmarks/data.py` enforces the bounds in `data_build`."""
MAX_CONTAINERS = 64
"""Containers of a process of Ratchet on a host of 16 processors or more (`SandboxConfig.max_containers`)."""
MIB = 1 << 20


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of `work` in this process: what else runs on the machine does not count, nor does the disk's wait."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def small_plan(episodes: int, cohort: int) -> CollectPlan:
    """A collection by the scripted teacher in local sandboxes."""
    values = {
        "taskset": TASKSET,
        "policy": "rewriter",
        "limit": episodes,
        "attempts": 1,
        "cohort_size": cohort,
        "concurrency": 1,
    }
    return CollectPlan.load({**values, "sandbox": {"backend": "local"}, "executor": "ray"})


def episode(folder: Path, count: int) -> dict[str, float]:
    """Bytes, seconds to play and to read, of one episode; MiB a second to hash. A busy machine needs more seconds to play."""
    begin = time.perf_counter()
    collect(small_plan(count, count), folder)
    spent = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in folder.glob("shard-*"))
    data = os.urandom(64 * MIB)
    return {
        "bytes": size / count,
        "play seconds": spent / count,
        "read seconds": seconds(lambda: sum(1 for _ in read_folder(folder))) / count,
        "hash MiB/s": 64 / seconds(lambda: hashlib.md5(data, usedforsecurity=False).hexdigest()),
    }


def planning() -> float:
    """Seconds to plan one episode."""
    taskset, plan = load_taskset(TASKSET), small_plan(1000, 500)
    return seconds(lambda: plan_episodes(plan, taskset, "version")) / 1000


def manifest(folder: Path, cohort: int, shards: int) -> tuple[float, float]:
    """Seconds to list a shard, as a constant and a part for each shard that is listed already."""
    folder.mkdir()
    ids = [f"ep-{number:032x}" for number in range(cohort)]
    each = [seconds(lambda index=index: write_shard_lines(folder, index, ids, b"{}\n")) for index in range(shards)]
    half = shards // 2
    early, late = sum(each[:half]) / half, sum(each[half:]) / (shards - half)
    slope = max(0.0, (late - early) / (shards / 2))
    return max(0.0, early - slope * half / 2), slope


class CountingStore:
    """A store that counts its requests by kind."""

    counts: ClassVar[Counter[str]] = Counter()

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        CountingStore.counts[name] += 1
        return getattr(self._store, name)


def store_requests(folder: Path, cohorts: int) -> dict[str, float]:
    """Requests to the store for each cohort of a shared collection, by kind, from both sides."""
    real = shared_collection.checkpoint_store
    shared_collection.checkpoint_store = lambda location: CountingStore(real(location))  # type: ignore[attr-defined]
    os.environ["RATCHET_ARTIFACTS"] = str(folder / "store")
    working_folder = Path.cwd()
    try:
        with shared_collection.share_collection(small_plan(4 * cohorts, 4), folder / "shared") as shared:
            CountingStore.counts.clear()
            for number in shared.unfinished:
                shared.adopt(number)
                with shared_collection.shared_cohort(shared.location, number) as (plan, spool):
                    collect(plan, spool, cohort=number)
                shared.adopt(number)
            counts = {name: count / cohorts for name, count in CountingStore.counts.items()}
            shared.remove()
    finally:
        os.chdir(working_folder)
        shared_collection.checkpoint_store = real  # type: ignore[attr-defined]
    return counts | {"remove": 3.0}  # shard, token sidecar and line, at the end


def prefect_run(runs: int) -> dict[str, float]:
    """Seconds, requests and rows of the server's database for each run of a flow that does nothing, by Prefect's own engine.

    Runs of several workers overlap, and share the server: its processor seconds are what bounds them. The polls of a worker
    and of the night come on top: one each in a second or two, whatever the number of runs.
    """
    os.environ["PREFECT_LOGGING_LEVEL"] = "WARNING"
    import httpx

    from ratchet.flows.home_servers import PrefectServer

    def server_seconds() -> float:
        process = psutil.Process(recorded_process("prefect"))
        times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    sent = []
    for client in (httpx.Client, httpx.AsyncClient):
        send = client.send
        client.send = lambda *values, _send=send, **names: (sent.append(1), _send(*values, **names))[1]  # type: ignore[method-assign]
    server = PrefectServer().start()
    try:
        server.ready(limit=960)  # a busy machine takes minutes to prepare the database
        from prefect import flow

        @flow
        def unit() -> None:
            """Nothing."""

        unit()
        before, requests, busy, begin = rows(), len(sent), server_seconds(), time.perf_counter()
        for _ in range(runs):
            unit()
        spent, requested = time.perf_counter() - begin, len(sent) - requests
        time.sleep(5)  # until the last events are written
        return {
            "seconds": spent / runs,
            "server's seconds": (server_seconds() - busy) / runs,
            "rows": (rows() - before) / runs,
            "requests": requested / runs,
        }
    finally:
        server.stop()


def rows() -> int:
    """Rows in the tables of the Prefect server of this home."""
    with contextlib.closing(sqlite3.connect(home() / "prefect" / "prefect.db")) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return sum(database.execute(f'select count(*) from "{table}"').fetchone()[0] for table in tables)


def measure(quick: bool, prefect: bool, cohort: int) -> dict[str, Any]:
    """Every unit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["RATCHET_HOME"] = str(folder / ".ratchet")
        constant, slope = manifest(folder / "manifest", cohort, 20 if quick else 200)
        return {
            "episode": episode(folder / "played", 4 if quick else 100),
            "plan seconds": planning(),
            "manifest seconds": {"constant": constant, "for each shard": slope},
            "store requests of a cohort": store_requests(folder, 2 if quick else 4),
            "flow run": prefect_run(4 if quick else 20) if prefect else {},
            "load average": os.getloadavg()[0],
        }


def extrapolate(units: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Extrapolate the measured units to `arguments.episodes` in one night."""
    episodes, night = arguments.episodes, 3600 * arguments.hours
    shards = -(-episodes // arguments.cohort)
    unit, listing, run = units["episode"], units["manifest seconds"], units["flow run"]
    size = episodes * unit["bytes"] / 1e9
    requests = {name: shards * count for name, count in units["store requests of a cohort"].items()}
    objects = 2 * shards + 3
    processors = episodes * unit["play seconds"] / 3600
    containers = episodes * arguments.episode_seconds / night
    sums = {
        "shards": shards,
        "GB of records": size,
        "DVC objects": objects,
        "S3 requests": sum(requests.values()) + 2 * objects,
        "Prefect flow runs": shards,
        **({"Prefect requests": shards * run["requests"], "PostgreSQL rows": shards * run["rows"]} if run else {}),
        "processor hours, at most": processors,
        "sandboxes open at once": containers,
        "GiB of memory of the build": LIMIT_MEMORY / 2**30 * max(1.0, episodes / BUILT),
        "Docker hosts": max(processors / arguments.hours / arguments.host_cores, containers / MAX_CONTAINERS),
        "cost, Docker hosts": -(-containers // MAX_CONTAINERS)
        * arguments.host_cores
        * arguments.hours
        * arguments.core_hour,
        "cost, S3 requests": (requests.get("put", 0) + objects) / 1000 * arguments.put_1000
        + (sum(requests.values()) - requests.get("put", 0) + objects) / 1000 * arguments.get_1000,
        "cost, S3 a month": size * arguments.gb_month,
    }
    alone = {
        "data build, at most": LIMIT_SECONDS * (episodes / BUILT) ** LIMIT_EXPONENT,
        "listing shards in the manifest": shards * listing["constant"] + listing["for each shard"] * shards**2 / 2,
        "planning": episodes * units["plan seconds"],
        "reading the shards for the report": episodes * unit["read seconds"],
        "hashing for DVC": size * 1e9 / MIB / unit["hash MiB/s"],
        "taking shards from the store": shards * arguments.request_seconds * 5,
        "pushing by DVC": objects * arguments.request_seconds * 2,
        **({"flow runs in Prefect's server": shards * run["server's seconds"]} if run else {}),
    }
    ranked = sorted(alone.items(), key=lambda item: -item[1])
    return {
        "sums": sums,
        "hours": {name: spent / 3600 for name, spent in ranked},
        "bottlenecks": [f"{name}: {100 * spent / night:.1f} % of the night" for name, spent in ranked[:3]],
    }


def main() -> int:
    """Measure, multiply, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--hours", type=float, default=8.0, help="of a night")
    parser.add_argument("--cohort", type=int, default=500, help="episodes of a shard")
    parser.add_argument("--episode-seconds", type=float, default=60.0, help="of an episode, mostly the model's")
    parser.add_argument("--host-cores", type=int, default=32, help="cores of a host of sandboxes")
    parser.add_argument("--core-hour", type=float, default=0.04, help="price of a core for an hour")
    parser.add_argument("--put-1000", type=float, default=0.005, help="price of 1,000 PUT requests")
    parser.add_argument("--get-1000", type=float, default=0.0004, help="price of 1,000 other requests")
    parser.add_argument("--gb-month", type=float, default=0.023, help="price of a GB in S3 for a month")
    parser.add_argument("--request-seconds", type=float, default=0.05, help="latency of a request to S3")
    parser.add_argument("--prefect", action="store_true", help="start a Prefect server and measure it, too")
    parser.add_argument("--json", action="store_true", help="print values, not tables")
    parser.add_argument("--quick", action="store_true", help="smaller runs")
    arguments = parser.parse_args()
    units = measure(arguments.quick, arguments.prefect, arguments.cohort)
    result = {"units": units, **extrapolate(units, arguments)}
    if arguments.json:
        print(json.dumps(result))
        return 0
    print(f"measured (load {units.pop('load average'):.1f}):")
    for name, value in units.items():
        parts = value if isinstance(value, dict) else {"": value}
        print(f"  {name:28}" + ", ".join(f"{part} {number:.4g}".strip() for part, number in parts.items()))
    print(f"\n{arguments.episodes:,} episodes in {arguments.hours:g} hours:")
    for name, value in result["sums"].items():
        print(f"  {name:28}{value:16,.1f}")
    print("\nhours of one process:")
    for name, value in result["hours"].items():
        print(f"  {name:50}{value:10.2f}")
    print(
        "\nfirst three bottlenecks:",
        *(f"  {number}. {text}" for number, text in enumerate(result["bottlenecks"], 1)),
        sep="\n",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
