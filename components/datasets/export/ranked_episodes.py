"""Rows of the ranked table and of the table of pairs, as the exporters read them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from ratchet.components.core import DataError, Role
from ratchet.components.trajectories.trajectory import Trajectory

from ..deduplication.split_assignment import SPLITS, Split
from ..parquet_tables import read_table
from ..stage_params import ExportParams
from .row_filter import Kind, parse_filter


class RankedEpisode(msgspec.Struct, frozen=True, gc=False):
    """One row of the ranked table, with the columns that exporters read. `split` is None for an excluded task.

    `fits`: whether the episode passes the filters of the export. `gc=False`: a build holds 100,000 of them, and none is
    part of a reference cycle.
    """

    episode_id: str
    group_id: str
    night: str
    task_id: str
    kind: str
    family: str
    role: str
    source: str
    weight: float
    pass_rate: float | None
    accepted: bool
    quarantined: bool
    infrastructure_failure: bool
    taskset: str = ""
    domain: str = ""
    policy_version: str = ""
    success: bool | None = None
    turns: int = 0
    steps: int = 0
    reward: float | None = None
    gdi: float | None = None
    split: Split | None = "train"
    reason: str = ""
    fits: bool = True

    @property
    def usable(self) -> bool:
        """Whether the episode may appear in a dataset, accepted or not: a train task with a split, not quarantined, and
        no infrastructure failure.
        """
        return (
            self.role == Role.TRAIN
            and self.split is not None
            and not self.quarantined
            and not self.infrastructure_failure
        )


def unranked_episode(trajectory: Trajectory) -> RankedEpisode:
    """Return default ranking fields for an episode that no build has ranked."""
    task = trajectory.task
    return RankedEpisode(
        episode_id=trajectory.episode_id,
        group_id=trajectory.group_id,
        night="",
        task_id=task.task_id,
        kind=task.kind,
        family=task.family,
        role=task.role,
        source="",
        weight=1.0,
        pass_rate=None,
        accepted=True,
        quarantined=False,
        infrastructure_failure=False,
    )


_REPEATED = ("night", "task_id", "kind", "role", "source", "taskset", "domain", "policy_version", "split", "reason")
"""Text columns with few distinct values, read as dictionaries so that equal texts share one object."""
_ARROW_TYPES = {float: "double", int: "int32", bool: "bool", str: "string"}


def arrow_types(row: type[msgspec.Struct]) -> dict[str, str]:
    """Return the names of the Arrow types of a record's columns."""
    hints = {field.name: get_args(field.type) or (field.type,) for field in msgspec.structs.fields(row)}
    return {name: _ARROW_TYPES.get(hint[0], "string") for name, hint in hints.items()}


RANKED_COLUMNS = {name: type_ for name, type_ in arrow_types(RankedEpisode).items() if name != "fits"}
"""Columns of the ranked table that exporters read, and their Arrow types."""


def read_ranked(path: Path, params: ExportParams | None = None) -> dict[str, RankedEpisode]:
    """Return the ranked episodes by `episode_id`, with the filters of `params` applied to `fits`.

    Raises DataError for a damaged table, and ConfigurationError for an invalid filter.
    """
    table = read_table(path, RANKED_COLUMNS, dictionaries=_REPEATED)
    columns = [_column_values(table[name]) for name in RANKED_COLUMNS]
    fits = [True] * len(table) if params is None else _passing(path, params, len(table))
    rows = {row.episode_id: row for row in map(RankedEpisode, *columns, fits)}
    if len(rows) < len(table):
        raise DataError(f"{path} ranks an episode twice; run the build again")
    for row in rows.values():
        if row.split is not None and row.split not in SPLITS:
            raise DataError(f"{path}: {row.episode_id} has the unknown split '{row.split}'; run the build again")
    return rows


def _column_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column. Equal texts of a dictionary column are the same object."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    texts = column.unify_dictionaries().combine_chunks()
    # Null is index -1, which selects the last entry.
    values = [*texts.dictionary.to_pylist(), None]
    return [values[number] for number in texts.indices.fill_null(-1).to_pylist()]


def _passing(path: Path, params: ExportParams, count: int) -> list[bool]:
    """Return, for each of `count` rows, whether it passes every filter. A null result does not pass."""
    tests = [
        f"{name} >= {bound!r}"
        for name, bound in (("gdi", params.min_gdi), ("reward", params.min_reward))
        if bound is not None
    ]
    tests += [params.where] if params.where is not None else []
    fits = [True] * count
    kinds = filter_columns(path) if tests else {}
    for text in tests:
        expression = parse_filter(text, kinds)
        mask = pc.fill_null(expression.test(read_table(path, sorted(expression.columns))), False).to_pylist()
        fits = [one and other for one, other in zip(fits, mask, strict=True)]
    return fits


def filter_columns(path: Path) -> dict[str, Kind]:
    """Return the columns of a table that a filter may refer to, with their kinds. Raises DataError."""
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as the ranked table: {' '.join(str(error).split())}") from error
    kinds = {field.name: _kind(field.type) for field in schema}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _kind(type_: pa.DataType) -> Kind | None:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_boolean(type_):
        return "truth"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "number"
    return "text" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else None


class RankedPair(msgspec.Struct, frozen=True, gc=False):
    """One row of the table of pairs. `level` is `step` or `trajectory`; `turn` counts from 0, and is -1 for a pair of
    whole episodes; `margin` (positive) is the mean reward or win rate of the chosen side minus that of the rejected
    side. `edit`: the message that a person wrote in place of the chosen one, as JSON of an `EditedMessage`, or empty.
    """

    task_id: str
    level: str
    turn: int
    chosen_episode_id: str
    rejected_episode_id: str
    margin: float
    edit: str = ""


def read_pairs(path: Path) -> list[RankedPair]:
    """Return the pairs in the order of the table. Raises DataError, also for a margin that is not positive and finite."""
    names = arrow_types(RankedPair)
    edit = {"edit": names.pop("edit")}
    table = read_table(path, names)
    pairs = list(map(RankedPair, *(table[name].to_pylist() for name in names)))
    if "edit" in pq.read_schema(path).names:  # absent in a table of an older Ratchet
        edits = read_table(path, edit)["edit"].to_pylist()
        pairs = [replace(pair, edit=edited) if edited else pair for pair, edited in zip(pairs, edits, strict=True)]
    for pair in pairs:
        if pair.margin is None or not (math.isfinite(pair.margin) and pair.margin > 0):
            sides = f"{pair.chosen_episode_id} over {pair.rejected_episode_id}"
            raise DataError(f"{path}: {sides} has the margin {pair.margin}, which must be above 0; run the build again")
    return pairs


def exportable_pairs(
    pairs: list[RankedPair], ranked: Mapping[str, RankedEpisode], params: ExportParams, *, on_policy_only: bool
) -> list[RankedPair]:
    """Return the pairs of the requested levels whose episodes are usable and whose chosen episode passes the filters.

    With `on_policy_only`, both episodes must be on-policy. Raises DataError for a pair with an episode that is not
    ranked.
    """
    exportable = []
    for pair in pairs:
        if pair.level not in params.pair_levels:
            continue
        chosen, rejected = (_ranked(ranked, name) for name in (pair.chosen_episode_id, pair.rejected_episode_id))
        own = chosen.source == rejected.source == "on_policy"
        if chosen.usable and chosen.fits and rejected.usable and (own or not on_policy_only):
            exportable.append(pair)
    return exportable


def _ranked(ranked: Mapping[str, RankedEpisode], episode_id: str) -> RankedEpisode:
    if episode_id not in ranked:
        raise DataError(f"the table of pairs names {episode_id}, which is not ranked; run the build again")
    return ranked[episode_id]
