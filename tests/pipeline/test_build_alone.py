"""One build at a time: against another, and against DVC by hand, whichever came first."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_build import small_build

from components.protocol import ConfigurationError
from components.versioning import BuildReport, Inputs, build, dvc
from components.versioning.hashes import LOCK, md5_of, outputs_of, read_lock

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("data_build_alone")]

WANTED = Inputs(("n1",), as_of="2026-11-21", scale="smoke", seed=0)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RATCHET_HOME", "RATCHET_DVC_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("components.versioning.leftovers.PATIENCE", 1.0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A build that stands, and is to be made again by stages that take seconds."""
    root = small_build(tmp_path)
    build(WANTED, root=root)
    text = (root / "dvc.yaml").read_text()
    (root / "dvc.yaml").write_text(text.replace("; sleep 0", "; touch begun; sleep 5; rm begun"))
    return root


@pytest.fixture
def by_hand(project: Path) -> Iterator["subprocess.Popen[str]"]:
    """A `dvc repro` of somebody, in the middle of a stage."""
    process = repro(project)
    begun(project)
    yield process
    process.wait()


def repro(root: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "dvc", "repro"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=root, env=dvc.environment(), text=True, **pipes)


def begun(root: Path) -> None:
    waiting = threading.Event()
    for _ in range(600):
        if (root / "begun").exists():
            return
        waiting.wait(0.05)
    raise AssertionError("the stage was never begun")


def state(root: Path) -> dict[str, str | None]:
    return {name: md5_of(root / name) for name in (str(LOCK), "data/build.yaml", "data/rollouts", "data/gate.json")}


def test_a_build_beside_dvc_by_hand_is_refused_and_touches_nothing(
    project: Path, by_hand: "subprocess.Popen[str]"
) -> None:
    before = state(project)
    with pytest.raises(ConfigurationError, match=r"DVC is at work in this clone by hand .*; wait until it has ended"):
        build(Inputs(("n1",), as_of="2026-11-22", scale="smoke", seed=0), root=project)
    assert state(project) == before and not (project / ".ratchet/build/before").exists()
    said, _ = by_hand.communicate()
    assert by_hand.returncode == 0, said


def test_dvc_by_hand_beside_a_build_does_not_disturb_it(project: Path) -> None:
    found: list[BuildReport] = []
    building = threading.Thread(target=lambda: found.append(build(root=project)))
    building.start()
    begun(project)
    second = repro(project)
    said, _ = second.communicate()
    building.join()
    assert second.returncode != 0 and "is busy" in said
    assert [stage.state for stage in found[0].stages] == ["ran", "unchanged"]
    lock = outputs_of(read_lock(project / LOCK))
    assert lock == found[0].outputs == {path: md5_of(project / path) for path in lock}


def test_two_builds_at_once_are_refused(project: Path) -> None:
    building = threading.Thread(target=lambda: build(root=project))
    building.start()
    begun(project)
    with pytest.raises(ConfigurationError, match="another data build runs in this clone"):
        build(root=project)
    building.join()
