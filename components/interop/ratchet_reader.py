"""Reader of Ratchet's own records: JSON lines (a shard), a single record, an array, or a folder of shards with a manifest.

Records of an older schema are migrated (see `record_decoding`). In a folder, a shard that is missing, or whose hash
differs from the manifest, is reported as unreadable; the readable lines of the latter are yielded all the same.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from ratchet.components.core import DataError
from ratchet.components.core.files import file_sha256
from ratchet.components.trajectories.record_decoding import MIGRATIONS, migrate_line, migrate_record, version_of
from ratchet.components.trajectories.shards import MANIFEST, read_manifest
from ratchet.components.trajectories.trajectory import SCHEMA_VERSION, Trajectory, with_content_hash

from .log_source import LogSource

# Records without a `schema_version` are recognised by the types of these fields.
_OLDEST_FIELDS = (
    {"task": dict, "steps": list, "outcome": dict},
    {"task_id": str, "agent_framework": str, "steps": list},
)
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError)


class RatchetReader:
    """Reader of Ratchet's own trajectory records: a folder of shards with a manifest, JSON lines, or JSON."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value, or the first element of a first array, is a record; for a folder, whether it
        has a manifest.
        """
        if source.is_folder:
            return (source.path / MANIFEST).is_file()
        first = source.sample[:1]
        return any(_is_record(item) for value in first for item in (value[:1] if isinstance(value, list) else [value]))

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every record. Raises DataError."""
        if source.is_folder:
            yield from _read_folder(source)
        elif source.is_lines:
            yield from _read_shard(source)
        else:
            for where, value in source.values():
                migrate = version_of(value) in MIGRATIONS
                make = partial(migrate_record, value) if migrate else partial(msgspec.convert, value, Trajectory)
                yield from _read_one(source, where, b"", make)


def _read_folder(source: LogSource) -> Iterator[Trajectory]:
    entries = read_manifest(source.path)
    if not entries:
        raise DataError(f"{source.path} has no {MANIFEST} or an empty one: there are no finished shards to read")
    for entry in entries:
        path = source.path / entry.shard
        if not path.is_file():
            source.bad(entry.shard, "it is in the manifest and absent", advice=_RESTORE)
            continue
        yield from _read_shard(source.nested(path, entry.shard))
        # Hashed after its lines were yielded, so that a damaged shard still gives what is readable.
        if file_sha256(path) != entry.sha256:
            source.bad(entry.shard, "it differs from the hash in its manifest", advice=_RESTORE)


def _read_shard(source: LogSource) -> Iterator[Trajectory]:
    decoder = msgspec.json.Decoder(Trajectory)
    for where, raw in source.lines():
        yield from _read_one(source, where, raw, partial(_decode_line, decoder, raw))


def _read_one(source: LogSource, where: str, raw: bytes, make: Callable[[], Trajectory]) -> Iterator[Trajectory]:
    """Yield the record that `make` returns; report `raw` as unreadable where it raises or the schema is too new."""
    try:
        record = make()
    except _DECODE_ERRORS as error:
        _report_unreadable(source, where, raw, error)
        return
    if record.schema_version > SCHEMA_VERSION:
        source.bad(where, _newer_schema(record.schema_version), raw, advice=_UPGRADE)
    else:
        yield record if record.content_hash else with_content_hash(record)


def _decode_line(decoder: msgspec.json.Decoder[Trajectory], raw: bytes) -> Trajectory:
    # Migration decodes the line twice, so it is tried only where the current schema does not fit.
    try:
        return decoder.decode(raw)
    except _DECODE_ERRORS:
        return migrate_line(raw) or decoder.decode(raw)


def _report_unreadable(source: LogSource, where: str, raw: bytes, error: Exception) -> None:
    version = None
    if raw:
        try:
            version = version_of(msgspec.json.decode(raw))
        except _DECODE_ERRORS:
            source.bad_line(where, raw, error)
            return
    if version is not None and version > SCHEMA_VERSION:
        source.bad(where, _newer_schema(version), raw, advice=_UPGRADE)
    else:
        source.bad(where, f"not a trajectory of schema {SCHEMA_VERSION}: {error}", raw)


def _newer_schema(version: int) -> str:
    return f"schema_version {version} is newer than {SCHEMA_VERSION}"


_RESTORE = "restore it from its night"
_UPGRADE = "upgrade Ratchet"


def _is_record(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    oldest = any(all(isinstance(value.get(name), kind) for name, kind in fields.items()) for fields in _OLDEST_FIELDS)
    return {"episode_id", "turns"} <= value.keys() or (oldest and "schema_version" not in value)


READER = RatchetReader()
