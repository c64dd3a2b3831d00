"""Stage: score the rollouts of one night: rules, the judgements that were sealed beside it, the calibration, guards.

    python -m components.rewards.score --rollouts data/rollouts/N --domain-from-task --out data/scores/N.parquet \
        [--judgements data/judgements/N/judgements.jsonl] [--calibration data/calibration.json] \
        [--params params.yaml [--section score]]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from components.protocol import RatchetError
from components.trajectories.shards import read_folder

from .calibration import Calibration
from .config import RewardConfig
from .engine import by_content, score_all
from .jsonl import read_records
from .judgement import Judgement
from .params import load_section
from .references import reference_steps
from .table import ScoreTable


def score_night(
    rollouts: Path,
    out: Path,
    config: RewardConfig,
    domain: str | None = None,
    judgements: Sequence[Path] = (),
    calibration: Path | None = None,
) -> ScoreTable:
    """Score a sealed folder and write the table. `domain` None: each episode by the domain of its task. Raises DataError."""
    known = by_content(each for path in judgements for each in read_records(path, Judgement))
    corrected = Calibration.load(calibration) if calibration else None
    references = reference_steps(read_folder(rollouts))
    table = ScoreTable()
    for found in score_all(read_folder(rollouts, verify=False), references, config, domain, known, corrected):
        table.add(found)
    table.write(out)
    return table


def main(arguments: list[str] | None = None) -> int:
    """The command line of the stage; the exit code of the error where there is one."""
    parser = argparse.ArgumentParser(prog="components.rewards.score", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=Path, required=True, help="a sealed folder of shards")
    domain = parser.add_mutually_exclusive_group(required=True)
    domain.add_argument("--domain", help="the profile by which every episode is scored")
    domain.add_argument(
        "--domain-from-task", action="store_true", help="each episode by the profile of its task's domain"
    )
    parser.add_argument("--judgements", type=Path, nargs="+", action="extend", default=[], help="files of judgements")
    parser.add_argument("--calibration", type=Path, help="how judgements are corrected")
    parser.add_argument("--out", type=Path, required=True, help="the Parquet table to write")
    parser.add_argument("--params", type=Path, help="a YAML file of parameters")
    parser.add_argument("--section", default="score", help="its section (default: score)")
    flags = parser.parse_args(arguments)
    try:
        config = load_section(RewardConfig, flags.params, flags.section)
        table = score_night(flags.rollouts, flags.out, config, flags.domain, flags.judgements, flags.calibration)
    except RatchetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{flags.out}: {table.episodes} episodes, {table.rows} scores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
