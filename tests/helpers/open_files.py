"""The files of a folder that this process has open: other threads open and close others meanwhile."""

import contextlib
from pathlib import Path


def open_files(folder: Path) -> list[str]:
    """Return the paths below `folder` of this process's descriptors; an unlinked file's ends with ` (deleted)`."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(folder))]
