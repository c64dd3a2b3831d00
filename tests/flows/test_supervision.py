"""Services run under supervisord until `ratchet down`, or by units that systemd accepts."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import gone, until

from ratchet.components.core import ConfigurationError
from ratchet.components.core.home import home, recorded_process
from ratchet.components.core.processes import GUARD_SCRIPT
from ratchet.flows import supervision
from ratchet.flows.services import Service, ServiceState

pytestmark = pytest.mark.slow

SERVICE = """
import os, subprocess, sys, time
from pathlib import Path
if sys.argv[1] == "refused":
    print("no such port", flush=True)
    sys.exit(2)
if len(sys.argv) == 3:
    os.execv(sys.executable, [sys.executable, "-I", sys.argv[2], str(os.getppid()), sys.executable, __file__, sys.argv[1]])
print(f"in {os.environ['RATCHET_HOME']}", flush=True)
Path(os.environ["RATCHET_HOME"], sys.argv[1] + ".pid").write_text(str(os.getpid()))
time.sleep(600)
"""


class FakeService(Service, frozen=True):
    """A service whose guarded process writes its id to a file of the home, and sleeps."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(home().parent / "service.py"), self.name, str(GUARD_SCRIPT)]


def process_of(name: str) -> int:
    path = home() / f"{name}.pid"
    return int(path.read_text() or 0) if path.is_file() else 0


def lives(name: str) -> bool:
    return bool(process_of(name)) and not gone(process_of(name))


@pytest.fixture
def services(tmp_path, monkeypatch):
    """Two services of a home whose path every configuration must quote."""
    folder = tmp_path / "it's done"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RATCHET_HOME", str(folder / "my home"))
    (folder / "service.py").write_text(SERVICE)
    monkeypatch.setattr(supervision, "service_state", lambda name: ServiceState(name, "", "healthy", lives(name)))
    yield [FakeService("one"), FakeService("two")]
    supervision.stop_services(lambda line: None)


def test_services_run_until_they_are_stopped_and_nothing_is_left(services):
    said: list[str] = []
    assert supervision.start_services(services, said.append)
    assert said == ["one is healthy", "two is healthy"] and supervision.supervised_names() == ["one", "two"]
    processes = [recorded_process("supervisor"), process_of("one"), process_of("two")]
    assert supervision.stop_services(said.append)
    until(lambda: all(gone(process) for process in processes))
    assert not supervision.stop_services(said.append) and supervision.supervised_names() == []
    assert (home() / "logs/one.log").read_text() == f"in {home()}\n"
    assert not [path for path in (home() / "logs").iterdir() if path.stat().st_mode & 0o077]


def test_a_service_that_was_killed_is_started_again(services):
    supervision.start_services(services, lambda line: None)
    before = process_of("one")
    os.kill(before, signal.SIGKILL)
    until(lambda: process_of("one") not in (0, before) and lives("one"))
    assert lives("two")


def test_services_end_with_a_supervisor_that_was_killed_and_can_be_started_anew(services):
    supervision.start_services(services, lambda line: None)
    before = [process_of("one"), process_of("two")]
    psutil.Process(recorded_process("supervisor")).kill()
    until(lambda: all(gone(process) for process in before))
    assert not supervision.is_up() and supervision.start_services(services, lambda line: None)


def test_up_twice_changes_nothing_and_other_options_are_refused(services):
    supervision.start_services(services, lambda line: None)
    before = process_of("one")
    assert not supervision.start_services(services, lambda line: None)
    with pytest.raises(ConfigurationError, match="`ratchet down`"):
        supervision.start_services(services[:1], lambda line: None)
    assert process_of("one") == before and lives("two")


def test_a_service_that_refuses_its_configuration_ends_all_with_its_own_words(services):
    with pytest.raises(ConfigurationError, match="refused: no such port; see "):
        supervision.start_services([*services, FakeService("refused")], lambda line: None)
    until(lambda: not lives("one") and not lives("two"))
    assert not supervision.is_up()


def test_an_argument_that_supervisord_would_cut_is_refused(services):
    for argument in ("a ;b", "10%"):
        with pytest.raises(ConfigurationError, match="cannot stand in a path"):
            supervision.start_services([Service("model", (argument,))], lambda line: None)
    assert not supervision.is_up()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_units_are_valid_for_systemd_whatever_the_path(tmp_path, monkeypatch):
    units, folder = tmp_path / "units", tmp_path / "it's 50% ; done"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RATCHET_HOME", str(folder / "my home"))
    written = supervision.write_units([Service("prefect", ("4200",)), Service("model", ("a b", "$X", "10%"))], units)
    assert [path.name for path in written] == ["ratchet.target", "ratchet-prefect.service", "ratchet-model.service"]
    check = ["systemd-analyze", "verify", "--man=no", *map(str, written)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit = written[1].read_text()
    assert "Restart=always" in unit and f"WorkingDirectory={str(Path.cwd()).replace('%', '%%')}\n" in unit


def test_units_of_another_home_are_not_overwritten(services, tmp_path, monkeypatch):
    supervision.write_units([Service("watch")], tmp_path)
    supervision.write_units([Service("watch")], tmp_path)
    before = (tmp_path / "ratchet.target").read_bytes()
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "other"))
    with pytest.raises(ConfigurationError, match="--units"):
        supervision.write_units([Service("watch")], tmp_path)
    assert (tmp_path / "ratchet.target").read_bytes() == before
