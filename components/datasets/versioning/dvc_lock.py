"""`dvc.lock`, pointers and DVC's hashes, read and computed without DVC; and the lock in the order of `dvc.yaml`.

DVC appends a stage when it first runs and keeps stages that no longer exist, so the same build would produce different
locks in different clones.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import InvalidYaml, load_yaml, write_atomically

CHUNK = 1 << 20
LOCK = Path("dvc.lock")
"""DVC's record of the last build: each stage with the hashes of its inputs and outputs."""


def dvc_md5(path: Path) -> str | None:
    """Return DVC's hash of a file (32 hex digits) or a folder (the same with the suffix `.dir`); None if it is absent."""
    if path.is_file():
        return _file_md5(path)
    if not path.is_dir():
        return None
    files = sorted(
        (tuple(file.relative_to(path).parts), file) for file in path.rglob("*") if file.is_file() and not _ignored(file)
    )
    # DVC's own form of a listing, down to the separators of `json.dumps`: any other gives another hash.
    listing = [{"md5": _file_md5(file), "relpath": "/".join(parts)} for parts, file in files]
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def _file_md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _ignored(path: Path) -> bool:
    return "__pycache__" in path.parts


def lock_outputs(lock: dict[str, Any]) -> dict[str, str]:
    """Return the hash of every output of a `dvc.lock`, by path."""
    stages = (lock.get("stages") or {}).values()
    return {out["path"]: out["md5"] for stage in stages for out in stage.get("outs", ())}


def read_lock(path: Path) -> dict[str, Any]:
    """Return the values of a `dvc.lock`; an empty dict if there is none. Raises DataError."""
    values = _values(path, "restore it from a night's tag, or remove it: built outputs are in the cache")
    if not isinstance(values.get("stages") or {}, dict):
        raise DataError(f"{path} is not a lock of DVC; remove it: built outputs are in the cache")
    return values


def read_pointer(pointer: Path) -> tuple[Path, str]:
    """Return the path that a `.dvc` pointer file tracks, in the same folder, and its hash. Raises DataError."""
    try:
        (out,) = _values(pointer, "restore it from a night's tag")["outs"]
        path, md5 = out["path"], out["md5"]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{pointer} is not a pointer of DVC; restore it from a night's tag") from error
    # A forged pointer could name any path, which a checkout would then overwrite.
    if path != pointer.stem:
        raise DataError(f"{pointer} points to '{path}', not to '{pointer.stem}'; restore it from a night's tag")
    return pointer.parent / path, md5


def cached_scores(nights: Sequence[str], root: Path = Path()) -> list[str]:
    """Return those of `nights` that a build would not score again: code, settings and inputs are those of the lock. Raises
    DataError, ConfigurationError.
    """
    stages = read_lock(root / LOCK).get("stages") or {}
    if not _is_current(stages.get("code") or {}, root):
        return []
    settings = _values(root / "params.yaml", "restore it").get("score") if (root / "params.yaml").is_file() else None
    return [
        night
        for night in nights
        if (stage := stages.get(f"score@{night}"))
        and (stage.get("params") or {}).get("params.yaml", {}).get("score") == settings
        and _is_current(stage, root)
    ]


def _is_current(stage: dict[str, Any], root: Path) -> bool:
    """Return whether a stage of the lock has inputs, and all of them have their recorded hashes."""
    inputs = stage.get("deps") or []
    return bool(inputs) and all(_present_hash(root / entry["path"]) == entry["md5"] for entry in inputs)


def _present_hash(path: Path) -> str | None:
    # A sealed folder never changes: its pointer holds the hash, and gigabytes need not be read.
    pointer = path.with_name(f"{path.name}.dvc")
    return read_pointer(pointer)[1] if pointer.is_file() else dvc_md5(path)


def _values(path: Path, advice: str) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values: Any = load_yaml(path.read_bytes()) or {}
    except InvalidYaml as error:
        raise DataError(f"{path} is {error}; {advice}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path} is a {type(values).__name__} and must be a mapping; {advice}")
    return values


def sort_lock(root: Path, nights: Sequence[str]) -> None:
    """Sort the lock in the order of `dvc.yaml` for these nights, and drop entries that belong to none of their stages.

    If no stage remains the lock is removed: DVC refuses a lock without stages.
    """
    path = root / LOCK
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    new = sorted_lock(text, stage_names(root, nights))
    if not any(line.startswith("  ") for line in new.splitlines()):
        path.unlink()
    elif new != text:
        write_atomically(path, new.encode())


def stage_names(root: Path, nights: Sequence[str]) -> list[str]:
    """Return the names of the stages of `dvc.yaml` for these nights, in its order. Raises ConfigurationError."""
    path = root / "dvc.yaml"
    try:
        stages = load_yaml(path.read_bytes())["stages"].items()
        names = ([f"{name}@{night}" for night in nights] if "foreach" in stage else [name] for name, stage in stages)
        return [name for group in names for name in group]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {' '.join(str(error).split())}; restore it from git"
        ) from error


def sorted_lock(lock: str, stages: Sequence[str]) -> str:
    """Return the text of a lock with exactly these stages, in this order; the text of each stage is unchanged."""
    # As text: a round trip through YAML would change quotes, and so the hash that names the build.
    header: list[str] = []
    blocks: dict[str, list[str]] = {}
    current = header
    for line in lock.splitlines(keepends=True):
        if line.startswith("  ") and not line.startswith("   ") and line.rstrip().endswith(":"):
            current = blocks.setdefault(line.strip().removesuffix(":").strip("'\""), [])
        elif not line.startswith(" "):
            current = header
        current.append(line)
    return "".join([*header, *(line for name in stages for line in blocks.get(name, ()))])
