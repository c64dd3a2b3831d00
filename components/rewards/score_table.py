"""Scores as columns, and their Parquet table with one row per (episode_id, turn, step, scorer, version). Equal scores
give equal bytes.

Columns are used because one object per row would be too slow: a night has millions of rows. `turn` -1 is the whole
episode, `step` -1 the whole turn or episode. `score` is in [0, 1]; null means not scored. Scorers per step: the rules,
`judge.<criterion>` and `learned.<criterion>`, and `process` (their weighted mean); per episode: `outcome`, `process`,
`efficiency`, `total`, `verifiable.<component>`, and each layer as `layer.<name>` (`layer.guards`: 0 where a hack was
found).
"""

import io
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ratchet.components.core import DataError
from ratchet.components.core.files import open_atomically, write_atomically

from .annotation_records import WHOLE
from .episode_score import EpisodeScore

if TYPE_CHECKING:
    import pyarrow as pa


PROCESS, EFFICIENCY, TOTAL = "process", "efficiency", "total"
_MAX_TURN = 1 << 31


class ScoreColumns(NamedTuple):
    """Scores of many episodes. `episodes`, `versions` and `rows` (number of rows) have one entry per episode; `turn`,
    `step`, `scorer` and `score` one entry per row, in the order of the episodes.

    `scorer` holds indices into `scorers`, which are sorted; `score` is NaN where nothing was scored.
    """

    episodes: list[str]
    versions: list[str]
    rows: NDArray[np.int64]
    scorers: tuple[str, ...]
    turn: NDArray[np.int32]
    step: NDArray[np.int32]
    scorer: NDArray[np.int16]
    score: NDArray[np.float64]

    def episode_rows(self, scorer: str) -> NDArray[np.int64]:
        """Return the row of each episode for an episode-level scorer that every episode has, as indices of shape
        (episodes,); empty if no row has this scorer.
        """
        return np.flatnonzero(self.scorer == self.scorers.index(scorer)) if scorer in self.scorers else _NO_ROWS


_NO_ROWS = np.empty(0, dtype=np.int64)


class _StepLayout:
    """Steps with the same set of scorers. `values`: their scores without `process`, flat; `steps`: their indices among
    all steps.
    """

    def __init__(self, others: Sequence[str]) -> None:
        ordered = sorted(others)
        self.names = sorted([*others, PROCESS])
        self.get = itemgetter(*ordered) if len(ordered) > 1 else lambda scores: [scores[name] for name in ordered]
        self.values: list[float | None] = []
        self.process: list[float | None] = []
        self.steps: list[int] = []


class ScoreColumnsBuilder:
    """Collects the scores of episodes one by one."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], _StepLayout] = {}
        self._episodes: list[str] = []
        self._versions: list[str] = []
        self._begins: list[int] = []
        self._turns: list[int] = []
        self._places: list[int] = []

    def add(self, scored: EpisodeScore) -> None:
        """Add the rows of one episode: its own scores, those of its layers, and those of its steps.

        Raises OverflowError for a turn number beyond 32 bits.
        """
        if not all(-_MAX_TURN <= step.turn < _MAX_TURN for step in scored.steps):
            raise OverflowError("the number of a turn is beyond 32 bits")
        self._episodes.append(scored.episode_id)
        self._versions.append(scored.version)
        self._begins.append(len(self._turns))
        whole: dict[str, float | None] = {f"layer.{name}": layer.score for name, layer in scored.layers.items()}
        if scored.verifiable is not msgspec.UNSET:
            whole |= {f"verifiable.{name}": score for name, score in scored.verifiable.items()}
        whole |= {"outcome": scored.outcome, EFFICIENCY: scored.efficiency, TOTAL: scored.total}
        self._add(WHOLE, WHOLE, scored.process, whole)
        for step in scored.steps:
            self._add(step.turn, step.step, step.total, step.scores)

    def _add(self, turn: int, place: int, process: float | None, scores: dict[str, float | None]) -> None:
        names = tuple(scores)
        kind = self._kinds.get(names) or self._kinds.setdefault(names, _StepLayout(names))
        kind.steps.append(len(self._turns))
        kind.values.extend(kind.get(scores))
        kind.process.append(process)
        self._turns.append(turn)
        self._places.append(place)

    def columns(self) -> ScoreColumns:
        """Return the columns of all added episodes."""
        turns, places = np.array(self._turns, dtype=np.int32), np.array(self._places, dtype=np.int32)
        scorers = tuple(sorted({name for kind in self._kinds.values() for name in kind.names}))
        sizes = np.zeros(len(turns), dtype=np.int64)
        for kind in self._kinds.values():
            sizes[kind.steps] = len(kind.names)
        ends = np.cumsum(sizes)
        count = int(ends[-1]) if len(ends) else 0
        scorer, score = np.empty(count, dtype=np.int16), np.empty(count, dtype=np.float64)
        for kind in self._kinds.values():
            _fill_layout(kind, ends - sizes, scorers, scorer, score)
        begins = np.array(self._begins, dtype=np.int64)
        rows = np.diff(np.append((ends - sizes)[begins], count)) if count else _NO_ROWS
        turn, step = np.repeat(turns, sizes), np.repeat(places, sizes)
        columns = ScoreColumns(self._episodes, self._versions, rows, scorers, turn, step, scorer, score)
        return columns if _is_sorted(turns, places, begins) else _sort_rows(columns)


def _fill_layout(
    kind: _StepLayout, begins: NDArray[np.int64], scorers: Sequence[str], scorer: NDArray[Any], score: NDArray[Any]
) -> None:
    """Copy the scores of a layout to their rows. None becomes NaN."""
    own = kind.names.index(PROCESS)
    rows = begins[kind.steps][:, None] + np.arange(len(kind.names))
    scorer[rows] = [scorers.index(name) for name in kind.names]
    score[rows[:, own]] = np.array(kind.process, dtype=np.float64)
    others = np.delete(rows, own, axis=1)
    score[others] = np.array(kind.values, dtype=np.float64).reshape(others.shape)


def _is_sorted(turns: NDArray[np.int32], places: NDArray[np.int32], begins: NDArray[np.int64]) -> bool:
    """Return whether the steps of each episode are in order and unique, as in every recorded episode."""
    # One integer per step that sorts like (turn, step).
    keys = (turns.astype(np.int64) << 32) + places
    rises = keys[1:] > keys[:-1]
    # From one episode to the next the keys may fall.
    rises[begins[1:] - 1] = True
    return bool(rises.all())


def _sort_rows(columns: ScoreColumns) -> ScoreColumns:
    episode = np.repeat(np.arange(len(columns.episodes)), columns.rows)
    order = np.lexsort((columns.scorer, columns.step, columns.turn, episode))
    return columns._replace(
        turn=columns.turn[order], step=columns.step[order], scorer=columns.scorer[order], score=columns.score[order]
    )


def concatenate_columns(parts: Sequence[ScoreColumns]) -> ScoreColumns:
    """Concatenate the columns of several shards, in order. Their scorers may differ."""
    scorers = tuple(sorted({name for part in parts for name in part.scorers}))
    code_of = {name: number for number, name in enumerate(scorers)}
    codes = [np.array([code_of[name] for name in part.scorers], dtype=np.int16)[part.scorer] for part in parts]
    return ScoreColumns(
        [name for part in parts for name in part.episodes],
        [name for part in parts for name in part.versions],
        _concatenate([part.rows for part in parts], np.int64),
        scorers,
        _concatenate([part.turn for part in parts], np.int32),
        _concatenate([part.step for part in parts], np.int32),
        _concatenate(codes, np.int16),
        _concatenate([part.score for part in parts], np.float64),
    )


def _concatenate(arrays: list[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=kind)


ROW_GROUP = 1 << 20
_WRITER: dict[str, Any] = {"compression": "zstd", "version": "2.6", "data_page_version": "1.0"}


class ScoreRow(NamedTuple):
    """One row of the table."""

    episode_id: str
    turn: int
    step: int
    scorer: str
    version: str
    score: float | None


_COLUMN_TYPES = {str: "string", int: "int32", float: "float64", float | None: "float64"}


def _schema(row_type: type) -> "pa.Schema":
    import pyarrow as pa

    fields = row_type.__annotations__
    return pa.schema([pa.field(name, pa.type_for_alias(_COLUMN_TYPES[kind])) for name, kind in fields.items()])


def write_parquet(
    path: Path, row_type: type, rows: Iterable[tuple[object, ...]], *, optional: Collection[str] = ()
) -> None:
    """Write rows, tuples in the order of the fields of the NamedTuple `row_type`, as Parquet with fixed writer options,
    so that equal rows give equal bytes. Missing folders are created. `optional`: columns that are left out where all values
    are empty.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(row_type)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    kept = [
        (field, column)
        for field, column in zip(schema, columns, strict=True)
        if field.name not in optional or any(column)
    ]
    arrays = [pa.array(column, type=field.type) for field, column in kept]
    buffer = io.BytesIO()
    table = pa.Table.from_arrays(arrays, schema=pa.schema([field for field, _ in kept]))
    pq.write_table(table, buffer, row_group_size=ROW_GROUP, **_WRITER)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def write_score_table(path: Path, columns: ScoreColumns) -> None:
    """Write a table of scores atomically, sorted by episode, turn, step, scorer and version. The bytes equal those of
    `write_parquet` with the same rows.
    """
    import pyarrow.parquet as pq

    order = sorted(range(len(columns.episodes)), key=columns.episodes.__getitem__)
    sizes, begins = columns.rows[order], (np.cumsum(columns.rows) - columns.rows)[order]
    ends = np.cumsum(sizes)
    count = len(columns.score)
    with open_atomically(path) as file, pq.ParquetWriter(file, _schema(ScoreRow), **_WRITER) as writer:
        # One row group at a time, so that memory does not hold a second copy of the whole table.
        for begin in range(0, max(count, 1), ROW_GROUP):
            numbers = np.arange(begin, min(begin + ROW_GROUP, count))
            episode_places = np.searchsorted(ends, numbers, side="right")
            rows = begins[episode_places] + numbers - (ends - sizes)[episode_places]
            writer.write_table(
                _row_slice(columns, rows, np.asarray(order, dtype=np.int64)[episode_places]), row_group_size=ROW_GROUP
            )


def _row_slice(columns: ScoreColumns, rows: "np.ndarray[Any, Any]", episodes: "np.ndarray[Any, Any]") -> "pa.Table":
    """Return rows as a table; `episodes` is the episode index of each row."""
    import pyarrow as pa

    score = columns.score[rows]
    names = (pa.array(values, type=pa.string()) for values in (columns.episodes, columns.scorers, columns.versions))
    of_episode, scorer, version = names
    arrays = [
        of_episode.take(pa.array(episodes)),
        pa.array(columns.turn[rows]),
        pa.array(columns.step[rows]),
        scorer.take(pa.array(columns.scorer[rows])),
        version.take(pa.array(episodes)),
        # NaN, which stands for a missing score in the columns, would be a number in the file.
        pa.array(score, mask=np.isnan(score)),
    ]
    return pa.Table.from_arrays(arrays, schema=_schema(ScoreRow))


def read_totals(path: Path) -> dict[str, tuple[float | None, str]]:
    """Return (total, scorer version) by episode id from a table of scores; a total is None where not scored. Raises
    DataError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, text = ["episode_id", "version", "score"], ["episode_id", "version", "scorer"]
    try:
        table = pq.read_table(
            path, columns=columns, filters=[("scorer", "=", TOTAL), ("turn", "=", WHOLE)], read_dictionary=text
        )
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as a table of scores: {' '.join(str(error).split())}") from error
    names, versions, scores = (table[name].to_pylist() for name in columns)
    return dict(zip(names, zip(scores, versions, strict=True), strict=True))


def read_step_scores(path: Path) -> list[tuple[str, int, int, float]]:
    """Return (episode id, turn, step, `process` score) of each scored step in a table of scores. Raises DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["episode_id", "turn", "step", "score"]
    try:
        table = pq.read_table(path, columns=columns, filters=[("scorer", "=", PROCESS), ("step", ">", WHOLE)])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as a table of scores: {' '.join(str(error).split())}") from error
    rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return [row for row in rows if row[3] is not None]
