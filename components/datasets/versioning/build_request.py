"""Requests for a manual build, and external folders of trajectories that `data.rollouts` of `params.yaml` names.

An external folder is copied shard by shard, each hash verified, to `data/rollouts/<name>-<hash>`, and sealed there. The
folder itself is only read; when it has grown, the next build imports it again under another hash.
"""

import errno
import hashlib
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pydantic import field_validator

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.configuration import Configuration, read_section
from ratchet.components.core.files import file_sha256, temporary_path, write_atomically
from ratchet.components.trajectories.blobs import is_blob_name
from ratchet.components.trajectories.shards import (
    MANIFEST,
    ShardEntry,
    check_link,
    finished_shards,
    read_jsonl,
    read_manifest,
    write_shard,
)
from ratchet.components.trajectories.trajectory import Trajectory

from .build_inputs import BUILD, BuildInputs, keep_baseline, read_build
from .sealed_nights import ROLLOUTS

PARAMS = Path("params.yaml")
SHARD_EPISODES = 500
"""Episodes per shard that is written from files without a manifest."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class RolloutParams(Configuration):
    """Section `data`. `rollouts`: folders of shards, or folders that contain such folders; if empty, nights are given
    by name.
    """

    rollouts: tuple[Path, ...] = ()

    @field_validator("rollouts", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return () if value is None else [value] if isinstance(value, str) else value


def nights_from_params(root: Path = Path()) -> tuple[str, ...]:
    """Return the nights that `data.rollouts` of `params.yaml` names, and import external folders first. Raises
    ConfigurationError for a path that is no folder, DataError for a folder that is damaged or holds no shards.
    """
    params = read_section(root / PARAMS, "data", RolloutParams)
    folders = itertools.chain.from_iterable(_folders((root / path.expanduser()).absolute()) for path in params.rollouts)
    return tuple(dict.fromkeys(import_folder(folder, root=root) for folder in folders))


def _folders(place: Path) -> list[Path]:
    """Return the folders of shards at a path: the path itself, or its subfolders, sorted by name. Raises
    ConfigurationError, DataError.
    """
    if not place.is_dir():
        raise ConfigurationError(
            f"data.rollouts of {PARAMS}: {place} is not a folder; name one that holds trajectory shards"
        )
    if (place / MANIFEST).is_file() or any(place.glob("*.jsonl")):
        return [place]
    folders = sorted(path for path in place.iterdir() if not path.name.startswith("."))
    shard_folders = [folder for folder in folders if (folder / MANIFEST).is_file()]
    if not shard_folders:
        raise DataError(
            f"{place} holds no trajectory shards; make them from another agent's logs with `ratchet trajectories convert`"
        )
    return shard_folders


def import_folder(folder: Path, *, root: Path = Path()) -> str:
    """Copy a folder of shards to `data/rollouts` unless it is there already; return the name of the copy, which a build
    takes as a night.

    Raises DataError for a folder that is damaged or cannot be read; then nothing is imported.
    """
    if folder.resolve().parent == (root / ROLLOUTS).resolve():
        return folder.name
    try:
        entries = finished_shards(folder) if read_manifest(folder) else []
        name = f"{_slug(folder.name)}-{_identity(folder, entries)[:8]}"
        target = root / ROLLOUTS / name
        if not target.exists() and not target.with_name(f"{name}.dvc").is_file():
            _write_import(folder, entries, target)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise DataError(f"{error.filename or folder}: {error.strerror}; {folder} cannot be imported") from error
    return name


def _write_import(folder: Path, entries: list[ShardEntry], target: Path) -> None:
    """Write a folder of shards atomically."""
    # Beside the target: a rename is atomic on one file system only.
    spool = temporary_path(target)
    shutil.rmtree(spool, ignore_errors=True)
    spool.mkdir(parents=True)
    try:
        if entries:
            _copy_shards(folder, entries, spool)
        else:
            _write_shards(folder, spool)
        _copy_blobs(folder / "blobs", spool / "blobs")
        spool.rename(target)
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def _slug(name: str) -> str:
    """Return a folder's name with the characters that are valid in the name of a night."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")[:48] or "rollouts"


def _identity(folder: Path, entries: list[ShardEntry]) -> str:
    """Return the hash of a folder's content: of the hashes in its manifest, or of its files if it has none."""
    parts = [f"{entry.shard} {entry.sha256} {entry.tokens_sha256}" for entry in entries]
    parts = parts or [f"{path.name} {file_sha256(path)}" for path in _files(folder)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl") if path.name != MANIFEST and path.is_file())


def _copy_shards(folder: Path, entries: list[ShardEntry], spool: Path) -> None:
    """Copy finished shards with their sidecars, each hash verified, and write their manifest last. Raises DataError."""
    for entry in entries:
        for name, expected in _entry_hashes(entry):
            # The copy is hashed and not the source, which may change meanwhile.
            shutil.copyfile(folder / name, spool / name)
            if file_sha256(spool / name) != expected:
                raise DataError(f"{folder / name} differs from the hash in its manifest; restore it, or collect anew")
    write_atomically(spool / MANIFEST, msgspec.json.Encoder().encode_lines(entries))


def _copy_blobs(folder: Path, spool: Path) -> None:
    """Copy the blobs that records can name, each verified against the hash in its name; other files are not copied.
    Raises DataError.
    """
    # A link could lead to any file of this machine, which would be copied into the data.
    check_link(folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        check_link(path)
        if is_blob_name(path.name) and path.is_file():
            spool.mkdir(exist_ok=True)
            shutil.copyfile(path, spool / path.name)
            if file_sha256(spool / path.name) != path.name.removeprefix("sha256-"):
                raise DataError(f"{path} has another SHA-256 than its name; restore it, or remove it")


def _entry_hashes(entry: ShardEntry) -> Iterator[tuple[str, str | None]]:
    yield entry.shard, entry.sha256
    if entry.tokens is not None:
        yield entry.tokens, entry.tokens_sha256


def _distinct_episodes(folder: Path) -> Iterator[Trajectory]:
    """Yield the episodes of a folder's files without duplicates. Raises DataError if two different episodes have the
    same id.
    """
    first_occurrences: dict[str, tuple[Path, str]] = {}
    for path in _files(folder):
        for episode in read_jsonl(path):
            if episode.episode_id not in first_occurrences:
                first_occurrences[episode.episode_id] = path, episode.content_hash
                yield episode
                continue
            first, content = first_occurrences[episode.episode_id]
            if content != episode.content_hash:
                files = f"{first} {path}" if first != path else f"{path}"
                raise DataError(
                    f"{path}: episode {episode.episode_id} occurs twice with different contents (first in {first.name}); keep one "
                    f"of the two: `ratchet trajectories validate {files}` names their lines"
                )


def _write_shards(folder: Path, spool: Path) -> None:
    """Write shards from files of trajectories that no manifest lists. Raises DataError if there is no trajectory."""
    episodes = _distinct_episodes(folder)
    for index in itertools.count():
        batch = list(itertools.islice(episodes, SHARD_EPISODES))
        if batch:
            write_shard(spool, index, batch)
        elif index:
            return
        else:
            raise DataError(f"{folder} holds files without a trajectory; collect first, or name another folder")


NONE, LAST = "none", "last"
"""Values of `baseline` in a request: no baseline, or the last accepted build."""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a user. Without nights, those of `data.rollouts` are used, else those of the last build. A field that
    is None keeps its value from the last build of the same nights; for other nights it is today, scale smoke, seed
    0, and the last accepted build as baseline. `baseline` may be "none" or "last".
    """

    nights: tuple[str, ...] = ()
    scale: str | None = None
    seed: int | None = None
    as_of: str | None = None
    baseline: str | None = None


def requested_inputs(request: BuildRequest, today: str, root: Path = Path()) -> BuildInputs | None:
    """Return the inputs of the requested build; None to rebuild the current inputs. `today` is an ISO date. Without
    nights in the request, external folders that `params.yaml` names are imported.

    Raises ConfigurationError if no night is named and there is no earlier build, DataError for a folder that cannot be
    built from.
    """
    nights, current = request.nights or nights_from_params(root), current_inputs(root)
    if not nights and request == BuildRequest():
        return None
    if not nights and current is None:
        raise ConfigurationError(
            f"{root / BUILD} is absent: nothing was built here yet; name nights, or run `ratchet night`"
        )
    if current is not None and nights in ((), current.nights):
        base = current
    else:
        base = BuildInputs(nights, as_of=today, scale="smoke", seed=0, baseline=last_accepted(root))
    changes = {name: value for name in ("scale", "seed", "as_of") if (value := getattr(request, name)) is not None}
    if request.baseline is not None:
        named = {NONE: None, LAST: last_accepted(root)}
        changes["baseline"] = named.get(request.baseline, request.baseline)
    return msgspec.structs.replace(base, **changes)


def current_inputs(root: Path = Path()) -> BuildInputs | None:
    """Return the inputs of the last build; None if nothing was built. Raises ConfigurationError for a file that cannot
    be read.
    """
    return read_build(root).requested_inputs() if (root / BUILD).is_file() else None


def last_accepted(root: Path = Path()) -> str | None:
    """Return the SHA-256 of the baseline for the next build: the profile of the current build if it is accepted, else
    its baseline; None if there is neither. An accepted profile is stored in `data/baselines`.
    """
    current = current_inputs(root)
    return keep_baseline(root) or (current.baseline if current else None)
