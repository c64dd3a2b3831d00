"""Rows of a dataset with their episodes and reasons, as `rows.parquet` records them. Files are only read, never repaired."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.components.core import DataError

from ..parquet_tables import read_table

ROWS_TABLE = "rows.parquet"
MANIFEST = "manifest.json"
SPLITS = ("train", "validation", "test")
PROMPTS = ("grpo", "benchmark")
"""Datasets of tasks to play. Their rows contain the results of episodes, but not their messages."""


@dataclass(frozen=True)
class RowOrigin:
    """Origin of one row.

    `row` counts from 0 within its split. `sha256` is that of the JSON line, without its newline.
    """

    split: str
    row: int
    sha256: str
    task_id: str
    episode_ids: tuple[str, ...]
    reason: str | None = None

    @property
    def name(self) -> str:
        """Name of the row within its dataset: `split/row`."""
        return f"{self.split}/{self.row}"


class DatasetManifest(msgspec.Struct, frozen=True):
    """Fields of a dataset's manifest that lineage reads.

    `shards` has the SHA-256 of every shard, by night and name; `tables` that of each input table.
    """

    dataset: str = ""
    files: dict[str, dict[str, Any]] = {}
    nights: list[str] = []
    shards: dict[str, dict[str, str]] = {}
    tables: dict[str, str] = {}


class _Line(msgspec.Struct):
    """Fields of a dataset row that name its nights."""

    night: str | None = None
    nights: tuple[str, ...] = ()

    def is_of(self, nights: Collection[str]) -> bool:
        """Whether all nights of the row are in `nights`, and it has at least one."""
        own = self.nights or (() if self.night is None else (self.night,))
        return bool(own) and set(own) <= set(nights)


def read_dataset_manifest(path: Path) -> DatasetManifest:
    """Read the manifest of a dataset. Raises DataError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=DatasetManifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a manifest ({error}); restore the dataset") from error


def row_origins(files: Mapping[str, Path]) -> list[RowOrigin]:
    """Return every row of a dataset in the order of splits and rows. `files`: the dataset's files by name. Raises
    DataError.
    """
    return _read_rows(files)


def splits_of(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the JSONL file of each split, in the order of `SPLITS`."""
    return {split: files[f"{split}.jsonl"] for split in SPLITS if f"{split}.jsonl" in files}


def line_hashes(path: Path) -> list[str]:
    """Return the SHA-256 of every line of a file, without its newline."""
    with path.open("rb") as file:
        return [hashlib.sha256(line.rstrip(b"\n")).hexdigest() for line in file]


def rows_of_nights(path: Path, split: str, nights: Collection[str]) -> tuple[set[int], str]:
    """Return the indices (from 0) of the rows of a split whose nights are all among `nights`, and the SHA-256 of their
    lines.

    The hash includes newlines: a training job on these nights reads a file with exactly these lines. Raises DataError
    that names the line.
    """
    decoder, digest, indices = msgspec.json.Decoder(_Line), hashlib.sha256(), set()
    with path.open("rb") as file:
        for number, line in enumerate(file):
            try:
                row = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DataError(f"{path}, line {number + 1}: {error}; restore the dataset ({split})") from error
            if row.is_of(nights):
                indices.add(number)
                digest.update(line)
    return indices, digest.hexdigest()


def rows_made_of(files: Mapping[str, Path], rows: Collection[RowOrigin], nights: Collection[str]) -> list[RowOrigin]:
    """Return the given rows whose nights are all among `nights`. `files`: the dataset's files by name."""
    decoder = msgspec.json.Decoder(_Line)
    names: set[str] = set()
    for split, path in splits_of(files).items():
        indices = {row.row for row in rows if row.split == split}
        if indices:
            with path.open("rb") as file:
                lines = ((number, line) for number, line in enumerate(file) if number in indices)
                names |= {f"{split}/{number}" for number, line in lines if decoder.decode(line).is_of(nights)}
    return [row for row in rows if row.name in names]


def rows_with_episodes(files: Mapping[str, Path], episodes: Collection[str]) -> list[RowOrigin]:
    """Return the rows of a dataset that contain one of the episodes. Other rows are not constructed. Raises DataError."""
    return _read_rows(files, frozenset(episodes))


def find_row(rows: Collection[RowOrigin], name: str) -> RowOrigin:
    """Return the row named `split/number`, or else with a SHA-256 that begins with `name` (8 characters or more).

    Raises DataError if there is none.
    """
    hashed = [row for row in rows if len(name) >= 8 and row.sha256.startswith(name)]
    matches = [row for row in rows if row.name == name] or hashed
    if not matches:
        raise DataError(f"the dataset has no row '{name}'; name one as SPLIT/NUMBER, counted from 0, or by its SHA-256")
    return matches[0]


def _read_rows(files: Mapping[str, Path], episodes: frozenset[str] | None = None) -> list[RowOrigin]:
    if ROWS_TABLE not in files:
        raise DataError(f"the dataset has no {ROWS_TABLE}: it is incomplete; restore it, or export again")
    names = [field.name for field in fields(RowOrigin)]
    table = read_table(files[ROWS_TABLE], names)
    if episodes is not None:
        table = _rows_with(table, episodes)
    columns = table.to_pydict()
    columns["episode_ids"] = [tuple(ids) for ids in columns["episode_ids"]]
    return [RowOrigin(*values) for values in zip(*(columns[name] for name in names), strict=True)]


def _rows_with(table: pa.Table, episodes: frozenset[str]) -> pa.Table:
    lists = table["episode_ids"].combine_chunks()
    rows = pc.list_parent_indices(lists)
    is_match = pc.is_in(pc.list_flatten(lists), pa.array(sorted(episodes), pa.string()))
    return table.take(pc.unique(rows.filter(is_match)))
