# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH123, PTH211
# pathlib would double the time that the launcher takes to start.
"""Linux system calls that Python lacks (through ctypes), and the root file system of a jailed command.

The command sees the system's programs, read-only, and its own workspace; nothing else of the host. Elsewhere than on
Linux, `LINUX` is False and nothing here may be called.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

LINUX = sys.platform == "linux"
# `use_errno`: without it another call of the interpreter may overwrite errno before it is read.
libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_MNT_DETACH = 2
_SYS_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING = {"x86_64": 250, "aarch64": 219}, 1
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 36, 38


def _checked(result: int, call: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces; `flags` combines CLONE_NEW* constants. Raises OSError."""
    _checked(libc.unshare(flags), "unshare")


def enter_user_namespace(inner_user: int) -> None:
    """Enter a new user namespace in which only the current user and group exist, with the id `inner_user`."""
    uid, gid = os.geteuid(), os.getegid()  # in the namespace, before the map is written, both would be 65534
    unshare(CLONE_NEWUSER)
    # "deny" first: without it the kernel refuses gid_map to unprivileged users (user_namespaces(7)).
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inner_user} {uid} 1"),
        ("gid_map", f"{inner_user} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _prctl(option: int, value: int) -> None:
    _checked(libc.prctl(option, value, 0, 0, 0), "prctl")


def set_dumpable(value: bool) -> None:
    """Allow or forbid processes of the same user to trace this one; with False, root owns its /proc entries."""
    _prctl(_PR_SET_DUMPABLE, int(value))


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def join_new_keyring() -> None:
    """Replace the inherited session keyring by an empty one. Does nothing if keyrings are missing or forbidden."""
    number = _SYS_KEYCTL.get(os.uname().machine)
    if number is None:
        return
    result = libc.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)
    if result < 0 and ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        _checked(result, "keyctl")


def forbid_new_privileges() -> None:
    """Set `no_new_privs`: setuid programs give no privileges."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system of type `kind` (mount(2)); `flags` combines MS_* constants. Raises OSError."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(libc.mount(*arguments), f"mount {target}")


def make_mounts_private() -> None:
    """Keep later mounts within this mount namespace."""
    _checked(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount --make-rprivate")


def bind(source: str, target: str, attributes: int) -> None:
    """Bind-mount `source` recursively at `target`, with the flags MS_RDONLY, MS_NOSUID and MS_NODEV that `attributes` has."""
    flags = ctypes.c_ulong(_MS_BIND | _MS_REC)
    _checked(libc.mount(source.encode(), target.encode(), None, flags, None), f"bind {source}")
    # A bind mount ignores these flags, and a remount would leave mounts below `source` writable. mount_setattr(2), Linux
    # 5.12 and newer, sets them recursively; its number is the same on all architectures.
    value = struct.pack("QQQQ", attributes, 0, 0, 0)
    number, directory, recursive, size = (
        ctypes.c_long(argument) for argument in (_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, len(value))
    )
    _checked(libc.syscall(number, directory, target.encode(), recursive, value, size), f"mount_setattr {target}")


def enter_root(path: str) -> None:
    """Make the mount at `path` the read-only root and unmount the old root."""
    os.chdir(path)
    # With "." for both, the old root is stacked on the new one and the lazy unmount removes it (pivot_root(2)). chroot(2)
    # would not do: a process with capabilities in its namespace can leave a chroot.
    _checked(libc.pivot_root(b".", b"."), "pivot_root")
    _checked(libc.umount2(b".", _MNT_DETACH), "umount")
    flags = ctypes.c_ulong(_MS_REMOUNT | _MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    _checked(libc.mount(None, b"/", None, flags, None), "remount /")


def bring_up_loopback() -> None:
    """Bring `lo` up in the process's network namespace; in a new one it is down."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        reply = fcntl.ioctl(channel, get_flags, struct.pack("16sh22x", b"lo", 0))
        flags = struct.unpack_from("h", reply, 16)[0]
        fcntl.ioctl(channel, set_flags, struct.pack("16sh22x", b"lo", flags | up))


SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_FILES = ("alternatives", "ld.so.cache", "localtime")
DEVICE_FILES = ("null", "zero", "random", "urandom")
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
SAFE_MOUNT = MS_NOSUID | MS_NODEV
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def bundled_python() -> str | None:
    """Return the installation folder of this Python if the system has no python3, else None."""
    if any(os.access(f"{folder}/python3", os.X_OK) for folder in SYSTEM_PATH.split(":")):
        return None
    return sys.base_prefix


def search_path() -> str:
    """Return the PATH variable of a local command."""
    python_folder = bundled_python()
    return f"{SYSTEM_PATH}:{python_folder}/bin" if python_folder else SYSTEM_PATH


def enter_root_filesystem(
    root: str, inner_user: int, programs: Sequence[str] = (), links: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Build a root file system in the empty folder `root` and enter it.

    It contains the system's programs, the folders `programs`, read-only, the folders `workspace` and `tmp` of the current
    folder, and symbolic links from the names `links` to their targets. Call from the first process of a new process and mount
    namespace.
    """
    make_mounts_private()
    mount("tmpfs", root, "tmpfs", SAFE_MOUNT, "size=1m,mode=755")
    for source in SYSTEM_FOLDERS:
        _mount_program(root, source)
    python_folder = bundled_python()
    if python_folder:
        _bind_path(python_folder, f"{root}{python_folder}", MS_RDONLY | SAFE_MOUNT)
    _make_etc(root, inner_user)
    _make_dev(root)
    for name in ("workspace", "tmp"):
        _bind_path(name, f"{root}/{name}", SAFE_MOUNT)
    for folder in programs:  # after /tmp, which would hide those inside it
        _bind_path(folder, f"{root}{folder}", MS_RDONLY | SAFE_MOUNT)
    for name, target in links.items():
        if name != target:
            os.symlink(target, f"{root}{name}")
    _mount_proc(root)
    enter_root(root)


def _bind_path(source: str, target: str, attributes: int) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    bind(source, target, attributes)


def _mount_program(root: str, source: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), f"{root}{source}")
    elif os.path.isdir(source):
        _bind_path(source, f"{root}{source}", MS_RDONLY | SAFE_MOUNT)


def _make_etc(root: str, inner_user: int) -> None:
    os.mkdir(f"{root}/etc")
    for name in ETC_FILES:
        if os.path.exists(f"/etc/{name}"):
            _bind_path(f"/etc/{name}", f"{root}/etc/{name}", MS_RDONLY | SAFE_MOUNT)
    _write_file(f"{root}/etc/passwd", f"agent:x:{inner_user}:{inner_user}:agent:/tmp:/bin/sh\n")
    _write_file(f"{root}/etc/group", f"agent:x:{inner_user}:\n")
    _write_file(f"{root}/etc/hosts", "127.0.0.1 localhost\n")


def _make_dev(root: str) -> None:
    os.mkdir(f"{root}/dev")
    for name in DEVICE_FILES:
        _bind_path(f"/dev/{name}", f"{root}/dev/{name}", MS_NOSUID)
    for name, target in {**DEVICE_LINKS, "shm": "/tmp"}.items():
        os.symlink(target, f"{root}/dev/{name}")


def _mount_proc(root: str) -> None:
    """Mount a /proc of the process namespace; the folder stays empty where the kernel refuses, as in some containers."""
    os.mkdir(f"{root}/proc")
    try:
        mount("proc", f"{root}/proc", "proc", SAFE_MOUNT | MS_NOEXEC)
        # In a nested user namespace a command would have all capabilities again, and could reach more of the kernel.
        _write_file(f"{root}/proc/sys/user/max_user_namespaces", "0")
    except OSError:
        return


def _write_file(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
