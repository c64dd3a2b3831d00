"""What killed processes left is removed, and nothing that a living process owns."""

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from dead_owner import dead_label, dead_token
from patience import LIMIT, until

from ratchet.components.core.files import temporary_path, write_json
from ratchet.components.core.home import home, record_server, recorded_address
from ratchet.components.core.processes import OWNER_VARIABLE, orphaned_processes, owner_label, owner_token
from ratchet.components.nights.night_state import hold_night_lock
from ratchet.components.operations import leftovers
from ratchet.components.sandboxes import persistent_sandboxes
from ratchet.components.training.heartbeat import Heartbeat


def own_orphans():
    own = {child.pid for child in psutil.Process().children()}
    return (orphan for orphan in orphaned_processes() if orphan[0] in own)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A project with a home, on a machine whose temporary files and processes are its own: other tests kill theirs meanwhile."""
    for name in ("DOCKER_HOST", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(leftovers, "orphaned_containers", lambda: iter(()))
    monkeypatch.setattr(leftovers, "orphaned_processes", own_orphans)
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").touch()


PLACES = [
    "home/nights/n/.state.json.{}.tmp",
    "home/spool/n/.shard-00000.jsonl.{}.tmp",
    "home/credentials/.prefect.12ab.{}.tmp",
    "home/run/player-{}-77",
    "home/run/backup-{}-x",
    "data/judgements/.n.{}.tmp",
    "data/.build.yaml.{}.tmp",
    ".dvc.lock.{}.tmp",
    "tmp/ratchet-artifact-{}-x",
    "tmp/ratchet-sandboxes-{}-x",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_temporary_file_or_folder_of_a_dead_process_alone_is_removed(place):
    dead, living, other_boot = (Path(place.format(token)) for token in (dead_token(), owner_token(), "1-1-00000000"))
    for path in (dead, living, other_boot):
        path.mkdir(parents=True)
        (path / "file").touch()
    (line,) = leftovers.remove_leftovers_at_start()
    assert line.startswith("removed folder ") and line.endswith(str(dead))
    assert not dead.exists() and living.exists() and other_boot.exists()


def test_a_process_id_that_was_given_to_another_process_keeps_no_file():
    pid, _, place = owner_token().split("-")
    path = home() / "nights" / f".state.json.{pid}-1-{place}.tmp"
    path.parent.mkdir(parents=True)
    path.touch()
    assert len(list(leftovers.remove_leftovers_at_start())) == 1 and not path.exists()


def test_what_others_named_like_ours_stays_however_old_it_is():
    kept = [
        Path("tmp/ratchet-mine"),
        Path("tmp/ratchet-stack-a1"),
        Path("home/run/night.lock"),
        Path("data/.notes.tmp"),
    ]
    for path in kept:
        path.mkdir(parents=True)
        os.utime(path, (0, 0))
    assert list(leftovers.remove_leftovers_at_start()) == [] and all(path.exists() for path in kept)


def test_a_temporary_file_whose_owner_cannot_be_checked_is_removed_after_a_day():
    path = temporary_path(home() / "a").with_name(".a.1-1-00000000.tmp")
    path.parent.mkdir(parents=True)
    path.touch()
    assert list(leftovers.remove_leftovers_at_start()) == []
    os.utime(path, (0, 0))
    assert list(leftovers.remove_leftovers_at_start()) == [f"removed file {path}"]


def test_processes_that_outlived_their_night_are_ended_and_those_of_a_running_one_are_not():
    def start(label):
        return subprocess.Popen(["sleep", "600"], env={**os.environ, OWNER_VARIABLE: label}, start_new_session=True)

    living = start(owner_label())
    try:
        for _ in range(5):  # a night of another test may be faster
            dead = start(dead_label())
            until(
                lambda dead=dead: b"sleep" in Path(f"/proc/{dead.pid}/cmdline").read_bytes() or dead.poll() is not None
            )
            removed = list(leftovers.remove_leftovers_at_start())
            assert dead.wait(LIMIT) == -9 and living.poll() is None
            if removed:
                break
        assert removed == [f"removed process {dead.pid} (sleep 600)"]
    finally:
        for process in (dead, living):
            process.kill()
            process.wait()


def test_the_heartbeat_of_a_killed_job_is_removed_and_that_of_a_running_one_is_not():
    stale, beating = (home() / "nights" / night / "training" / "challenger" for night in ("a", "b"))
    for folder in (stale, beating):
        folder.mkdir(parents=True)
    with Heartbeat(beating, 60):
        until((beating / "heartbeat.json").is_file, LIMIT)
        text = (beating / "heartbeat.json").read_text()
        (stale / "heartbeat.json").write_text(text.replace(owner_label(), dead_label()))
        assert list(leftovers.remove_leftovers_at_start()) == [f"removed heartbeat {stale / 'heartbeat.json'}"]
        assert (beating / "heartbeat.json").is_file()


def test_a_standing_sandbox_stays_where_the_clock_of_the_machine_was_set_on_past_its_time():
    folder = persistent_sandboxes.sandboxes_folder() / "s-1"
    folder.mkdir(parents=True)
    before = time.time() - 90_000
    record = persistent_sandboxes.PersistentSandbox(
        "s-1", "local", None, os.getpid(), owner_label(), before, before + 80_000, {}
    )
    write_json(folder / persistent_sandboxes.RECORD_FILE, record)
    assert list(leftovers.remove_leftovers_at_start()) == [] and folder.is_dir()


def test_stale_prefect_runs_stay_while_a_lock_is_held_also_before_its_owner_has_written_its_name():
    with hold_night_lock():
        assert list(leftovers.remove_leftovers())[-1].endswith("is running: its Prefect runs stay")
    assert list(leftovers.remove_leftovers())[-1].startswith("Prefect does not run")


def test_a_server_is_known_after_the_clock_of_the_machine_was_set(monkeypatch):
    record_server("prefect", "http://127.0.0.1:1/api", os.getpid())
    monkeypatch.setattr(
        "psutil.Process.create_time", lambda process: 0.0
    )  # psutil adds the time of the boot, which moves
    assert recorded_address("prefect") == "http://127.0.0.1:1/api"
