"""The card of a dataset: what a person should know before training on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .rows import Row

TITLES = {
    "sft": "SFT: whole successful episodes as conversations",
    "dpo": "DPO: pairs of assistant messages after the same history",
    "grpo": "GRPO: tasks to play, as prompts",
}
USES = {
    "sft": "TRL's `SFTTrainer`: `messages` and `tools`. `weight` is the episode's weight: the nearer its task's pass rate to one "
    "half, the more. `source` tells demonstrations from the policy's own attempts.",
    "dpo": "TRL's `DPOTrainer`: `prompt`, `chosen`, `rejected`, `tools`. `margin` is the difference of the totals.",
    "grpo": "TRL's `GRPOTrainer`: `prompt`, `tools`; the environment grades the task named by `task_id`.",
}


def card(name: str, manifest: dict[str, Any], rows: Mapping[str, Sequence[Row]]) -> str:
    """The card in Markdown, with a front matter as the Hugging Face Hub reads it. Holds for an empty dataset too."""
    configs = "\n".join(f"  - split: {split}\n    path: {split}.jsonl" for split in rows)
    lines = [
        f"---\nconfigs:\n- config_name: default\n  data_files:\n{configs}\n---",
        f"# {TITLES[name]}",
        USES[name],
        f"Every row names its episodes. Nights: {', '.join(manifest['nights']) or 'none'}; "
        f"as of {manifest['as_of']}; only train tasks, split by a hash of the task's name, so that a task never moves.",
        _table(["split", "rows", "tasks", "episodes", "bytes"], [_counts(split, manifest) for split in rows]),
    ]
    counted = {column: _by(column, rows) for column in ("kind", "source")}
    lines += [_table([column, *rows], counts) for column, counts in counted.items() if counts]
    return "\n\n".join(lines) + "\n"


def _counts(split: str, manifest: dict[str, Any]) -> list[Any]:
    entry = manifest["files"][f"{split}.jsonl"]
    return [split, entry["rows"], entry["tasks"], entry["episodes"], entry["bytes"]]


def _by(column: str, rows: Mapping[str, Sequence[Row]]) -> list[list[Any]]:
    counts = {split: Counter(row[column] for row in each if column in row) for split, each in rows.items()}
    values = sorted({value for counter in counts.values() for value in counter})
    return [[value, *(counts[split][value] for split in rows)] for value in values]


def _table(head: list[str], body: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
