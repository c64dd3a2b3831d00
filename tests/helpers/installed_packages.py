"""Installed packages for a sandbox: a copy of what this Python has, since tests have no network."""

import importlib.metadata
import shutil
from pathlib import Path

from packaging.requirements import Requirement


def copy_packages(folder: Path, *names: str) -> None:
    """Copy packages and all that they require into a folder for PYTHONPATH; every user may read it."""
    wanted, seen = [(name, "") for name in names], set()
    while wanted:
        name, extra = wanted.pop()
        name = name.lower().replace("_", "-")
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        distribution = importlib.metadata.distribution(name)
        for each in map(Requirement, distribution.requires or ()):
            if not each.marker or each.marker.evaluate({"extra": extra}):
                wanted += [(each.name, more) for more in ("", *each.extras)]
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), folder / file)
    for path in (folder, *folder.rglob("*")):  # whatever the umask is
        path.chmod(0o755 if path.is_dir() else 0o644)
