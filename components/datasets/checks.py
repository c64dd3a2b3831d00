"""The checks of the gate: what must hold for exported files before anything trains on them. Reads, never repairs."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from components.protocol import DataError

from .files import MANIFEST, episodes_of
from .params import GateParams
from .ranked import Ranked
from .rows import Row

REQUIRED = {
    "sft": ("messages", "tools", "episode_id", "task_id", "night", "source", "weight", "kind", "family"),
    "dpo": ("prompt", "chosen", "rejected", "tools", "episode_ids", "task_id"),
    "grpo": ("prompt", "tools", "task_id", "episode_ids"),
    "groups": ("prompt", "tools", "completions", "rewards", "advantages", "group_id", "task_id", "episode_ids"),
}


def read_split(path: Path, max_row_bytes: int) -> list[Row]:
    """The rows of a JSONL file. Raises DataError naming the line that is no JSON object or is too large."""
    rows: list[Row] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; run the export again") from error
    for number, line in enumerate(lines, start=1):
        if len(line) > max_row_bytes:
            raise DataError(f"{path}, line {number}: {len(line)} bytes, more than max_row_bytes {max_row_bytes} allows")
        try:
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {number}: not a JSON object: {error}; run the export again") from error
    return rows


def check_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, after its hashes were compared with the files. Raises DataError."""
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        listed: dict[str, Any] = manifest["files"]
        for name, entry in listed.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != entry["sha256"]:
                raise DataError(f"{folder / name} differs from the hash in its manifest; run the export again")
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as a manifest ({error}); run the export again") from error
    return manifest


def problems(
    name: str,
    splits: Mapping[str, list[Row]],
    ranked: Mapping[str, Ranked],
    params: GateParams,
    *,
    on_policy_only: bool,
) -> list[str]:
    """Everything that is wrong with a dataset, a line each; empty where it may be trained on."""
    found = _shape(name, splits) or [
        *_roles(splits, ranked),
        *_disjoint(splits),
        *_duplicates(name, splits),
        *_content(name, splits, ranked, on_policy_only),
    ]
    least = getattr(params, f"min_{name}_train")
    if len(splits["train"]) < least:
        found.append(f"{name}/train has {len(splits['train'])} rows, fewer than min_{name}_train {least}")
    return found


def _shape(name: str, splits: Mapping[str, list[Row]]) -> list[str]:
    return [
        f"{name}/{split}, row {number}: column '{column}' is missing"
        for split, rows in splits.items()
        for number, row in enumerate(rows, start=1)
        for column in REQUIRED[name]
        if column not in row
    ]


def _roles(splits: Mapping[str, list[Row]], ranked: Mapping[str, Ranked]) -> list[str]:
    found = []
    for split, rows in splits.items():
        for row in rows:
            for episode in episodes_of(row):
                origin = ranked.get(episode)
                if origin is None:
                    found.append(f"{split}: {episode} is not in the ranked table")
                elif not origin.usable:
                    found.append(
                        f"{split}: {episode} (task {origin.task_id}, role {origin.role}) may not be trained on"
                    )
    return found


def _disjoint(splits: Mapping[str, list[Row]]) -> list[str]:
    tasks = {split: {row["task_id"] for row in rows} for split, rows in splits.items()}
    shared = sorted(tasks["train"] & tasks["validation"])
    return [f"task {task} stands in train and in validation" for task in shared]


def _duplicates(name: str, splits: Mapping[str, list[Row]]) -> list[str]:
    if name in ("grpo", "groups"):
        own = "task_id" if name == "grpo" else "group_id"
        keys = Counter(row[own] for rows in splits.values() for row in rows)
    else:
        content = ("messages",) if name == "sft" else ("prompt", "chosen", "rejected")
        keys = Counter(_hash(row, content) for rows in splits.values() for row in rows)
        episodes = Counter(row["episode_id"] for rows in splits.values() for row in rows if name == "sft")
        if repeated := sorted(episode for episode, count in episodes.items() if count > 1):
            return [f"episode {repeated[0]} stands in {name} more than once"]
    doubles = sum(count - 1 for count in keys.values())
    return [f"{name} holds {doubles} rows twice"] if doubles else []


def _hash(row: Row, columns: tuple[str, ...]) -> bytes:
    content = [row["task_id"], *(row[column] for column in columns)]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).digest()


def _content(
    name: str, splits: Mapping[str, list[Row]], ranked: Mapping[str, Ranked], on_policy_only: bool
) -> list[str]:
    rows = [row for each in splits.values() for row in each]
    found = []
    if name == "sft":
        found += [f"{row['episode_id']} has no assistant message" for row in rows if not _speaks(row["messages"])]
        refused = {episode for episode, origin in ranked.items() if not origin.accepted}
        found += [f"{row['episode_id']} was not accepted" for row in rows if row["episode_id"] in refused]
        if on_policy_only:
            found += [f"{row['episode_id']} is a demonstration" for row in rows if row["source"] != "on_policy"]
    if name == "dpo":
        found += [f"{row['episode_ids'][0]}: both sides are equal" for row in rows if row["chosen"] == row["rejected"]]
        found += [
            f"{row['episode_ids'][0]}: a side is empty" for row in rows if not row["chosen"] or not row["rejected"]
        ]
    return found + [f"task {row['task_id']} has an empty prompt" for row in rows if name != "sft" and not row["prompt"]]


def _speaks(messages: list[dict[str, Any]]) -> bool:
    return any(message.get("role") == "assistant" for message in messages)
