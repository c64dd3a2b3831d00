import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import LIMIT, gone, until

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.processes import BackgroundProcess, free_port, run_job_process, stop_all_processes

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def test_a_command_runs_to_its_end_and_its_output_is_in_the_log(tmp_path):
    process = BackgroundProcess(
        [sys.executable, "-c", "print('said'); raise SystemExit(7)"], log=tmp_path / "log"
    ).start()
    assert process.wait(LIMIT) == 7
    assert process.last_lines() == "said"


def test_stopping_ends_the_command_and_what_it_started(tmp_path):
    script = f"import subprocess; p = subprocess.Popen({SLEEPER!r}); print(p.pid, flush=True); p.wait()"
    process = BackgroundProcess([sys.executable, "-c", script], log=tmp_path / "log").start()
    until(lambda: len(process.last_lines(2).splitlines()) == 2)
    grandchild = next(int(line) for line in process.last_lines(2).splitlines() if line.isdigit())
    process.stop()
    process.stop()
    until(lambda: gone(grandchild))  # killed already, and on a busy machine not yet taken apart
    assert process.poll() is not None


def test_what_a_command_leaves_behind_ends_with_it_and_its_exit_code_stays(tmp_path):
    script = f"import os, subprocess; print(subprocess.Popen({SLEEPER!r}).pid, flush=True); os._exit(5)"
    process = BackgroundProcess([sys.executable, "-c", script], log=tmp_path / "log").start()
    assert process.wait(LIMIT) == 5
    left_behind = int((tmp_path / "log").read_text().split()[-1])
    until(lambda: gone(left_behind))


@pytest.mark.slow
def test_a_command_that_ignores_sigterm_is_killed(tmp_path):
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    process = BackgroundProcess([sys.executable, "-c", script], log=tmp_path / "log").start()
    until(lambda: process.last_lines() == "deaf")
    process.stop()
    assert process.poll() is not None, "it is not waited for for ever"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["parent alone", "process group"])
def test_a_command_does_not_outlive_a_parent_that_was_killed(tmp_path, how):
    script = f"""
import sys, time
from pathlib import Path
from ratchet.components.core.processes import BackgroundProcess
process = BackgroundProcess({SLEEPER!r}, log=Path({str(tmp_path / "log")!r})).start()
print(process.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    guard = int(parent.stdout.readline())
    until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().strip() == "up")
    command = psutil.Process(guard).children()[0].pid
    if how == "parent alone":
        os.kill(parent.pid, signal.SIGKILL)
    else:
        os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    until(lambda: gone(command) and gone(guard))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_command_does_not_outlive_its_guard(tmp_path):
    process = BackgroundProcess(SLEEPER, log=tmp_path / "log").start()
    until(lambda: process.last_lines() == "up")
    command = psutil.Process(process.pid).children()[0].pid
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: gone(command))
    process.stop()


def test_stop_all_ends_whatever_runs(tmp_path):
    processes = [BackgroundProcess(SLEEPER, log=tmp_path / name).start() for name in "ab"]
    stop_all_processes()
    assert all(process.poll() is not None for process in processes)


def job(tmp_path: Path, script: str) -> None:
    run_job_process(
        [sys.executable, "-c", script], log=tmp_path / "log", error_file=tmp_path / "error.json", on_poll=lambda: None
    )


CHILD_ENDS_MEANWHILE = f"""
import subprocess, threading, psutil
from ratchet.components.core.processes import exit_with_children
sleeper = subprocess.Popen({SLEEPER!r}, stdout=subprocess.DEVNULL)
look = psutil.Process.children
def children(self, recursive=False):
    found = look(self, recursive)
    sleeper.kill()
    sleeper.wait()
    return found
psutil.Process.children = children
thread = threading.Thread(target=exit_with_children, args=(143,))
thread.start()
thread.join()
"""


def test_a_process_ends_also_when_a_child_has_ended_just_before_it_is_killed():
    done = subprocess.run([sys.executable, "-c", CHILD_ENDS_MEANWHILE], capture_output=True, text=True)
    assert done.returncode == 143 and done.stderr == ""


def test_a_jobs_own_error_comes_out_as_the_error_that_it_was(tmp_path):
    said = json.dumps({"message": "the shard is cut short", "exit_code": 3})
    with pytest.raises(DataError, match="the shard is cut short"):
        job(tmp_path, f"open({str(tmp_path / 'error.json')!r}, 'w').write({said!r}); raise SystemExit(3)")


def test_a_job_that_breaks_or_is_killed_is_an_infrastructure_failure_that_names_its_log(tmp_path):
    with pytest.raises(InfrastructureError, match="exit code 9"):
        job(tmp_path, "raise SystemExit(9)")
    with pytest.raises(InfrastructureError, match=r"was killed \(signal 9"):
        job(tmp_path, "import os; os.kill(os.getpid(), 9)")


def test_a_free_port_is_neither_taken_nor_one_that_the_kernel_gives_to_whoever_asks_for_any(monkeypatch):
    assert free_port() < 32768  # where Linux's range begins
    with socket.create_server(("127.0.0.1", 0)) as taken:
        chosen = iter([taken.getsockname()[1], free := free_port()])
        monkeypatch.setattr("secrets.choice", lambda ports: next(chosen))
        assert free_port() == free
