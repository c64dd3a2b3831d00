"""DVC's own hashes, computed without DVC: the MD5 of a file, and of the sorted listing of a folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
LOCK = Path("dvc.lock")
"""What DVC says of the last build: each stage with the hashes of what it read and wrote."""


def md5_of(path: Path) -> str | None:
    """The hash under which DVC keeps a file (32 hex digits) or a folder (the same and `.dir`); None where it is absent."""
    if path.is_file():
        return _file(path)
    if not path.is_dir():
        return None
    files = sorted(
        (tuple(each.relative_to(path).parts), each) for each in path.rglob("*") if each.is_file() and not _ignored(each)
    )
    listing = [{"md5": _file(each), "relpath": "/".join(parts)} for parts, each in files]
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def _file(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _ignored(path: Path) -> bool:
    return "__pycache__" in path.parts


def outputs_of(lock: dict[str, Any]) -> dict[str, str]:
    """Every output of a `dvc.lock`, path to hash."""
    stages = (lock.get("stages") or {}).values()
    return {out["path"]: out["md5"] for stage in stages for out in stage.get("outs", ())}


def read_lock(path: Path) -> dict[str, Any]:
    """A `dvc.lock` as values; empty where there is none."""
    import yaml

    if not path.is_file():
        return {}
    values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    return values if isinstance(values, dict) else {}


def pointed(pointer: Path) -> tuple[Path, str]:
    """What a `.dvc` pointer file names: the path, beside it, and its hash."""
    import yaml

    (out,) = yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"]
    return pointer.parent / out["path"], out["md5"]
