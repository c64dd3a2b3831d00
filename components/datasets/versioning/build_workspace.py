"""Workspaces: small DVC projects in which the data build is tried with other parameters. They share the clone's sealed nights,
code and cache; the clone's own `params.yaml`, `dvc.lock` and `data/` stay as they are.

`dvc exp run` would stash the clone's work tree, overwrite `data/` and leave the changed parameters behind if it is killed. In
a workspace it is the same `dvc repro`: stages that the parameters leave alone come from the shared cache.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ratchet.components.core.files import write_atomically

from .build_inputs import BASELINES
from .sealed_nights import SEALED_KINDS, check_night, pointer_of

COPIED_FILES = (".dvc/config", ".dvcignore", "dvc.yaml")
LINKED_FOLDERS = ("components", "data/tasksets")


def open_workspace(folder: Path, nights: Sequence[str], params: bytes, *, root: Path = Path()) -> Path:
    """Return a workspace with these nights and the content `params` of its `params.yaml`; it is created where there is none.

    A workspace that exists keeps what was built in it. Raises DataError for a night that is absent or was changed.
    """
    if (folder / "params.yaml").is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed
    for name in COPIED_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, folder / name)
    settings = f"[core]\n    no_scm = true\n[cache]\n    dir = {(root / '.dvc/cache').absolute()}\n"
    (folder / ".dvc/config.local").write_text(settings, encoding="utf-8")
    for name in (name for name in LINKED_FOLDERS if (root / name).is_dir()):  # a project has no components
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to((root / name).absolute())
    if (root / BASELINES).is_dir():
        shutil.copytree(root / BASELINES, folder / BASELINES)
    for kind in SEALED_KINDS:
        for night in nights:
            if (root / pointer_of(night, kind)).is_file():
                check_night(night, kind, root=root)
                shutil.copytree(root / kind / night, folder / kind / night, copy_function=_link_or_copy)
                shutil.copyfile(root / pointer_of(night, kind), folder / pointer_of(night, kind))
    write_atomically(folder / "params.yaml", params)  # last: it marks a complete workspace
    return folder


def _link_or_copy(source: str, target: str) -> None:
    """Give a sealed file, which never changes, a second name; copy it where the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
