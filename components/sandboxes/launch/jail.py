# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH123, PTH211
# pathlib would double the time that the launcher takes to start.
"""The file system that a command sees: the system's programs, read-only, and its own workspace. Nothing else of the host."""

import os
import sys

from . import kernel

PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("alternatives", "ld.so.cache", "localtime")
DEVICES = ("null", "zero", "random", "urandom")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
SAFE = kernel.NO_SUID | kernel.NO_DEVICES
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def own_python() -> str | None:
    """The folder of this very Python's installation where the system has no python3; a command needs one."""
    if any(os.access(f"{folder}/python3", os.X_OK) for folder in SYSTEM_PATH.split(":")):
        return None
    return sys.base_prefix


def search_path() -> str:
    """PATH of a command."""
    own = own_python()
    return f"{SYSTEM_PATH}:{own}/bin" if own else SYSTEM_PATH


def enter(root: str, inner_user: int) -> None:
    """Make a root in the empty folder `root` with `workspace` and `tmp` of the current folder, and enter it.

    To be called by the first process of a new process and mount namespace.
    """
    kernel.make_mounts_private()
    kernel.mount("tmpfs", root, "tmpfs", SAFE, "size=1m,mode=755")
    for source in PROGRAMS:
        _show_program(root, source)
    own = own_python()
    if own:
        _bind(own, f"{root}{own}", kernel.READ_ONLY | SAFE)
    _show_settings(root, inner_user)
    _show_devices(root)
    for name in ("workspace", "tmp"):
        _bind(name, f"{root}/{name}", SAFE)
    _show_processes(root)
    kernel.enter_root(root)


def _bind(source: str, target: str, attributes: int) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.bind(source, target, attributes)


def _show_program(root: str, source: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), f"{root}{source}")
    elif os.path.isdir(source):
        _bind(source, f"{root}{source}", kernel.READ_ONLY | SAFE)


def _show_settings(root: str, inner_user: int) -> None:
    os.mkdir(f"{root}/etc")
    for name in SETTINGS:
        if os.path.exists(f"/etc/{name}"):
            _bind(f"/etc/{name}", f"{root}/etc/{name}", kernel.READ_ONLY | SAFE)
    _write(f"{root}/etc/passwd", f"agent:x:{inner_user}:{inner_user}:agent:/tmp:/bin/sh\n")
    _write(f"{root}/etc/group", f"agent:x:{inner_user}:\n")
    _write(f"{root}/etc/hosts", "127.0.0.1 localhost\n")


def _show_devices(root: str) -> None:
    os.mkdir(f"{root}/dev")
    for name in DEVICES:
        _bind(f"/dev/{name}", f"{root}/dev/{name}", kernel.NO_SUID)
    for name, target in {**LINKS, "shm": "/tmp"}.items():
        os.symlink(target, f"{root}/dev/{name}")


def _show_processes(root: str) -> None:
    """The namespace's own /proc; a kernel that refuses it (inside some containers) leaves the folder empty."""
    os.mkdir(f"{root}/proc")
    try:
        kernel.mount("proc", f"{root}/proc", "proc", SAFE | kernel.NO_EXEC)
        _write(f"{root}/proc/sys/user/max_user_namespaces", "0")
    except OSError:
        return


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
