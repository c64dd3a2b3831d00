"""Files that survive a kill (written whole or not at all, or appended durably), JSON lines, and advisory file locks.

Locks are flock(2) locks, which the kernel releases when their process ends, by SIGKILL too. The package `filelock` does
not fit: it truncates the lock file, which here may be a data file, a folder, or hold the name of its owner; it has no
shared locks on plain files; and where flock is missing it falls back to a lock that outlives a killed process.
Not covered: network file systems, on which flock may be local to one host or missing.
"""

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, TypeVar

import msgspec

from .errors import ConfigurationError, DataError, InfrastructureError
from .processes import owner_token


def lock_file(file: int | IO[bytes] | IO[str]) -> None:
    """Take the exclusive lock of an open file or folder; wait for as long as another process holds it."""
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock_file(file: int | IO[bytes] | IO[str], *, shared: bool = False) -> bool:
    """Take the lock of an open file or folder without waiting, and return whether that succeeded; closing the file
    releases it. `shared`: take a shared lock instead of the exclusive one.
    """
    # flock belongs to the open file description: a second open of the same file in this process is refused too.
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for the exclusive lock of the file at `path` and hold it during the block. The file and its folder are
    created if missing, and never removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:  # "w" would truncate a data file that is its own lock
        lock_file(file)
        yield


class LockHeld(Exception):
    """Another process holds the lock; `owner` is the text that its holder wrote into the lock file, or empty."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner


class OwnedLock:
    """An exclusive lock whose file holds a text that names its owner.

    `with OwnedLock(path).acquire(owner):` releases it at the end of the block; entering the block does not acquire it.
    The file stays when the lock is released: removing it would let two processes lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self, owner: str = "") -> Self:
        """Take the lock without waiting and write the text `owner` into its file. Raises LockHeld, OSError."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        if not try_lock_file(file):
            holder = os.pread(file, 500, 0).decode("utf-8", "replace").strip()
            os.close(file)
            raise LockHeld(holder)
        self._file = file
        self.set_owner(owner)
        return self

    def set_owner(self, owner: str) -> None:
        """Replace the owner's text of a lock that is held; other processes read it in `LockHeld.owner`."""
        assert self._file is not None
        # In place: a rename would leave the lock on a file that nobody finds any more.
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, owner.encode("utf-8", "replace"), 0)

    def release(self) -> None:
        """Release the lock; nothing happens where it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_owner(path: Path) -> str | None:
    """Return the owner's text of the OwnedLock at `path` while a process holds it (empty: none was written); None where
    it is free or the file is missing.
    """
    try:
        with path.open("rb") as file:
            # A shared lock: two readers that look at the same moment must not mistake each other for the owner.
            return None if try_lock_file(file, shared=True) else file.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file whole or not at all: temporary file beside it, fsync, rename, fsync of the folder. Raises OSError,
    also where the folder is missing.

    `durable=False` skips fsync, as in `open_atomically`.
    """
    with _rename_when_written(path, temporary_path(path).open("wb"), durable=durable) as file:
        file.write(data)


@contextmanager
def open_atomically(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name only when the block succeeds. Parent folders are created.

    `durable=False` skips fsync, for files that can be regenerated: they survive a kill, but perhaps not a power cut.
    Raises ConfigurationError where the file cannot be created.
    """
    try:
        if path.exists() and not path.is_file():
            raise FileExistsError(errno.EEXIST, "it is no ordinary file")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "its folder cannot be written to")
        opened = temporary_path(path).open("wb")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # the path is right
            raise
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; give the path of a file") from error
    with _rename_when_written(path, opened, durable=durable) as file:
        yield file


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a value as indented JSON, as `write_atomically` does. Keys stay in their order, so that equal values with
    another order of keys give other bytes.
    """
    write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n", durable=durable)


def write_below(folder: Path, files: Mapping[str, str], owner: str) -> None:
    """Write texts at paths relative to `folder`, with their folders. Raises DataError, in the name of their `owner`, for a
    path that leads out of the folder.
    """
    for name, text in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{owner}: file '{name}' lies outside of its folder; correct the taskset")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_json_lines(path: Path, rows: Sequence[object]) -> None:
    """Write values as JSON lines, whole or not at all. Raises ConfigurationError where the file cannot be created."""
    with open_atomically(path) as file:
        file.write(msgspec.json.Encoder().encode_lines(rows))


def refuse_overwriting(inputs: Iterable[Path], *outputs: Path | None) -> None:
    """Raise ConfigurationError where an output would replace an input file, or a shard or manifest of an input folder.

    Outputs that are None are skipped.
    """
    for out in outputs:
        if out is None or not out.exists():
            continue
        for path in inputs:
            shard = out.name == "manifest.jsonl" or out.match("shard-*.jsonl")
            if path.exists() and (out.samefile(path) or (shard and out.parent.samefile(path))):
                raise ConfigurationError(f"{out} is what is read, and stays as it is; write to another file")


def fsync_path(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable. Raises OSError."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def temporary_path(path: Path) -> Path:
    """Return the path beside `path` at which this process writes it; `ratchet reap` removes it once the process is dead."""
    # The owner's token keeps two processes that write the same file apart; the last rename wins.
    return path.with_name(f".{path.name}.{owner_token()}.tmp")


def temporary_folder(name: str, place: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """Return a new folder in `place` (None: the machine's folder of temporary files), which is removed at the end of a `with`
    block, or by `ratchet reap` once this process is dead. `name`: what it is for.
    """
    return tempfile.TemporaryDirectory(prefix=f"ratchet-{name}-{owner_token()}-", dir=place)


@contextmanager
def _rename_when_written(path: Path, temporary_file: BinaryIO, *, durable: bool = True) -> Iterator[BinaryIO]:
    temporary = temporary_path(path)
    try:
        with temporary_file as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        # Without it a power cut may take the new name back, though the content is on the disk.
        fsync_path(path.parent)


def write_all(file: int, data: bytes) -> None:
    """Write every byte to a file descriptor. Raises OSError."""
    view = memoryview(data)
    while view:
        # One write may take only a part: on a full disk, after a signal, or above 2 GiB.
        view = view[os.write(file, view) :]


def append_durably(path: Path, data: bytes) -> int:
    """Append with fsync; return the previous length of the file. Raises OSError, after removing what was written.

    Takes no lock: the caller must be the only writer. A missing file is created.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        try:
            write_all(file, data)
            os.fsync(file)
        except OSError:  # half a line would make the next append unreadable as well
            os.ftruncate(file, size)
            raise
    finally:
        os.close(file)
    return size


def write_error(path: Path, error: OSError) -> InfrastructureError:
    """Return an InfrastructureError that says why `path` could not be written and what to do."""
    advice = (
        "free space and give the same command again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT)
        else "check the disk"
    )
    return InfrastructureError(f"{path} cannot be written: {error.strerror}; {advice}; what was finished is kept")


def remove_partial_line(path: Path) -> None:
    """Remove the half line that a killed process left at the end of a file; durable."""
    with path.open("r+b") as file:
        _remove_partial_line(file.fileno())
        os.fsync(file.fileno())


def _remove_partial_line(file: int) -> None:
    size = end = os.fstat(file).st_size
    while end:
        block_start = max(0, end - 4096)
        newline = os.pread(file, end - block_start, block_start).rfind(b"\n")
        if newline >= 0:
            end = block_start + newline + 1
            break
        end = block_start
    if end < size:
        os.ftruncate(file, end)


Record = TypeVar("Record", bound=msgspec.Struct)


def read_json_lines(path: Path, kind: type[Record], *, skip_partial: bool = False) -> Iterator[Record]:
    """Yield the records of a file, decoded as `kind`. Blank lines are skipped; with `skip_partial` also a last line
    without a newline.

    Raises DataError for a file that cannot be read, and, naming the line, for one that is not UTF-8, not JSON, not a
    `kind`, or of a newer schema version.
    """
    decoder = msgspec.json.Decoder(kind)
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path") from error
    with file:
        for number, line in enumerate(file, start=1):
            if not line.strip() or (skip_partial and not line.endswith(b"\n")):
                continue
            try:
                record = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise DataError(_explain_line(path, number, line, kind, error)) from error
            if (version := getattr(record, "schema_version", 1)) > _schema_version(kind):
                raise DataError(_newer_schema(path, number, version))
            yield record


def append_json_lines(path: Path, records: Iterable[msgspec.Struct]) -> None:
    """Append whole lines, safe against concurrent writers; durable when it returns. Parent folders are created.

    A half line that a killed process left at the end is removed first. Raises ConfigurationError where the file cannot
    be written, OSError on a full disk.
    """
    lines = msgspec.json.Encoder().encode_lines(list(records))
    if not lines:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:  # the lock comes before the look at the end: another process may be appending
            lock_file(file)
            _remove_partial_line(file.fileno())
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # the path is right
            raise
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}; check the path") from error


def _explain_line(path: Path, number: int, line: bytes, kind: type, error: Exception) -> str:
    if not line.endswith(b"\n"):
        return f"{path}, line {number}: the last line is cut short; remove it or restore the file ({error})"
    try:
        version = msgspec.json.decode(line).get("schema_version")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        version = None
    if isinstance(version, int) and version > _schema_version(kind):
        return _newer_schema(path, number, version)
    return f"{path}, line {number}: not a {kind.__name__.lower()}: {error}"


def _newer_schema(path: Path, number: int, version: int) -> str:
    return f"{path}, line {number}: schema_version {version} is newer than ours; upgrade Ratchet"


def _schema_version(kind: type) -> int:
    """Default of the field `schema_version` of a record type; 1 where it has none."""
    fields = {field.name: field.default for field in msgspec.structs.fields(kind)}
    version = fields.get("schema_version", 1)
    return version if isinstance(version, int) else 1


class InvalidYaml(ValueError):
    """Bytes that are not YAML. The message completes "<file> is …" in one line."""


def load_yaml(content: bytes, *, quick: bool = False) -> Any:
    """Return the values of a YAML document; None where it is empty. `quick` uses the faster libyaml where installed.

    Raises InvalidYaml, also for impossible dates and for nesting that is too deep.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if quick else yaml.SafeLoader
    try:
        # Decoded here: PyYAML would guess UTF-16 from the first bytes.
        return yaml.load(content.decode(), loader)
    except UnicodeDecodeError as error:
        raise InvalidYaml(f"not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidYaml(f"not YAML: {' '.join(str(error).split())}") from error
