"""Run records: the units that are uploaded to MLflow or stored in the spool, and a tally of what was uploaded.

Every record can be uploaded twice without effect. A run is named by our own key (`night` or `night/stage`), stored as
the tag `ratchet.run`; MLflow's id is looked up. The `tag` of each record type is stored in spool files and must never
change.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import msgspec

from .episode_trace import EpisodeTrace, trace_id


class MetricPoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One value of a metric. `time`: milliseconds since 1970."""

    key: str
    value: float
    step: int
    time: int


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Base of all records: the experiment and the key of the run."""

    experiment: str
    run: str


class RunStart(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Start"):
    """Start a run, or resume the one with that key. `name`: shown by MLflow; `parent`: key of the parent run, None for
    an outermost run; `time`: milliseconds since 1970.
    """

    name: str
    parent: str | None
    tags: dict[str, str]
    time: int


class RunValues(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Values"):
    """Parameters, tags and metrics."""

    params: dict[str, str] = {}
    tags: dict[str, str] = {}
    points: tuple[MetricPoint, ...] = ()


class DatasetRead(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Input"):
    """A dataset that the run read. `digest`: its content hash; `context`: "training" or "evaluation"."""

    name: str
    digest: str
    source: str
    context: str


class EvaluatedModel(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Played"):
    """A registered model that the run evaluated, with its metrics on a dataset (name, digest)."""

    model: str
    version: int
    dataset: tuple[str, str] | None = None
    points: tuple[MetricPoint, ...] = ()


class ArtifactFile(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Artifact"):
    """A file at `path` within the run's artifacts, replaced as a whole. `table`: it is JSON from `table_content`, which
    MLflow's UI shows as a table.
    """

    path: str
    content: bytes
    table: bool = False


class TraceRecord(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Episode"):
    """One episode as a trace. Written by older versions; now `TraceBatch`."""

    trace: EpisodeTrace


class TraceBatch(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Episodes"):
    """Episodes as traces of the run."""

    traces: tuple[EpisodeTrace, ...]


class ExperimentTags(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Experiment"):
    """Tags of the experiment: its description, kind and saved views. The kind is set only where nobody chose one."""

    tags: dict[str, str]


class EvaluationTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task without its answer and its tests. `tags`: kind and family."""

    task_id: str
    prompt: str
    tags: dict[str, str]


class EvaluationDataset(RunRecord, frozen=True, forbid_unknown_fields=True, tag="Tasks"):
    """An evaluation dataset of the experiment. Its name says the content: of an existing one only missing tasks are added."""

    name: str
    tags: dict[str, str]
    tasks: tuple[EvaluationTask, ...]


class RunEnd(RunRecord, frozen=True, forbid_unknown_fields=True, tag="End"):
    """The end of a run. `status`: FINISHED, FAILED or KILLED; `time`: milliseconds since 1970."""

    status: str
    time: int


AnyRecord = (
    RunStart
    | RunValues
    | DatasetRead
    | EvaluatedModel
    | ArtifactFile
    | TraceRecord
    | TraceBatch
    | ExperimentTags
    | EvaluationDataset
    | RunEnd
)


def table_content(columns: dict[str, list[Any]]) -> bytes:
    """Return columns of equal length as the JSON of an MLflow table, for reading: floats are rounded to five
    significant digits (from 10,000 on to one decimal); NaN and infinity become null.
    """
    rows = [[_readable(value) for value in row] for row in zip(*columns.values(), strict=True)]
    return json.dumps({"columns": list(columns), "data": rows}).encode()


def _readable(value: Any) -> Any:
    """Round a float; NaN and infinity, which JSON lacks, become null."""
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return None
    return float(f"{value:.5g}") if abs(value) < 1e4 else round(value, 1)


RunKey = tuple[str, str]
"""Experiment and key of a run."""


@dataclass
class RunContents:
    """Names of what was uploaded to one run. `points`: (step, time, value) by metric; `inputs`: (name, digest) of
    datasets; `models`: (name, version); `artifacts`: size in bytes by path; `traces`: MLflow's ids; `status`: None
    until the end.
    """

    params: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)
    points: dict[str, set[tuple[int, int, float | None]]] = field(default_factory=lambda: defaultdict(set))
    inputs: set[tuple[str, str]] = field(default_factory=set)
    models: set[tuple[str, int]] = field(default_factory=set)
    artifacts: dict[str, int] = field(default_factory=dict)
    traces: set[str] = field(default_factory=set)
    status: str | None = None

    @property
    def count(self) -> int:
        """Number of items that can be read back: metric points, parameters, tags, inputs, models, files, traces, the
        end.
        """
        points = sum(len(series) for series in self.points.values())
        other_count = len(self.params) + len(self.tags) + len(self.inputs) + len(self.models)
        return points + other_count + len(self.artifacts) + len(self.traces) + (self.status is not None)


class UploadTally:
    """Collects what MLflow has taken, by run, and counts records that wait in the spool or were rejected."""

    def __init__(self) -> None:
        self.runs: dict[RunKey, RunContents] = {}
        self.waiting = 0
        self.rejected = 0

    def add(self, record: AnyRecord) -> None:
        """Add one uploaded record to the contents of its run."""
        contents = self.runs.setdefault((record.experiment, record.run), RunContents())
        if isinstance(record, RunStart):
            contents.tags |= record.tags.keys()
            contents.status = None
        elif isinstance(record, RunValues):
            contents.params |= record.params.keys()
            contents.tags |= record.tags.keys()
        elif isinstance(record, DatasetRead):
            contents.inputs.add((record.name, record.digest))
        elif isinstance(record, EvaluatedModel):
            contents.models.add((record.model, record.version))
        elif isinstance(record, ArtifactFile):
            contents.artifacts[record.path] = len(record.content)
        elif isinstance(record, TraceRecord | TraceBatch):
            traces = record.traces if isinstance(record, TraceBatch) else (record.trace,)
            contents.traces |= {trace_id(record.experiment, record.run, trace) for trace in traces}
        elif isinstance(record, RunEnd):
            contents.status = record.status
        if isinstance(record, RunValues | EvaluatedModel):
            for point in record.points:
                contents.points[point.key].add(comparable_point(point.step, point.time, point.value))


def comparable_point(step: int, time: int, value: float) -> tuple[int, int, float | None]:
    """Return a point of a metric as a tuple that is equal before and after storage. NaN and very large values, which
    databases store in different ways, become None.
    """
    return step, time, value if abs(value) < 1e300 else None
