"""Runs in MLflow: one experiment per taskset, one run per night, below it a run per agent and seed, below those the
stages.

A run is found again by its key: a night that was killed and restarted continues in the same run. When the outermost run
ends, everything that was uploaded is read back and compared.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from posixpath import dirname
from typing import TYPE_CHECKING, Any

import msgspec

from ratchet.components.core import ConfigurationError, InfrastructureError, TaskSpec

from .episode_trace import EpisodeTrace
from .mlflow_client import MlflowRefusal, call_mlflow, client, tracking_uri
from .record_upload import RecordWriter, experiment_id, find_run, spool_folder, version_model_id
from .run_records import (
    ArtifactFile,
    DatasetRead,
    EvaluatedModel,
    EvaluationDataset,
    EvaluationTask,
    ExperimentTags,
    MetricPoint,
    RunContents,
    RunEnd,
    RunKey,
    RunStart,
    RunValues,
    TraceBatch,
    UploadTally,
    comparable_point,
    table_content,
)
from .trace_writer import search_traces

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_NAMED = 20
"""Most absent items that a report names; further ones are only counted."""


class ReadBackReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Comparison of what was uploaded with what MLflow holds.

    `told`: number of items uploaded to `runs` runs (see `RunContents.count`); `found`: how many of them MLflow has;
    `absent`: up to MAX_NAMED of the others. `waiting`: records in the spool; `rejected`: records refused for good.
    """

    runs: int
    told: int
    found: int
    absent: tuple[str, ...] = ()
    waiting: int = 0
    rejected: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether MLflow has every item, and no record waits or was rejected."""
        return self.found == self.told and not self.waiting and not self.rejected

    @property
    def sentence(self) -> str:
        """The report in one line."""
        text = f"{self.found:,} of {self.told:,} things that MLflow was told of {self.runs} runs stand there"
        if self.waiting:
            text += f", {self.waiting} records wait in the spool"
        return text + (f", {self.rejected} were refused" if self.rejected else "")


def read_back(tally: UploadTally) -> ReadBackReport:
    """Look up everything in a tally in MLflow and report what is absent. Raises InfrastructureError if MLflow does not
    answer, MlflowRefusal if it refuses a query.
    """
    absent = call_mlflow(lambda: [line for key, uploaded in tally.runs.items() for line in _absent(key, uploaded)])
    uploaded = sum(contents.count for contents in tally.runs.values())
    return ReadBackReport(
        len(tally.runs), uploaded, uploaded - len(absent), tuple(absent[:MAX_NAMED]), tally.waiting, tally.rejected
    )


def _absent(key: RunKey, uploaded: RunContents) -> Iterator[str]:
    """Yield a line for each thing that a run lacks."""
    experiment, name = key
    api = client()
    run_id = find_run(api, experiment, name)
    run = api.get_run(run_id) if run_id is not None else None
    if run is None:
        yield from [f"{name}: the run"] * max(uploaded.count, 1)
        return
    data = run.data
    yield from (f"{name}: parameter {key}" for key in sorted(uploaded.params - data.params.keys()))
    yield from (f"{name}: tag {key}" for key in sorted(uploaded.tags - data.tags.keys()))
    yield from _absent_points(api, run, name, uploaded)
    yield from _absent_inputs(api, run, name, uploaded)
    yield from _absent_files(api, run, name, uploaded)
    if uploaded.traces:
        stored_ids = {info.trace_id for info in search_traces([experiment_id(api, experiment)], name)}
        yield from (f"{name}: trace {stored_id}" for stored_id in sorted(uploaded.traces - stored_ids))
    if uploaded.status is not None and run.info.status != uploaded.status:
        yield f"{name}: its end, {uploaded.status}"


def _absent_points(api: "MlflowClient", run: "Run", name: str, uploaded: RunContents) -> Iterator[str]:
    for key, points in sorted(uploaded.points.items()):
        if key not in run.data.metrics:
            yield from [f"{name}: metric {key}"] * len(points)
        elif len(points) > 1:
            history = api.get_metric_history(run.info.run_id, key)
            stored = {comparable_point(point.step, point.timestamp, point.value) for point in history}
            yield from (f"{name}: metric {key} of step {step}" for step, *_ in sorted(points - stored, key=str))


def _absent_inputs(api: "MlflowClient", run: "Run", name: str, uploaded: RunContents) -> Iterator[str]:
    datasets = {(entry.dataset.name, entry.dataset.digest) for entry in run.inputs.dataset_inputs}
    yield from (f"{name}: dataset {dataset}" for dataset, _ in sorted(uploaded.inputs - datasets))
    models = {entry.model_id for entry in run.inputs.model_inputs}
    for model, version in sorted(uploaded.models):
        if version_model_id(api, model, version) not in models:
            yield f"{name}: model {model}/{version}"


def _absent_files(api: "MlflowClient", run: "Run", name: str, uploaded: RunContents) -> Iterator[str]:
    sizes: dict[str, int | None] = {}
    for folder in sorted({dirname(path) for path in uploaded.artifacts}):
        sizes |= {file.path: file.file_size for file in api.list_artifacts(run.info.run_id, folder or None)}
    for path, size in sorted(uploaded.artifacts.items()):
        if path not in sizes:
            yield f"{name}: file {path}"
        elif sizes[path] not in (None, size):
            yield f"{name}: {path} has {sizes[path]} bytes instead of {size}"


PREFIXES = ("eval/", "train/", "data/", "sandbox/", "cost/")
MAX_METRICS = 25
DIGEST = 36
"""Characters of a dataset's hash that MLflow stores."""
SYSTEM_SECONDS, SYSTEM_SAMPLES = 10.0, 3
"""Seconds between two samples of the machine's load, and samples that become one point."""
READ_BACK_FILE = "written.json"
"""Artifact of the outermost run: what was uploaded and read back."""
_PARAM_LENGTH, _TAG_LENGTH = 6000, 5000
_log = logging.getLogger(__name__)


class TrackedRun:
    """One run. Every method returns once the record is uploaded or spooled; none raises because MLflow is down.

    Open one with `night_run`, `open_outermost_run` or `open_child`. `key`: by which the run is found again; `run_id`:
    MLflow's id, None if the start of the run was spooled or refused.
    """

    def __init__(self, journal: RecordWriter, experiment: str, key: str, name: str) -> None:
        self.experiment, self.key, self.name = experiment, key, name
        self.run_id: str | None = None
        self.read_back_report: ReadBackReport | None = None
        """After the end of an outermost run: what MLflow holds of it and of all below it; None where it could not be
        asked.
        """
        self._journal = journal
        self._metrics: set[str] = set()

    @property
    def is_spooling(self) -> bool:
        """Whether records go to the spool because MLflow failed."""
        return self._journal.is_spooling

    def log_params(self, values: Mapping[str, object]) -> None:
        """Log parameters, values as text of at most 6000 characters. MLflow refuses a changed value of a parameter."""
        texts = {key: str(value)[:_PARAM_LENGTH] for key, value in values.items()}
        self._journal.write(RunValues(self.experiment, self.key, params=texts))

    def set_tags(self, values: Mapping[str, object]) -> None:
        """Set tags, values as text of at most 5000 characters; an existing tag is replaced."""
        self._journal.write(RunValues(self.experiment, self.key, tags=_tag_texts(values)))

    def set_description(self, sentence: str) -> None:
        """Set the run's description; for a night, the verdict in one sentence."""
        self.set_tags({"mlflow.note.content": sentence})

    def log_metrics(self, values: Mapping[str, float | int | None]) -> None:
        """Log one value (step 0) of each headline metric; None is left out (null is not zero).

        Raises ConfigurationError for a name without one of PREFIXES, or more than MAX_METRICS names in a run: use a
        table.
        """
        self.log_history((key, float(value), 0) for key, value in values.items() if value is not None)

    def log_history(self, points: Iterable[tuple[str, float, int] | tuple[str, float, int, int]]) -> None:
        """Log many values: (metric, value, step) or (metric, value, step, milliseconds since 1970; by default now).

        Raises ConfigurationError as `log_metrics` does.
        """
        if rows := self._points(points):
            self._journal.write(RunValues(self.experiment, self.key, points=rows))

    def log_table(self, path: str, columns: dict[str, list[Any]]) -> None:
        """Log columns of equal length as a table at `path`, which ends in `.json`; see `table_content` for rounding."""
        self._journal.write(ArtifactFile(self.experiment, self.key, path, table_content(columns), table=True))

    def log_artifact(self, path: str, content: bytes | str) -> None:
        """Log `content` as a file at `path` within the run's artifacts, replacing an earlier one."""
        data = content.encode() if isinstance(content, str) else content
        self._journal.write(ArtifactFile(self.experiment, self.key, path, data))

    def log_traces(self, traces: Sequence[EpisodeTrace]) -> bool:
        """Log episodes as traces; return False where they wait in the spool or were all refused."""
        return self._journal.write(TraceBatch(self.experiment, self.key, tuple(traces))) is not None

    def log_file(self, source: Path, path: str | None = None) -> None:
        """Log a copy of the file `source` at `path` within the run's artifacts (None: its name)."""
        self.log_artifact(path or source.name, source.read_bytes())

    def log_dataset(self, name: str, digest: str, source: str, context: str = "training") -> None:
        """Log a dataset that the run read: name, content hash (truncated to DIGEST characters) and source."""
        self._journal.write(DatasetRead(self.experiment, self.key, name, digest[:DIGEST], source, context))

    def log_evaluation_dataset(self, name: str, tags: Mapping[str, str], tasks: Sequence[TaskSpec]) -> None:
        """Make ids and prompts of tasks an evaluation dataset of the run's experiment, once for each `name`."""
        rows = (
            EvaluationTask(task.task_id, task.description, {"kind": task.kind, "family": task.family}) for task in tasks
        )
        self._journal.write(EvaluationDataset(self.experiment, self.key, name, dict(tags), tuple(rows)))

    def log_evaluated_model(
        self, version: int, reached: Mapping[str, float | int | None], dataset: tuple[str, str]
    ) -> None:
        """Link the run with a version of the registered model `agent`, and log the metrics that the version `reached`
        on a dataset (name, hash) with both, so that the model's page shows them.
        """
        rows = self._points((key, float(value), 0) for key, value in reached.items() if value is not None)
        data = (dataset[0], dataset[1][:DIGEST])
        self._journal.write(EvaluatedModel(self.experiment, self.key, "agent", version, data, rows))

    def open_child(
        self, name: str, tags: Mapping[str, object] | None = None, seconds: float = 0.0
    ) -> AbstractContextManager["TrackedRun"]:
        """Open a run nested in this one, for an agent or a stage; the same `name` resumes it. `seconds`: what the work
        took that ends now; MLflow shows it as the run's duration.
        """
        return _open_run(self._journal, self.experiment, f"{self.key}/{name}", name, self.key, tags, seconds)

    def open_shared(
        self, experiment: str, key: str, name: str, tags: Mapping[str, object]
    ) -> AbstractContextManager["TrackedRun"]:
        """Open an outermost run of another experiment that all nights share: the same `key` resumes it."""
        return _open_run(self._journal, experiment, key, name, None, tags)

    def set_experiment_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run's experiment, such as its description and saved views."""
        self._journal.write(ExperimentTags(self.experiment, self.key, dict(tags)))

    def _points(
        self, points: Iterable[tuple[str, float, int] | tuple[str, float, int, int]]
    ) -> tuple[MetricPoint, ...]:
        now = _now()
        rows = tuple(
            MetricPoint(str(row[0]), float(row[1]), int(row[2]), int(row[3]) if len(row) > 3 else now) for row in points
        )
        names = {row.key for row in rows}
        for name in sorted(names):
            if not name.startswith(PREFIXES):
                raise ConfigurationError(
                    f"metric '{name}' of run '{self.name}': begin its name with one of {', '.join(PREFIXES)}"
                )
        if len(self._metrics | names) > MAX_METRICS:
            raise ConfigurationError(
                f"run '{self.name}' would hold {len(self._metrics | names)} metrics, at most {MAX_METRICS} are readable; "
                "log the rest as a table"
            )
        self._metrics |= names
        return rows


def night_run(
    night: str, taskset: str, *, params: Mapping[str, object] | None = None
) -> AbstractContextManager[TrackedRun]:
    """Open, or resume, the run of a night in the experiment of its taskset; see `open_outermost_run`."""
    return open_outermost_run(night, taskset, params=params, tags={"ratchet.kind": "night"})


@contextmanager
def open_outermost_run(
    key: str, experiment: str, *, params: Mapping[str, object] | None = None, tags: Mapping[str, object] | None = None
) -> Iterator[TrackedRun]:
    """Open the outermost run with that key, or resume it. An exception ends it as FAILED (an interrupt as KILLED) and
    is raised again.

    At the end everything uploaded is read back; what MLflow lacks is logged as a warning and counted in READ_BACK_FILE.
    """
    journal = RecordWriter()
    try:
        with _open_run(journal, experiment, key, key, None, tags) as run, _system_metrics(run):
            if params:
                run.log_params(params)
            yield run
        _log_read_back(run, journal)
    finally:
        journal.close()


@contextmanager
def _open_run(
    journal: RecordWriter,
    experiment: str,
    key: str,
    name: str,
    parent: str | None,
    tags: Mapping[str, object] | None,
    seconds: float = 0.0,
) -> Iterator[TrackedRun]:
    run = TrackedRun(journal, experiment, key, name)
    begin = _now() - round(1000 * seconds)
    run.run_id = journal.write(RunStart(experiment, key, name, parent, _tag_texts(tags or {}), begin))
    status = "FAILED"  # also where the generator is closed or the process exits
    try:
        yield run
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        journal.write(RunEnd(experiment, key, status, _now()))


@contextmanager
def _system_metrics(run: TrackedRun) -> Iterator[None]:
    """Log CPU, memory, disk, network and GPU use of this machine to the run while the block lasts."""
    if run.run_id is None or run.is_spooling:
        yield
        return
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)  # what it cannot log is no loss
    monitor = SystemMetricsMonitor(
        run.run_id,
        sampling_interval=SYSTEM_SECONDS,
        samples_before_logging=SYSTEM_SAMPLES,
        resume_logging=True,
        tracking_uri=tracking_uri(),
    )
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()


def _log_read_back(run: TrackedRun, journal: RecordWriter) -> None:
    if journal.is_spooling:
        _log.warning(
            "%d records of run '%s' wait in %s and are told later", journal.tally.waiting, run.name, spool_folder()
        )
        return
    try:
        run.read_back_report = read_back(journal.tally)
    except (InfrastructureError, MlflowRefusal) as error:
        _log.warning("what MLflow holds of run '%s' is not known: %s", run.name, error)
        return
    if not run.read_back_report.is_complete:
        names = "; ".join(run.read_back_report.absent)
        absent = f"; absent: {names}" if names else ""
        _log.warning("run '%s': %s%s", run.name, run.read_back_report.sentence, absent)
    run.log_artifact(READ_BACK_FILE, msgspec.json.format(msgspec.json.encode(run.read_back_report)))


def _tag_texts(values: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value)[:_TAG_LENGTH] for key, value in values.items()}


def _now() -> int:
    return time.time_ns() // 1_000_000
