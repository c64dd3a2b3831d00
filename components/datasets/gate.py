"""Stage `gate`: the exported datasets in; `gate.json` out, or one clear line and a stopped build.

    python -m components.datasets.gate --datasets data/datasets --ranked data/ranked.parquet --params params.yaml \\
        --out data/gate.json
"""

import argparse
from pathlib import Path
from typing import Any

import msgspec

from components.protocol import DataError
from components.quality.params import read_section
from components.quality.split import SPLITS
from components.quality.stage import run_stage
from components.trajectories.files import write_atomically

from .checks import check_manifest, problems, read_split
from .formats import DATASETS
from .params import GateParams
from .ranked import read_ranked
from .rows import Row


def main(arguments: list[str] | None = None) -> None:
    """Raises DataError with the first problem and how many more there are; `gate.json` is written all the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=Path, default=Path("data/datasets"))
    parser.add_argument("--ranked", type=Path, default=Path("data/ranked.parquet"))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--out", type=Path, default=Path("data/gate.json"))
    given = parser.parse_args(arguments)
    params = read_section(given.params, "gate", GateParams)
    ranked = read_ranked(given.ranked)
    report: dict[str, Any] = {"passed": True, "datasets": {}}
    found: list[str] = []
    for name in DATASETS:
        manifest = check_manifest(given.datasets / name)
        splits: dict[str, list[Row]] = {
            split: read_split(given.datasets / name / f"{split}.jsonl", params.max_row_bytes) for split in SPLITS
        }
        own = problems(name, splits, ranked, params, on_policy_only=manifest["on_policy_only"])
        report["datasets"][name] = {**_counts(splits, manifest), "problems": len(own)}
        found += own
    report["passed"] = not found
    write_atomically(given.out, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    if found:
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        raise DataError(f"the gate is shut: {found[0]}{more} (report: {given.out})")


def _counts(splits: dict[str, list[Row]], manifest: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, Any] = {f"{split}_rows": len(rows) for split, rows in splits.items()}
    return counts | {"bytes": sum(entry["bytes"] for entry in manifest["files"].values())}


if __name__ == "__main__":
    run_stage(main)
