"""Upload run records to MLflow, and spool those that it cannot take: JSON lines in order, until `sync` uploads them.

Uploading a record again changes nothing, so a spool file can be replayed from its start. A server that is down or a
locked database never ends a night and loses no record. What MLflow refuses for good (a changed parameter, a deleted
run) goes to `rejected.jsonl` with its reason. The model registry is not spooled: a promotion that nobody can read has
not happened.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

import msgspec

from ratchet.components.core import InfrastructureError
from ratchet.components.core.files import hold_lock, lock_file, temporary_folder, try_lock_file
from ratchet.components.core.home import home

from .mlflow_client import MlflowRefusal, artifact_root, call_mlflow, client, default_tracking_uri
from .run_records import (
    AnyRecord,
    ArtifactFile,
    DatasetRead,
    EvaluatedModel,
    EvaluationDataset,
    ExperimentTags,
    MetricPoint,
    RunStart,
    RunValues,
    TraceBatch,
    TraceRecord,
    UploadTally,
)
from .trace_writer import write_traces

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.entities.model_registry import ModelVersion

KEY_TAG = "ratchet.run"
KIND_TAG = "mlflow.experimentKind"
_TABLES_TAG = "mlflow.loggedArtifacts"
_METRICS_A_CALL, _PARAMS_A_CALL = 1000, 100
"""MLflow's own limits of `log_batch`; parameters and tags have the same."""


def upload_record(client: "MlflowClient", record: AnyRecord) -> str:
    """Upload one record, without retries, and return MLflow's id of its run. Raises whatever MLflow raises, and
    MlflowRefusal for a run that no RunStart began.
    """
    if isinstance(record, RunStart):
        return _start_run(client, record)
    run_id = find_run(client, record.experiment, record.run)
    if run_id is None:
        raise MlflowRefusal(f"run '{record.run}' was never begun in experiment '{record.experiment}'")
    if isinstance(record, RunValues):
        _log_values(client, run_id, record)
    elif isinstance(record, DatasetRead):
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(record.name, record.digest, "local", json.dumps({"uri": record.source}))
        client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", record.context)])])
    elif isinstance(record, EvaluatedModel):
        _log_evaluated_model(client, run_id, record)
    elif isinstance(record, ArtifactFile):
        _log_artifact(client, run_id, record)
    elif isinstance(record, TraceRecord | TraceBatch):
        traces = record.traces if isinstance(record, TraceBatch) else (record.trace,)
        write_traces(experiment_id(client, record.experiment), record.experiment, record.run, run_id, traces)
    elif isinstance(record, ExperimentTags):
        _set_experiment_tags(client, experiment_id(client, record.experiment), record.tags)
    elif isinstance(record, EvaluationDataset):
        _write_evaluation_dataset(client, experiment_id(client, record.experiment), record)
    else:
        client.set_terminated(run_id, record.status, record.time)
    return run_id


# Every record needs the id of its run, and a search by tag is two requests.
_run_ids: dict[tuple[str, str, str], str] = {}


def find_run(client: "MlflowClient", experiment: str, key: str) -> str | None:
    """Return MLflow's id of the run with our key `key` in the experiment of that name, or None."""
    cached = _run_ids.get((client.tracking_uri, experiment, key))
    if cached is not None:
        return cached
    known_experiment = client.get_experiment_by_name(experiment)
    if known_experiment is None:
        return None
    runs = client.search_runs([known_experiment.experiment_id], f"tags.`{KEY_TAG}` = '{key}'", max_results=1)
    if not runs:
        return None
    _run_ids[client.tracking_uri, experiment, key] = runs[0].info.run_id
    return str(runs[0].info.run_id)


def experiment_id(client: "MlflowClient", name: str, artifact_location: str | None = None) -> str:
    """Return the id of the experiment named `name`, creating it if absent. `artifact_location`: URI for its artifacts
    if it is created; None for a folder below `artifact_root`, or the server's choice.
    """
    from mlflow.exceptions import MlflowException

    existing = client.get_experiment_by_name(name)
    if existing is None:
        root = artifact_root()
        try:
            return str(client.create_experiment(name, artifact_location or (f"{root}/{quote(name)}" if root else None)))
        except MlflowException:  # another process may have created it meanwhile
            if (existing := client.get_experiment_by_name(name)) is None:
                raise
    return str(existing.experiment_id)


def _start_run(client: "MlflowClient", record: RunStart) -> str:
    experiment = experiment_id(client, record.experiment)
    if (run_id := find_run(client, record.experiment, record.run)) is not None:
        client.update_run(run_id, status="RUNNING")
        return run_id
    tags = {**record.tags, KEY_TAG: record.run}
    if record.parent is not None:
        parent = find_run(client, record.experiment, record.parent)
        if parent is None:
            raise MlflowRefusal(f"parent run '{record.parent}' was never begun in experiment '{record.experiment}'")
        tags["mlflow.parentRunId"] = parent
    run = client.create_run(experiment, start_time=record.time, tags=tags, run_name=record.name)
    _run_ids[client.tracking_uri, record.experiment, record.run] = run.info.run_id
    return str(run.info.run_id)


def _set_experiment_tags(client: "MlflowClient", experiment: str, tags: dict[str, str]) -> None:
    present = client.get_experiment(experiment).tags
    for key, value in tags.items():
        if present.get(key) != value and not (key == KIND_TAG and key in present):
            client.set_experiment_tag(experiment, key, value)


def _write_evaluation_dataset(client: "MlflowClient", experiment: str, record: EvaluationDataset) -> None:
    if "://" not in client.tracking_uri or client.tracking_uri.startswith("file:"):
        return  # MLflow keeps evaluation datasets in a database only
    existing = client.search_datasets([experiment], f"name = '{record.name}'", max_results=1)
    dataset = existing[0] if existing else client.create_dataset(record.name, experiment, dict(record.tags))
    if json.loads(dataset.profile or "{}").get("num_records") == len(record.tasks):
        return
    rows = [{"inputs": {"task_id": task.task_id, "prompt": task.prompt}, "tags": task.tags} for task in record.tasks]
    with default_tracking_uri():  # `merge_records` ignores the client's own
        dataset.merge_records(rows)


def _log_values(client: "MlflowClient", run_id: str, record: RunValues) -> None:
    from mlflow.entities import Param, RunTag

    params = [Param(key, value) for key, value in record.params.items()]
    tags = [RunTag(key, value) for key, value in record.tags.items()]
    size = _PARAMS_A_CALL
    for start in range(0, max(len(params), len(tags)), size):
        client.log_batch(run_id, params=params[start : start + size], tags=tags[start : start + size])
    _log_metrics(client, run_id, [_metric(point) for point in record.points])


def _metric(point: MetricPoint, model_id: str | None = None, dataset: tuple[str, str] | None = None) -> "Metric":
    from mlflow.entities import Metric

    name, digest = dataset or (None, None)
    return Metric(
        point.key, point.value, point.time, point.step, model_id=model_id, dataset_name=name, dataset_digest=digest
    )


def _log_metrics(client: "MlflowClient", run_id: str, metrics: "list[Metric]") -> None:
    for start in range(0, len(metrics), _METRICS_A_CALL):
        client.log_batch(run_id, metrics=metrics[start : start + _METRICS_A_CALL])


def _log_evaluated_model(client: "MlflowClient", run_id: str, record: EvaluatedModel) -> None:
    """Link the model version with the run, once, and its metrics with the model."""
    from mlflow.entities import LoggedModelInput

    model_id = version_model_id(client, record.model, record.version)
    inputs = client.get_run(run_id).inputs
    if all(model_input.model_id != model_id for model_input in inputs.model_inputs):
        client.log_inputs(run_id, models=[LoggedModelInput(model_id)])
    _log_metrics(client, run_id, [_metric(point, model_id, record.dataset) for point in record.points])


def version_model_id(client: "MlflowClient", name: str, version: int) -> str:
    """Return the id of a version's logged model."""
    return logged_model_id(client.get_model_version(name, str(version)))


def logged_model_id(version: "ModelVersion") -> str:
    """Return the id of a version's logged model. MLflow on SQLite leaves `model_id` empty: it is then read from
    `source`, `models:/<id>`.
    """
    return version.model_id or str(version.source).removeprefix("models:/").strip("/")


def _log_artifact(client: "MlflowClient", run_id: str, record: ArtifactFile) -> None:
    folder, _, name = record.path.rpartition("/")
    with temporary_folder("artifact") as temporary:
        path = Path(temporary) / name
        path.write_bytes(record.content)
        client.log_artifact(run_id, str(path), folder or None)
    if not record.table:
        return
    # The UI lists as tables what this tag names. MlflowClient.log_table downloads and rewrites the whole file instead.
    tables = json.loads(client.get_run(run_id).data.tags.get(_TABLES_TAG, "[]"))
    entry = {"path": record.path, "type": "table"}
    if entry not in tables:
        client.set_tag(run_id, _TABLES_TAG, json.dumps([*tables, entry]))


REJECTED = "rejected.jsonl"
_log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(AnyRecord)


class SpoolReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of records uploaded (`told`) and `rejected` for good, of spool files still `waiting`, and of truncated
    lines that were dropped (`cut`).
    """

    told: int = 0
    rejected: int = 0
    waiting: int = 0
    cut: int = 0


class RecordWriter:
    """Uploads records one by one. From the first failure on all go to the spool, so that their order is kept; MLflow
    being down never raises.

    The constructor first uploads what earlier processes spooled; if some of it remains, all records are spooled.
    `tally` counts what was uploaded, spooled and rejected.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self.tally = UploadTally()
        if sync().waiting:
            self._open()

    @property
    def is_spooling(self) -> bool:
        """True once records go to the spool."""
        return self._file is not None

    def write(self, record: AnyRecord) -> str | None:
        """Upload one record; return MLflow's run id, or None where it was spooled or refused."""
        if self._file is None:
            try:
                uploaded, run_id, rejected = _upload(record)
            except InfrastructureError as error:
                _log.warning("%s; records go to %s and are told later", error, spool_folder())
                self._open()
            else:
                for taken_record in uploaded:
                    self.tally.add(taken_record)
                self.tally.rejected += rejected
                return run_id
        assert self._file is not None
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.tally.waiting += 1
        return None

    def close(self) -> SpoolReport:
        """Close the writer and, if it spooled records, try once to upload them with `sync`."""
        if self._file is None:
            return SpoolReport()
        self._file.close()
        self._file = None
        return sync()

    def _open(self) -> None:
        folder = spool_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / "sync.lock"):
            # Later than every file that waits, also after the system's clock was set back.
            stamps = (path.name.partition("-")[0] for path in folder.glob("*-*.jsonl"))
            latest = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0)
            self._file = (folder / f"{max(time.time_ns(), latest + 1):020d}-{os.getpid()}.jsonl").open("ab")
        # Held until the process ends, however it ends: `sync` leaves a file alone that is being written.
        lock_file(self._file)


def spool_folder() -> Path:
    """Return the folder of the spool."""
    return home() / "spool" / "mlflow"


def sync() -> SpoolReport:
    """Upload all spooled records, oldest file first, except files that another process is writing; remove uploaded
    files.

    Stops at the first record that cannot be uploaded; the file stays and is replayed from its start. Only one process
    syncs at a time: a later file of a run, uploaded before an earlier one, would be refused for good.
    """
    if not spool_folder().is_dir():
        return SpoolReport()
    with hold_lock(spool_folder() / "sync.lock"):
        return _sync()


def _sync() -> SpoolReport:
    uploaded = rejected = cut = 0
    files = sorted(path for path in spool_folder().glob("*.jsonl") if path.name != REJECTED)
    for number, path in enumerate(files):
        with path.open("rb") as file:
            if not try_lock_file(file):
                continue
            try:
                counts = _replay(file)
            except InfrastructureError as error:
                _log.warning("%s; %d files wait in %s", error, len(files) - number, spool_folder())
                return SpoolReport(uploaded, rejected, len(files) - number, cut)
            path.unlink(missing_ok=True)
        uploaded, rejected, cut = uploaded + counts[0], rejected + counts[1], cut + counts[2]
    return SpoolReport(uploaded, rejected, 0, cut)


def _upload(record: AnyRecord) -> tuple[list[AnyRecord], str | None, int]:
    """Upload a record; return what MLflow took, the run id, and the number refused. Of a refused batch each trace is
    tried alone.
    """
    try:
        return [record], call_mlflow(lambda: upload_record(client(), record)), 0
    except MlflowRefusal as refusal:
        if not isinstance(record, TraceBatch) or len(record.traces) < 2:
            _write_rejected(str(refusal), record)
            _log.warning("MLflow refused a record of run '%s' (%s); it is in %s", record.run, refusal, REJECTED)
            return [], None, 1
    parts = [_upload(msgspec.structs.replace(record, traces=(trace,))) for trace in record.traces]
    ids = [run_id for _, run_id, _ in parts if run_id is not None]
    uploaded = [entry for records, _, _ in parts for entry in records]
    return uploaded, ids[0] if ids else None, sum(count for *_, count in parts)


def _replay(file: IO[bytes]) -> tuple[int, int, int]:
    uploaded = rejected = cut = 0
    for record in _read_records(file):
        if record is None:
            cut += 1
            continue
        if isinstance(record, bytes):
            rejected += 1
            _write_rejected("this version of Ratchet cannot read it", record.decode(errors="replace"))
            _log.warning("a record that this version of Ratchet cannot read stands in %s", spool_folder() / REJECTED)
            continue
        taken_records, _, refused = _upload(record)
        uploaded, rejected = uploaded + len(taken_records), rejected + refused
    return uploaded, rejected, cut


def _read_records(file: IO[bytes]) -> Iterator[AnyRecord | bytes | None]:
    """Yield the records of a spool file: None for a line truncated by a killed writer, the raw line for one that cannot
    be decoded.
    """
    for line in file:
        try:
            yield _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield line if line.endswith(b"\n") else None


def _write_rejected(reason: str, record: AnyRecord | str) -> None:
    spool_folder().mkdir(parents=True, exist_ok=True)
    with (spool_folder() / REJECTED).open("ab") as file:
        file.write(msgspec.json.encode({"reason": reason, "record": record}) + b"\n")
