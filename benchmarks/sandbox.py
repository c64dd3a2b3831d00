"""What a command, a sandbox and an episode cost: ours beside `docker exec` and swe-rex. One run, one table of ratios.

- *commands*: `true`, `cat` of a small file, `python3 -c pass`: median latency of our session, of our local back end, of
  `docker exec` through the SDK and through the command line (in a container with the same limits), and of swe-rex from
  PyPI. The contenders take turns of a few commands, so that a busy moment hits all alike, with a pause between them: an
  engine tidies up for a while after an `exec` has answered, and that is not the next one's to pay. swe-rex is measured
  right after, in an environment of its own (`--swerex PYTHON`, one that has it; else one is made), and left out with the
  reason where it cannot be had.
- *sandboxes*: a lease from the warm pool beside a start with an empty one; what giving back costs, the reset included.
- *episodes*: a sandbox, a file, 16 commands, at 1, 4 and 16 workers; and the same 16 commands by one `docker exec` each, in
  a container that is there already.

    python benchmarks/sandbox.py [--json] [--quick] [--swerex PYTHON]

Exit code 1 where a bar is missed: `true` and `cat` 20 times, `python3 -c` 4 times lower than either `docker exec`; a warm
lease 8 times lower than a cold start; the episode 10 times the throughput. Needs a Docker engine with the sandbox's image.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ratchet.components.core import Sandbox, processes
from ratchet.components.sandboxes import SandboxConfig, container_pool, docker_engine, make_sandbox
from ratchet.components.sandboxes.container_spec import AGENT_USER, ENVIRONMENT, ContainerSpec

CONFIG = SandboxConfig(backend="docker", memory_mb=128, workspace_mb=16, start_timeout=120)
COMMANDS = {"true": ["true"], "cat": ["cat", "file"], "python3": ["python3", "-c", "pass"]}
CONTENT = b"content\n" * 100
STEPS, WORKERS = 16, (1, 4, 16)
BAR_SMALL, BAR_PYTHON, BAR_LEASE, BAR_EPISODE = 20.0, 4.0, 8.0, 10.0
PATIENCE = 120.0
TURN, SETTLE = 5, 0.2
PEER = Path(__file__).with_name("sandbox_swerex.py")

Timed = Callable[[list[str]], object]


@contextlib.contextmanager
def plain_container() -> Iterator[str]:
    """A container with our limits that sleeps: what `docker exec` works in."""
    api = docker_engine.docker_client(PATIENCE).api
    spec = ContainerSpec.from_config(CONFIG)
    labels = {docker_engine.LABEL: "1", docker_engine.OWNER_LABEL: processes.owner_label()}
    container = api.create_container(
        spec.image, ["sleep", "3600"], user=AGENT_USER, working_dir="/workspace", environment=ENVIRONMENT,
        labels=labels, host_config=spec.host_config(api),
    )["Id"]  # fmt: skip
    try:
        api.start(container)
        yield container
    finally:
        docker_engine.remove_container(container, PATIENCE)


def by_sdk(container: str) -> Timed:
    """`docker exec` through the SDK."""
    handle = docker_engine.docker_client(PATIENCE).containers.get(container)
    return lambda argv: handle.exec_run(argv)


def by_cli(container: str) -> Timed:
    """`docker exec` through the command line."""
    return lambda argv: subprocess.run(["docker", "exec", container, *argv], check=True, capture_output=True)


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def command_latency(rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds by contender and command."""
    local = SandboxConfig(backend="local")
    with make_sandbox(CONFIG) as ours, make_sandbox(local) as near, plain_container() as container:
        for sandbox in (ours, near):
            sandbox.write("file", CONTENT)
        contenders: dict[str, Timed] = {"session": ours.run, "local": near.run, "exec, SDK": by_sdk(container)}
        if shutil.which("docker"):
            contenders["exec, CLI"] = by_cli(container)
        contenders["exec, SDK"](["sh", "-c", f"printf '{CONTENT.decode()}' > file"])
        latencies: dict[str, dict[str, float]] = {}
        for name, argv in COMMANDS.items():
            timings: dict[str, list[float]] = {contender: [] for contender in contenders}
            for _ in range(rounds // TURN):
                for contender, run in contenders.items():
                    time.sleep(SETTLE)
                    for _ in range(TURN):
                        timings[contender].append(seconds(lambda run=run, argv=argv: run(argv)))  # type: ignore[misc]
            for contender, durations in timings.items():
                latencies.setdefault(contender, {})[name] = 1000 * statistics.median(durations)
    return latencies


def swerex_latency(python: str | None, rounds: int) -> dict[str, Any]:
    """The peer's answer, or why there is none."""
    with tempfile.TemporaryDirectory() as place:
        try:
            if python is None:
                python = f"{place}/bin/python"
                subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True, timeout=120)
                install = [python, "-m", "pip", "install", "--quiet", "swe-rex", "aiohttp"]
                subprocess.run(install, check=True, capture_output=True, timeout=600)
            done = subprocess.run(
                [python, str(PEER), str(rounds)], check=True, capture_output=True, text=True, timeout=600
            )
            latencies: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            message = getattr(error, "stderr", None) or str(error)
            text = message.decode(errors="replace") if isinstance(message, bytes) else message
            return {"absent": text.strip().splitlines()[-1][:200]}
    return latencies


def sandbox_latency(rounds: int) -> dict[str, float]:
    """Median milliseconds of starting cold and warm, of giving back, of parking with its return."""
    cold, warm, back = [], [], []
    for _ in range(max(3, rounds // 10)):
        container_pool.drain()
        sandbox = make_sandbox(CONFIG)
        cold.append(seconds(sandbox.start))
        sandbox.stop()
    for _ in range(rounds):
        sandbox = make_sandbox(CONFIG)
        warm.append(seconds(sandbox.start))
        sandbox.write("file", CONTENT)
        back.append(seconds(sandbox.stop))
    turns = []
    one = CONFIG.model_copy(update={"max_containers": 1, "pids": CONFIG.pids + 1})
    with make_sandbox(one) as first, make_sandbox(one) as second:
        for sandbox in (first, second):
            sandbox.write_files({f"{number}.py": CONTENT for number in range(10)})
        for _ in range(rounds):
            turns += [seconds(lambda: first.run(["true"])), seconds(lambda: second.run(["true"]))]
    timings = {"cold start": cold, "warm lease": warm, "give back, reset": back, "`true`, another parked first": turns}
    return {name: 1000 * statistics.median(durations) for name, durations in timings.items()}


def play(sandbox: Sandbox) -> None:
    """One episode: what an agent that repairs a small program does, without the thinking."""
    with sandbox:
        sandbox.write("file", CONTENT)
        for _ in range(STEPS):
            sandbox.run(COMMANDS["cat"])


def episodes_per_second(config: SandboxConfig, workers: int, episodes: int) -> float:
    """Throughput; the pool is as an earlier episode left it."""
    remaining = iter(range(episodes))
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                if next(remaining, None) is None:
                    return
            play(make_sandbox(config))

    threads = [threading.Thread(target=work) for _ in range(workers)]

    def all_of_them() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return episodes / seconds(all_of_them)


def exec_episodes_per_second(episodes: int) -> float:
    """The same commands, one `docker exec` through the SDK each, one worker; the container is there and stays."""
    with plain_container() as container:
        run = by_sdk(container)
        run(["sh", "-c", f"printf '{CONTENT.decode()}' > file"])
        return episodes / seconds(lambda: [run(COMMANDS["cat"]) for _ in range(STEPS * episodes)])


def measure(quick: bool, swerex: str | None) -> dict[str, Any]:
    """Everything, as plain values."""
    rounds, workers_at_once = (TURN, WORKERS[:1]) if quick else (100, WORKERS)
    play(make_sandbox(CONFIG))
    figures: dict[str, Any] = {"commands": command_latency(rounds), "sandboxes": sandbox_latency(rounds)}
    figures["swe-rex"] = swerex_latency(swerex, rounds)
    for way, latencies in figures["swe-rex"].get("milliseconds", {}).items():
        figures["commands"][f"swe-rex, {way}"] = latencies
    config = CONFIG.model_copy(update={"max_containers": max(WORKERS)})
    rates = {}
    for workers in workers_at_once:
        episodes_per_second(config, workers, workers)  # fills the pool
        rates[f"{workers} workers"] = episodes_per_second(config, workers, 4 * workers if quick else 16 * workers)
    rates["local, 1 worker"] = episodes_per_second(SandboxConfig(backend="local"), 1, 4 if quick else 16)
    rates["an exec per command"] = exec_episodes_per_second(2 if quick else 6)
    figures["episodes"] = rates
    figures["bars"] = bars(figures)
    return figures


def bars(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Each bar: what is compared, the ratio, what it must be, whether it is."""
    commands, sandboxes, episodes = figures["commands"], figures["sandboxes"], figures["episodes"]
    execs = [latencies for name, latencies in commands.items() if name.startswith("exec")]
    ratios = {
        f"`{name}` against docker exec": (min(latencies[name] for latencies in execs) / commands["session"][name], bar)
        for name, bar in (("true", BAR_SMALL), ("cat", BAR_SMALL), ("python3", BAR_PYTHON))
    }
    ratios["warm lease against cold start"] = (sandboxes["cold start"] / sandboxes["warm lease"], BAR_LEASE)
    gain = episodes["1 workers"] / episodes["an exec per command"]
    ratios[f"episode of {STEPS} commands against an exec each"] = (gain, BAR_EPISODE)
    return [
        {"what": what, "ratio": ratio, "bar": bar, "met": bool(ratio >= bar)} for what, (ratio, bar) in ratios.items()
    ]


def show(figures: dict[str, Any]) -> None:
    """The tables."""
    base = figures["commands"]["session"]
    print(f"{'milliseconds (ratio to the session)':36}" + "".join(f"{name:>20}" for name in COMMANDS))
    for contender, latencies in figures["commands"].items():
        cells = (f"{latencies[name]:.2f} ({latencies[name] / base[name]:.1f})" for name in COMMANDS)
        print(f"{contender:36}" + "".join(f"{cell:>20}" for cell in cells))
    if "absent" in figures["swe-rex"]:
        print(f"swe-rex: not measured: {figures['swe-rex']['absent']}")
    if figures["swe-rex"].get("lost"):
        print(f"swe-rex lost {figures['swe-rex']['lost']} commands of its session")
    for title, unit in (("sandboxes", "ms"), ("episodes", "episodes/s")):
        print()
        for name, value in figures[title].items():
            print(f"{name:36}{value:>16.2f} {unit}")
    print()
    for bar in figures["bars"]:
        print(f"{bar['what']:44}{bar['ratio']:8.1f}x, bar {bar['bar']:g}x: {'met' if bar['met'] else 'MISSED'}")


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print values, not a table")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--swerex", metavar="PYTHON", help="a Python that has swe-rex")
    arguments = parser.parse_args()
    figures = measure(arguments.quick, arguments.swerex)
    if arguments.json:
        print(json.dumps(figures))
    else:
        show(figures)
    return 0 if all(bar["met"] for bar in figures["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
