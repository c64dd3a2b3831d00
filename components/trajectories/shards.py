"""Shards of trajectories: written whole or not at all, listed in a manifest, sealed once, verified when read.

A folder holds `shard-00000.jsonl`, beside it `tokens-00000.parquet` where the policy returned token ids, and
`manifest.jsonl` with one line per finished shard. Shards that the manifest does not list are unfinished.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError
from ratchet.components.core.files import write_atomically

from .record_decoding import read_line
from .trajectory import Trajectory, content_hash

MANIFEST = "manifest.jsonl"


class ShardEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the manifest. `shard`, `tokens`: file names of the shard and of its token sidecar (None without one);
    `sha256`, `tokens_sha256`: hashes of their bytes. `episode_ids`: in the order of the lines.
    """

    shard: str
    episodes: int
    sha256: str
    episode_ids: tuple[str, ...]
    tokens: str | None = None
    tokens_sha256: str | None = None


def write_shard(
    folder: Path, index: int, trajectories: Sequence[Trajectory], tokens: bytes | None = None
) -> ShardEntry:
    """Write shard number `index` and its sidecar `tokens` (bytes of `encode_tokens`), then its manifest line. `folder`
    must exist. Raises DataError where the shard is listed already, OSError.
    """
    lines = msgspec.json.Encoder().encode_lines(trajectories)
    return write_shard_lines(folder, index, [trajectory.episode_id for trajectory in trajectories], lines, tokens)


def write_shard_lines(
    folder: Path, index: int, episode_ids: Sequence[str], lines: bytes, tokens: bytes | None = None
) -> ShardEntry:
    """Write a shard as `write_shard` does from encoded records: `lines`, each ending in a newline, one per episode
    id.
    """
    name, listed = f"shard-{index:05d}.jsonl", read_manifest(folder)
    if any(entry.shard == name for entry in listed):
        raise DataError(f"{folder / name} is listed in the manifest already; a finished shard is never rewritten")
    sidecar = f"tokens-{index:05d}.parquet" if tokens is not None else None
    # The manifest line comes last: until then a kill leaves only files that count as unfinished.
    if tokens is not None and sidecar is not None:
        write_atomically(folder / sidecar, tokens)
    write_atomically(folder / name, lines)
    entry = ShardEntry(
        shard=name,
        episodes=len(episode_ids),
        sha256=hashlib.sha256(lines).hexdigest(),
        episode_ids=tuple(episode_ids),
        tokens=sidecar,
        tokens_sha256=hashlib.sha256(tokens).hexdigest() if tokens is not None else None,
    )
    # Rewritten as a whole and sorted: shards may be finished in any order, and the manifest's bytes must not tell which.
    entries = sorted([*listed, entry], key=lambda each: each.shard)
    write_atomically(folder / MANIFEST, msgspec.json.Encoder().encode_lines(entries))
    return entry


def read_manifest(folder: Path) -> list[ShardEntry]:
    """Return the finished shards of a folder, in order; empty without a manifest. Raises DataError where the manifest
    is damaged; the shards are not read.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return []
    entries = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            entries.append(msgspec.json.decode(line, type=ShardEntry))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: {error}; restore the file from its night") from error
    check_entries(path, entries)
    return entries


def read_jsonl(path: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a file; older schemas are migrated. Raises DataError that names the line."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path") from error
    with file:
        yield from read_trajectory_lines(path, iter(partial(file.readline, LINE_LIMIT + 1), b""))


def read_trajectory_lines(path: Path, lines: Iterable[bytes], first: int = 1) -> Iterator[Trajectory]:
    """Yield the trajectories of lines; blank lines are skipped. Raises DataError that names `path` and the number of
    the line, counted from `first`.
    """
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        if len(line) > LINE_LIMIT:
            raise DataError(line_too_long(path, number))
        trajectory, problems = read_line(line)
        if trajectory is None:
            raise DataError(f"{path}, line {number}: {problems[0]}")
        yield trajectory


def finished_shards(folder: Path) -> list[ShardEntry]:
    """Return the finished shards of a folder, in order. Raises DataError where there is none, or one is missing."""
    entries = read_manifest(folder)
    if not entries and (folder / "store.json").is_file():
        raise DataError(
            f"{folder} is a store; write its episodes to a file first: ratchet store export --store {folder} -o FILE.jsonl"
        )
    if not entries:
        raise DataError(f"{folder} has no {MANIFEST} or an empty one: there are no finished shards to read")
    for entry in entries:
        if not (folder / entry.shard).is_file():
            raise DataError(f"{folder / entry.shard} is in the manifest and absent; restore it from its night")
        check_link(folder / entry.shard)
    return entries


def read_folder(folder: Path, *, verify: bool = True) -> Iterator[Trajectory]:
    """Yield every trajectory in the order of the manifest.

    Raises DataError for a record that cannot be read. With `verify`, also for a shard with a wrong hash or other
    episodes than listed, after its readable records were yielded.
    """
    for entry in finished_shards(folder):
        path = folder / entry.shard
        if not verify:
            yield from read_jsonl(path)
        elif hashlib.sha256(path.read_bytes()).hexdigest() != entry.sha256:
            yield from read_jsonl(path)  # a line that cannot be read is the more specific error
            raise damaged_shard_error(path, entry.episode_ids)
        else:
            ids: list[str] = []
            for trajectory in read_jsonl(path):
                ids.append(trajectory.episode_id)
                yield trajectory
            check_listed(path, ids, entry.episode_ids)


def damaged_shard_error(path: Path, listed: Sequence[str]) -> DataError:
    """Return the error for a shard with a wrong hash, naming the records that differ.

    Raises DataError for a line that cannot be read, which is more specific.
    """
    with path.open("rb") as file:
        phrases = record_differences(_numbered_records(path, file), listed)
    differences = join_first(phrases) or "in what no record's content_hash covers"
    return DataError(f"{path} differs from the hash in its manifest: {differences}; restore it from its night")


def _numbered_records(path: Path, lines: Iterable[bytes]) -> Iterator[tuple[int, Trajectory]]:
    for number, line in enumerate(lines, start=1):
        for trajectory in read_trajectory_lines(path, [line], number):
            yield number, trajectory


def seal_folder(spool: Path, target: Path) -> None:
    """Rename `spool`, a folder of finished shards, to its final folder `target`. Raises ConfigurationError where that
    exists, DataError without a finished shard, InfrastructureError where the rename fails (another file system).
    """
    if target.exists():
        raise ConfigurationError(f"{target} is sealed already; a night is sealed once")
    if not read_manifest(spool):
        raise DataError(f"{spool} holds no finished shard; collect before sealing")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        spool.rename(target)
    except OSError as error:
        advice = "keep RATCHET_HOME and data on one file system"
        raise InfrastructureError(f"{spool} cannot be moved to {target}: {error.strerror}; {advice}") from error


LINE_LIMIT = 64 << 20
"""Maximum size of a line in bytes."""
SHOWN_DIFFERENCES = 3
"""Number of differences named in an error."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_IN_CACHE = re.compile(r"/files/md5/[0-9a-f]{2}/[0-9a-f]{30}$")


def check_entries(manifest: Path, entries: Iterable["ShardEntry"]) -> None:
    """Raise DataError for a manifest line that names a file outside its folder, repeats a shard, or has a wrong count."""
    names: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        line_name = f"{manifest}, line {number}"
        for name in (entry.shard, entry.tokens):
            # A name such as ../../x would make readers open, and writers replace, any file.
            if name is not None and not _NAME.fullmatch(name):
                raise DataError(f"{line_name}: {name!r} is no file of this folder; restore the manifest from its night")
        if entry.shard in names:
            raise DataError(f"{line_name}: {entry.shard} is listed twice; restore the manifest from its night")
        if entry.episodes != len(entry.episode_ids):
            message = f"says {entry.episodes} episodes and names {len(entry.episode_ids)}"
            raise DataError(f"{line_name}: {entry.shard} {message}; restore the manifest from its night")
        names.add(entry.shard)


def check_link(path: Path) -> None:
    """Raise DataError for a symlink out of its folder, except into DVC's cache, whose files are identified by hash."""
    if not path.is_symlink():
        return
    target = path.resolve()
    if target.parent != path.parent.resolve() and not _IN_CACHE.search(target.as_posix()):
        raise DataError(f"{path} is a link out of its folder, to {target}; put the file itself there")


def check_listed(path: Path, actual_ids: Sequence[str], listed_ids: Sequence[str]) -> None:
    """Raise DataError where the ids of a shard differ from those in the manifest, or in their order."""
    if list(actual_ids) == list(listed_ids):
        return
    expected, present = set(listed_ids), set(actual_ids)
    phrases = [f"{identity} is not listed" for identity in actual_ids if identity not in expected]
    phrases += [f"{identity} is missing" for identity in listed_ids if identity not in present]
    phrases += ["an episode stands twice, or in another place"] if not phrases else []
    raise DataError(
        f"{path} holds other records than its manifest lists: {join_first(phrases)}; restore it from its night"
    )


def record_differences(numbered: Iterable[tuple[int, Trajectory]], listed: Sequence[str]) -> list[str]:
    """Return one phrase for each difference of a damaged shard from the ids `listed` in its manifest: missing, repeated
    and unlisted records, and those with a wrong content hash. `numbered`: pairs (line number, record).
    """
    expected, present, phrases = set(listed), set[str](), []
    for number, record in numbered:
        record_name = f"line {number}, {record.episode_id},"
        if record.episode_id not in expected:
            phrases.append(f"{record_name} is not listed")
        elif record.episode_id in present:
            phrases.append(f"{record_name} stands twice")
        elif not has_valid_hash(record):
            phrases.append(f"{record_name} is not what its content_hash says")
        present.add(record.episode_id)
    return phrases + [f"{record} is missing" for record in listed if record not in present]


def has_valid_hash(trajectory: Trajectory) -> bool:
    """Return whether `content_hash` matches the content; False where the content cannot be encoded."""
    try:
        return trajectory.content_hash == content_hash(trajectory)
    except (OverflowError, RecursionError):
        return False


def join_first(phrases: Collection[str]) -> str:
    """Join the first SHOWN_DIFFERENCES phrases, and append the number of further ones."""
    more = f" and {len(phrases) - SHOWN_DIFFERENCES} more" if len(phrases) > SHOWN_DIFFERENCES else ""
    return "; ".join(list(phrases)[:SHOWN_DIFFERENCES]) + more


def is_canonical(data: bytes, records: Sequence[Trajectory]) -> bool:
    """Return whether `data` equals what `write_shard` writes for `records` byte for byte, so that every JSON reader
    reads the same values.
    """
    try:
        return msgspec.json.Encoder().encode_lines(records) == data
    except (OverflowError, RecursionError):
        return False


def check_repeated_keys(path: Path, lines: Iterable[bytes], first: int = 1) -> None:
    """Raise DataError for a key repeated in one JSON object, of which readers take different values. The message names
    `path` and the number of the line, counted from `first`.
    """
    for number, line in enumerate(lines, start=first):
        if line.strip() and (repeated := _repeated_keys(line)):
            message = f"the key {repeated[0]!r} stands twice in one object"
            raise DataError(f"{path}, line {number}: {message}; write the record again")


def line_too_long(path: Path, number: int) -> str:
    """Return the error message for a line above LINE_LIMIT."""
    return f"{path}, line {number}: longer than {LINE_LIMIT >> 20} MiB; put large outputs into blobs and name them"


def _repeated_keys(line: bytes) -> list[str]:
    repeated: list[str] = []

    def keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated.extend(name for name, times in Counter(names).items() if times > 1)
        return dict(pairs)

    # Nested too deeply, or a number of thousands of digits: there is nothing to find here.
    with suppress(RecursionError, ValueError):
        json.loads(line, object_pairs_hook=keys)
    return repeated
