"""Checks of exported files by themselves: the manifest, and the columns, size, message roles and secrets of each line.

Files are only read, never repaired; lines are checked in parallel.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.components.core import DataError
from ratchet.components.redaction import holds_credential
from ratchet.components.trajectories.parallel_shards import INLINE_BYTES, map_ordered

from ..deduplication.split_assignment import SPLITS
from ..parquet_tables import read_table
from ..validation.conversation_checks import chat_fault
from .dataset_columns import DATASET_COLUMNS, ColumnKind
from .dataset_files import MANIFEST, REQUIRED_SPLITS, ROWS_TABLE, SCHEMA_VERSION, input_sha256, row_episode_ids
from .dataset_rows import Row

PIECE_BYTES = 16 << 20
"""Minimum size of a file piece in bytes, except for the last one. A piece is extended to the end of its last line."""
ROW_CHECK_COLUMNS = {
    "bytes": "int64", "sha256": "string", "fault": "string", "task_id": "string", "chat_fault": "string",
    "useless": "string", "secret": "bool", "content": "string", "policy_version": "string",
}  # fmt: skip


class FilePiece(NamedTuple):
    """A byte range of a split's file that contains whole lines."""

    path: Path
    split: str
    begin: int
    end: int


class DatasetFiles(NamedTuple):
    """The folder of a dataset and its splits, each in a file `<split>.jsonl`."""

    folder: Path
    name: str
    splits: Sequence[str]


Gather = Callable[[Iterable[pa.Table]], list[pa.Table]]


def check_datasets(sources: Sequence[DatasetFiles], max_row_bytes: int, gather: Gather = list) -> list[pa.Table]:
    """Return one row-check table per dataset, with one row per line in the order of splits and lines.

    The tables add `split`, `line` (from 1) and `place` (the line's location as text). A line that is not a valid row of
    its dataset has a `fault`. Lines longer than `max_row_bytes` are measured and hashed but not parsed. `gather`
    collects the results of the file pieces in their order. Raises DataError.
    """
    pieces = [
        (source.name, piece)
        for source in sources
        for split in source.splits
        for piece in file_pieces(source.folder / f"{split}.jsonl", split)
    ]
    # Starting workers takes longer than checking little data.
    small = sum(piece.end - piece.begin for _, piece in pieces) <= INLINE_BYTES
    parts = gather(map_ordered(pieces, partial(_check_piece, max_row_bytes), workers=1 if small else None))
    tables: dict[str, list[pa.Table]] = {source.name: [row_check_schema().empty_table()] for source in sources}
    for (name, _), part in zip(pieces, parts, strict=True):
        tables[name].append(part)
    return [_numbered(pa.concat_tables(tables[source.name]), source.name) for source in sources]


def row_check_schema() -> pa.Schema:
    """Return the Arrow schema of the row checks."""
    fields = [(name, pa.type_for_alias(kind)) for name, kind in ROW_CHECK_COLUMNS.items()]
    lists = [("episode_ids", pa.list_(pa.string())), ("rewards", pa.list_(pa.float64()))]
    return pa.schema([("split", pa.string()), *fields, *lists])


def file_pieces(path: Path, split: str) -> list[FilePiece]:
    """Split a file into pieces of whole lines; none for an empty file. Raises DataError."""
    try:
        size, begins = path.stat().st_size, [0]
        with path.open("rb") as file:
            while begins[-1] + PIECE_BYTES < size:
                file.seek(begins[-1] + PIECE_BYTES)
                # To the end of the line that the boundary falls into.
                file.readline()
                begins.append(min(file.tell(), size))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run the export again") from error
    ends = [*begins[1:], size]
    return [FilePiece(path, split, begin, end) for begin, end in zip(begins, ends, strict=True) if end > begin]


def _check_piece(max_row_bytes: int, named: tuple[str, FilePiece]) -> pa.Table:
    name, piece = named
    with piece.path.open("rb") as file:
        file.seek(piece.begin)
        data = file.read(piece.end - piece.begin)
    rows = [check_row(name, line, max_row_bytes) for line in data.removesuffix(b"\n").split(b"\n")]
    columns = {column: [row.get(column) for row in rows] for column in row_check_schema().names if column != "split"}
    return pa.table({"split": [piece.split] * len(rows), **columns}, schema=row_check_schema())


def check_row(name: str, line: bytes, max_row_bytes: int) -> dict[str, Any]:
    """Return the columns of the row checks for one line of the dataset `name` (`sft`, `dpo`, ...)."""
    values: dict[str, Any] = {"bytes": len(line), "sha256": hashlib.sha256(line).hexdigest()}
    # Before it is decoded, which takes many times its size in memory.
    if len(line) > max_row_bytes:
        return values
    try:
        row: Row = msgspec.json.decode(line, type=dict[str, Any])
        fault = _shape_fault(row, DATASET_COLUMNS[name])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = f"not a JSON object: {error}"
    if fault is not None:
        return values | {"fault": fault}
    # Columns were checked, but not the messages in them.
    try:
        own = _DATASET_CHECKS[name](row)
    except (AttributeError, TypeError, KeyError):
        own = {"fault": "a message is not an object with role and content"}
    values |= {
        "task_id": row["task_id"],
        "episode_ids": row_episode_ids(row),
        "policy_version": row.get("policy_version"),
    }
    return values | own | {"secret": holds_credential(line, row)}


def _shape_fault(row: Row, columns: Mapping[str, ColumnKind]) -> str | None:
    """Describe the first column that is missing or has the wrong type; None if there is none.

    Numbers must be finite. `pass_rate` may be null.
    """
    for column, kind in columns.items():
        if column not in row:
            return f"column '{column}' is missing"
        value = row[column]
        if kind in ("number", "count"):
            if not _is_number(value) and not (value is None and column == "pass_rate"):
                return f"column '{column}' is not a finite number"
        elif kind == "text":
            if not isinstance(value, str):
                return f"column '{column}' is not text"
        elif kind in _ELEMENT_CHECKS and not (isinstance(value, list) and all(map(_ELEMENT_CHECKS[kind], value))):
            return f"column '{column}' is not a list of {kind.removeprefix('lists of ')}"
    return None


def _is_number(value: object) -> bool:
    # A bool is an int in Python.
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_ELEMENT_CHECKS: dict[str, Callable[[object], bool]] = {
    "texts": lambda value: isinstance(value, str),
    "numbers": _is_number,
    "values": lambda value: isinstance(value, dict),
    "lists of values": lambda value: isinstance(value, list),
    "lists of numbers": lambda value: isinstance(value, list),
}
"""Predicate for each element of a list column, by column kind."""


def _sft(row: Row) -> dict[str, Any]:
    messages = row["messages"]
    replies = [message for message in messages if message.get("role") == "assistant"]
    weights = [message.get("weight", 1.0) for message in replies]
    if not all(_is_number(number) and number >= 0 for number in (*weights, row["weight"])):
        return {"fault": "a weight is negative or not a finite number"}
    weighted = zip(replies, weights, strict=True)
    useless = None if any(map(_has_content, replies)) else "no assistant message has text or a tool call"
    if row["weight"] == 0 or not any(weight > 0 and _has_content(message) for message, weight in weighted):
        useless = useless or "all assistant messages have weight 0"
    return {
        "chat_fault": chat_fault(messages),
        "useless": useless,
        "content": _hash(row["task_id"], _without_weights(messages)),
    }


def _dpo(row: Row) -> dict[str, Any]:
    prompt, chosen, rejected = row["prompt"], row["chosen"], row["rejected"]
    if len(row["episode_ids"]) != 2:
        return {"fault": "episode_ids must have two entries"}
    fault = chat_fault([*prompt, *chosen]) or chat_fault([*prompt, *rejected])
    sides = _without_weights(chosen), _without_weights(rejected)
    useless = "both sides are equal" if sides[0] == sides[1] else _prompt_fault(prompt)
    if not all(any(map(_has_content, side)) for side in (chosen, rejected)):
        useless = "a side is empty"
    return {"chat_fault": fault, "useless": useless, "content": _hash(row["task_id"], _without_weights(prompt), *sides)}


def _grpo(row: Row) -> dict[str, Any]:
    useless = _prompt_fault(row["prompt"]) if row["episode_ids"] else "episode_ids is empty"
    return {"chat_fault": chat_fault(row["prompt"]), "useless": useless}


def _groups(row: Row) -> dict[str, Any]:
    prompt, attempts = row["prompt"], row["attempts"]
    sizes = {len(row[name]) for name in ("attempts", "rewards", "advantages", "step_rewards", "episode_ids")}
    if len(sizes) > 1:
        return {"fault": "attempts, rewards, advantages, step_rewards and episode_ids differ in length"}
    fault = next(filter(None, (chat_fault([*prompt, *attempt]) for attempt in attempts)), None)
    useless = _prompt_fault(prompt) if len(attempts) > 1 else "it has fewer than two attempts"
    if useless is None and not any(row["advantages"]):
        useless = "all advantages are 0"
    content = _hash(row["task_id"], *row["episode_ids"])
    return {"chat_fault": fault, "useless": useless, "content": content, "rewards": row["rewards"]}


_DATASET_CHECKS: dict[str, Callable[[Row], dict[str, Any]]] = {
    "sft": _sft,
    "dpo": _dpo,
    "grpo": _grpo,
    "groups": _groups,
}
"""Function with the checks specific to a dataset, by dataset."""


def _prompt_fault(prompt: Sequence[Row]) -> str | None:
    """Return a message if no prompt message has text; else None."""
    has_text = any(str(message.get("content") or "").strip() for message in prompt)
    return None if has_text else "the prompt is empty"


def _has_content(message: Row) -> bool:
    return bool(message.get("tool_calls")) or bool(str(message.get("content") or "").strip())


def _without_weights(messages: Sequence[Row]) -> list[Row]:
    """Return the messages without the training weight."""
    return [{name: value for name, value in message.items() if name != "weight"} for message in messages]


def _hash(*content: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:24]


def _numbered(table: pa.Table, name: str) -> pa.Table:
    """Return the table with the columns `line`, the number within the split from 1, and `place`, the location as text."""
    split = table["split"].combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.searchsorted(split, np.arange(split.max(initial=-1) + 1))
    number = pa.array(np.arange(len(split)) - first[split] + 1)
    file = pc.binary_join_element_wise(pa.scalar(f"{name}/"), table["split"], "")
    place = pc.binary_join_element_wise(file, number.cast(pa.string()), ".jsonl, line ")
    return table.append_column("line", number).append_column("place", place)


def check_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a dataset folder after checking the files that it lists. Raises DataError.

    Listed files must be regular files in the folder (no links) with the recorded size and SHA-256. Unlisted JSONL and
    Parquet files are an error.
    """
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        version, listed = manifest.get("schema_version", SCHEMA_VERSION), dict(manifest["files"])
        if version != SCHEMA_VERSION:
            raise DataError(
                f"{path} has schema_version {version}, not {SCHEMA_VERSION}; upgrade Ratchet, or export again"
            )
        if manifest.get("dataset") != folder.name or not isinstance(manifest["on_policy_only"], bool):
            raise DataError(f"{path} is of another dataset ({manifest.get('dataset')!r}); run the export again")
        # `rows.parquet` first: if a JSONL file differs too, its first changed line is found by the table's hashes.
        for name, entry in sorted(listed.items(), key=lambda item: item[0] != ROWS_TABLE):
            _check_file(folder, name, entry["sha256"], entry["bytes"])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a manifest ({error}); run the export again") from error
    needed = [*(f"{split}.jsonl" for split in REQUIRED_SPLITS), ROWS_TABLE]
    if absent := [name for name in needed if name not in listed]:
        raise DataError(f"{path} does not list {absent[0]}; run the export again")
    strays = sorted(file.name for file in folder.iterdir() if file.suffix in (".jsonl", ".parquet"))
    if strays := [name for name in strays if name not in listed]:
        raise DataError(f"{folder / strays[0]} is not in the manifest; remove it, or run the export again")
    return manifest


def _check_file(folder: Path, name: str, sha256: str, size: int) -> None:
    path = folder / name
    # The manifest is data: a name in it must not lead out of the folder.
    if PurePath(name).name != name or name in ("", ".", ".."):
        raise DataError(f"{folder / MANIFEST} lists '{name}', which is no file of its folder; run the export again")
    if path.is_symlink() or not path.is_file():
        what = "is a link" if path.is_symlink() else "is listed in the manifest and absent"
        raise DataError(f"{path} {what}; run the export again")
    if path.stat().st_size != size or input_sha256(path) != sha256:
        where = _describe_difference(path, folder / ROWS_TABLE) if path.suffix == ".jsonl" else ""
        raise DataError(f"{path} differs from the hash in its manifest{where}; run the export again")


def _describe_difference(path: Path, rows: Path) -> str:
    """Describe the first line whose hash differs from `rows.parquet`, or the two line counts.

    Returns an empty text if that table cannot be read.
    """
    try:
        listed = read_table(rows, ["split", "row", "sha256"])
        own = listed.filter(pc.equal(listed["split"], path.stem)).sort_by("row")["sha256"].to_pylist()
    except (DataError, ValueError, TypeError):
        return ""
    lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if number > len(own) or hashlib.sha256(line).hexdigest() != own[number - 1]:
            return f", first in line {number}"
    return f": it has {len(lines)} lines and was written with {len(own)}"


def with_unchanged(lines: pa.Table, folder: Path, manifest: dict[str, Any]) -> pa.Table:
    """Return the lines with the column `unchanged`: whether hash, task and episodes equal those in `rows.parquet`.

    Raises DataError if the row counts of the lines, `rows.parquet` and the manifest differ.
    """
    listed = read_table(folder / ROWS_TABLE, ["split", "row", "sha256", "task_id", "episode_ids"])
    for split in SPLITS:
        recorded = manifest["files"].get(f"{split}.jsonl", {}).get("rows", 0)
        counts = {pc.sum(pc.equal(table["split"], split)).as_py() or 0 for table in (lines, listed)} | {recorded}
        if len(counts) > 1:
            raise DataError(
                f"{folder / split}.jsonl, {ROWS_TABLE} and {MANIFEST} have different numbers of rows "
                f"({', '.join(map(str, sorted(counts)))}); run the export again"
            )
    listed = listed.take(pc.index_in(lines["place"], value_set=_row_locations(listed, folder.name)))
    same = pc.fill_null(pc.equal(lines["sha256"], listed["sha256"]), False)
    for name in ("task_id", "episode_ids"):
        own, other = (_as_text(table[name]) for table in (lines, listed))
        # Null where the line is not a valid row; such a line is reported by its `fault`.
        same = pc.and_(same, pc.or_(pc.is_null(own), pc.fill_null(pc.equal(own, other), False)))
    return lines.append_column("unchanged", same)


def _row_locations(listed: pa.Table, name: str) -> Any:
    """Return the location of each row of `rows.parquet` in the form of the lines' `place` column."""
    rows = zip(listed["split"].to_pylist(), listed["row"].to_pylist(), strict=True)
    return pa.array([f"{name}/{split}.jsonl, line {row + 1}" for split, row in rows], pa.string())


def _as_text(column: pa.ChunkedArray) -> Any:
    """Return a text column unchanged, and lists of texts joined by spaces: Arrow does not compare lists."""
    return pc.binary_join(column.combine_chunks(), " ") if pa.types.is_list(column.type) else column.combine_chunks()
