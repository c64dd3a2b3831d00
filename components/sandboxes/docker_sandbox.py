"""DockerSandbox: a hardened container, leased from the pool, whose first process (the session) runs the commands."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ratchet.components.core import (
    CommandResult,
    Sandbox,
    SandboxUnavailable,
)

from .container_pool import ContainerLease, shared_pool
from .container_session import SessionContainer, SessionLost
from .container_spec import MIB, SOCKET_FOLDER, ContainerSpec
from .in_container.session_protocol import ERR
from .local_command import checked_result
from .sandbox_config import SandboxConfig
from .snapshot_storage import SandboxSnapshots, StoredArchive
from .workspace_paths import file_error, relative_path

GUARD_SECONDS = 15.0
LARGEST_FILE = 256 * MIB
LONGEST_COMMAND = 8 * MIB


class DockerSandbox(Sandbox):
    """A container without network, capabilities, new privileges, swap or a writable root, with an unprivileged user and
    limits.

    The session in the container runs each command, ends it at its time limit, and then kills every process but itself;
    no command can signal or trace it. Environment variables are those of the image and of container_spec.ENVIRONMENT.
    Between two commands the sandbox may be parked and its container leased to another; commands cannot notice it, since
    only files outlive a command. The container ends with this process.

    Not covered: faults of the kernel, which a container shares with its host (unless `runtime` is runsc).
    """

    backend = "docker"

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config or SandboxConfig()
        self._lease: ContainerLease | None = None
        self._snapshots = SandboxSnapshots()

    def start(self) -> None:
        """Lease a container. Raises what ContainerSpec.from_config does."""
        if self._lease is not None:
            return
        timeout = self.config.start_timeout
        spec = ContainerSpec.from_config(self.config)
        self._lease = shared_pool().lease(
            spec, self.config.max_containers or spec.default_max_containers(timeout), timeout
        )
        self.image_digest, self.isolation = spec.image, spec.runtime or "container"

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float = 30.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        output_limit: int = 10 * MIB,
    ) -> CommandResult:
        """See Sandbox.run. Background processes are killed when the command ends."""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        # The session would refuse a request of more than 32 MiB and end, and the files would be lost.
        if sum(map(len, argv)) > LONGEST_COMMAND:
            return CommandResult(exit_code=126, stderr=b"sh: the command is too long\n")
        request = {
            "do": "run",
            "argv": argv,
            "env": dict(env or {}),
            "stdin": stdin is not None,
            "size": len(stdin or b""),
            "timeout": timeout,
            "output_limit": output_limit,
        }
        outputs = (bytearray(), bytearray())
        report = self._run(request, stdin, timeout, outputs)
        result = CommandResult(
            exit_code=report["exit_code"],
            stdout=bytes(outputs[0]),
            stderr=bytes(outputs[1]),
            seconds=report.get("seconds", 0.0),
            timed_out=report.get("timed_out", False),
            truncated=report.get("truncated", False),
        )
        return checked_result(result, timeout, output_limit)

    def _run(
        self, request: dict[str, Any], stdin: bytes | None, timeout: float, outputs: tuple[bytearray, bytearray]
    ) -> dict[str, Any]:
        lease = self._leased()
        begin = time.time()
        try:
            with shared_pool().use(lease) as container:
                return container.ask(
                    request,
                    [stdin] if stdin else [],
                    timeout + GUARD_SECONDS,
                    lambda kind, data: outputs[kind == ERR].extend(data),
                )
        except SessionLost as error:
            if lease.released:  # by `stop`, from another thread
                return {"exit_code": 137}
            if not error.timed_out and self._ran_out_of_memory(container, begin):
                # The policy's doing, so a result and not an error: later commands run in an empty workspace.
                lease.loss = ""
                outputs[1].extend(b"the sandbox ran out of memory, and its files are lost\n")
                return {"exit_code": 137}
            raise self._gone(error) from error

    @staticmethod
    def _ran_out_of_memory(container: SessionContainer, since: float) -> bool:
        try:
            return container.ran_out_of_memory(since)
        except SandboxUnavailable:  # most likely an engine that restarts, which has also ended the container
            return False

    @property
    def loss_reason(self) -> str:
        """See Sandbox.loss_reason. Call only while no command runs."""
        lease = self._lease
        if lease is None:
            return ""
        if not lease.loss and lease.container is not None and not lease.busy and not lease.container.is_connected():
            lease.loss = "its container ended"
        return lease.loss

    @staticmethod
    def _gone(error: SessionLost) -> SandboxUnavailable:
        return SandboxUnavailable(f"the sandbox's container was lost: {error}; start another")

    @contextmanager
    def _container(self) -> Iterator[SessionContainer]:
        """Yield the leased container. Raises SandboxUnavailable, also if it is lost in the block."""
        try:
            with shared_pool().use(self._leased()) as container:
                yield container
        except SessionLost as error:
            raise self._gone(error) from error

    def read(self, path: str) -> bytes:
        """See Sandbox.read. Symbolic links are refused."""
        relative = relative_path(path, self.workspace)
        data = bytearray()
        with self._container() as container:
            result = container.fetch({"do": "read", "path": relative, "most": LARGEST_FILE}, data.extend)
        if "error" in result:
            raise file_error(relative, OSError(result["errno"], result["error"]))
        return bytes(data)

    def write(self, path: str, data: bytes) -> None:
        """See Sandbox.write. Symbolic links are refused."""
        self.write_files({path: data})

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write files, by path, in one request. Raises what `write` raises."""
        sizes = [(relative_path(path, self.workspace), len(data)) for path, data in files.items()]
        if not sizes:
            return
        size = sum(size for _, size in sizes)
        with self._container() as container:
            result = container.ask({"do": "write", "files": sizes, "size": size}, list(files.values()))
        if "error" in result:
            raise file_error(result.get("path", ""), OSError(result["errno"], result["error"]))

    def snapshot(self) -> str:
        """See Sandbox.snapshot. This process stores the archive (snapshot_storage.py)."""
        return self._snapshots.add(self._pack())

    def restore(self, snapshot_id: str) -> None:
        """See Sandbox.restore."""
        self._unpack(self._snapshots.find(snapshot_id))

    def _pack(self, everything: bool = False) -> bytes:
        data = bytearray()
        with self._container() as container:
            result = container.fetch({"do": "pack", "all": everything}, data.extend)
        if "error" in result:
            raise SandboxUnavailable(f"the workspace cannot be copied: {result['error']}")
        return bytes(data)

    def _unpack(self, archive: StoredArchive) -> None:
        with self._container() as container:
            result = container.ask({"do": "unpack", "size": archive.size}, archive)
        if "error" in result:
            raise SandboxUnavailable(f"the workspace cannot be restored: {result['error']}")

    def share_socket(self, path: Path) -> str:
        """Give commands a Unix socket of this machine, alone in its folder, and return their path of it. The sandbox's files
        move to a container in which that folder is mounted; the engine must be on this machine. Raises SandboxUnavailable.
        """
        lease = self._leased()
        path.parent.chmod(0o711)  # the container's user goes through it, also where a service has the umask 077
        spec = lease.spec._replace(socket_folder=path.parent)
        archive = StoredArchive(self._pack(everything=True))
        try:
            shared_pool().release(lease)  # before another is leased: two for each sandbox could wait for each other
            moved = shared_pool().lease(spec, lease.max_containers, lease.timeout)
            if self._lease is not lease:  # stopped meanwhile, by another thread
                shared_pool().release(moved)
                raise SandboxUnavailable("the sandbox was stopped")
            self._lease = moved
            self._unpack(archive)
        finally:
            archive.release()
        return f"{SOCKET_FOLDER}/{path.name}"

    def stop(self) -> None:
        """Kill running commands and release the container; safe to call twice."""
        lease, self._lease = self._lease, None
        self._snapshots.release()
        if lease is not None:
            shared_pool().release(lease)

    def _leased(self) -> ContainerLease:
        if self._lease is None:
            raise SandboxUnavailable("the sandbox is not running; call start first")
        return self._lease
