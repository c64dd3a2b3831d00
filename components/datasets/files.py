"""The files of a dataset: JSON lines per split, why each row is in, a manifest, a card. The same rows give the same bytes."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from components.protocol import DataError
from components.quality.split import SPLITS
from components.quality.tables import write_table
from components.trajectories.files import whole_file, write_atomically
from components.trajectories.shards import read_manifest

from .card import COUNTED, card
from .columns import COLUMNS
from .parquet import write_parquet
from .rows import Row

MANIFEST = "manifest.json"
ROWS = "rows.parquet"
SCHEMA_VERSION = 1
ALWAYS = ("train", "validation")
"""Splits that have a file even where they have no row: a training job reads both."""


class Origin(NamedTuple):
    """Where a row comes from, and why it is in."""

    task_id: str
    episode_ids: tuple[str, ...]
    reason: str


def origin(row: Row) -> Origin:
    """What a row says of itself."""
    return Origin(str(row["task_id"]), tuple(episodes_of(row)), str(row.get("reason", "")))


def trace_origin(row: Row) -> Origin:
    """The same of a trace of verifiers."""
    return Origin(str(row["task"]["data"]["idx"]), (str(row["id"]),), "an attempt that fits")


class _Written:
    """The rows of a dataset as they are written: one entry of the table of rows each."""

    def __init__(self) -> None:
        self.table: dict[str, list[Any]] = {
            name: [] for name in ("split", "row", "sha256", "task_id", "episode_ids", "reason")
        }
        self.counts: dict[str, dict[str, Counter[str]]] = {}

    def split(self, path: Path, split: str, rows: Iterable[Row], origin_of: Callable[[Row], Origin]) -> dict[str, Any]:
        """Write the lines of a split; its entry in the manifest."""
        encode, whole, table = msgspec.json.Encoder().encode, hashlib.sha256(), self.table
        tasks: set[str] = set()
        episodes: set[str] = set()
        counts = self.counts.setdefault(split, {column: Counter() for column in COUNTED})
        number = size = 0
        with whole_file(path) as file:
            for number, row in enumerate(rows, start=1):
                found = origin_of(row)
                try:
                    line = encode(row)
                except (OverflowError, RecursionError) as error:
                    raise DataError(f"{', '.join(found.episode_ids)} cannot be written as JSON: {error}") from error
                entry = (split, number - 1, hashlib.sha256(line).hexdigest(), *found)
                for values, value in zip(table.values(), entry, strict=True):
                    values.append(value)
                for column, counter in counts.items():
                    if column in row:
                        counter[row[column]] += 1
                line += b"\n"
                file.write(line)
                whole.update(line)
                size += len(line)
                tasks.add(found.task_id)
                episodes.update(found.episode_ids)
        return {
            "sha256": whole.hexdigest(),
            "bytes": size,
            "rows": number,
            "tasks": len(tasks),
            "episodes": len(episodes),
        }

    def write_table(self, path: Path) -> dict[str, Any]:
        """Write why each row is in; the entry in the manifest."""
        import pyarrow as pa

        text = pa.string()
        types = {"row": pa.int64(), "episode_ids": pa.list_(text)}
        write_table(path, self.table, pa.schema([(name, types.get(name, text)) for name in self.table]))
        return {**_hashed(path), "rows": len(self.table["row"])}


def write_dataset(
    folder: Path,
    name: str,
    rows: Mapping[str, Iterable[Row]],
    inputs: dict[str, Any],
    *,
    origin_of: Callable[[Row], Origin] = origin,
    parquet: bool = False,
) -> dict[str, Any]:
    """Write the lines of each split, `rows.parquet`, `manifest.json` and `README.md`; the manifest.

    Rows may be given as iterators: one is held at a time. With `parquet` each split is there as Parquet too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, files = _Written(), {}
    for split in SPLITS:
        path = folder / f"{split}.jsonl"
        entry = written.split(path, split, rows.get(split, ()), origin_of)
        if not entry["rows"] and split not in ALWAYS:
            path.unlink()
            continue
        files[path.name] = entry
        if parquet:
            copy = path.with_suffix(".parquet")
            write_parquet(path, copy, COLUMNS[name])
            files[copy.name] = {**_hashed(copy), "rows": entry["rows"]}
    files[ROWS] = written.write_table(folder / ROWS)
    manifest = {"schema_version": SCHEMA_VERSION, "dataset": name, "files": files, **inputs}
    encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    write_atomically(folder / MANIFEST, encoded + b"\n")
    write_atomically(folder / "README.md", card(name, manifest, written.counts).encode())
    return manifest


def _hashed(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def hash_of(path: Path) -> str:
    """The SHA-256 of a file. Raises DataError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run the stage that writes it") from error


def episodes_of(row: Row) -> list[str]:
    """The episodes that a row came from."""
    return list(row["episode_ids"]) if "episode_ids" in row else [row["episode_id"]]


def shards_of(folders: Iterable[Path]) -> dict[str, dict[str, str]]:
    """The hash of each shard, by night and name."""
    return {folder.name: {each.shard: each.sha256 for each in read_manifest(folder)} for folder in folders}
