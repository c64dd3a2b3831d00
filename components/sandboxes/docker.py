"""DockerSandbox: a hardened container for each sandbox, a process of the engine's for each command."""

import contextlib
import io
import itertools
import os
import shlex
import tarfile
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from components.protocol import (
    CommandResult,
    CommandTimeout,
    OutputLimitExceeded,
    Sandbox,
    SandboxFileError,
    SandboxUnavailable,
)

from . import engine
from .attached import converse
from .config import IMAGE, SandboxConfig
from .paths import inside

MIB = 1 << 20
AGENT = "1000:1000"
KEEPER = "65534:65534"
LIFETIME_SECONDS = 24 * 3600
GUARD_SECONDS = 5.0
FILE_SECONDS = 30.0
LARGEST_FILE = 256 * MIB
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# The shell outlives the command: when that has ended, or its time has passed, all else that the user runs is killed.
LIMITED = 'timeout -s KILL "$0" "$@"; code=$?; kill -s KILL -- -1 2>/dev/null; exit $code'
PLAIN = 'p=$(realpath -m -- "$1") && [ "$p" = "$1" ] || { echo "is a symbolic link, or beneath one" >&2; exit 9; }; '
READ = (
    PLAIN
    + '[ -e "$1" ] || { echo "no such file" >&2; exit 9; }; [ -f "$1" ] || { echo "is not a file" >&2; exit 9; }; cat -- "$1"'
)
UNPACK = "tar -xf - -C {workspace} --no-same-owner --no-overwrite-dir"

_numbers = itertools.count(1)


class DockerSandbox(Sandbox):
    """A container without network, capabilities, new privileges, swap or a writable root; nobody's user; limits on everything.

    The time limit of a command is enforced inside the container (`timeout`), and once more, later, from outside. When a
    command ends, everything that it left running is killed. The container's only environment is ENVIRONMENT. One that was
    left by a process that died is removed when another starts, and removes itself after a day.

    What it does not protect from: a fault in the kernel, which a container shares with its host.
    """

    backend = "docker"

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config or SandboxConfig()
        self._id: str | None = None
        self._snapshots: dict[str, bytes] = {}

    def start(self) -> None:
        """Create and start the container. Raises SandboxUnavailable; nothing is left behind then."""
        if self._id is not None:
            return
        timeout = self.config.start_timeout
        engine.sweep_once(timeout)
        api = engine.client(timeout).api
        name = f"ratchet-{os.getpid()}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        image = self.config.image or IMAGE
        try:
            with engine.explained("create a container"):
                self._id = api.create_container(image, **self._settings(api, name))["Id"]
                api.start(self._id)
                self.image_digest = api.inspect_image(image)["Id"]
        except SandboxUnavailable:
            self._id = None
            with contextlib.suppress(SandboxUnavailable):  # a create that timed out may have succeeded
                engine.remove(name, timeout)
            raise

    def _settings(self, api: Any, name: str) -> dict[str, Any]:
        config = self.config
        memory = f"{config.memory_mb}m"
        owned = "rw,nosuid,nodev,mode=0755,uid=1000,gid=1000"
        limits = api.create_host_config(
            init=True,
            auto_remove=True,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=config.pids,
            mem_limit=memory,
            memswap_limit=memory,
            nano_cpus=int(config.cpus * 1e9),
            read_only=True,
            tmpfs={
                self.workspace: f"{owned},exec,size={config.workspace_mb}m",
                "/tmp": f"{owned},exec,size={config.workspace_mb}m",
            },
            ulimits=[
                {"Name": "nofile", "Soft": config.open_files, "Hard": config.open_files},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
        )
        return {
            "name": name,
            "command": ["sleep", str(LIFETIME_SECONDS)],
            "user": KEEPER,
            "working_dir": self.workspace,
            "environment": ENVIRONMENT,
            "hostname": "sandbox",
            "labels": {engine.LABEL: "1", engine.OWNER_LABEL: engine.owner()},
            "host_config": limits,
        }

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = 30.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        output_limit: int = 10 * MIB,
    ) -> CommandResult:
        """See Sandbox.run. What still runs when the command ends is killed: a later command finds no daemon."""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        begin = time.perf_counter()
        result = self._execute(
            ["/bin/sh", "-c", LIMITED, f"{timeout:g}", *argv], timeout, stdin, env or {}, output_limit
        )
        seconds = time.perf_counter() - begin
        late = result.timed_out or (result.exit_code == 137 and seconds >= timeout)
        result = msgspec.structs.replace(result, seconds=seconds, timed_out=late)
        if result.truncated:
            raise OutputLimitExceeded(f"the command printed more than {output_limit} bytes and was killed", result)
        if late:
            raise CommandTimeout(f"the command ran longer than {timeout:g} s and was killed", result)
        return result

    def _execute(
        self, argv: list[str], timeout: float, stdin: bytes | None, env: Mapping[str, str], limit: int
    ) -> CommandResult:
        """Run as the agent and read; whatever was cut short is killed. Raises SandboxUnavailable."""
        container = self._running()
        api = engine.client(self.config.start_timeout).api
        with engine.explained("run a command"):
            settings = {"user": AGENT, "stdin": stdin is not None, "workdir": self.workspace, "environment": dict(env)}
            execution = api.exec_create(container, argv, **settings)["Id"]
            stream = api.exec_start(execution, socket=True)
            printed = converse(stream, stdin, timeout + GUARD_SECONDS, limit)
            if not printed.complete:
                self._kill(api, container)
            code = api.exec_inspect(execution)["ExitCode"]
        return CommandResult(
            exit_code=137 if code is None else code,
            stdout=bytes(printed.stdout),
            stderr=bytes(printed.stderr),
            timed_out=not printed.complete and not printed.over,
            truncated=printed.over,
        )

    def _kill(self, api: Any, container: str) -> None:
        """Kill all that the agent runs; the container's own processes are another user's."""
        execution = api.exec_create(container, ["/bin/sh", "-c", "kill -s KILL -- -1"], user=AGENT)["Id"]
        converse(api.exec_start(execution, socket=True), None, GUARD_SECONDS, MIB)

    def read(self, path: str) -> bytes:
        """See Sandbox.read. Symbolic links are refused."""
        result = self._file_command(READ, path, None)
        return result.stdout

    def write(self, path: str, data: bytes) -> None:
        """See Sandbox.write. Symbolic links are refused."""
        self._file_command(PLAIN + 'mkdir -p -- "${1%/*}" && cat > "$1"', path, data)

    def _file_command(self, script: str, path: str, stdin: bytes | None) -> CommandResult:
        relative = inside(path, self.workspace)
        argv = ["/bin/sh", "-c", script, "sh", f"{self.workspace}/{relative}"]
        result = self._execute(argv, FILE_SECONDS, stdin, {}, LARGEST_FILE)
        if result.exit_code == 0:
            return result
        if result.truncated or result.timed_out:
            raise SandboxFileError(f"{relative}: larger than {LARGEST_FILE} bytes, or too slow to read")
        said = result.stderr_text.strip().splitlines()
        reason = said[-1].rpartition(": ")[2] if said else f"exit {result.exit_code}"
        raise SandboxFileError(f"{relative}: {reason}")

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write many files in one command."""
        if not files:
            return
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, data in files.items():
                entry = tarfile.TarInfo(inside(path, self.workspace))
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        self._unpack(archive.getvalue())

    def _unpack(self, archive: bytes, before: str = "") -> None:
        script = before + UNPACK.format(workspace=shlex.quote(self.workspace))
        result = self._execute(["/bin/sh", "-c", script], FILE_SECONDS, archive, {}, MIB)
        if result.exit_code != 0:
            said = " ".join(result.stderr_text.split())[:200]
            raise SandboxUnavailable(f"files cannot be written into the sandbox: {said}; is workspace_mb too small?")

    def snapshot(self) -> str:
        """See Sandbox.snapshot. Kept in this process's memory, at most LARGEST_FILE bytes."""
        result = self._execute(["tar", "-cf", "-", "."], FILE_SECONDS, None, {}, LARGEST_FILE)
        if result.exit_code != 0 or result.truncated:
            raise SandboxUnavailable(f"the workspace cannot be copied: {result.stderr_text.strip()[:200]}")
        name = uuid.uuid4().hex[:12]
        self._snapshots[name] = result.stdout
        return name

    def restore(self, snapshot_id: str) -> None:
        """See Sandbox.restore."""
        if snapshot_id not in self._snapshots:
            raise SandboxFileError(f"this sandbox has no snapshot '{snapshot_id}'")
        self._unpack(self._snapshots[snapshot_id], "find . -mindepth 1 -delete && ")

    def stop(self) -> None:
        """Remove the container; safe to call twice."""
        if self._id is not None:
            container, self._id = self._id, None
            self._snapshots.clear()
            engine.remove(container, self.config.start_timeout)

    def _running(self) -> str:
        if self._id is None:
            raise SandboxUnavailable("the sandbox is not running; call start first")
        return self._id
