"""The records that MLflow is told: each can be told twice and stands once, so that a spool may be replayed.

A run is named by our own key (`night` or `night/stage`), kept as the tag `ratchet.run`; MLflow's id is looked up.
"""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from .place import artifact_root
from .telling import tell_trace
from .trace import EpisodeTrace

if TYPE_CHECKING:
    from mlflow import MlflowClient

KEY_TAG = "ratchet.run"
_TABLES_TAG = "mlflow.loggedArtifacts"
_METRICS_A_CALL, _PARAMS_A_CALL = 1000, 100


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


class Artifact(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """A file, replaced as a whole. `table` marks one in the form that the UI shows as a table."""

    path: str
    content: bytes
    table: bool = False


class Episode(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """An episode as a trace of the run."""

    trace: EpisodeTrace


class End(Record, frozen=True, forbid_unknown_fields=True, tag=True):
    """The run has ended: FINISHED, FAILED or KILLED."""

    status: str
    time: int


AnyRecord = Start | Values | Input | Artifact | Episode | End


class NeverBegun(Exception):
    """A record of a run that MLflow does not know, so that telling it again is useless."""


def table_content(columns: dict[str, list[Any]]) -> bytes:
    """Columns of equal length as the JSON that MLflow shows as a table."""
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return json.dumps({"columns": list(columns), "data": rows}).encode()


def apply(client: "MlflowClient", record: AnyRecord) -> str:
    """Tell MLflow one record; returns the id of its run. Raises whatever MLflow raises."""
    if isinstance(record, Start):
        return _start(client, record)
    run_id = find_run(client, record.experiment, record.run)
    if run_id is None:
        raise NeverBegun(f"run '{record.run}' was never begun in experiment '{record.experiment}'")
    if isinstance(record, Values):
        _values(client, run_id, record)
    elif isinstance(record, Input):
        _input(client, run_id, record)
    elif isinstance(record, Artifact):
        _artifact(client, run_id, record)
    elif isinstance(record, Episode):
        tell_trace(experiment_id(client, record.experiment), record.experiment, record.run, run_id, record.trace)
    else:
        client.set_terminated(run_id, record.status, record.time)
    return run_id


_known: dict[tuple[str, str, str], str] = {}


def find_run(client: "MlflowClient", experiment: str, key: str) -> str | None:
    """MLflow's id of a run of ours, or None."""
    cached = _known.get((client.tracking_uri, experiment, key))
    if cached is not None:
        return cached
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return None
    runs = client.search_runs([found.experiment_id], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
    if not runs:
        return None
    _known[client.tracking_uri, experiment, key] = runs[0].info.run_id
    return str(runs[0].info.run_id)


def experiment_id(client: "MlflowClient", name: str, place: str | None = None) -> str:
    """The id of an experiment, made where there is none; `place` is where its artifacts lie, if not where all do."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    root = artifact_root()
    try:
        return str(
            client.create_experiment(name, artifact_location=place or (f"{root}/{quote(name)}" if root else None))
        )
    except MlflowException:  # another process made it meanwhile
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)


def _start(client: "MlflowClient", record: Start) -> str:
    experiment = experiment_id(client, record.experiment)
    run_id = find_run(client, record.experiment, record.run)
    if run_id is not None:
        client.update_run(run_id, status="RUNNING")
        return run_id
    tags = {**record.tags, KEY_TAG: record.run}
    if record.parent is not None:
        parent = find_run(client, record.experiment, record.parent)
        if parent is None:
            raise NeverBegun(f"parent run '{record.parent}' was never begun in experiment '{record.experiment}'")
        tags["mlflow.parentRunId"] = parent
    run = client.create_run(experiment, start_time=record.time, tags=tags, run_name=record.name)
    _known[client.tracking_uri, record.experiment, record.run] = run.info.run_id
    return str(run.info.run_id)


def _values(client: "MlflowClient", run_id: str, record: Values) -> None:
    from mlflow.entities import Metric, Param, RunTag

    points = [Metric(point.key, point.value, point.time, point.step) for point in record.points]
    params = [Param(key, value) for key, value in record.params.items()]
    tags = [RunTag(key, value) for key, value in record.tags.items()]
    size = _PARAMS_A_CALL
    for start in range(0, max(len(params), len(tags)), size):
        client.log_batch(run_id, params=params[start : start + size], tags=tags[start : start + size])
    for start in range(0, len(points), _METRICS_A_CALL):
        client.log_batch(run_id, metrics=points[start : start + _METRICS_A_CALL])


def _input(client: "MlflowClient", run_id: str, record: Input) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(record.name, record.digest, "local", json.dumps({"uri": record.source}))
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", record.context)])])


def _artifact(client: "MlflowClient", run_id: str, record: Artifact) -> None:
    folder, _, name = record.path.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="ratchet-artifact-") as temporary:
        path = Path(temporary) / name
        path.write_bytes(record.content)
        client.log_artifact(run_id, str(path), folder or None)
    if not record.table:
        return
    tables = json.loads(client.get_run(run_id).data.tags.get(_TABLES_TAG, "[]"))
    entry = {"path": record.path, "type": "table"}
    if entry not in tables:
        client.set_tag(run_id, _TABLES_TAG, json.dumps([*tables, entry]))
