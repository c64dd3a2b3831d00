"""Files of an exported dataset: JSONL per split, a table of row origins and reasons, a manifest, and a card.

The card is a README for readers, with YAML front matter for dataset loaders. Equal rows give equal bytes.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa

from ratchet.components.core import DataError
from ratchet.components.core.files import file_sha256, open_atomically, write_atomically, write_json
from ratchet.components.trajectories.shards import read_manifest

from ..deduplication.split_assignment import SPLITS
from ..parquet_tables import write_table
from .dataset_columns import DATASET_COLUMNS, card_features, write_parquet
from .dataset_rows import Row
from .ranked_episodes import RankedEpisode

COUNTED = ("kind", "source", "level", "difficulty")
"""Columns whose value counts are listed in the card."""
Counts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Number of rows by split, column and value."""

TITLES = {
    "sft": "SFT: whole episodes as conversations",
    "dpo": "DPO: pairs of assistant messages after the same history",
    "grpo": "GRPO: train tasks, as prompts",
    "groups": "Offline GRPO: attempts at a task, with their rewards",
    "benchmark": "Benchmark: tasks, with the results of recorded attempts",
    "verifiers": "Traces in the format of verifiers",
    "prime-rl": "Rollouts in the format of prime-rl",
}
USAGE = {
    "sft": "TRL's `SFTTrainer`: `messages` and `tools`. `weight` is the training weight of the episode, highest where half of "
    "the attempts at its task succeed. The `weight` of an assistant message is proportional to its process reward, with mean 1 "
    "over the episode. `source` distinguishes demonstrations from the policy's own attempts.",
    "dpo": "TRL's `DPOTrainer`: `prompt`, `chosen`, `rejected`, `tools`. `margin` is the difference of the sides' mean scores.",
    "grpo": "TRL's `GRPOTrainer`: `prompt`, `tools`; the environment grades the task named by `task_id`.",
    "groups": "Offline GRPO: `attempts` at one `prompt` by one policy version, with `rewards`, group-normalised `advantages` "
    "and `step_rewards` (one per assistant message; null: not scored).",
    "benchmark": "For comparing an agent with recorded attempts: `pass_rate`, `difficulty` (thirds of the pass rate) and "
    "`reward_range` are those of `runs`.",
    "verifiers": "One trace per line; `metrics` holds the total reward and the GDI.",
    "prime-rl": "`prompt`, `completion`, `tools` and `reward`; arguments of calls are JSON text, as OpenAI's API gives them.",
}


def dataset_card(name: str, manifest: Mapping[str, Any], counts: Counts) -> str:
    """Return the card in Markdown, with YAML front matter for the Hugging Face Hub. Empty datasets are supported."""
    files: Mapping[str, Any] = manifest["files"]
    splits = splits_in(files)
    lines = [
        front_matter({"default": (name, files, "")}),
        f"# {TITLES[name]}",
        USAGE[name],
        made_from(manifest),
        "`rows.parquet` lists the hash of each line and the reason why the row is included; `manifest.json` lists the hash of "
        "every file and of every shard that was read.",
        markdown_table(["split", "rows", "tasks", "episodes", "bytes"], [_counts(split, files) for split in splits]),
    ]
    counted = {column: _by(column, splits, counts) for column in COUNTED}
    lines += [markdown_table([column, *splits], table_rows) for column, table_rows in counted.items() if table_rows]
    return "\n\n".join(lines) + "\n"


def front_matter(configs: Mapping[str, tuple[str, Mapping[str, Any], str]]) -> str:
    """Return the YAML front matter that dataset loaders read.

    `configs` maps each configuration name to its dataset, the `files` of its manifest, and the folder prefix of these
    files.
    """
    import yaml

    head: dict[str, Any] = {"configs": [], "dataset_info": []}
    rows = 0
    for config, (name, files, folder) in configs.items():
        suffix = "parquet" if "train.parquet" in files else "jsonl"
        data = [{"split": split, "path": f"{folder}{split}.{suffix}"} for split in splits_in(files)]
        head["configs"].append({"config_name": config, "data_files": data})
        head["dataset_info"].append({"config_name": config, "features": card_features(name)})
        rows += sum(files[f"{split}.jsonl"]["rows"] for split in splits_in(files))
    head |= {"tags": ["agent", "tool-use", "trajectories", *sorted({name for name, _, _ in configs.values()})]}
    head |= {"size_categories": [_size(rows)]}
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---"


def made_from(manifest: Mapping[str, Any]) -> str:
    """Describe in a few sentences the nights, scorers and filters that a dataset was built with."""
    nights = ", ".join(manifest["nights"]) or "none"
    sentences = [f"Every row names its episodes. Nights: {nights}; as of {manifest['as_of']}."]
    sentences.append(
        "Only train tasks are included. A task family and its near-duplicates are in one split, and a task never changes its split."
    )
    versions = sorted(
        {version for night_versions in manifest.get("scorers", {}).values() for version in night_versions}
    )
    if versions:
        sentences.append(f"Scored by {', '.join(versions)}.")
    if manifest.get("selected"):  # of an export without a build
        sentences.append(f"Selected for SFT: {', '.join(manifest['selected'])}.")
    params = manifest.get("params", {})
    filters = {name: params.get(name) for name in ("where", "min_gdi", "min_reward")}
    sentences += [f"Filtered: {name} {value}." for name, value in filters.items() if value is not None]
    return " ".join(sentences)


def splits_in(files: Iterable[str]) -> list[str]:
    """Return the splits that have a JSONL file among `files` (file names in a manifest), in the same order."""
    return [name.removesuffix(".jsonl") for name in files if name.endswith(".jsonl")]


def markdown_table(head: Sequence[Any], body: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table with the given header and rows."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())


def _counts(split: str, files: Mapping[str, Any]) -> list[Any]:
    entry = files[f"{split}.jsonl"]
    return [split, entry["rows"], entry["tasks"], entry["episodes"], entry["bytes"]]


def _by(column: str, splits: Sequence[str], counts: Counts) -> list[list[Any]]:
    own = {split: counts.get(split, {}).get(column, {}) for split in splits}
    values = sorted({value for split_counts in own.values() for value in split_counts})
    return [[value, *(own[split].get(value, 0) for split in splits)] for value in values]


def _size(rows: int) -> str:
    """Return the Hugging Face Hub's size category for a number of rows."""
    limits = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
    return next((name for limit, name in limits.items() if rows < limit), "1M<n<10M")


PLACEHOLDER = msgspec.Raw(b"null")
"""Placeholder in a row for a value that is inserted as encoded JSON."""


class RowSource(NamedTuple):
    """Task and episodes of a row, and the reason for its inclusion."""

    task_id: str
    episode_ids: tuple[str, ...]
    reason: str


class RowLine(NamedTuple):
    """One encoded row without its newline. `counted`: the columns and values that the dataset card counts."""

    data: bytes
    origin: RowSource
    counted: tuple[tuple[str, str], ...]


class RowBatch(NamedTuple):
    """Encoded rows that are written together: `data` holds the JSON lines, each with its newline.

    `hashes` (SHA-256 of the line without its newline), `origins` and `counted` have one entry per row.
    """

    data: bytes
    hashes: list[str]
    origins: list[RowSource]
    counted: list[tuple[tuple[str, str], ...]]


def make_batch(lines: Sequence[RowLine]) -> RowBatch:
    """Join lines into a batch, in order."""
    return RowBatch(
        b"\n".join([*[line.data for line in lines], b""]),
        [hashlib.sha256(line.data).hexdigest() for line in lines],
        [line.origin for line in lines],
        [line.counted for line in lines],
    )


def row_source(row: Row) -> RowSource:
    """Return a row's task, its episodes and the reason for its inclusion."""
    return RowSource(str(row["task_id"]), tuple(row_episode_ids(row)), str(row.get("reason", "")))


def trace_source(row: Row) -> RowSource:
    """Return the task, episode and reason of a verifiers trace."""
    return RowSource(
        str(row["task"]["data"]["idx"]), (str(row["id"]),), "an attempt that passes the filters of the export"
    )


def row_episode_ids(row: Row) -> list[str]:
    """Return the episode ids of a row."""
    return list(row["episode_ids"]) if "episode_ids" in row else [row["episode_id"]]


def encode_row(
    row: Row, origin_of: Callable[[Row], RowSource] = row_source, pieces: Sequence[bytes | memoryview] = ()
) -> RowLine:
    """Encode a row. Raises DataError for values that JSON cannot represent.

    `origin_of` returns the source of the row. `pieces`: encoded JSON that replaces, in order, the `PLACEHOLDER` values
    at the start of the row, so that it is not encoded again.
    """
    origin = origin_of(row)
    try:
        data = msgspec.json.encode(row)
    except (OverflowError, RecursionError) as error:
        raise DataError(f"{', '.join(origin.episode_ids)} cannot be written as JSON: {error}") from error
    if pieces:
        first, *between = data.split(PLACEHOLDER, len(pieces))
        data = b"".join([first, *chain.from_iterable(zip(pieces, between, strict=True))])
    return RowLine(data, origin, tuple((column, str(row[column])) for column in COUNTED if column in row))


def episode_line(data: bytes, ranked: RankedEpisode) -> RowLine:
    """Return the line of a single episode that was encoded elsewhere, with its source and counted values."""
    origin = RowSource(ranked.task_id, (ranked.episode_id,), ranked.reason)
    return RowLine(data, origin, (("kind", ranked.kind), ("source", ranked.source)))


MANIFEST = "manifest.json"
ROWS_TABLE = "rows.parquet"
SCHEMA_VERSION = 1
REQUIRED_SPLITS = ("train", "validation")
"""Splits whose file is written even if it is empty, because a training job reads both."""


class _DatasetWriter:
    """Writer of a dataset's rows. Collects one entry per row for `rows.parquet`."""

    def __init__(self) -> None:
        self.table: dict[str, list[Any]] = {
            name: [] for name in ("split", "row", "sha256", "task_id", "episode_ids", "reason")
        }
        self.counts: dict[str, dict[str, Counter[str]]] = {}

    def split(self, file: BinaryIO, split: str, batches: Iterable[RowBatch]) -> dict[str, Any]:
        """Write the lines of a split, and return its entry in the manifest."""
        begin = len(self.table["row"])
        counts = self.counts.setdefault(split, {column: Counter() for column in COUNTED})
        whole = hashlib.sha256()
        # A batch is hashed without Python's lock, beside the rendering of the next. (Single rows are not hashed here:
        # a thread waits for the lock after each.) The thread starts with the first batch, after `map_ordered` has
        # forked its workers, which it does only in a process without threads.
        with ThreadPoolExecutor(1) as hasher:
            for batch in batches:
                hasher.submit(whole.update, batch.data)
                file.write(batch.data)
                self._note(split, begin, batch, counts)
        own = slice(begin, None)
        return {
            "sha256": whole.hexdigest(),
            "bytes": file.tell(),
            "rows": len(self.table["row"]) - begin,
            "tasks": len(set(self.table["task_id"][own])),
            "episodes": len(set(chain.from_iterable(self.table["episode_ids"][own]))),
        }

    def _note(self, split: str, begin: int, batch: RowBatch, counts: Mapping[str, Counter[str]]) -> None:
        table, rows = self.table, len(batch.origins)
        first = len(table["row"]) - begin
        table["split"] += [split] * rows
        table["row"] += range(first, first + rows)
        table["sha256"] += batch.hashes
        table["task_id"] += [origin.task_id for origin in batch.origins]
        table["episode_ids"] += [origin.episode_ids for origin in batch.origins]
        table["reason"] += [origin.reason for origin in batch.origins]
        for (column, value), count in Counter(chain.from_iterable(batch.counted)).items():
            counts[column][value] += count

    def write_table(self, path: Path) -> dict[str, Any]:
        """Write `rows.parquet`, with the hash, episodes and reason of each row, and return its entry in the manifest."""
        text = pa.string()
        types = {"row": pa.int64(), "episode_ids": pa.list_(text)}
        write_table(path, self.table, pa.schema([(name, types.get(name, text)) for name in self.table]))
        return {**_hashed(path), "rows": len(self.table["row"])}


class DatasetRows(NamedTuple):
    """Rows of a dataset by split in encoded batches, and the folder to write them to."""

    folder: Path
    name: str
    rows: Mapping[str, Iterable[RowBatch]]


def write_datasets(
    datasets: Iterable[DatasetRows], inputs: Mapping[str, Any], *, parquet: bool = False
) -> dict[str, dict[str, Any]]:
    """Write the files of each dataset, and return the manifests by name of the dataset. `inputs`: fields that are added
    to every manifest.

    The files are the JSONL files, `rows.parquet`, `manifest.json` and `README.md`. Rows may be iterators, of which one
    batch at a time is consumed. The JSONL files are renamed to their final names after all rows are written. With
    `parquet`, each split is also written as Parquet.
    """
    # All files get their names together, after the last row of the last dataset.
    with ExitStack() as files:
        with_rows = [(dataset, *_lines(dataset, files)) for dataset in datasets]
    return {dataset.name: _finish(dataset, table, entries, inputs, parquet) for dataset, table, entries in with_rows}


def _lines(dataset: DatasetRows, files: ExitStack) -> tuple[_DatasetWriter, dict[str, dict[str, Any]]]:
    """Write the JSONL files of a dataset, and return its writer and the manifest entry of each split.

    The files get their final names when the exit stack closes.
    """
    writer = _DatasetWriter()
    entries: dict[str, dict[str, Any]] = {}
    for split in SPLITS:
        file = files.enter_context(open_atomically(dataset.folder / f"{split}.jsonl", durable=False))
        entries[split] = writer.split(file, split, dataset.rows.get(split, ()))
    return writer, entries


def _finish(
    dataset: DatasetRows,
    writer: _DatasetWriter,
    entries: Mapping[str, dict[str, Any]],
    inputs: Mapping[str, Any],
    parquet: bool,
) -> dict[str, Any]:
    """Write all files of a dataset except its JSONL files, and return the manifest."""
    folder, name = dataset.folder, dataset.name
    files: dict[str, Any] = {}
    for split, entry in entries.items():
        path = folder / f"{split}.jsonl"
        if not entry["rows"] and split not in REQUIRED_SPLITS:
            path.unlink()
            continue
        files[path.name] = entry
        if parquet:
            copy = path.with_suffix(".parquet")
            write_parquet(path, copy, DATASET_COLUMNS[name])
            files[copy.name] = {**_hashed(copy), "rows": entry["rows"]}
    files[ROWS_TABLE] = writer.write_table(folder / ROWS_TABLE)
    manifest = {"schema_version": SCHEMA_VERSION, "dataset": name, "files": files, **inputs}
    write_json(folder / MANIFEST, manifest, durable=False)
    write_atomically(folder / "README.md", dataset_card(name, manifest, writer.counts).encode(), durable=False)
    return manifest


def _hashed(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def input_sha256(path: Path) -> str:
    """Return the SHA-256 of an input file. Raises DataError if it cannot be read."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run the stage that writes it") from error


def shard_hashes(folders: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each shard as the nights' manifests record it, by night and shard name."""
    return {folder.name: {entry.shard: entry.sha256 for entry in read_manifest(folder)} for folder in folders}
