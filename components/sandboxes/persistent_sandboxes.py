"""Persistent sandboxes: they outlive the command that created them, until they are stopped or their lifetime is over.

Each is owned by a daemon process, this module run as a program, and ends with it. The daemon's record and its socket
are in `sandboxes/ID` under RATCHET_HOME (or `.ratchet`).

To start, the daemon reads one JSON object from standard input ({"id", "folder", "config", "lifetime"}) and prints one
line, {"ready": true} or {"error": message, "kind": name of the error's class}. It ends at SIGTERM and at the end of the
lifetime. Each connection to the socket is one request, answered after those before it:

    {"do": "run", "command", "timeout", "output_limit", "env", "stdin": number of bytes, or null}, then the bytes of stdin
      -> {"result": {...}, "stdout": number of bytes, "failure": message or null, "kind"}, then stdout, then stderr
    {"do": "reset"} -> {}
    {"do": "read", "path"} -> {}, then the bytes of the file
    {"do": "write", "path", "stdin": number of bytes}, then the bytes of the file -> {}
    {"do": "snapshot"} -> {"snapshot": its id}
    {"do": "restore", "snapshot"} -> {}
    any -> {"error": message, "kind": name of the error's class}, for example if the sandbox is lost

Objects are one line each.
"""

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal

import msgspec

from ratchet.components.core import (
    CommandFailure,
    CommandResult,
    CommandTimeout,
    ConfigurationError,
    OutputLimitExceeded,
    RatchetError,
    Sandbox,
    SandboxFileError,
    SandboxUnavailable,
)
from ratchet.components.core.files import write_atomically
from ratchet.components.core.home import home
from ratchet.components.core.processes import owner_is_dead, owner_label

from .sandbox_config import SandboxConfig
from .sandbox_factory import make_sandbox

START_SECONDS = 120.0
STOP_SECONDS = 30.0
MAX_LIFETIME_SECONDS = 23 * 3600.0
RECORD_FILE = "sandbox.json"
SOCKET_FILE = "socket"


class PersistentSandbox(msgspec.Struct, frozen=True):
    """The record of one sandbox. `pid` is the daemon's, `config` the SandboxConfig.

    - `owner`: the daemon's owner label (see core.processes.owner_label). `created`, `expires`: Unix times.
    - `lost`: the reason why the sandbox and its files were lost, for example a restart of the engine; else empty.
    - `workspace`, `isolation`: as in Sandbox, when it was created.
    """

    id: str
    backend: str
    image: str | None
    pid: int
    owner: str
    created: float
    expires: float
    config: dict[str, Any]
    lost: str = ""
    workspace: str = "/workspace"
    isolation: str | None = None

    @property
    def alive(self) -> bool:
        """True while the daemon runs."""
        return not owner_is_dead(self.owner)

    @property
    def state(self) -> Literal["standing", "lost", "gone"]:
        """The sandbox's state.

        - `standing`: it can run commands.
        - `lost`: its files are lost and commands fail until `reset_sandbox`.
        - `gone`: the daemon has died and only the record exists.
        """
        if not self.alive:
            return "gone"
        return "lost" if self.lost else "standing"


def sandboxes_folder() -> Path:
    """Return the folder that contains one folder per persistent sandbox."""
    return home() / "sandboxes"


def create_sandbox(config: SandboxConfig, lifetime: float) -> PersistentSandbox:
    """Start a daemon and wait until its sandbox is ready; `lifetime` in seconds.

    Raises ConfigurationError, SandboxUnavailable.
    """
    if not 0 < lifetime <= MAX_LIFETIME_SECONDS:
        raise ConfigurationError(
            f"a sandbox's lifetime is more than 0 and at most {MAX_LIFETIME_SECONDS:g} seconds, not {lifetime:g}"
        )
    id = f"s-{secrets.token_hex(4)}"
    folder = sandboxes_folder() / id
    folder.mkdir(parents=True, mode=0o700)
    request = {"id": id, "folder": str(folder), "config": config.model_dump(mode="json"), "lifetime": lifetime}
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "ratchet.components.sandboxes.persistent_sandboxes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C in the terminal of `sandbox create` must not reach the daemon.
            start_new_session=True,
        )
    assert daemon.stdin is not None and daemon.stdout is not None
    with daemon.stdin as stdin, daemon.stdout as stdout:
        stdin.write(json.dumps(request).encode())
        stdin.close()  # the daemon reads to the end
        message = _read_startup_message(stdout, START_SECONDS)
    if message.get("ready"):
        return find_sandbox(id)
    daemon.kill()
    daemon.wait()
    reason = message.get("error") or _last_line(folder / "log") or "its daemon did not answer"
    shutil.rmtree(folder, ignore_errors=True)
    raise ConfigurationError(reason) if message.get("kind") == "ConfigurationError" else SandboxUnavailable(reason)


def _read_startup_message(stream: IO[bytes], seconds: float) -> dict[str, Any]:
    """Return the daemon's startup message; an empty dictionary if there is none within `seconds`."""
    ready, _, _ = select.select([stream], [], [], seconds)
    try:
        message: dict[str, Any] = json.loads(stream.readline()) if ready else {}
    except ValueError:
        return {}
    return message


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def find_sandbox(id: str) -> PersistentSandbox:
    """Return the record of a sandbox. Raises ConfigurationError, which lists the existing ids."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        # The id becomes part of a path: `../..` must not leave the folder.
        if id.replace("-", "").isalnum():
            return msgspec.json.decode((sandboxes_folder() / id / RECORD_FILE).read_bytes(), type=PersistentSandbox)
    ids = ", ".join(record.id for record in recorded_sandboxes()) or "none; make one: ratchet sandbox create"
    raise ConfigurationError(f"no sandbox '{id}' exists here; known: {ids}")


def recorded_sandboxes() -> Iterator[PersistentSandbox]:
    """Yield every record, oldest first, including those whose daemon has died."""
    sandboxes = []
    for path in sandboxes_folder().glob(f"*/{RECORD_FILE}"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            sandboxes.append(msgspec.json.decode(path.read_bytes(), type=PersistentSandbox))
    yield from sorted(sandboxes, key=lambda sandbox: (sandbox.created, sandbox.id))


def run_command(
    id: str,
    command: str | Sequence[str],
    *,
    timeout: float = 30.0,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    output_limit: int = 10 << 20,
) -> CommandResult:
    """Run a command in a persistent sandbox, after those before it; see Sandbox.run.

    Raises ConfigurationError for an unknown id, and what Sandbox.run raises.
    """
    request = {
        "do": "run",
        "command": command if isinstance(command, str) else list(command),
        "timeout": timeout,
        "output_limit": output_limit,
        "env": dict(env or {}),
        "stdin": None if stdin is None else len(stdin),
    }
    answer, data = _send_request(find_sandbox(id), request, stdin or b"", None)
    result = msgspec.convert({**answer["result"], "stdout": b"", "stderr": b""}, CommandResult)
    result = msgspec.structs.replace(result, stdout=data[: answer["stdout"]], stderr=data[answer["stdout"] :])
    if answer["failure"] is not None:
        kind = {"CommandTimeout": CommandTimeout, "OutputLimitExceeded": OutputLimitExceeded}
        raise kind.get(answer["kind"], CommandFailure)(answer["failure"], result)
    return result


def reset_sandbox(id: str) -> None:
    """Replace the sandbox by a new one, without its files. Raises ConfigurationError, SandboxUnavailable."""
    _send_request(find_sandbox(id), {"do": "reset"}, b"", None)


class AttachedSandbox(Sandbox):
    """A persistent sandbox as a Sandbox: calls go to its daemon, in turn. `start` does nothing, since it runs already.

    Raises ConfigurationError for an unknown id.
    """

    def __init__(self, id: str) -> None:
        record = find_sandbox(id)
        self.id, self.backend, self.image_digest = record.id, record.backend, record.image
        self.workspace, self.isolation = record.workspace, record.isolation

    def start(self) -> None:
        """Do nothing."""

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = 30.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        output_limit: int = 10 << 20,
    ) -> CommandResult:
        """See Sandbox.run."""
        with self._unavailable_if_stopped():
            return run_command(self.id, command, timeout=timeout, stdin=stdin, env=env, output_limit=output_limit)

    def read(self, path: str) -> bytes:
        """See Sandbox.read."""
        return self._request({"do": "read", "path": path})[1]

    def write(self, path: str, data: bytes) -> None:
        """See Sandbox.write."""
        self._request({"do": "write", "path": path, "stdin": len(data)}, data)

    def snapshot(self) -> str:
        """See Sandbox.snapshot. A snapshot is lost when the sandbox is reset or stopped."""
        return str(self._request({"do": "snapshot"})[0]["snapshot"])

    def restore(self, snapshot_id: str) -> None:
        """See Sandbox.restore."""
        self._request({"do": "restore", "snapshot": snapshot_id})

    def stop(self) -> None:
        """Stop the persistent sandbox; safe to call twice."""
        with contextlib.suppress(ConfigurationError):
            stop_sandbox(self.id)

    def _request(self, request: dict[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        with self._unavailable_if_stopped():
            return _send_request(find_sandbox(self.id), request, data, None)

    @contextlib.contextmanager
    def _unavailable_if_stopped(self) -> Iterator[None]:
        try:
            yield
        except ConfigurationError as error:
            raise SandboxUnavailable(_gone_message(self.id)) from error


def stop_sandbox(id: str) -> None:
    """End a sandbox, even while a command runs, and remove its record. Raises ConfigurationError for an unknown id."""
    sandbox = find_sandbox(id)
    if sandbox.alive:
        with contextlib.suppress(OSError):
            os.kill(sandbox.pid, signal.SIGTERM)
        if not _wait_for_exit(sandbox, STOP_SECONDS):
            with contextlib.suppress(OSError):
                os.kill(sandbox.pid, signal.SIGKILL)
            _wait_for_exit(sandbox, STOP_SECONDS)
    shutil.rmtree(sandboxes_folder() / id, ignore_errors=True)


def _wait_for_exit(sandbox: PersistentSandbox, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while sandbox.alive:
        # If this process created it, the daemon is a child, and a zombie until it is waited for.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(sandbox.pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _send_request(
    sandbox: PersistentSandbox, request: dict[str, Any], data: bytes, seconds: float | None
) -> tuple[dict[str, Any], bytes]:
    """Send one request with its `data`; return the answer and the bytes after it. Raises SandboxUnavailable, and
    SandboxFileError for a path or a snapshot that the sandbox refuses.
    """
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(seconds)
        try:
            with short_socket_path(sandboxes_folder() / sandbox.id) as path:
                channel.connect(path)
            channel.sendall(json.dumps(request).encode() + b"\n" + data)
            with channel.makefile("rb") as stream:
                line = stream.readline()
                rest = stream.read()
        except OSError as error:
            raise SandboxUnavailable(_gone_message(sandbox.id)) from error
    if not line:
        raise SandboxUnavailable(_gone_message(sandbox.id))
    answer: dict[str, Any] = json.loads(line)
    if answer.get("kind") == "SandboxFileError":
        raise SandboxFileError(answer["error"])
    if "error" in answer:
        is_lost = any(record.lost for record in recorded_sandboxes() if record.id == sandbox.id)
        advice = f"; `ratchet sandbox reset {sandbox.id}` makes it new, without its files" if is_lost else ""
        raise SandboxUnavailable(f"sandbox {sandbox.id}: {answer['error']}{advice}")
    return answer, rest


def _gone_message(id: str) -> str:
    return f"sandbox {id} has ended; `ratchet sandbox stop {id}` removes its record"


@contextlib.contextmanager
def short_socket_path(folder: Path) -> Iterator[str]:
    """Yield a path of the folder's socket of at most 107 bytes, the kernel's limit, however long the folder's path is."""
    if not Path("/proc/self/fd").is_dir():
        yield str(folder / SOCKET_FILE)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_FILE}"
    finally:
        os.close(descriptor)


WATCH_SECONDS = 2.0


class SandboxDaemon:
    """Serves one sandbox. Each connection is one request in a thread; a lock makes them take turns.

    `publish` is called with the reason when the sandbox is lost, and with "" after it was replaced.
    """

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self.sandbox = self._new_sandbox()
        self.publish: Callable[[str], None] = lambda reason: None
        self._published = self._reset_failure = ""
        self._lock = threading.Lock()

    def _new_sandbox(self) -> Sandbox:
        sandbox = make_sandbox(self.config)
        sandbox.start()
        return sandbox

    def serve(self, server: socket.socket, deadline: float) -> None:
        """Serve requests until `deadline`, a time on the clock of `time.monotonic`."""
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            server.settimeout(min(remaining_seconds, WATCH_SECONDS))
            try:
                channel, _ = server.accept()
            except TimeoutError:
                self._check_sandbox()
                continue
            channel.settimeout(None)
            threading.Thread(target=self._handle_connection, args=(channel,), daemon=True).start()

    def _check_sandbox(self) -> None:
        """Publish the loss of the sandbox, unless a command runs, which will raise it."""
        if self._lock.acquire(blocking=False):
            try:
                self._publish_if_lost()
            finally:
                self._lock.release()

    def _publish_if_lost(self) -> None:
        reason = self.sandbox.loss_reason or self._reset_failure
        if reason != self._published:
            with contextlib.suppress(OSError):
                self.publish(reason)
                self._published = reason

    def _handle_connection(self, channel: socket.socket) -> None:
        with channel, contextlib.suppress(OSError, ValueError), channel.makefile("rb") as stream:
            request = json.loads(stream.readline())
            data = stream.read(request["stdin"]) if request.get("stdin") else b""
            channel.sendall(self._response(request, data))

    def _response(self, request: dict[str, Any], data: bytes) -> bytes:
        try:
            with self._lock:
                try:
                    return self._run(request, data) if request["do"] == "run" else self._change(request, data)
                finally:
                    self._publish_if_lost()
        except RatchetError as error:
            return json.dumps({"error": str(error), "kind": type(error).__name__}).encode() + b"\n"

    def _change(self, request: dict[str, Any], data: bytes) -> bytes:
        """Return the response to a request that runs no command."""
        answer: dict[str, Any] = {}
        content = b""
        match request["do"]:
            case "reset":
                self._reset()
            case "read":
                content = self.sandbox.read(request["path"])
            case "write":
                self.sandbox.write(request["path"], data)
            case "snapshot":
                answer["snapshot"] = self.sandbox.snapshot()
            case "restore":
                self.sandbox.restore(request["snapshot"])
        return json.dumps(answer).encode() + b"\n" + content

    def _reset(self) -> None:
        self.sandbox.stop()
        self._reset_failure = "it could not be made new"
        self.sandbox = self._new_sandbox()
        self._reset_failure = ""

    def _run(self, request: dict[str, Any], data: bytes) -> bytes:
        failure, kind = None, ""
        try:
            result = self.sandbox.run(
                request["command"],
                timeout=request["timeout"],
                output_limit=request["output_limit"],
                stdin=None if request["stdin"] is None else data,
                env=request.get("env"),
            )
        except CommandFailure as command_failure:
            result, failure, kind = command_failure.result, str(command_failure), type(command_failure).__name__
        fields = {name: getattr(result, name) for name in ("exit_code", "seconds", "timed_out", "truncated")}
        head = {"result": fields, "stdout": len(result.stdout), "failure": failure, "kind": kind}
        return json.dumps(head).encode() + b"\n" + result.stdout + result.stderr


def main() -> None:
    """Run the daemon: read its settings from standard input, start the sandbox, and serve its socket."""
    request = json.loads(sys.stdin.buffer.read())
    folder = Path(request["folder"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            daemon = SandboxDaemon(SandboxConfig.load(request["config"]))
            with short_socket_path(folder) as path:
                server.bind(path)
            server.listen(16)
            record = _new_record(request, daemon.sandbox)
            daemon.publish = lambda reason: _write_record(folder, msgspec.structs.replace(record, lost=reason))
            # Before the line `ready`: the creator then reads the record.
            _write_record(folder, record)
        except (RatchetError, OSError) as error:
            _report_startup({"error": " ".join(str(error).split()), "kind": type(error).__name__})
            return
        _report_startup({"ready": True})
        try:
            daemon.serve(server, time.monotonic() + request["lifetime"])
        finally:
            # A second SIGTERM must not interrupt the removal of the sandbox.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            daemon.sandbox.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _new_record(request: dict[str, Any], sandbox: Sandbox) -> PersistentSandbox:
    now = time.time()
    return PersistentSandbox(
        id=request["id"],
        backend=sandbox.backend,
        image=sandbox.image_digest,
        pid=os.getpid(),
        owner=owner_label(),
        created=now,
        expires=now + request["lifetime"],
        config=request["config"],
        workspace=sandbox.workspace,
        isolation=sandbox.isolation,
    )


def _write_record(folder: Path, record: PersistentSandbox) -> None:
    write_atomically(folder / RECORD_FILE, msgspec.json.encode(record), durable=False)


def _report_startup(message: dict[str, Any]) -> None:
    """Print the one line that the creator reads, then redirect standard output to /dev/null."""
    with contextlib.suppress(OSError):
        print(json.dumps(message), flush=True)
    # The creator reads one line and closes its end of the pipe: printing anything later would fail.
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, 1)
    os.close(null_device)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)  # not os._exit: `main` has to stop the sandbox


if __name__ == "__main__":
    main()
