"""Nights in a row, accelerated, with faults drawn at random: each is finished by the next start, and nothing shows of it after.

The schedule follows from the seed and is printed. `SEED=7 pytest -k another` replays that of another seed. What a simulated
night leaves out, and where that is tested, says tests/helpers/simulated_night.py.
"""

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from patience import until
from simulated_night import NightServer, make_project

from ratchet.components.core.files import lock_owner
from ratchet.components.core.processes import OWNER_TOKEN
from ratchet.components.trajectories.shards import read_folder

pytestmark = pytest.mark.slow

WHAT = ["kill", "kill", "full disk", "broken disk", "memory", "slow disk"]
MOST_WRITES = {"night": 150, "collect": 30, "train": 25}
"""About as many as the process makes in the project."""
CLOCKS = [0, 0, 0, 0, 3600, -3600, 400 * 86400]
"""Seconds by which the machine's clock may be off during one start."""
DAMAGED = [
    "home/nights/*/state.json",
    "home/nights/*/training/*/heartbeat.json",
    "home/nights/*/training/*/saved/*/trainer_state.json",
    "home/nights/*/training/*/checkpoint/model.safetensors",
    "home/spool/*/journal-*.jsonl",
    "home/evaluations/*/*/shard-*.jsonl",
    "data/build.yaml",
    "data/rollouts/*/shard-*.jsonl",
]
"""Files whose damage the system claims to notice."""
CLEAR = re.compile(r"error: [^\n]+")


class Damage(NamedTuple):
    """A file that was cut in half, and its content."""

    path: Path
    content: bytes


@pytest.fixture(scope="module")
def server() -> Iterator[NightServer]:
    server = NightServer()
    yield server
    server.close()


class Season:
    """Nights in one project, with the faults of a seed, or None for none."""

    def __init__(self, server: NightServer, folder: Path, seed: int | None) -> None:
        self.server, self.project = server, make_project(folder)
        self.rng = None if seed is None else random.Random(seed)
        self.damage: list[Damage] = []
        self.memory: list[int] = []

    def play(self, night: int) -> None:
        """Start a night until it is finished: once for each of its faults, then without."""
        faults = [] if self.rng is None else [self.draw() for _ in range(self.rng.randint(1, 3))]
        for fault in [*faults, None]:
            if fault is not None and self.rng is not None and self.rng.random() < 0.4:
                self.cut_a_file(self.rng)
            if self.start(night, fault) == 0:
                break
        while self.damage:  # of what no later night has read
            self.put_back(self.damage[0])
        until(lambda: not self.processes())
        held = [path for path in (self.project / "home").rglob("*.lock") if lock_owner(path) is not None]
        assert not held, f"still locked: {held}"

    def draw(self) -> dict[str, Any]:
        assert self.rng is not None
        process = self.rng.choice(["night", "night", "collect", "train"])
        what = self.rng.choice(WHAT if process == "night" else [*WHAT, "kill night", "kill night"])
        fault = {"process": process, "what": what, "write": self.rng.randint(1, MOST_WRITES[process])}
        return fault | {"clock": self.rng.choice(CLOCKS)}

    def start(self, night: int, fault: dict[str, Any] | None) -> int:
        """Start a night; return its exit code, 0 once it is finished."""
        arguments = ["night", "--night", f"n{night}", "--seed", str(night), "--scale", "small.yaml"]
        env = {
            "SIMULATED_FAULTS": json.dumps([fault] if fault else []),
            "SIMULATED_CLOCK": str(fault["clock"] if fault else 0),
        }
        log = self.project.with_name(f"{self.project.name}.faults")
        log.write_text("")
        for _ in range(6):  # without a fault: once, and once more for each damaged file
            code, memory, said = self.server.run(self.project, arguments, SIMULATED_LOG=str(log), **env)
            self.memory.append(memory)
            errors = [line for line in said.splitlines() if CLEAR.fullmatch(line)]
            print(
                f"night {night}: {json.dumps(fault)} -> {log.read_text().strip() or 'nothing'}; exit {code} {errors[-1:]}"
            )
            if code >= 0:
                assert code in (0, 2, 3, 4, 5) and len(errors) == (code != 0) and "Traceback" not in said, said
            noticed = [damage for damage in self.damage if code == 3 and self.names(damage, errors[-1])]
            for damage in noticed:
                self.put_back(damage)
            if fault is not None or code == 0:
                return code
            assert noticed, said
        raise AssertionError(f"night {night} is not finished by further starts")

    def names(self, damage: Damage, error: str) -> bool:
        """Whether an error names a damaged file, or the folder whose hash covers it."""
        return any(str(path.relative_to(self.project)) in error for path in (damage.path, damage.path.parent))

    def cut_a_file(self, rng: random.Random) -> None:
        place = rng.choice(DAMAGED)
        if paths := sorted(path for path in self.project.glob(place) if path.stat().st_size > 1):
            path = rng.choice(paths)
            self.damage.append(Damage(path, path.read_bytes()))
            path.write_bytes(self.damage[-1].content[: path.stat().st_size // 2])
            print(f"cut {path.relative_to(self.project)}")

    def put_back(self, damage: Damage) -> None:
        self.damage.remove(damage)
        half = damage.content[: len(damage.content) // 2]
        if damage.path.is_file() and damage.path.read_bytes() == half:  # else it was written anew
            damage.path.write_bytes(damage.content)

    def processes(self) -> list[str]:
        """Living processes of this project."""
        mark, found = f"SIMULATED_ROOT={self.project}\0".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text())
            except OSError:
                continue
        return found

    def outcome(self) -> dict[str, Any]:
        """What the season has left: every episode, model, champion, decision and build, and the names of all files."""
        assert self.server.run(self.project, ["reap"])[0] == 0
        shown = {
            str(folder.relative_to(self.project)): [
                (each.episode_id, each.content_hash) for each in read_folder(folder)
            ]
            for folder in sorted({path.parent for path in self.project.rglob("manifest.jsonl")})
            if "cache" not in folder.parts
        }
        for place, episodes in shown.items():
            assert len({identity for identity, _ in episodes}) == len(episodes), f"an episode occurs twice in {place}"
        registry = (self.project / "registry.json").read_text().replace(str(self.project), "")
        states = [json.loads(path.read_bytes()) for path in sorted(self.project.glob("home/nights/*/state.json"))]
        builds = [state["results"]["build"]["lock_hash"] for state in states]
        files = sorted(
            re.sub(r"cache/\w+", "cache/*", str(path.relative_to(self.project)))  # its names are hashes of times too
            for path in self.project.rglob("*")
            if path.is_file() and "logs" not in path.parts and path.suffix != ".lock"
        )
        assert not [name for name in files if OWNER_TOKEN.search(name) or name.endswith(".tmp")]
        return {"episodes": shown, "registry": json.loads(registry), "builds": builds, "files": files}


def compare_seasons(server: NightServer, folder: Path, nights: int, seed: int) -> Season:
    """Play both seasons; they end alike."""
    disturbed, twin = Season(server, folder / "disturbed", seed), Season(server, folder / "twin", None)
    for season in (disturbed, twin):
        for night in range(nights):
            season.play(night)
    assert disturbed.outcome() == twin.outcome()
    return disturbed


def test_three_nights_with_faults_end_as_three_without(server, tmp_path):
    compare_seasons(server, tmp_path, nights=3, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thirty_nights_with_faults_end_as_thirty_without_and_memory_stays_flat(server, tmp_path, seed):
    season = compare_seasons(server, tmp_path, nights=30, seed=seed)
    first, last = season.memory[:10], season.memory[-10:]
    assert max(last) < 1.2 * max(first)


@pytest.mark.long
@pytest.mark.skipif("SEED" not in os.environ, reason="SEED names the schedule to replay")
def test_three_nights_with_the_faults_of_another_seed(server, tmp_path):
    compare_seasons(server, tmp_path, nights=3, seed=int(os.environ["SEED"]))
