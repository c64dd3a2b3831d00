"""Differences between two builds: episodes whose ranking changed, and rows added, removed or changed.

Explain why an episode is in the datasets, left out, or quarantined.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..parquet_tables import read_column_lists, read_table
from .row_lineage import PROMPTS, RowOrigin

Floats = NDArray[np.float64]


COMPARED_COLUMNS = ("gdi", "reward", "accepted", "reason", "quarantined", "weight")
"""Columns of the ranked table that are compared."""
TOLERANCE = 1e-9
"""Maximum difference of two floats that count as equal: sums may differ in their last digits between machines."""


class ScoreShift(msgspec.Struct, frozen=True):
    """Change of a score over the `episodes` that have it in both builds.

    `before`, `after` and `mean_shift` are means, `largest` is the signed change of largest magnitude, and `moved`
    counts changes above `TOLERANCE`.
    """

    episodes: int
    before: float | None
    after: float | None
    mean_shift: float | None
    largest: float | None
    moved: int


class RerankedEpisode(msgspec.Struct, frozen=True):
    """An episode that is ranked differently in the two builds: the compared columns before and after."""

    episode_id: str
    before: dict[str, Any]
    after: dict[str, Any]


class RowChanges(msgspec.Struct, frozen=True):
    """Rows of two versions of a dataset, identified by their episode ids, joined by spaces, or by their task.

    `before` and `after` are numbers of rows; the lists hold identifiers. `added` and `removed` are in one version only,
    `changed` have a different SHA-256, `moved` are in another split.
    """

    before: int
    after: int
    added: list[str]
    removed: list[str]
    changed: list[str]
    moved: list[str]


class EpisodeChanges(msgspec.Struct, frozen=True):
    """Differences between two ranked tables, by `episode_id`. `before` and `after` are numbers of episodes, `flips`
    counts changed decisions, such as `out -> in`, and `shifts` has the changes of the GDI and of the reward.
    """

    before: int
    after: int
    added: list[str]
    removed: list[str]
    changed: list[RerankedEpisode]
    flips: dict[str, int]
    shifts: dict[str, ScoreShift]


def episode_changes(before: Path, after: Path) -> EpisodeChanges:
    """Compare two ranked tables. Raises DataError for a damaged one."""
    names = ["episode_id", *COMPARED_COLUMNS]
    old, new = (_by_episode(read_column_lists(path, names), names) for path in (before, after))
    both = sorted(old.keys() & new.keys())
    changed = [
        RerankedEpisode(
            episode,
            dict(zip(COMPARED_COLUMNS, old[episode], strict=True)),
            dict(zip(COMPARED_COLUMNS, new[episode], strict=True)),
        )
        for episode in both
        if not _is_equal(old[episode], new[episode])
    ]
    flips = Counter(
        f"{was} -> {now}"
        for reranked in changed
        if (was := _decision(reranked.before)) != (now := _decision(reranked.after))
    )
    shifts = {
        name: score_shift([old[episode][index] for episode in both], [new[episode][index] for episode in both])
        for index, name in enumerate(COMPARED_COLUMNS[:2])
    }
    return EpisodeChanges(
        before=len(old),
        after=len(new),
        added=sorted(new.keys() - old.keys()),
        removed=sorted(old.keys() - new.keys()),
        changed=changed,
        flips=dict(sorted(flips.items())),
        shifts=shifts,
    )


def score_shift(before: Sequence[float | None], after: Sequence[float | None]) -> ScoreShift:
    """Compare a score before and after, element by element. Pairs with a None are left out."""
    old, new = (np.array([np.nan if value is None else value for value in scores]) for scores in (before, after))
    present = ~np.isnan(old) & ~np.isnan(new)
    old, new = old[present], new[present]
    if not len(old):
        return ScoreShift(0, None, None, None, None, 0)
    change = new - old
    largest = float(change[np.argmax(np.abs(change))])
    moved = int(np.count_nonzero(np.abs(change) > TOLERANCE))
    return ScoreShift(len(old), float(old.mean()), float(new.mean()), float(change.mean()), largest, moved)


def row_changes(before: Sequence[RowOrigin], after: Sequence[RowOrigin], *, by_task: bool) -> RowChanges:
    """Compare the rows of two versions of a dataset.

    Rows correspond if they have the same episodes or, with `by_task`, the same task.
    """
    old, new = (_group_rows(rows, by_task) for rows in (before, after))
    both = sorted(old.keys() & new.keys())
    return RowChanges(
        before=len(before),
        after=len(after),
        added=sorted(new.keys() - old.keys()),
        removed=sorted(old.keys() - new.keys()),
        changed=[key for key in both if _hashes(old[key]) != _hashes(new[key])],
        moved=[key for key in both if {row.split for row in old[key]} != {row.split for row in new[key]}],
    )


def _group_rows(rows: Sequence[RowOrigin], by_task: bool) -> Mapping[str, list[RowOrigin]]:
    groups: defaultdict[str, list[RowOrigin]] = defaultdict(list)
    for row in rows:
        groups[row.task_id if by_task else " ".join(row.episode_ids)].append(row)
    return groups


def _hashes(rows: list[RowOrigin]) -> list[str]:
    return sorted(row.sha256 for row in rows)


def _by_episode(columns: dict[str, list[Any]], names: list[str]) -> dict[str, tuple[Any, ...]]:
    values = zip(*(columns[name] for name in names[1:]), strict=True)
    return dict(zip(columns["episode_id"], values, strict=True))


def _is_equal(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return all(
        one == other or (isinstance(one, float) and isinstance(other, float) and abs(one - other) <= TOLERANCE)
        for one, other in zip(old, new, strict=True)
    )


def _decision(values: Mapping[str, Any]) -> str:
    return "quarantined" if values["quarantined"] else "in" if values["accepted"] else "out"


EpisodeVerdict = Literal["in", "out", "quarantined"]
NAME_COLUMNS = ("episode_id", "night", "task_id", "family", "kind", "role", "source", "policy", "success")
"""Columns that identify and describe an episode, in display order."""


@dataclass(frozen=True)
class TermContribution:
    """A GDI term: its value in [0, 1] and its contribution to the GDI. The value is None if it is
    unknown (it then contributes 0), the contribution if the episode has no reward and so no GDI.
    """

    name: str
    value: float | None
    contribution: float | None


@dataclass(frozen=True)
class FailedExpectation:
    """An expectation that the episode failed."""

    name: str
    severity: str
    reason: str


@dataclass(frozen=True)
class EpisodeExplanation:
    """Explanation of an episode's selection.

    The verdict `in` is an episode that was accepted, or whose messages some row shows (rows of tasks to play show
    none). `reason` is the text from the selection, `about` describes the episode, and `task` holds the findings on its
    task (split, leaks, near-duplicates). A dataclass, as its parts: the inspector answers with it.
    """

    episode_id: str
    verdict: EpisodeVerdict
    reason: str
    gdi: float | None
    weight: float | None
    about: dict[str, Any]
    terms: list[TermContribution]
    expectations: list[FailedExpectation]
    task: dict[str, Any]
    rows: dict[str, list[RowOrigin]]


def explain_episode(
    episode_id: str, file: Callable[[str], Path | None], rows: dict[str, list[RowOrigin]]
) -> EpisodeExplanation | None:
    """Explain an episode from the tables of a build.

    `file` returns the path of a table by its name in `data`, None if it is absent. `rows` are the rows with the
    episode, by dataset. Returns None if the episode is in no table and no row. Raises DataError for a damaged table.
    """
    ranked = _rows(file("ranked.parquet"), "episode_id", episode_id)
    failed = [
        FailedExpectation(row["expectation"], row["severity"], row["reason"])
        for row in _rows(file("quarantine.parquet"), "episode_id", episode_id)
    ]
    if not ranked and not failed and not rows:
        return None
    row, task = (ranked[0] if ranked else {}), {}
    if row:
        tasks = _rows(file("tasks.parquet"), "task_id", row["task_id"])
        clusters = _rows(file("clusters.parquet"), "episode_id", episode_id)
        task = _present_values(tasks, ("split", "contaminated_by", "reason", "cluster"))
        task |= _present_values(clusters, ("exact", "normalised"))
    return EpisodeExplanation(
        episode_id=episode_id,
        verdict=_verdict(row, failed, rows),
        reason=_reason(row, failed, rows),
        gdi=row.get("gdi"),
        weight=row.get("weight"),
        about={name: row.get(name) for name in NAME_COLUMNS} if row else {},
        terms=[TermContribution(name, row.get(name), row[f"gdi_{name}"]) for name in terms_of(row)],
        expectations=failed,
        task=task,
        rows=rows,
    )


def terms_of(columns: Collection[str]) -> list[str]:
    """Return the GDI terms of a ranked table, in column order."""
    return [name.removeprefix("gdi_") for name in columns if name.startswith("gdi_")]


def _verdict(row: dict[str, Any], failed: list[FailedExpectation], rows: dict[str, list[RowOrigin]]) -> EpisodeVerdict:
    if not row:
        return "quarantined" if failed else "in"
    if row.get("quarantined") or any(expectation.severity == "warning" for expectation in failed):
        return "quarantined"
    return "in" if row["accepted"] or _datasets_with_messages(rows) else "out"


def _datasets_with_messages(rows: dict[str, list[RowOrigin]]) -> list[str]:
    """Return the datasets whose rows contain the episode's messages."""
    return sorted(name for name, own in rows.items() if own and name not in PROMPTS)


def _reason(row: dict[str, Any], failed: list[FailedExpectation], rows: dict[str, list[RowOrigin]]) -> str:
    if not row:
        return f"quarantined by {failed[0].name}" if failed else "not ranked any more, but rows contain it"
    reason, datasets = row["reason"] or "", _datasets_with_messages(rows)
    # An episode that was not accepted may still be the rejected side of a pair, or an attempt of a group.
    return reason if row["accepted"] or not datasets else f"{reason}; but rows of {', '.join(datasets)} contain it"


def _present_values(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: rows[0][name] for name in names if rows and rows[0].get(name) not in (None, "", [])}


def _rows(path: Path | None, column: str, value: str) -> list[dict[str, Any]]:
    """Return the rows of a table whose `column` has a value; empty if the table is absent."""
    if path is None:
        return []
    # Read once for its errors: pyarrow's own do not say which column is missing, or what to do.
    read_table(path, [column])
    table: pa.Table = pq.read_table(path)
    rows: list[dict[str, Any]] = table.filter(pc.equal(table[column], value)).to_pylist()
    return rows
