"""Stage `rank`: rank every episode by its GDI and choose which are accepted for training.

    python -m ratchet.components.datasets.ranking.rank_episodes --as-of 2026-11-21 --params params.yaml --data data \\
        [--labels FILE...] [--uses FILE...]

Reads the tables of episodes, quarantine, clusters and tasks, and the ledgers of labels and uses that are sealed with
each night. Writes `ranked.parquet`, a row per episode: each feature, its contribution to the GDI, whether the episode
is accepted, and the reason. Only a ledger changes a rank: viewing or exporting a dataset writes nothing there.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratchet.components.core import DataError
from ratchet.components.core.configuration import read_section
from ratchet.components.core.errors import block_pandas, run_stage
from ratchet.components.core.files import read_json_lines

from ..parquet_tables import (
    Flags,
    age_array,
    byte_matrix,
    code_array,
    code_array_nulls_distinct,
    flag_array,
    float_array,
    join_first,
    mapped_array,
    nullable_column,
    read_table,
    write_table,
)
from ..stage_params import RankParams, parse_day
from ..validation.episode_features import EPISODE_COLUMNS
from .episode_selection import SelectionCandidates, select_episodes
from .gdi_rank import SKETCH_BYTES, TERMS, GdiScores, RankSignals, Sketches, family_dissimilarity, gdi_scores

SketchMatrix = tuple[Sketches, Flags]
"""Sketches, shape (n, SKETCH_BYTES), and a mask (n,) of the episodes that have one."""
COPIED_COLUMNS = (
    "episode_id", "group_id", "night", "task_id", "taskset", "family", "kind", "role", "domain", "policy", "policy_version",
    "source", "attempt", "content_hash", "messages_hash", "turns", "steps", "tokens", "success", "infrastructure_failure",
    "caught",
)  # fmt: skip
"""Columns that are copied from the table of episodes."""
READ_COLUMNS = (*COPIED_COLUMNS, "total", "process", "outcome", "judge", "learned", "collected_on")
WHOLE, OVERALL = -1, "overall"
"""Turn and step, and criterion, of a label of an episode as a whole."""
EXPERIMENTS = ("injection", "repair", "monte_carlo")
"""Annotators whose labels are true by construction; they label steps and are not people."""
HACK = "reward hack detected: see the explanations of its scores"


class EpisodeLabel(msgspec.Struct, frozen=True):
    """The fields of a label that ranking reads. `turn` and `step` are -1 for a label of the whole episode; `line` is the
    criterion; `value` is in [0, 1], None for a label that was withdrawn.
    """

    episode_id: str
    annotator: str
    value: float | None
    turn: int = WHOLE
    step: int = WHOLE
    line: str = OVERALL
    content_hash: str = ""
    labelled_at: str = ""

    @property
    def is_human_episode_label(self) -> bool:
        """Whether a person labelled the episode as a whole."""
        whole = self.turn == WHOLE and self.step == WHOLE and self.line == OVERALL
        return whole and self.annotator.partition(":")[0] not in EXPERIMENTS

    @property
    def timestamp(self) -> float:
        """`labelled_at` in seconds since 1970 (UTC if it has no zone); -inf if it is not a date."""
        try:
            when = datetime.fromisoformat(self.labelled_at)
        except ValueError:
            return -math.inf
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


class EpisodeUse(msgspec.Struct, frozen=True):
    """Use of an episode in the training of a model. `rows`: number of train rows that contain the episode, 0 if only
    validation rows do.
    """

    episode_id: str
    dataset: str
    model: str
    build: str
    rows: int


def mean_feedback(files: Sequence[Path], content_hashes: Mapping[str, str]) -> dict[str, float]:
    """Return the mean label of each episode, over the latest label of each person for the whole episode.

    `content_hashes`: content hash by `episode_id`. A label whose hash differs is ignored, but one without a hash
    counts. Raises DataError that names the file, and the line or the label.
    """
    latest: dict[tuple[str, str], EpisodeLabel] = {}
    for path, label in ((file, record) for file in files for record in read_json_lines(file, EpisodeLabel)):
        if label.value is not None and not 0.0 <= label.value <= 1.0:
            raise DataError(
                f"{path}: the label of {label.episode_id} by {label.annotator} has the value {label.value}, which is not in "
                "[0, 1]; restore it with its night"
            )
        if not label.is_human_episode_label or label.content_hash not in ("", content_hashes.get(label.episode_id, "")):
            continue
        before = latest.get((label.episode_id, label.annotator))
        # Equal times: the later line replaces the earlier one, as a person corrects a label within a second.
        if before is None or label.timestamp >= before.timestamp:
            latest[label.episode_id, label.annotator] = label
    values: defaultdict[str, list[float]] = defaultdict(list)
    for (episode, _), label in sorted(latest.items()):
        if label.value is not None:
            values[episode].append(label.value)
    return {episode: math.fsum(own) / len(own) for episode, own in values.items()}


def count_trainings(files: Sequence[Path]) -> dict[str, int]:
    """Return the number of models trained on each episode. A model counts once per dataset and build, however many
    ledgers list it. Raises DataError.
    """
    used = {
        (use.episode_id, use.dataset, use.model, use.build)
        for path in files
        for use in read_json_lines(path, EpisodeUse)
        if use.rows > 0
    }
    return dict(Counter(episode for episode, _, _, _ in used))


class RankInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Tables and ledgers that the rank is computed from. `human_labels`: mean label of each episode; `trainings`: number
    of models trained on each episode, None if no ledger exists yet: the number is then unknown, and not 0.
    """

    episodes: pa.Table
    quarantine: pa.Table
    clusters: pa.Table
    tasks: pa.Table
    human_labels: Mapping[str, float] = {}
    trainings: Mapping[str, int] | None = None


def main(arguments: list[str] | None = None) -> None:
    """Run the stage. Raises DataError for a missing table or an invalid ledger, ConfigurationError for an invalid
    parameter.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-of", required=True, help="the day from which ages are counted, YYYY-MM-DD")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the tables")
    parser.add_argument(
        "--labels", type=Path, nargs="+", action="extend", default=[], help="labels by people, a file per night"
    )
    parser.add_argument(
        "--uses", type=Path, nargs="+", action="extend", default=[], help="ledgers of uses, a file per night"
    )
    options = parser.parse_args(arguments)
    params = read_section(options.params, "rank", RankParams)
    as_of = parse_day(options.as_of)
    evidence = read_inputs(options.data, options.labels, options.uses)
    write_table(options.data / "ranked.parquet", ranked_table(evidence, as_of, params), ranked_schema())


def read_inputs(data: Path, labels: Sequence[Path] = (), uses: Sequence[Path] = ()) -> RankInputs:
    """Read the tables of the previous stages in `data`, human labels (`labels`), and ledgers of which episodes models
    were trained on (`uses`). Raises DataError.
    """
    episodes = read_table(data / "episodes.parquet", {name: EPISODE_COLUMNS[name] for name in READ_COLUMNS})
    content_hashes = {}
    if labels:
        content_hashes = dict(
            zip(episodes["episode_id"].to_pylist(), episodes["content_hash"].to_pylist(), strict=True)
        )
    return RankInputs(
        episodes=episodes,
        quarantine=read_table(data / "quarantine.parquet", {"episode_id": "string", "expectation": "string"}),
        clusters=_read_clusters(data / "clusters.parquet"),
        tasks=read_table(data / "tasks.parquet", {"task_id": "string", "split": "string", "reason": "string"}),
        human_labels=mean_feedback(labels, content_hashes),
        trainings=count_trainings(uses) if uses else None,
    )


def _read_clusters(path: Path) -> pa.Table:
    table = read_table(path, ["episode_id", "normalised", "cluster", "sketch"])
    types = {
        "episode_id": pa.string(),
        "normalised": pa.string(),
        "cluster": pa.string(),
        "sketch": pa.binary(SKETCH_BYTES),
    }
    # By exact type: `read_table` compares with aliases, and none names a binary of fixed width.
    for name, kind in types.items():
        if table.schema.field(name).type != kind:
            raise DataError(
                f"{path}: column '{name}' is {table.schema.field(name).type} and must be {kind}; build it again"
            )
    return table


def ranked_table(evidence: RankInputs, as_of: date, params: RankParams) -> pa.Table:
    """Return the ranked table, in the order of the episodes."""
    rows = _joined(evidence)
    sketches = byte_matrix(rows["sketch"], SKETCH_BYTES)
    result = gdi_scores(_rank_signals(rows, sketches, evidence, as_of), params)
    selection = select_episodes(_candidates(rows, sketches, result, params), params)
    columns = {
        **{name: rows[name] for name in (*COPIED_COLUMNS, "cluster", "split")},
        **{name: nullable_column(result.terms[name]) for name in TERMS},
        **{f"gdi_{name}": nullable_column(result.contributions[:, index]) for index, name in enumerate(TERMS)},
        "gdi": nullable_column(result.total),
        "pass_rate": nullable_column(result.pass_rate),
        "weight": selection.weights,
        "quarantined": rows["quarantined"].is_valid(),
        "accepted": selection.accepted,
        "reason": pa.array(selection.reasons, type=pa.string()),
    }
    return pa.table(columns).select(ranked_schema().names)


def _joined(evidence: RankInputs) -> pa.Table:
    """Return the episodes joined with the other tables: `quarantined` is the expectation that an episode failed,
    `left_out` the reason why its task is in no split.
    """
    rows = evidence.episodes
    joined_columns = {
        "quarantined": (evidence.quarantine, "episode_id", "expectation"),
        **{name: (evidence.clusters, "episode_id", name) for name in ("normalised", "cluster", "sketch")},
        "split": (evidence.tasks, "task_id", "split"),
        "left_out": (evidence.tasks, "task_id", "reason"),
    }
    for name, (table, key, column) in joined_columns.items():
        rows = rows.append_column(name, join_first(rows[key], table.select([key, column]), key)[column])
    return rows


def _rank_signals(rows: pa.Table, sketches: SketchMatrix, evidence: RankInputs, as_of: date) -> RankSignals:
    ids = rows["episode_id"]
    return RankSignals(
        reward=float_array(rows["total"]),
        process=float_array(rows["process"]),
        outcome=float_array(rows["outcome"]),
        success=float_array(rows["success"]),
        model_scores=np.column_stack([float_array(rows["judge"]), float_array(rows["learned"])]),
        human_labels=mapped_array(ids, evidence.human_labels),
        # Without a ledger of uses, nothing is known of trainings: that is not zero.
        trainings=mapped_array(ids, evidence.trainings or {}, np.nan if evidence.trainings is None else 0.0),
        age_days=age_array(rows["collected_on"], as_of),
        dissimilarity=family_dissimilarity(sketches[0], code_array(rows["family"]), sketches[1]),
        group=code_array(rows["group_id"]),
        task=code_array(rows["task_id"]),
        version=code_array(rows["policy_version"]),
        cluster=code_array_nulls_distinct(rows["cluster"]),
        by_learner=_by_learner(rows),
    )


def _candidates(rows: pa.Table, sketches: SketchMatrix, result: GdiScores, params: RankParams) -> SelectionCandidates:
    return SelectionCandidates(
        episode_ids=rows["episode_id"].to_pylist(),
        gdi=result.total,
        pass_rate=result.pass_rate,
        tokens=float_array(rows["tokens"]),
        task=code_array(rows["task_id"]),
        family=code_array(rows["family"]),
        run=code_array_nulls_distinct(rows["messages_hash" if params.same_run == "exact" else params.same_run]),
        by_learner=_by_learner(rows),
        refusals=_refusals(rows),
        sketches=sketches[0],
        has_sketch=sketches[1],
    )


def _refusals(rows: pa.Table) -> list[str]:
    """Return, for each episode, the reason why it cannot be trained on whatever its rank; "" if it can. The first
    reason that applies is used.
    """

    left_out = pc.if_else(rows["split"].is_valid(), None, pc.fill_null(rows["left_out"], "it is in no split"))
    success = rows["success"]
    # A joined text is null where its column is null, so `coalesce` skips reasons that do not apply.
    reasons = pc.coalesce(
        pc.if_else(pc.fill_null(rows["infrastructure_failure"], False), "infrastructure failure", None),
        pc.binary_join_element_wise("quarantined by ", rows["quarantined"], ""),
        pc.if_else(pc.fill_null(rows["caught"], False), HACK, None),
        pc.if_else(pc.is_null(success), "outcome unknown", pc.if_else(success, None, "failed")),
        pc.binary_join_element_wise("its task is left out: ", left_out, ""),
        "",
    )
    texts: list[str] = reasons.to_pylist()
    return texts


def _by_learner(rows: pa.Table) -> Flags:
    return flag_array(pc.not_equal(rows["source"], "demonstration"))


def ranked_schema() -> pa.Schema:
    """Return the Arrow schema of the ranked table."""
    copied_fields = [(name, pa.type_for_alias(EPISODE_COLUMNS[name])) for name in COPIED_COLUMNS]
    numbers = [*TERMS, *(f"gdi_{name}" for name in TERMS), "gdi", "pass_rate", "weight"]
    fields = [
        *copied_fields,
        *((name, pa.float64()) for name in numbers),
        ("cluster", pa.string()),
        ("split", pa.string()),
    ]
    return pa.schema([*fields, ("quarantined", pa.bool_()), ("accepted", pa.bool_()), ("reason", pa.string())])


if __name__ == "__main__":
    block_pandas()
    run_stage(main)
