"""Background processes that end with their parent, jobs that run to their end in one, and loopback ports."""

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn, Self

import msgspec

from .errors import ConfigurationError, DataError, InfrastructureError, RatchetError
from .run_context import child_environment


@cache
def _boot_id() -> str:
    """Return an identifier of this boot and this pid namespace, within which process ids are meaningful."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    return os.uname().nodename


def _process_start_time(pid: int) -> str | None:
    """Return a process's start time (Linux: clock ticks since boot), or None if no such process is alive."""
    if not Path("/proc/self/stat").exists():
        import psutil

        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
        return None
    try:
        # Not psutil's `create_time`, which moves with the system's clock.
        # The name, in parentheses, may contain blanks and parentheses. After it come field 3, the state, and field 22.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def owner_label(pid: int | None = None) -> str:
    """Return what identifies a process (None: this one) among all of all boots: boot id, pid namespace, process id and
    start time.
    """
    pid = os.getpid() if pid is None else pid
    return f"{_boot_id()}/{pid}/{_process_start_time(pid)}"


def owner_is_dead(label: str) -> bool:
    """Return True if the process of a label has ended.

    False if it is alive, and for a label of another boot or pid namespace, where its process cannot be checked.
    """
    # A process id alone proves nothing: it is reused, and means another process in another pid namespace or after a reboot.
    boot, pid, start_time = _label_parts(label)
    return boot == _boot_id() and pid.isdigit() and _process_start_time(int(pid)) != start_time


def owner_is_alive(label: str) -> bool:
    """Return True if the process of a label runs; False also where it cannot be checked."""
    boot, pid, start_time = _label_parts(label)
    return boot == _boot_id() and pid.isdigit() and _process_start_time(int(pid)) == start_time


def owner_pid(label: str) -> int:
    """Return the process id of a label."""
    return int(_label_parts(label)[1])


def _label_parts(label: str) -> tuple[str, str, str]:
    """Return boot id with pid namespace, process id, and start time."""
    process, _, start_time = label.rpartition("/")
    boot, _, pid = process.rpartition("/")
    return boot, pid, start_time


@cache
def _boot_hash() -> str:
    return f"{zlib.crc32(_boot_id().encode()):08x}"


OWNER_TOKEN = re.compile(r"(\d+)-([\d.]+)-([0-9a-f]{8})")


def owner_token() -> str:
    """Return this process's `owner_label` as a part of a file name, with a hash of boot and pid namespace."""
    return f"{os.getpid()}-{_process_start_time(os.getpid())}-{_boot_hash()}"


def token_owner_is_dead(name: str) -> bool | None:
    """Return whether the owner of a file has ended, from the `owner_token` in its name; None where the name has none, or
    one of another boot or pid namespace, where the process cannot be checked.
    """
    found = OWNER_TOKEN.search(name)
    if found is None or found[3] != _boot_hash():
        return None
    return _process_start_time(int(found[1])) != found[2]


OWNER_VARIABLE = "RATCHET_OWNER"
"""Environment variable of every process that a night or a comparison starts: the `owner_label` of that run's process."""


def own_children() -> None:
    """Mark the processes that this one starts from now on, and theirs, so that `orphaned_processes` finds them."""
    os.environ[OWNER_VARIABLE] = owner_label()


def orphaned_processes() -> Iterator[tuple[int, str]]:
    """Yield id and command line of every process that an ended process marked by `own_children`."""
    prefix = f"{OWNER_VARIABLE}=".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(prefix) and owner_is_dead(entry.removeprefix(prefix).decode("utf-8", "replace")):
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                    yield int(folder.name), " ".join(command.split())


def kill_process(pid: int, seconds: float = 10.0) -> None:
    """Kill a process and wait until it has ended, so that it holds no lock. Raises InfrastructureError after `seconds`."""
    start_time, deadline = _process_start_time(pid), time.monotonic() + seconds
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while start_time is not None and _process_start_time(pid) == start_time:
        if time.monotonic() > deadline:
            raise InfrastructureError(f"process {pid} does not end although it was killed; a disk or mount may hang")
        time.sleep(0.02)


FREE_PORTS = range(20000, 32768)
"""Below the ports that Linux gives to connections and to servers that ask for any: those come by the hundred, and one of them
could take a free port before the server that it was chosen for has started.
"""


def free_port() -> int:
    """Return a loopback port that is free now; it is not reserved, so another process may take it."""
    for _ in range(1000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port := secrets.choice(FREE_PORTS)))
            return port
    raise InfrastructureError(
        f"no loopback port of {FREE_PORTS[0]} to {FREE_PORTS[-1]} is free; end what listens there"
    )


def require_free_port(port: int, purpose: str, option: str) -> None:
    """Raise ConfigurationError where a loopback port is taken. The message names `purpose`, the server that needs it,
    and `option`, the command-line option that chooses another port.
    """
    with socket.socket() as probe:
        # As servers do: without it a port in TIME_WAIT counts as taken for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} for {purpose} is taken; end what listens there or choose another with {option}"
            ) from error


GUARD_SCRIPT = Path(__file__).with_name("process_guard.py")


class BackgroundProcess:
    """A command that runs in the background and ends with this process. Both output streams are appended to `log` (mode
    0600).

    `env`: variables added to those of this process. `umask` is that of the command; -1 inherits. `start` returns at
    once; `stop` ends the command with all its descendants. Processes that the command leaves behind when it exits are
    ended too. If this process is killed, `process_guard` ends them all within seconds.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, umask: int = -1
    ) -> None:
        self.command = list(command)
        self.log = log
        self._umask = umask
        self.env = {**os.environ, **child_environment(), **(env or {})}
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the command. Raises InfrastructureError where it cannot be started."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # -I: neither the working folder nor PYTHON* variables may change what the guard imports.
        argv = [sys.executable, "-I", str(GUARD_SCRIPT), str(os.getpid()), *self.command]
        try:
            with open(self.log, "ab", opener=_open_private) as log:
                self._guard = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    start_new_session=True,  # Ctrl-C in the terminal must not reach the command before we stop it
                    umask=self._umask,
                )
        except OSError as error:
            raise InfrastructureError(f"cannot start {self.command[0]}: {error}; see {self.log}") from error
        with _lock:
            _running.add(self)
        return self

    @property
    def pid(self) -> int:
        """Process id of the `process_guard` that runs the command; terminating it ends the command."""
        if self._guard is None:
            raise InfrastructureError(f"{self.command[0]} was not started")
        return self._guard.pid

    def poll(self) -> int | None:
        """Return the exit code; None while the command runs, or was not started."""
        return None if self._guard is None else self._guard.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most `timeout` seconds (None: for ever); return the exit code. Raises TimeoutExpired."""
        assert self._guard is not None
        return self._guard.wait(timeout)

    def stop(self) -> None:
        """End the command and its descendants; safe to call twice."""
        with _lock:
            _running.discard(self)
        if self._guard is None or self._guard.poll() is not None:
            return
        self._guard.terminate()
        try:
            self._guard.wait(15)  # longer than the grace periods of the guard
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()

    def last_lines(self, count: int = 1) -> str:
        """Return the last `count` non-empty lines of the log; empty where it cannot be read."""
        return last_lines(self.log, count)


class LineProcess:
    """A process that answers each line of its standard input by one line, and ends with its input. Requests take turns.

    It runs in a separate POSIX session, so that Ctrl-C does not reach it; it ends when this process closes its input. Raises
    OSError where it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True)
        self._turn = threading.Lock()

    def ask(self, request: bytes, seconds: float) -> bytes | None:
        """Return the answer; None where the process has ended, or gave none within `seconds` and was killed."""
        process, answer = self.process, b""
        assert process.stdin is not None and process.stdout is not None
        with self._turn:
            watchdog = threading.Timer(seconds, self.kill)
            watchdog.start()
            with contextlib.suppress(OSError):  # it had ended before
                process.stdin.write(request + b"\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            watchdog.cancel()
        return answer if answer.endswith(b"\n") else None

    def close(self) -> None:
        """Kill the process, and wait for its end."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # a request that was not sent whole
                pipe.close()  # type: ignore[union-attr]
        self.process.wait()

    def kill(self) -> None:
        """Kill the process and what it has started, which may hold its pipes open."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def last_lines(log: Path, count: int = 1) -> str:
    """Return the last `count` non-empty lines of a log; empty where it cannot be read."""
    try:
        text = log.read_bytes()[-8192:].decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


def _open_private(path: str, flags: int) -> int:
    """Open a file with mode 0600."""
    return os.open(path, flags, 0o600)


_running: set[BackgroundProcess] = set()
_lock = threading.Lock()


def stop_all_processes() -> None:
    """Stop every BackgroundProcess that this process started and that still runs, for an interrupted command."""
    with _lock:
        running = list(_running)
    # Signal all processes before waiting for any, so that their grace periods run at the same time.
    for process in running:
        if process._guard is not None and process._guard.poll() is None:
            process._guard.terminate()
    for process in running:
        process.stop()


POLL_SECONDS = 0.5
"""Seconds between two checks of a job."""


def exit_with_children(code: int) -> NoReturn:
    """Kill every descendant of this process and exit at once with `code`, without cleanup such as `finally` blocks."""
    try:
        import psutil  # a training host may lack it

        stop_all_processes()
        # Listed once: a child that is killed hands its own children to init, where they are not found any more.
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # one that has ended meanwhile
                child.kill()
    finally:
        os._exit(code)  # sys.exit would only end this thread, and wait for the others


def exit_when_process_ends(pid: int) -> None:
    """Start a thread that ends this process and its children (`exit_with_children`, code 143) within seconds of the end
    of process `pid`.
    """
    import psutil

    def watch() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            owner = psutil.Process(pid)
            while owner.is_running() and owner.status() != psutil.STATUS_ZOMBIE:
                time.sleep(1)
        exit_with_children(143)

    threading.Thread(target=watch, name=f"end-with-{pid}", daemon=True).start()


def run_job_process(
    command: Sequence[str],
    *,
    log: Path,
    error_file: Path,
    env: Mapping[str, str] | None = None,
    on_poll: Callable[[], None],
) -> None:
    """Run a command to its end, calling `on_poll` every POLL_SECONDS; an exception of `on_poll` ends the command.

    `log` and `env` as in BackgroundProcess. Where the exit code is not 0, raises the error that the command wrote to
    `error_file` (a JobFailure as JSON), or InfrastructureError if it wrote none: it was killed or crashed.
    """
    process = BackgroundProcess(command, log=log, env=env).start()
    try:
        while True:
            try:
                code = process.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                on_poll()
    finally:
        process.stop()
    if code != 0:
        raise _failure(process, error_file, code)


class JobFailure(msgspec.Struct, frozen=True):
    """Error of a job that ran in a separate process: a message of one line, and the exit code of its class of error."""

    message: str
    exit_code: int


def _failure(process: BackgroundProcess, error_file: Path, code: int) -> RatchetError:
    try:
        failure = msgspec.json.decode(error_file.read_bytes(), type=JobFailure)
        kinds = {kind.exit_code: kind for kind in (ConfigurationError, DataError, InfrastructureError)}
        return kinds.get(failure.exit_code, RatchetError)(failure.message)
    except (OSError, msgspec.MsgspecError):
        job = " ".join(Path(word).name for word in process.command[1:3] if word != "-m")
        if code > 128:
            return InfrastructureError(
                f"{job} was killed (signal {code - 128}; out of memory?); run the same command again"
            )
        return InfrastructureError(f"{job} ended with exit code {code}: {process.last_lines()}; see {process.log}")
