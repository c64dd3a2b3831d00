"""The files of a dataset: JSON lines per split, why each row is in, a manifest, a card. The same rows give the same bytes."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from components.protocol import DataError
from components.quality.split import SPLITS
from components.quality.tables import write_table
from components.trajectories.files import sha256_of, whole_file, write_atomically
from components.trajectories.shards import read_manifest

from .card import COUNTED, card
from .columns import COLUMNS
from .parquet import write_parquet
from .rows import Row
from .written import Line, line_of

MANIFEST = "manifest.json"
ROWS = "rows.parquet"
SCHEMA_VERSION = 1
BATCH = 64
"""Lines that are written at once."""
AHEAD = 2
"""Batches that may wait to be written."""
ALWAYS = ("train", "validation")
"""Splits that have a file even where they have no row: a training job reads both."""


class _Written:
    """The rows of a dataset as they are written: one entry of the table of rows each."""

    def __init__(self) -> None:
        self.table: dict[str, list[Any]] = {
            name: [] for name in ("split", "row", "sha256", "task_id", "episode_ids", "reason")
        }
        self.counts: dict[str, dict[str, Counter[str]]] = {}

    def split(self, path: Path, split: str, lines: Iterator[Line]) -> dict[str, Any]:
        """Write the lines of a split; its entry in the manifest."""
        begin = len(self.table["row"])
        counts = self.counts.setdefault(split, {column: Counter() for column in COUNTED})
        whole = hashlib.sha256()
        waiting: deque[Future[None]] = deque()
        # the thread begins with the first batch: lines that come of other processes have them by then (see `parallel`)
        with whole_file(path, durable=False) as file, ThreadPoolExecutor(1) as beside:
            while batch := list(islice(lines, BATCH)):
                data = b"\n".join([*[line.data for line in batch], b""])
                waiting.append(beside.submit(_write, data, file, whole))
                self._note(split, begin, batch, counts)
                if len(waiting) > AHEAD:
                    waiting.popleft().result()
            for each in waiting:
                each.result()
            size = file.tell()
        own = slice(begin, None)
        return {
            "sha256": whole.hexdigest(),
            "bytes": size,
            "rows": len(self.table["row"]) - begin,
            "tasks": len(set(self.table["task_id"][own])),
            "episodes": len({episode for each in self.table["episode_ids"][own] for episode in each}),
        }

    def _note(self, split: str, begin: int, batch: Sequence[Line], counts: Mapping[str, Counter[str]]) -> None:
        table = self.table
        first = len(table["row"]) - begin
        for number, line in enumerate(batch, start=first):
            table["split"].append(split)
            table["row"].append(number)
            table["sha256"].append(line.hash or hashlib.sha256(line.data).hexdigest())
            table["task_id"].append(line.origin.task_id)
            table["episode_ids"].append(line.origin.episode_ids)
            table["reason"].append(line.origin.reason)
            for column, value in line.counted:
                counts[column][value] += 1

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
    rows: Mapping[str, Iterable[Row | Line]],
    inputs: dict[str, Any],
    *,
    parquet: bool = False,
) -> dict[str, Any]:
    """Write the lines of each split, `rows.parquet`, `manifest.json` and `README.md`; the manifest.

    Rows may be given as iterators: one is held at a time. With `parquet` each split is there as Parquet too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, files = _Written(), {}
    for split in SPLITS:
        path = folder / f"{split}.jsonl"
        lines = (each if isinstance(each, Line) else line_of(each) for each in rows.get(split, ()))
        entry = written.split(path, split, lines)
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


def _write(data: bytes, file: BinaryIO, whole: "hashlib._Hash") -> None:
    whole.update(data)
    file.write(data)


def _hashed(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def hash_of(path: Path) -> str:
    """The SHA-256 of a file. Raises DataError."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run the stage that writes it") from error


def shards_of(folders: Iterable[Path]) -> dict[str, dict[str, str]]:
    """The hash of each shard, by night and name."""
    return {folder.name: {each.shard: each.sha256 for each in read_manifest(folder)} for folder in folders}
