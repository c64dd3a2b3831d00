"""The table of scores: one row per (episode_id, turn, step, scorer, version), in Parquet, the same bytes for the same scores.

`turn` -1 is the whole episode, `step` -1 the whole turn or episode. `score` is in [0, 1]; null means not scored. Scorers per
step: the rules, `judge.<line>` and `learned.<line>` where models judged, and `process` (the weighted mean of them all); per
episode: `outcome`, `process`, `efficiency`, `total`, and each layer by itself as `layer.<name>` (`layer.guards`: 0 caught).
"""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from components.protocol import DataError
from components.trajectories.files import write_atomically

from .episode_score import WHOLE, EpisodeScore

EPISODE_SCORERS = ("outcome", "process", "efficiency", "total")


class ScoreRow(NamedTuple):
    """One score."""

    episode_id: str
    turn: int
    step: int
    scorer: str
    version: str
    score: float | None


def rows_of(scored: EpisodeScore) -> Iterator[ScoreRow]:
    """The rows of one episode: its four, its layers, then those of its steps, nulls included."""
    version = scored.version
    for scorer in EPISODE_SCORERS:
        yield ScoreRow(scored.episode_id, WHOLE, WHOLE, scorer, version, getattr(scored, scorer))
    for name, layer in scored.layers.items():
        yield ScoreRow(scored.episode_id, WHOLE, WHOLE, f"layer.{name}", version, layer.score)
    for step in scored.steps:
        for scorer, score in (("process", step.total), *step.scores.items()):
            yield ScoreRow(scored.episode_id, step.turn, step.step, scorer, version, score)


class ScoreTable:
    """The scores of one night while they are made."""

    def __init__(self) -> None:
        self._rows: list[ScoreRow] = []
        self._seen: set[str] = set()

    @property
    def episodes(self) -> int:
        """How many episodes stand in the table."""
        return len(self._seen)

    @property
    def rows(self) -> int:
        """How many scores stand in the table."""
        return len(self._rows)

    def add(self, scored: EpisodeScore) -> None:
        """Add an episode. Raises DataError for one that stands in the table already."""
        if scored.episode_id in self._seen:
            raise DataError(f"episode {scored.episode_id} occurs twice in one night; restore the night's folder")
        self._seen.add(scored.episode_id)
        self._rows.extend(rows_of(scored))

    def write(self, path: Path) -> None:
        """Write the table whole, sorted by key."""
        write_parquet(path, ScoreRow, sorted(self._rows, key=lambda row: row[:5]))


_COLUMN_TYPES = {str: "string", int: "int32", float: "float64", float | None: "float64"}


def write_parquet(path: Path, row_type: type, rows: Iterable[tuple[object, ...]]) -> None:
    """Rows of a NamedTuple as Parquet with fixed writer options: equal rows give equal bytes. Folders are made."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = row_type.__annotations__
    schema = pa.schema([pa.field(name, pa.type_for_alias(_COLUMN_TYPES[kind])) for name, kind in fields.items()])
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    buffer = io.BytesIO()
    table = pa.Table.from_arrays(arrays, schema=schema)
    pq.write_table(table, buffer, compression="zstd", version="2.6", data_page_version="1.0", row_group_size=1 << 20)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())


def read_totals(path: Path) -> dict[str, tuple[float | None, str]]:
    """The total and the scorer's version of each episode in a table. Raises DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["episode_id", "version", "score"]
    try:
        table = pq.read_table(path, columns=columns, filters=[("scorer", "=", "total"), ("turn", "=", WHOLE)])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as a table of scores: {' '.join(str(error).split())}") from error
    return {row["episode_id"]: (row["score"], row["version"]) for row in table.to_pylist()}
