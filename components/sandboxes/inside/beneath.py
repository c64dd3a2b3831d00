"""Opening a file beneath a folder without following a link, at any place of its path."""

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotRegular(OSError):
    """What stands there is a folder, a pipe, a socket, a device, or a file of a user that is not the sandbox's."""


def open_to_read(root: str, relative: str, owner: int | None = None) -> int:
    """A descriptor of a regular file, of `owner` if one is given. Raises OSError."""
    folder, name = _folder(root, relative, False, None)
    try:
        return _regular(os.open(name, os.O_RDONLY | _SAFELY, dir_fd=folder), owner)
    finally:
        os.close(folder)


def open_to_write(root: str, relative: str, owner: int | None = None) -> int:
    """A descriptor of an emptied regular file, made with its folders where it is not there, for `owner` if one is given.

    A file of another user is refused: a caller who is root would change through a hard link what the agent cannot.
    Raises OSError.
    """
    folder, name = _folder(root, relative, True, owner)
    try:
        descriptor = _make(folder, name, owner)
        if descriptor is None:
            descriptor = _regular(os.open(name, os.O_WRONLY | _SAFELY, dir_fd=folder), owner)
    finally:
        os.close(folder)
    os.ftruncate(descriptor, 0)
    return descriptor


def _make(folder: int, name: str, owner: int | None) -> int | None:
    """A descriptor of a new file; None where something stands there already."""
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o644, dir_fd=folder)
    except FileExistsError:
        return None
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def _folder(root: str, relative: str, make: bool, owner: int | None) -> tuple[int, str]:
    """A descriptor of the folder that holds `relative`, and the name within it."""
    *folders, name = relative.split("/")
    here = os.open(root, _FOLDER)
    for part in folders:
        try:
            there = _enter(here, part, make, owner)
        finally:
            os.close(here)
        here = there
    return here, name


def _enter(here: int, part: str, make: bool, owner: int | None) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(part, 0o755, dir_fd=here)
    there = os.open(part, _FOLDER, dir_fd=here)
    if owner is not None:
        os.fchown(there, owner, owner)
    return there


def _regular(descriptor: int, owner: int | None) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and owner in (None, status.st_uid):
        return descriptor
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        raise NotRegular(0, "belongs to another user")
    raise NotRegular(0, "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file")
