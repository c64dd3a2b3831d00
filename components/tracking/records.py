"""The records that MLflow is told, as they stand in the spool. `applied` tells them: each can be told twice and stands once.

A run is named by our own key (`night` or `night/stage`), kept as the tag `ratchet.run`; MLflow's id is looked up.
"""

import json
from math import isfinite
from typing import Any

import msgspec

from .trace import EpisodeTrace


class Point(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One value of a metric. `time` in milliseconds since 1970."""

    key: str
    value: float
    step: int
    time: int


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """What all records say: which experiment, which run."""

    experiment: str
    run: str


class Start(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """Begin a run, or go on with the one of that key."""

    name: str
    parent: str | None
    tags: dict[str, str]
    time: int


class Values(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """Parameters, tags and metrics."""

    params: dict[str, str] = {}
    tags: dict[str, str] = {}
    points: tuple[Point, ...] = ()


class Input(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """A dataset that the run read. `context`: training, evaluation."""

    name: str
    digest: str
    source: str
    context: str


class Played(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """A registered model that the run was about, with what it reached there on a dataset (name, digest)."""

    model: str
    version: int
    dataset: tuple[str, str] | None = None
    points: tuple[Point, ...] = ()


class Artifact(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """A file, replaced as a whole. `table` marks one in the form that the UI shows as a table."""

    path: str
    content: bytes
    table: bool = False


class Episode(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """An episode as a trace of the run. Written by an older version; `Episodes` now."""

    trace: EpisodeTrace


class Episodes(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """Episodes as traces of the run."""

    traces: tuple[EpisodeTrace, ...]


class End(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """The run has ended: FINISHED, FAILED or KILLED."""

    status: str
    time: int


AnyRecord = Start | Values | Input | Played | Artifact | Episode | Episodes | End


class NeverBegun(Exception):
    """A record of a run that MLflow does not know, so that telling it again is useless."""


def table_content(columns: dict[str, list[Any]]) -> bytes:
    """Columns of equal length as the JSON that MLflow shows as a table. It is for reading: numbers have five digits."""
    rows = [[_readable(value) for value in row] for row in zip(*columns.values(), strict=True)]
    return json.dumps({"columns": list(columns), "data": rows}).encode()


def _readable(value: Any) -> Any:
    """What is no number (NaN) has no place in JSON: null."""
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return None
    return float(f"{value:.5g}") if abs(value) < 1e4 else round(value, 1)
