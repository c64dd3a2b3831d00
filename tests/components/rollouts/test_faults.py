"""Hundreds of episodes in a world that breaks all the time: each there once, and none judged by what the world did."""

import random
import threading
import time

import psutil
import pytest
from patience import LIMIT, until
from tiny import Tiny

from ratchet.components.core import InfrastructureError, SandboxUnavailable
from ratchet.components.models.scripted_policies import Teacher
from ratchet.components.rollouts.collection import collect
from ratchet.components.trajectories.shards import read_folder

SHARE = 0.05


class BrokenWorld:
    """Breaks a share of the steps, each in one of five ways, and is away altogether for a second in the middle."""

    def __init__(self):
        self.dice = random.Random(7)
        self.lock = threading.Lock()
        self.for_ever = threading.Event()
        self.faults = {"killed": 0, "bug": 0, "exit": 0, "hang": 0, "model": 0, "away": 0}
        self.away_from = None

    def fault(self, *kinds):
        with self.lock:
            if self.away_from and (time.monotonic() < self.away_from + 1 or not self.faults["away"]):
                self.faults["away"] += 1
                return "away"
            if self.dice.random() >= SHARE / 3:  # an episode has three steps
                return None
            kind = kinds[sum(self.faults[name] for name in kinds) % len(kinds)]  # in turn: none is left out by chance
            if kind == "hang" and self.faults["hang"] >= 8:
                kind = "killed"
            self.faults[kind] += 1
            return kind

    def step(self, task_id, steps):
        kind = self.fault("killed", "bug", "exit", "hang")
        if kind in ("away", "killed"):
            raise SandboxUnavailable(f"the engine: {kind}")
        if kind == "bug":
            raise KeyError("a bug in an environment")
        if kind == "exit":
            raise SystemExit(1)
        if kind == "hang":
            self.for_ever.wait(LIMIT)
        time.sleep(0.002)

    def asked(self):
        kind = self.fault("model")
        if kind:
            raise InfrastructureError("429 or 500")


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [400, pytest.param(1000, marks=pytest.mark.long)])
def test_episodes_with_faults_are_the_episodes_without(make_plan, tmp_path, monkeypatch, episodes):
    plan = make_plan(
        tasks=episodes // 4, attempts=4, cohort_size=100, concurrency=16, retries=4, timeouts={"reset": 2, "step": 2}
    )
    collect(plan, tmp_path / "smooth")
    world, honest = BrokenWorld(), Teacher._reply
    threads, processes = threading.active_count(), set(psutil.Process().children())

    def reply(self, request):
        world.asked()
        return honest(self, request)

    monkeypatch.setattr(Teacher, "_reply", reply)
    Tiny.on_reset = Tiny.on_step = world.step

    monkeypatch.setattr("ratchet.components.rollouts.collection.REPORT_SECONDS", 0.0)

    def half(progress):
        if progress.done > episodes // 3 and world.away_from is None:
            world.away_from = time.monotonic()

    report = collect(plan, tmp_path / "rough", on_progress=half)
    rough, smooth = ({each.episode_id: each for each in read_folder(tmp_path / name)} for name in ("rough", "smooth"))
    assert len(list(read_folder(tmp_path / "rough"))) == len(rough) == report.episodes == episodes
    assert all(world.faults.values()), world.faults
    assert sum(report.retried.values()) > episodes * SHARE / 2
    for identity, each in rough.items():
        if each.failure is None:
            assert each.content_hash == smooth[identity].content_hash
        else:
            assert each.outcome.score is None and each.outcome.success is None
    assert report.infrastructure_failures <= 5
    assert not Tiny.alive
    until(lambda: set(psutil.Process().children()) <= processes)
    world.for_ever.set()
    until(lambda: threading.active_count() <= threads)  # those that hung have come back and gone
