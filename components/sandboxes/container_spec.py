"""ContainerSpec: the limits and the isolation of a container. Sandboxes with equal specs may share one container in turn.

What is denied by default, and how:

| what | how |
|---|---|
| network | no interface but loopback, ever; `egress` adds a socket to the owner's proxy, and a harness has that of its gateway |
| capabilities, setuid programs | `cap_drop ALL`, `no-new-privileges`; an unprivileged user |
| system calls | the engine's default seccomp profile and the session's own filter (in_container/seccomp_filter.py) |
| the image's files | read-only root |
| disk | workspace, /tmp and /dev/shm are tmpfs with limits on size and number of files; they count as memory |
| memory | a limit without swap; the OOM killer takes a command's processes before the session |
| processes, processors, open files, core files | `pids_limit`, `nano_cpus`, `nofile`, `core=0` |
| IPC objects that outlive a process | no System V semaphores or queues, no POSIX queues; shared memory ends with its last process |
| the host's environment, files, devices | none is passed in (`programs` are mounted read-only, if configured) |
| the engine's log | disabled: output goes to the owner only |
| a separate kernel | `runtime: runsc`, if configured; refused if the engine does not have it |
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.components.core import ConfigurationError

from . import docker_engine
from .egress_proxy import shared_proxy
from .in_container.egress_forwarder import EGRESS_PORT
from .in_container.session import EGRESS_FOLDER
from .sandbox_config import DEFAULT_IMAGE, SandboxConfig

MIB = 1 << 20
SOCKET_FOLDER = "/run/owner"
MANAGED_FOLDERS = ("/workspace", "/tmp", "/dev", "/proc", "/sys")
MIN_CONTAINERS, MAX_CONTAINERS, CONTAINERS_PER_CPU = 4, 64, 4
AGENT_USER = "1000:1000"
SHARED_MEMORY_MB = 16
FILES_PER_MB = 512
ENVIRONMENT = {"HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
SYSCTLS = {
    "kernel.shm_rmid_forced": "1",
    "kernel.shmall": str(SHARED_MEMORY_MB * MIB // 4096),  # in pages
    "kernel.sem": "32 0 32 0",  # SEMMSL, SEMMNS, SEMOPM, SEMMNI: no semaphores in the system, no sets
    "kernel.msgmni": "0",
    "fs.mqueue.queues_max": "0",
}


def check_mounts(programs: Iterable[Path]) -> None:
    """Raise ConfigurationError for a folder of `programs` that lies in a folder of the container's own."""
    for program in (each.absolute() for each in programs):
        if any(program.is_relative_to(folder) for folder in MANAGED_FOLDERS):
            raise ConfigurationError(
                f"`programs`: a container has a /{program.parts[1]} of its own, which would hide {program}; move it elsewhere"
            )


class ContainerSpec(NamedTuple):
    """The engine, the image and the limits of a container; `cpus` to `egress` are those of SandboxConfig.

    `image` is the image's id, since a name may be moved to another image; `engine` is the engine's address.
    `socket_folder`: a folder of this machine whose Unix sockets commands reach in SOCKET_FOLDER.
    """

    engine: str
    image: str
    cpus: float
    memory_mb: int
    pids: int
    workspace_mb: int
    open_files: int
    runtime: str | None
    egress: tuple[str, ...]
    programs: tuple[Path, ...] = ()
    socket_folder: Path | None = None

    @classmethod
    def from_config(cls, config: SandboxConfig) -> "ContainerSpec":
        """Return the spec for a configuration. Raises SandboxUnavailable, and ConfigurationError for an unknown runtime and as
        `check_mounts` does.
        """
        if config.runtime is not None and config.runtime not in docker_engine.runtimes(config.start_timeout):
            raise ConfigurationError(
                f"the Docker engine has no runtime '{config.runtime}'; install it, or leave `runtime` out"
            )
        image = docker_engine.image_id(config.image or DEFAULT_IMAGE, config.start_timeout)
        limits = {name: getattr(config, name) for name in cls._fields[2:-2]}
        programs = tuple(program.absolute() for program in config.programs)
        check_mounts(programs)
        return cls(engine=docker_engine.engine_address(), image=image, programs=programs, **limits)

    def default_max_containers(self, timeout: float) -> int:
        """Return how many containers fit in half of the engine's memory, at most CONTAINERS_PER_CPU per processor.

        The result is between MIN_CONTAINERS and MAX_CONTAINERS. Raises SandboxUnavailable.
        """
        # Measured: starting one more container costs as much as about fifty commands of parked sandboxes.
        by_memory = docker_engine.engine_memory(timeout) // 2 // (self.memory_mb * MIB)
        by_cpu = CONTAINERS_PER_CPU * docker_engine.engine_cpus(timeout)
        return max(MIN_CONTAINERS, min(MAX_CONTAINERS, by_memory, by_cpu))

    def host_config(self, api: Any) -> Any:
        """Return the engine's HostConfig for this spec; with `egress`, start the proxy. `api`: the SDK's APIClient."""
        memory = f"{self.memory_mb}m"
        return api.create_host_config(
            auto_remove=True,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=self.pids,
            mem_limit=memory,
            # Memory plus swap: a greater value, and the default, would allow swap.
            memswap_limit=memory,
            nano_cpus=int(self.cpus * 1e9),
            read_only=True,
            tmpfs={
                "/workspace": self._tmpfs_options(self.workspace_mb),
                "/tmp": self._tmpfs_options(self._tmp_size_mb()),
            },
            shm_size=SHARED_MEMORY_MB * MIB,
            ulimits=[
                {"Name": "nofile", "Soft": self.open_files, "Hard": self.open_files},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            sysctls=SYSCTLS,
            runtime=self.runtime,
            # Output of untrusted commands would fill the engine's disk.
            log_config={"Type": "none"},
            mounts=self._mounts(),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables that are set in addition to those of the image."""
        if not self.egress:
            return ENVIRONMENT
        url = f"http://127.0.0.1:{EGRESS_PORT}"
        return {**ENVIRONMENT, **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url)}

    def _mounts(self) -> list[dict[str, Any]]:
        """Return the mounts of the programs and socket folders that are configured, read-only. Nothing else is ever mounted."""
        mounted = {str(program): str(program) for program in self.programs}
        if self.egress:
            mounted[EGRESS_FOLDER] = str(shared_proxy(self.egress).folder)
        if self.socket_folder:
            mounted[SOCKET_FOLDER] = str(self.socket_folder)
        # Not recursive: older engines would leave mounts below a folder writable.
        options = {"Type": "bind", "ReadOnly": True, "BindOptions": {"NonRecursive": True}}
        return [{"Source": source, "Target": target, **options} for target, source in mounted.items()]

    def _tmp_size_mb(self) -> int:
        """Return the size of /tmp: that of the workspace, or less if both together could use up the memory limit."""
        # Files in a tmpfs count as memory and cannot be reclaimed: the OOM killer would end up with the session itself.
        spare = self.memory_mb - self.workspace_mb - 2 * SHARED_MEMORY_MB - 16
        return min(self.workspace_mb, max(spare, 8))

    @staticmethod
    def _tmpfs_options(size_mb: int) -> str:
        files = size_mb * FILES_PER_MB
        return f"rw,nosuid,nodev,exec,mode=0755,uid=1000,gid=1000,size={size_mb}m,nr_inodes={files}"
