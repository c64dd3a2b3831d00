"""Paths inside a workspace: what a caller may name, and opening it without following a link out."""

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.protocol import RatchetError, SandboxFileError, SandboxUnavailable

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_EXHAUSTED = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_REASONS = {
    errno.ENOENT: "no such file",
    errno.ELOOP: "is a symbolic link",
    errno.ENOTDIR: "passes through what is not a folder",
    errno.EISDIR: "is a folder",
    errno.EACCES: "may not be opened",
    errno.ENAMETOOLONG: "is too long a name",
    errno.ENXIO: "is not a regular file",
}


def inside(path: str, workspace: str) -> str:
    """`path` relative to the workspace, normalised ("." is the workspace itself). Raises SandboxFileError for one outside."""
    if not path or "\0" in path or not _encodes(path):
        raise SandboxFileError(f"{path!r} is not a path")
    relative = posixpath.normpath(path)
    if posixpath.isabs(relative):
        relative = posixpath.relpath(relative, workspace)
    if relative == ".." or relative.startswith("../"):
        raise SandboxFileError(f"{path} is outside the workspace")
    return relative


def _encodes(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_beneath(root: Path, relative: str) -> bytes:
    """The content of a regular file beneath `root`. No link is followed, at any place of the path."""
    try:
        with _folder(root, relative) as (folder, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        raise _explained(relative, error) from error
    _demand_regular(descriptor, relative)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def write_beneath(root: Path, relative: str, data: bytes, owner: int | None = None) -> None:
    """Write a regular file beneath `root`, making its folders; what is made belongs to `owner` where one is given."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with _folder(root, relative, make=True, owner=owner) as (folder, name):
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
        _demand_regular(descriptor, relative)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate()
            file.write(data)
            if owner is not None:
                os.fchown(descriptor, owner, owner)
    except OSError as error:
        raise _explained(relative, error) from error


@contextmanager
def _folder(root: Path, relative: str, *, make: bool = False, owner: int | None = None) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that holds `relative`, and the name within it."""
    *folders, name = relative.split("/")
    here = os.open(root, _DIRECTORY)
    try:
        for part in folders:
            there = _enter(here, part, make, owner)
            os.close(here)
            here = there
        yield here, name
    finally:
        os.close(here)


def _enter(here: int, part: str, make: bool, owner: int | None) -> int:
    try:
        return os.open(part, _DIRECTORY, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(part, 0o755, dir_fd=here)
    there = os.open(part, _DIRECTORY, dir_fd=here)
    if owner is not None:
        os.fchown(there, owner, owner)
    return there


def _demand_regular(descriptor: int, relative: str) -> None:
    """Close the descriptor and raise SandboxFileError when it is of a folder, a pipe, a socket or a device."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise SandboxFileError(f"{relative} {'is a folder' if stat.S_ISDIR(mode) else 'is not a regular file'}")


def _explained(relative: str, error: OSError) -> RatchetError:
    """The caller's fault, or the machine's: a full disk is nobody's answer."""
    if error.errno in _EXHAUSTED:
        return SandboxUnavailable(f"{relative} cannot be written or read: {error.strerror}; free some and start again")
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
    return SandboxFileError(f"{relative}: {reason}")
