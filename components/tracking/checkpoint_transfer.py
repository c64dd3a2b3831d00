"""Checkpoint transfer into a store and back. After a transfer every file matches its hash, or an error names it.

After any interruption the same call resumes: whole files are not sent again, and of large files only the missing parts.
The list of files is stored as tags of the checkpoint's model in MLflow.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.files import file_sha256

from .checkpoint_stores import CheckpointStore, checkpoint_store

FILES_TAG = "checkpoint_files"
"""Prefix of the tags' names."""
MAX_TAG_LENGTH = 4000
"""Characters that a tag may have."""


MODEL_FILE, EXAMPLE_FILE = "MLmodel", "input_example.json"
ADDED_FILES = (MODEL_FILE, EXAMPLE_FILE, "registered_model_meta")
"""Files at the top of a stored checkpoint that are no part of it: its description for MLflow, and what MLflow writes
there, even in a local store, each time that it loads the model by its registered name.
"""


class CheckpointFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: its path within the checkpoint (with `/`), size and SHA-256."""

    path: str
    bytes: int
    sha256: str


class CheckpointListing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a checkpoint, by path."""

    files: tuple[CheckpointFile, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over names and contents of all files: the checkpoint's hash."""
        total = hashlib.sha256()
        for entry in self.files:
            total.update(f"{entry.path} {entry.sha256}\n".encode())
        return total.hexdigest()

    @property
    def bytes(self) -> int:
        """Total size of the files in bytes."""
        return sum(entry.bytes for entry in self.files)

    def tags(self) -> dict[str, str]:
        """Return the listing as MLflow tags `checkpoint_files.000`, `.001`, …: parts of one JSON text."""
        text = msgspec.json.encode(self.files).decode()
        parts = [text[start : start + MAX_TAG_LENGTH] for start in range(0, len(text), MAX_TAG_LENGTH)]
        return {f"{FILES_TAG}.{number:03d}": part for number, part in enumerate(parts)}

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> "CheckpointListing | None":
        """Return the listing that `tags` stored, None if there is none among `tags`. Raises DataError for a damaged
        one.
        """
        text = "".join(tags[name] for name in sorted(tags) if name.startswith(f"{FILES_TAG}."))
        if not text:
            return None
        try:
            files = msgspec.json.decode(text, type=tuple[CheckpointFile, ...])
        except msgspec.DecodeError as error:
            raise DataError(
                f"MLflow's list of the checkpoint's files is damaged ({error}); register it again"
            ) from error
        for entry in files:
            parts = PurePosixPath(entry.path).parts
            if not parts or ".." in parts or entry.path.startswith("/"):
                raise DataError(
                    f"MLflow's list of the checkpoint's files names '{entry.path}', which lies outside of it"
                )
        return cls(files)


def list_checkpoint(folder: Path) -> CheckpointListing:
    """Return the files of a folder, recursively, with their hashes, without those that MLflow adds. Raises DataError
    if there are none.
    """
    added = {folder / name for name in ADDED_FILES}
    files = [path for path in folder.rglob("*") if path.is_file() and path not in added] if folder.is_dir() else []
    if not files:
        raise DataError(f"{folder} holds no checkpoint; train one first")
    # Sorted as paths, not as texts, which would put `a-b` before `a/b`: the order is part of every recorded hash.
    return CheckpointListing(
        tuple(
            CheckpointFile(path.relative_to(folder).as_posix(), path.stat().st_size, file_sha256(path))
            for path in sorted(files)
        )
    )


MAX_TRIES = 3
"""Attempts to resume a download that breaks off."""
PART_SUFFIX = ".part"


def upload_checkpoint(folder: Path, listing: CheckpointListing, location: str) -> None:
    """Store the listed files of a folder at `location` and read each back to compare its hash.

    Files that are stored intact already are skipped. Raises InfrastructureError if a file cannot be stored, or has the
    wrong bytes after the upload (the stored file is then removed).
    """
    store = checkpoint_store(location)
    for entry in listing.files:
        if store.size(entry.path) != entry.bytes or _stored_hash(store, entry) != entry.sha256:
            store.put(folder / entry.path, entry.path)
            stored_hash = _stored_hash(store, entry)
            if stored_hash != entry.sha256:
                store.remove(entry.path)
                raise InfrastructureError(
                    f"{location}/{entry.path}: what arrived is not what was sent (SHA-256 {stored_hash[:12]} instead of "
                    f"{entry.sha256[:12]}); it was removed and nothing is registered: give the same command again"
                )


def fetch_checkpoint(location: str, listing: CheckpointListing, target: Path) -> Path:
    """Fetch the listed files from `location` into the folder `target`, except those that are there and intact; return
    `target`.

    Raises DataError for a file that is absent or damaged in the store, InfrastructureError where the store cannot be
    reached.
    """
    store = checkpoint_store(location)
    for entry in listing.files:
        path = target / entry.path
        if not (path.is_file() and path.stat().st_size == entry.bytes and file_sha256(path) == entry.sha256):
            path.parent.mkdir(parents=True, exist_ok=True)
            _fetch_file(store, entry, path, location)
    return target


def delete_checkpoint(location: str) -> None:
    """Delete all files of the checkpoint at `location`, and unfinished uploads to it."""
    checkpoint_store(location).remove()


def _fetch_file(store: CheckpointStore, entry: CheckpointFile, path: Path, location: str) -> None:
    if store.size(entry.path) is None:
        raise DataError(f"{location}/{entry.path} is absent; restore it, or promote another version")
    partial = path.with_name(f".{path.name}{PART_SUFFIX}")
    was_resumed = partial.exists() and partial.stat().st_size > 0
    _download_rest(store, entry, partial)
    if was_resumed and file_sha256(partial) != entry.sha256:  # the half that lay there was of something else
        partial.unlink()
        _download_rest(store, entry, partial)
    actual_hash = file_sha256(partial)
    if actual_hash != entry.sha256:
        partial.unlink()
        raise DataError(
            f"{location}/{entry.path} is damaged (SHA-256 {actual_hash[:12]} instead of {entry.sha256[:12]}); "
            "restore it, or promote another version"
        )
    partial.replace(path)


def _download_rest(store: CheckpointStore, entry: CheckpointFile, partial: Path) -> None:
    """Append the missing bytes to the file."""
    for tries_left in reversed(range(MAX_TRIES)):
        with partial.open("ab") as file:
            try:
                start = file.tell()
                if start < entry.bytes or not entry.bytes:
                    for block in store.read(entry.path, start):
                        file.write(block)
                file.flush()
                os.fsync(file.fileno())
                return
            except InfrastructureError:
                # A try that brought nothing is not repeated: the store is down, not the connection unstable.
                if not tries_left or file.tell() == start:
                    raise


def _stored_hash(store: CheckpointStore, entry: CheckpointFile) -> str:
    """Return the hash of the bytes as the store returns them."""
    total = hashlib.sha256()
    for block in store.read(entry.path):
        total.update(block)
    return total.hexdigest()
