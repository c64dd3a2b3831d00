"""Guard: runs one command that must not outlive the process that asked for it.

`python guard.py PARENT_PID COMMAND...`, started as leader of its own session. SIGTERM is passed on; when the parent has
gone, however it went, the whole session is ended, and so is what the command left behind when it ended by itself.
On Linux the command also dies with a guard that was killed.
A standalone script: it imports nothing of ours, so that it starts in milliseconds.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time

LOOK = 0.5
"""Seconds between two looks at the parent."""
GRACE = 5.0
"""Seconds that the command has to end after SIGTERM before it is killed."""


def main(parent: int, command: list[str]) -> int:
    """Run `command` until it ends or the parent does; its exit code, 128 + n where signal n ended it."""
    wake, alarm = socket.socketpair()
    alarm.setblocking(False)
    signal.set_wakeup_fd(alarm.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        return 1
    child = subprocess.Popen(command, preexec_fn=_die_with_guard if sys.platform == "linux" else None)
    while child.poll() is None:
        if asked or os.getppid() != parent:
            return end(child)
        if select.select([wake], [], [], LOOK)[0]:
            wake.recv(64)
    sweep()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def end(child: "subprocess.Popen[bytes]") -> int:
    """Ask the command to end, then end the session: whatever it started is in it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    limit = time.monotonic() + GRACE
    while child.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    if child.poll() is None or _others() != []:
        os.killpg(0, signal.SIGKILL)
    return 128 + signal.SIGTERM


def sweep() -> None:
    """End what the command left behind: a model server that crashed leaves workers that hold the memory of a GPU."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in _others() or ():
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        limit = time.monotonic() + GRACE
        while _others() and time.monotonic() < limit:
            time.sleep(0.02)


def _others() -> list[int] | None:
    """The session's other processes that live; None where that cannot be told."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return None
    return [pid for pid in pids if pid != os.getpid() and _is_of_ours(pid)]


def _is_of_ours(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            state, _, group = file.read().rpartition(b")")[2].split()[:3]
    except OSError:
        return False
    return int(group) == os.getpgid(0) and state not in b"ZX"


def _die_with_guard() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
