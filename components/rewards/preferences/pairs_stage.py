"""Stage: build preference pairs from scored and ranked rollouts.

    python -m ratchet.components.rewards.preferences.pairs_stage --rollouts data/rollouts/A --rollouts data/rollouts/B \
        --scores data/scores/*.parquet --ranked data/ranked.parquet --out data/pairs.parquet [--params params.yaml]
        [--labels data/labels/*/labels.jsonl]

Only tasks of the role train give pairs, and only accepted episodes can be chosen. Episodes without a total (infrastructure
failures) are excluded. A pair names its episodes; the exporter renders their messages.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ratchet.components.core import DataError
from ratchet.components.core.configuration import read_section
from ratchet.components.core.errors import block_pandas, run_and_report
from ratchet.components.core.files import read_json_lines
from ratchet.components.trajectories.parallel_shards import gc_paused

from ..annotation_records import Label
from ..score_table import read_totals, write_parquet
from .comparable_episodes import ScoredAndAccepted, read_comparable_episodes
from .pair_building import BuiltPairs, PairConfig, PairReport, Preference, make_pairs, pair_verdicts


class PairRow(NamedTuple):
    """Row of the table of pairs. `turn` -1: whole episodes. `margin`: difference of worth. Lengths: characters of the
    whole output of each side. `edit`: a person's message in place of the chosen one, or empty; the
    table lacks the column where all are.
    """

    task_id: str
    level: str
    turn: int
    chosen_episode_id: str
    rejected_episode_id: str
    margin: float
    chosen_length: int
    rejected_length: int
    edit: str

    @classmethod
    def of(cls, pair: Preference) -> "PairRow":
        """Convert a preference to a row."""
        chosen, rejected = pair.chosen, pair.rejected
        sides = chosen.episode_id, rejected.episode_id
        return cls(
            pair.task_id,
            pair.level,
            pair.turn,
            *sides,
            pair.margin,
            chosen.summary.length,
            rejected.summary.length,
            pair.edit,
        )


def read_accepted(path: Path) -> frozenset[str]:
    """Return the ids of the episodes that the ranked table accepts. Raises DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        for name, kind in (("episode_id", pa.string()), ("accepted", pa.bool_())):
            if name not in schema.names or schema.field(name).type != kind:
                raise DataError(f"{path} has no column '{name}' of type {kind}; build it again")
        table = pq.ParquetFile(path).read(columns=["episode_id", "accepted"])
        accepted = table.filter(table["accepted"])["episode_id"]
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as the ranked table: {' '.join(str(error).split())}") from error
    return frozenset(accepted.to_pylist())


def build_pairs(
    rollouts: Sequence[Path],
    scores: Sequence[Path],
    ranked: Path,
    out: Path,
    config: PairConfig,
    labels: Sequence[Path] = (),
) -> BuiltPairs:
    """Read rollouts, their score tables, the ranked table and people's labels of pairs, and write the pairs as Parquet to
    `out`; return them. Raises DataError.
    """
    totals = {episode: total for path in scores for episode, total in read_totals(path).items()}
    left_out: Counter[str] = Counter()
    scored = ScoredAndAccepted(totals, read_accepted(ranked))
    episodes = read_comparable_episodes(rollouts, scored, left_out)
    verdicts = pair_verdicts(label for path in labels for label in read_json_lines(path, Label))
    with gc_paused():
        built = make_pairs(episodes, config, left_out, verdicts)
    # Without edits the bytes are those of a table that an older Ratchet wrote.
    write_parquet(out, PairRow, [PairRow.of(pair) for pair in built.preferences], optional=("edit",))
    return built


def describe_report(report: PairReport) -> str:
    """Format the report in one line."""
    pairs = " and ".join(
        f"{count} {level}-level{_describe_gap(report, level)}" for level, count in report.pairs.items()
    )
    left_out = ", ".join(f"{name} {count}" for name, count in report.left_out.items() if count)
    return f"{pairs} pairs of {report.episodes} episodes" + (f"; left out: {left_out}" if left_out else "")


def _describe_gap(report: PairReport, level: str) -> str:
    gap = report.length_gap[level]
    return "" if gap.kept is None else f" (length gap {gap.kept:+.2f}, before control {gap.found or 0:+.2f})"


def main(arguments: list[str] | None = None) -> int:
    """Run the stage; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="ratchet.components.rewards.preferences.pairs_stage", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rollouts", type=Path, nargs="+", action="extend", required=True, help="sealed folders")
    parser.add_argument("--scores", type=Path, nargs="+", action="extend", required=True, help="their tables of scores")
    parser.add_argument("--ranked", type=Path, required=True, help="the ranked table: episode_id, accepted")
    parser.add_argument("--out", type=Path, required=True, help="the Parquet table to write")
    parser.add_argument("--labels", type=Path, nargs="+", action="extend", default=[], help="sealed labels by people")
    parser.add_argument("--params", type=Path, help="a YAML file of parameters")
    parser.add_argument("--section", default="pairs", help="section of the parameters (default: pairs)")
    flags = parser.parse_args(arguments)

    def work() -> None:
        config = read_section(flags.params, flags.section, PairConfig)
        built = build_pairs(flags.rollouts, flags.scores, flags.ranked, flags.out, config, flags.labels)
        print(f"{flags.out}: {describe_report(built.report)}")

    return run_and_report(work)


if __name__ == "__main__":
    block_pandas()
    sys.exit(main())
