"""LocalSandbox: commands on this machine, isolated as far as its kernel allows. Needs no engine and starts in milliseconds.

Which isolation level the kernel allows is probed once per process (`strongest_isolation`).
"""

import contextlib
import itertools
import math
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ratchet.components.core import CommandFailure, CommandResult, Sandbox, SandboxUnavailable

from .linux_namespaces import search_path
from .local_command import LocalCommand, shared_launcher
from .sandbox_config import SandboxConfig
from .snapshot_storage import SandboxSnapshots
from .workspace_paths import read_file_in, relative_path, write_file_in

INNER_USER = 1000
FIRST_USER = 1 << 30
USERS_OF_A_PROCESS = 1 << 9
UNPRIVILEGED = 65534
PROBE_SECONDS = 5.0
_sandbox_numbers = itertools.count()


class Isolation(StrEnum):
    """How a local command is isolated, strongest level first.

    - `jail`: user, network, process, mount, IPC and host name namespaces, and a separate root file system.
    - `privileged_jail`: the same without a user namespace, where only root may create the others.
    - `namespaces`: user, network, process, IPC and host name namespaces; the host's files stay visible.
    - `limits`: only resource limits, a scrubbed environment, and an unprivileged user if we are root.
    """

    JAIL = "jail"
    PRIVILEGED_JAIL = "privileged_jail"
    NAMESPACES = "namespaces"
    LIMITS = "limits"

    @property
    def has_own_root(self) -> bool:
        """Whether commands have a separate root file system."""
        return self in (Isolation.JAIL, Isolation.PRIVILEGED_JAIL)

    @property
    def has_user_namespace(self) -> bool:
        """Whether commands have a user namespace, which also makes the limit on processes apply to them alone."""
        return self in (Isolation.JAIL, Isolation.NAMESPACES)

    def workspace(self, folder: Path) -> str:
        """The path at which commands see the workspace of a sandbox's folder."""
        return "/workspace" if self.has_own_root else str(folder / "workspace")

    def launch_request(
        self, user: int | None, folder: Path, argv: list[str], timeout: float, pids: int = 64
    ) -> dict[str, Any]:
        """Return the request for launch_server.py to run `argv` as `user` in a sandbox's `folder`, for `timeout` seconds.

        `user` is a user id, None for our own. `pids` limits the number of processes; the caller adds the other limits.
        """
        return {
            "users": self.has_user_namespace,
            "isolate": self is not Isolation.LIMITS,
            "jail": self.has_own_root,
            "user": user,
            "alone": user not in (None, UNPRIVILEGED),
            "inner_user": INNER_USER,
            "argv": argv,
            "env": {"PATH": search_path()},
            "folder": str(folder),
            "root": str(shared_launcher().root),
            "cwd": self.workspace(folder),
            "limits": {},
            "pids": pids,
            "timeout": timeout,
        }


def new_sandbox_user() -> int | None:
    """Return the user id for one sandbox's commands: an unused id if this process is root, else None (its own user).

    If our user namespace does not have that id, sandboxes share the id UNPRIVILEGED. With separate users a sandbox can
    neither signal another's processes, read its files nor use up its limits, even without namespaces.
    """
    if os.geteuid() != 0:
        return None
    # Far above the ids of people and services. The user namespace of a container may map fewer ids than that.
    user = FIRST_USER + os.getpid() * USERS_OF_A_PROCESS + next(_sandbox_numbers) % USERS_OF_A_PROCESS
    return user if any(user in ids for ids in _mapped_users()) else UNPRIVILEGED


@cache
def _mapped_users() -> tuple[range, ...]:
    """Return the ranges of user ids that exist in this process's user namespace."""
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    except OSError:
        return ()
    return tuple(range(first, first + count) for first, _, count in (map(int, line.split()) for line in lines))


@cache
def strongest_isolation() -> Isolation:
    """Return the strongest isolation that works here. Raises SandboxUnavailable if not even a plain command runs."""
    # Tried, not read from settings: distributions and container engines forbid namespaces in too many ways.
    levels = list(Isolation) if platform.system() == "Linux" else [Isolation.LIMITS]
    for level in levels[:-1]:
        if level is Isolation.PRIVILEGED_JAIL and os.geteuid() != 0:
            continue
        with contextlib.suppress(SandboxUnavailable, CommandFailure):
            if _isolation_works(level):
                return level
    if not _isolation_works(Isolation.LIMITS):
        raise SandboxUnavailable("the local sandbox cannot run /bin/sh; see `ratchet doctor`")
    return Isolation.LIMITS


def _isolation_works(level: Isolation) -> bool:
    launcher = shared_launcher()
    folder = launcher.new_folder()
    user = new_sandbox_user()
    try:
        make_folders(folder, user)
        request = level.launch_request(
            user, folder, ["/bin/sh", "-c", "echo works > probe && cat probe"], PROBE_SECONDS
        )
        result = LocalCommand(launcher, request, None).wait(PROBE_SECONDS, 1024)
        return result.exit_code == 0 and result.stdout == b"works\n"
    finally:
        remove_folder(folder)


def make_folders(folder: Path, user: int | None) -> None:
    """Create `workspace` and `tmp` in `folder`, accessible only to `user`, who runs the commands (None: our own user).

    `user` may enter `folder` but does not own it, and can therefore neither rename nor replace the two.
    """
    folder.chmod(0o700)
    for name in ("workspace", "tmp"):
        (folder / name).mkdir(mode=0o755)
        if user is not None:
            os.chown(folder / name, user, user)
    if user is not None:
        os.chown(folder, -1, user)
        folder.chmod(0o710)


def remove_folder(folder: Path) -> None:
    """Remove a folder even if commands removed permissions or nested folders beyond Python's recursion limit."""
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
        return
    if os.path.lexists(folder):
        # Not as root, who needs no permissions: chmod(1) follows a link that replaces a file meanwhile.
        if os.geteuid() != 0:
            subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


MIB = 1 << 20
ARCHIVE_SECONDS = 60.0
MAX_ARCHIVE_BYTES = 1 << 30


class LocalSandbox(Sandbox):
    """A private folder, and commands in it with resource limits and the isolation that `strongest_isolation` returns.

    Covered: each command runs in a new session with limits on CPU time, address space, file size, open files and
    processes (coarse without a user namespace), without the owner's environment, as a separate unprivileged user if the
    owner is root. On Linux it has an empty session keyring and the seccomp filter of containers
    (in_container/seccomp_filter.py) and, where the kernel allows, no network, no view of other processes, and a root
    with only the system's programs, read-only, and the workspace. When a command ends, by itself, by its time limit or
    because its owner died, everything that it started is killed.

    Not covered: faults of the kernel, which is shared with the host; many large processes at once (memory is limited
    per process, not in total); a disk filled with many files (the size of each file is limited, not the sum); a busy
    CPU (only its time is limited). Where user namespaces are forbidden, also: files that every user of the machine may
    read, and the network. Use docker for code that you have reason to distrust.

    `links` are symbolic links in the commands' root, from a name such as /app to a path such as /workspace; they need an
    isolation with a root of its own.
    """

    backend = "local"

    def __init__(self, config: SandboxConfig | None = None, *, links: Mapping[str, str] | None = None) -> None:
        self.config = config or SandboxConfig()
        self._links = dict(links or {})
        self._folder: Path | None = None
        self._snapshots = SandboxSnapshots()
        self._running: set[LocalCommand] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Create the sandbox's folder. Raises SandboxUnavailable."""
        if self._folder is not None:
            return
        self._isolation = strongest_isolation()
        if self._links and not self._isolation.has_own_root:
            raise SandboxUnavailable("the local sandbox has no root of its own on this machine; take docker")
        try:
            folder = shared_launcher().new_folder()
            self._user = new_sandbox_user()
            make_folders(folder, self._user)
        except OSError as error:
            raise SandboxUnavailable(f"the local sandbox has no folder: {error}; is the disk full?") from error
        self._folder = folder
        self.isolation = self._isolation.value
        self.workspace = self._isolation.workspace(folder)

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
        folder = self._home()
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        request = self._isolation.launch_request(self._user, folder, argv, timeout, pids=self.config.pids)
        request |= {"env": {**self._environment(folder), **(env or {})}, "limits": self._limits(timeout)}
        request["programs"] = [str(program.absolute()) for program in self.config.programs]
        request["links"] = self._links
        return self._wait(LocalCommand(shared_launcher(), request, stdin), timeout, output_limit)

    def _wait(self, running: LocalCommand, timeout: float, output_limit: int) -> CommandResult:
        with self._lock:
            self._running.add(running)
        try:
            return running.wait(timeout, output_limit)
        finally:
            with self._lock:
                self._running.discard(running)

    def _environment(self, folder: Path) -> dict[str, str]:
        home = "/tmp" if self._isolation.has_own_root else str(folder / "tmp")
        return {
            "PATH": search_path(),
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _limits(self, timeout: float) -> dict[str, int]:
        config = self.config
        return {
            # Counted per process; the supervisor's time limit ends the whole command.
            "RLIMIT_CPU": math.ceil(timeout * max(1.0, config.cpus)) + 1,
            "RLIMIT_AS": config.memory_mb * MIB,
            "RLIMIT_FSIZE": config.workspace_mb * MIB,
            "RLIMIT_NOFILE": config.open_files,
            "RLIMIT_CORE": 0,
        }

    def share_socket(self, path: Path) -> str:
        """Give commands a Unix socket of this machine, which reaches them without a network; return their path of it. It
        must be on the file system of the sandboxes (`shared_launcher().folder`). Raises SandboxUnavailable.
        """
        folder = self._home()
        try:
            os.link(path, folder / "tmp" / path.name)
        except OSError as error:
            raise SandboxUnavailable(f"the socket {path} cannot be shared with a sandbox: {error}") from error
        return f"{self._environment(folder)['HOME']}/{path.name}"

    def read(self, path: str) -> bytes:
        """See Sandbox.read. Symbolic links are refused."""
        home = self._home()
        return read_file_in(home / "workspace", relative_path(path, self.workspace), self._user)

    def write(self, path: str, data: bytes) -> None:
        """See Sandbox.write. Symbolic links are refused."""
        home = self._home()
        write_file_in(home / "workspace", relative_path(path, self.workspace), data, self._user)

    def snapshot(self) -> str:
        """See Sandbox.snapshot. Includes files, folders, links and named pipes; not sockets and devices."""
        return self._snapshots.add(self._archive("pack", None))

    def restore(self, snapshot_id: str) -> None:
        """See Sandbox.restore."""
        self._archive("unpack", b"".join(self._snapshots.find(snapshot_id)))

    def _archive(self, action: Literal["pack", "unpack"], data: bytes | None) -> bytes:
        """Return an archive of the workspace, or restore it from `data`."""
        # In a process of the sandbox's user: whatever links the agent plants, and however the workspace changes meanwhile,
        # it can reach nothing that the commands could not.
        request = Isolation.LIMITS.launch_request(
            self._user, self._home(), [action], ARCHIVE_SECONDS, pids=self.config.pids
        )
        request["archive"] = action
        try:
            result = self._wait(LocalCommand(shared_launcher(), request, data), ARCHIVE_SECONDS, MAX_ARCHIVE_BYTES)
        except CommandFailure as failure:
            raise SandboxUnavailable(f"the workspace cannot be copied: {failure}; is it very large?") from failure
        if result.exit_code != 0:
            reason = result.stderr_text.strip() or "the process that copies it was killed"
            raise SandboxUnavailable(f"the workspace cannot be copied: {reason}")
        return result.stdout

    def stop(self) -> None:
        """Kill running commands and remove the folder; safe to call twice."""
        with self._lock:
            for command in self._running:
                command.cancel()
        self._snapshots.release()
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None

    def _home(self) -> Path:
        if self._folder is None:
            raise SandboxUnavailable("the sandbox is not running; call start first")
        return self._folder
