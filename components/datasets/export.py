"""Stage `export`: nights, ranks and pairs in; the SFT, DPO and GRPO datasets out.

    python -m components.datasets.export --rollouts DIR... --ranked data/ranked.parquet --pairs data/pairs.parquet \\
        --as-of 2026-11-21 --on-policy-only false --params params.yaml --out data/datasets
"""

import argparse
from pathlib import Path

from components.quality.params import read_section
from components.quality.stage import run_stage

from .build import build_rows, needed, read_needed
from .files import inputs_of, write_dataset
from .params import ExportParams
from .ranked import pairs_for, read_pairs, read_ranked


def main(arguments: list[str] | None = None) -> None:
    """Raises DataError for a missing or damaged input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=Path, action="append", default=[], help="a sealed night (repeatable)")
    parser.add_argument("--ranked", type=Path, default=Path("data/ranked.parquet"))
    parser.add_argument("--pairs", type=Path, default=Path("data/pairs.parquet"))
    parser.add_argument("--as-of", required=True, help="the day of the build, for the cards")
    parser.add_argument("--on-policy-only", choices=("true", "false"), required=True, help="leave demonstrations out")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--out", type=Path, default=Path("data/datasets"))
    given = parser.parse_args(arguments)
    own_only = given.on_policy_only == "true"
    params = read_section(given.params, "export", ExportParams)
    ranked = read_ranked(given.ranked)
    pairs = pairs_for(read_pairs(given.pairs), ranked, params, on_policy_only=own_only)
    trajectories = read_needed(given.rollouts, needed(ranked, pairs, on_policy_only=own_only))
    datasets = build_rows(ranked, pairs, trajectories, params, on_policy_only=own_only)
    inputs = inputs_of(given.rollouts, given.as_of, on_policy_only=own_only)
    for name, rows in datasets.rows.items():
        write_dataset(given.out / name, name, rows, inputs)


if __name__ == "__main__":
    run_stage(main)
