"""The columns of each dataset and their types: what a card declares, a Parquet file holds and a loader sees.

JSON values of any shape (messages, tools, runs) are declared as such: left to guess, a loader gives each call the arguments of all.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal[
    "text", "number", "count", "truth", "texts", "numbers", "values", "lists of values", "lists of numbers", "value"
]

_TASK: dict[str, Kind] = {"task_id": "text", "kind": "text", "family": "text"}
_ORIGIN: dict[str, Kind] = {"episode_ids": "texts", "nights": "texts", "reason": "text"}

COLUMNS: dict[str, dict[str, Kind]] = {
    "sft": {
        "messages": "values",
        "tools": "values",
        "episode_id": "text",
        "task_id": "text",
        "night": "text",
        "source": "text",
        "weight": "number",
        "kind": "text",
        "family": "text",
        "reason": "text",
    },
    "dpo": {
        "prompt": "values",
        "chosen": "values",
        "rejected": "values",
        "tools": "values",
        "level": "text",
        "turn": "count",
        "margin": "number",
        **_TASK,
        **_ORIGIN,
    },
    "grpo": {"prompt": "values", "tools": "values", "pass_rate": "number", **_TASK, **_ORIGIN},
    "groups": {
        "prompt": "values",
        "tools": "values",
        "attempts": "lists of values",
        "rewards": "numbers",
        "advantages": "numbers",
        "step_rewards": "lists of numbers",
        "group_id": "text",
        "policy_version": "text",
        **_TASK,
        **_ORIGIN,
    },
    "benchmark": {
        "prompt": "values",
        "tools": "values",
        "taskset": "text",
        "domain": "text",
        "difficulty": "text",
        "pass_rate": "number",
        "reward_range": "numbers",
        "runs": "values",
        **_TASK,
        **_ORIGIN,
    },
    "verifiers": {
        "id": "text",
        "task": "value",
        "agent": "value",
        "tools": "values",
        "nodes": "values",
        "calls": "values",
        "rewards": "value",
        "metrics": "value",
        "is_completed": "truth",
        "is_truncated": "truth",
        "ok": "truth",
        "stop_condition": "text",
        "errors": "values",
    },
    "prime-rl": {
        "prompt": "values",
        "completion": "values",
        "tools": "values",
        "example_id": "text",
        "task": "text",
        "model": "text",
        "is_completed": "truth",
        "is_truncated": "truth",
        "stop_condition": "text",
        "reward": "number",
        "metrics": "value",
        "episode_id": "text",
        "task_id": "text",
        "reason": "text",
    },
}

_YAML: dict[Kind, dict[str, Any]] = {
    "text": {"dtype": "string"},
    "number": {"dtype": "float64"},
    "count": {"dtype": "int64"},
    "truth": {"dtype": "bool"},
    "texts": {"list": "string"},
    "numbers": {"list": "float64"},
    "value": {"dtype": "json"},
    "values": {"list": "json"},
    "lists of values": {"list": {"list": "json"}},
    "lists of numbers": {"list": {"list": "float64"}},
}


def declared(dataset: str) -> list[dict[str, Any]]:
    """The features of a dataset as the front matter of a card declares them."""
    return [{"name": name, **_YAML[kind]} for name, kind in COLUMNS[dataset].items()]


def arrow_schema(columns: Mapping[str, Kind]) -> "pa.Schema":
    """The columns as Arrow types. JSON is Arrow's own JSON type, which loaders of older versions read as text."""
    import pyarrow as pa

    json = pa.json_(pa.string())
    types: dict[Kind, pa.DataType] = {
        "text": pa.string(),
        "number": pa.float64(),
        "count": pa.int64(),
        "truth": pa.bool_(),
        "texts": pa.list_(pa.string()),
        "numbers": pa.list_(pa.float64()),
        "value": json,
        "values": pa.list_(json),
        "lists of values": pa.list_(pa.list_(json)),
        "lists of numbers": pa.list_(pa.list_(pa.float64())),
    }
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])
