"""Start local commands: the client of the launcher process (launch_server.py), and the pipes of each command.

Commands are forked from a small, single-threaded launcher, because forking a large process (torch, MLflow) would copy
its page tables, and entering namespaces from a threaded process is unsafe. The launcher exits, and removes `folder`,
with its owner.
"""

import contextlib
import itertools
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ratchet.components.core import CommandResult, CommandTimeout, OutputLimitExceeded, SandboxUnavailable
from ratchet.components.core.processes import owner_token

# The launcher's package without the rest of Ratchet: `sandboxes` is this folder, but its __init__.py is not run.
LAUNCHER_SCRIPT = """
import sys, types
package = sys.modules["sandboxes"] = types.ModuleType("sandboxes")
package.__path__ = [sys.argv[1]]
from sandboxes.launch_server import serve_launches
serve_launches(int(sys.argv[2]), sys.argv[3])
"""


class CommandLauncher:
    """The launcher process of this process. Thread-safe.

    `folder` contains the folders of all local sandboxes of this process; each command mounts its root file system over
    the empty folder `root`.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=f"ratchet-sandboxes-{owner_token()}-"))
            self.folder.chmod(0o711)
            self.root = self.folder / "root"
            self.root.mkdir()
            self._start()
        except OSError as error:
            raise SandboxUnavailable(f"the local sandbox cannot start its launcher: {error}") from error

    def _start(self) -> None:
        self._socket, their_end = socket.socketpair()
        with their_end:
            command = [sys.executable, "-I", "-S", "-c", LAUNCHER_SCRIPT, str(Path(__file__).parent)]
            self._process = subprocess.Popen(
                [*command, str(their_end.fileno()), str(self.folder)],
                pass_fds=[their_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                # Commands without a process namespace can read the launcher's /proc/PID/environ if they have its user id.
                env={},
            )

    def new_folder(self) -> Path:
        """Create an empty folder for one sandbox."""
        folder = self.folder / str(next(self._numbers))
        folder.mkdir()
        return folder

    def launch(self, descriptors: list[int]) -> None:
        """Pass a command's control socket and standard input, output and error, in this order, to the launcher.

        If the launcher has died, another is started. Raises OSError.
        """
        # Only sending shows that a launcher is dead (killed for memory, for example); the second failure is raised.
        # The message is one byte: the request follows on the command's own socket, so a large one blocks no other command.
        with self._lock:
            try:
                socket.send_fds(self._socket, [b"+"], descriptors)
            except OSError:
                self._restart()
                socket.send_fds(self._socket, [b"+"], descriptors)

    def _restart(self) -> None:
        self._socket.close()
        self._process.wait(timeout=10)
        self.root.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        self._start()

    def close_inherited_socket(self) -> None:
        """After a fork, in the child: close the inherited socket."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def close(self) -> None:
        """End the launcher and every process that it started."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)


_process_launcher: CommandLauncher | None = None
_launcher_lock = threading.Lock()


def shared_launcher() -> CommandLauncher:
    """Return this process's launcher, starting it on first use. Raises SandboxUnavailable."""
    global _process_launcher
    with _launcher_lock:
        if _process_launcher is None or _process_launcher.owner != os.getpid():
            _process_launcher = CommandLauncher()
        return _process_launcher


def _after_fork() -> None:
    global _process_launcher, _launcher_lock
    # A lock that another thread held at the fork is never released in the child.
    _launcher_lock = threading.Lock()
    if _process_launcher is not None:
        _process_launcher.close_inherited_socket()
        _process_launcher = None


# A child that used its parent's launcher would mix its messages with the parent's, and end with the parent.
os.register_at_fork(after_in_child=_after_fork)


GUARD_SECONDS = 10.0
CHUNK = 1 << 16


class LocalCommand:
    """A command, started on creation. `cancel` may be called from any thread and kills everything that it started.

    `request`: see Isolation.launch_request. `stdin`: its whole input; None: it reads /dev/null.
    """

    def __init__(self, launcher: CommandLauncher, request: dict[str, Any], stdin: bytes | None) -> None:
        self._streams: list[bytearray] = [bytearray(), bytearray()]
        self._report = bytearray()
        try:
            self._control, their_end = socket.socketpair()
            stdout_read, stdout_write = os.pipe()
            stderr_read, stderr_write = os.pipe()
        except OSError as error:
            raise SandboxUnavailable(f"the local sandbox cannot open a pipe: {error}; run fewer at once") from error
        self._descriptors = {stdout_read: self._streams[0], stderr_read: self._streams[1]}
        try:
            with their_end, _stdin_descriptor(stdin) as source:
                launcher.launch([their_end.fileno(), source, stdout_write, stderr_write])
            content = json.dumps(request).encode()
            self._control.sendall(struct.pack("!I", len(content)) + content)
        except OSError as error:
            self._close()
            raise SandboxUnavailable(f"the local sandbox's launcher has ended: {error}") from error
        finally:
            os.close(stdout_write)
            os.close(stderr_write)

    def cancel(self) -> None:
        """Kill the command; a concurrent `wait` then returns exit code 137."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def wait(self, timeout: float, output_limit: int) -> CommandResult:
        """Wait for the end and return the result; call once.

        `timeout`: that of the request, in seconds; `output_limit`: bytes of both outputs together. Raises
        CommandTimeout, OutputLimitExceeded, SandboxUnavailable.
        """
        begin = time.perf_counter()
        try:
            limit_exceeded = self._read(time.monotonic() + timeout + GUARD_SECONDS, output_limit)
        finally:
            self._close()
        report = self._exit_report()
        result = CommandResult(
            exit_code=report["exit_code"],
            stdout=bytes(self._streams[0]),
            stderr=bytes(self._streams[1]),
            seconds=time.perf_counter() - begin,
            timed_out=report.get("timed_out", False),
            truncated=limit_exceeded,
        )
        return checked_result(result, timeout, output_limit)

    def _read(self, deadline: float, limit: int) -> bool:
        """Read until every stream is closed; return whether the command printed more than `limit` bytes."""
        poll = select.poll()
        control = self._control.fileno()
        for descriptor in (control, *self._descriptors):
            poll.register(descriptor, select.POLLIN)
        open_descriptors = {control, *self._descriptors}
        limit_exceeded = False
        while open_descriptors:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                raise SandboxUnavailable("the local sandbox's launcher does not answer; start the command again")
            for descriptor, _ in ready:
                data = os.read(descriptor, CHUNK)
                if not data:
                    open_descriptors.remove(descriptor)
                    poll.unregister(descriptor)
                elif descriptor == control:
                    self._report += data
                elif not limit_exceeded:
                    limit_exceeded = self._append_output(self._descriptors[descriptor], data, limit)
        return limit_exceeded

    def _append_output(self, stream: bytearray, data: bytes, limit: int) -> bool:
        allowance = limit - sum(map(len, self._streams))
        stream += data[:allowance]
        if len(data) <= allowance:
            return False
        self.cancel()
        return True

    def _exit_report(self) -> dict[str, Any]:
        if not self._report:  # the supervisor was killed with everything that it started, most likely for memory
            return {"exit_code": 137}
        report: dict[str, Any] = json.loads(self._report)
        if "error" in report:
            raise SandboxUnavailable(f"the local sandbox cannot run a command: {report['error']}")
        return report

    def _close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = {}
        self._control.close()


def checked_result(result: CommandResult, timeout: float, output_limit: int) -> CommandResult:
    """Return `result`. Raises CommandTimeout or OutputLimitExceeded, which carry it, for a command that was killed."""
    if result.truncated:
        raise OutputLimitExceeded(f"the command printed more than {output_limit} bytes and was killed", result)
    if result.timed_out:
        raise CommandTimeout(f"the command ran longer than {timeout:g} s and was killed", result)
    return result


@contextlib.contextmanager
def _stdin_descriptor(data: bytes | None) -> Any:
    """Yield a descriptor from which a command reads `data`; /dev/null for None."""
    if data is None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return
    # A file, not a pipe: a command that reads slowly, or never, would block the writer of a pipe at 64 KiB.
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()
