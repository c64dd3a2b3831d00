"""200 sandboxes at once on this machine: how long a lease takes, how much memory they need, and what they leave behind.

Each thread opens one sandbox. When all are open, each runs a few commands and stops its sandbox. A docker sandbox may wait
for a container: more than `max_containers` take turns, and only that many use memory.

    python benchmarks/sandbox_concurrency.py [--sandboxes 200] [--backend local|docker] [--json] [--quick]

Reported are p50 and p99 of a lease (`start`), of a command and of the stop, the memory above the start's (of this process
and its children; containers are the engine's), and the load average, since all of them run on the same cores. Exit code 1
where a bar is missed: no process, thread, open file, folder or container left, and at most 2 MiB for each sandbox.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from ratchet.components.sandboxes import SandboxConfig, make_sandbox

COMMANDS = 3
BAR_MIB = 2.0
START_SECONDS = 300.0
MIB = 1 << 20


def memory() -> float:
    """MiB that this process and its children use; shared pages count once (PSS)."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total / MIB


def census(backend: str) -> dict[str, int]:
    """Count what must not have grown at the end: processes, threads, open files, folders and containers.

    The client's idle connections to the engine are closed first: they are kept for later calls, at most 256, and no leak.
    """
    if backend == "docker":
        from ratchet.components.core.processes import owner_label
        from ratchet.components.sandboxes import docker_engine

        api = docker_engine.docker_client(START_SECONDS).api  # the client of the sandboxes
        owned = api.containers(all=True, filters={"label": f"{docker_engine.OWNER_LABEL}={owner_label()}"})
        api.close()
    counts = {
        "processes": len(psutil.Process().children(recursive=True)),
        "threads": threading.active_count(),
        "open files": psutil.Process().num_fds(),
        "folders": len(list(Path(tempfile.gettempdir()).glob("ratchet-sandboxes-*/*"))),
    }
    if backend == "docker":
        counts["containers"] = len(owned)
    return counts


def percentiles(seconds: list[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {f"p{share}": 1000 * ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99)}


def measure(backend: str, count: int) -> dict[str, Any]:
    """Open, use and stop `count` sandboxes at once; return the figures."""
    config = SandboxConfig(backend=backend, memory_mb=128, workspace_mb=16, start_timeout=START_SECONDS)
    with make_sandbox(config) as first:  # the launcher, or the pool, is there before
        first.run(["true"])
    before, base = census(backend), memory()
    times: dict[str, list[float]] = {"lease": [], "command": [], "stop": []}
    opened, done, peak = threading.Barrier(count + 1), threading.Event(), [base]

    def timed(what: str, begin: float) -> None:
        times[what].append(time.perf_counter() - begin)

    def use(number: int) -> None:
        sandbox = make_sandbox(config)
        begin = time.perf_counter()
        sandbox.start()
        timed("lease", begin)
        try:
            opened.wait(600)
            sandbox.write("file", b"content\n")
            for _ in range(COMMANDS):
                begin = time.perf_counter()
                assert sandbox.run(["cat", "file"], timeout=300).stdout == b"content\n"
                timed("command", begin)
        finally:
            begin = time.perf_counter()
            sandbox.stop()
            timed("stop", begin)

    def watch() -> None:
        while not done.wait(0.5):
            peak[0] = max(peak[0], memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        runs = [pool.submit(use, number) for number in range(count)]
        opened.wait(600)
        all_open = time.perf_counter() - begin
        peak[0] = max(peak[0], memory())
        for run in runs:
            run.result()
    done.set()
    watcher.join()
    seconds = time.perf_counter() - begin
    if backend == "docker":
        from ratchet.components.sandboxes import container_pool

        container_pool.drain()
    after = census(backend)
    return {
        "sandboxes": count,
        "backend": backend,
        "cores": os.cpu_count(),
        "load average": os.getloadavg()[0],
        "milliseconds": {what: percentiles(values) for what, values in times.items()},
        "seconds until all are open": all_open,
        "seconds in all": seconds,
        "MiB for each": (peak[0] - base) / count,
        "left": {what: max(0, after[what] - number) for what, number in before.items()},
    }


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxes", type=int, default=200)
    parser.add_argument("--backend", choices=("local", "docker"), default="local")
    parser.add_argument("--json", action="store_true", help="print values, not a table")
    parser.add_argument("--quick", action="store_true", help="eight sandboxes")
    arguments = parser.parse_args()
    figures = measure(arguments.backend, 8 if arguments.quick else arguments.sandboxes)
    if arguments.json:
        print(json.dumps(figures))
    else:
        print(f"{figures['sandboxes']} {figures['backend']} sandboxes at once; load {figures['load average']:.1f}")
        for what, values in figures["milliseconds"].items():
            print(f"{what:10}" + "".join(f"{name:>8} {value:9.1f} ms" for name, value in values.items()))
        print(
            f"all open after {figures['seconds until all are open']:.1f} s; all stopped after {figures['seconds in all']:.1f} s"
        )
        print(f"{figures['MiB for each']:.2f} MiB for each; left: {figures['left']}")
    return 0 if not any(figures["left"].values()) and figures["MiB for each"] <= BAR_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
