"""Tally: what MLflow was told, run by run, so that it can be counted and compared with what stands there."""

from collections import defaultdict
from dataclasses import dataclass, field

from .records import AnyRecord, Artifact, End, Episode, Episodes, Input, Played, Start, Values
from .trace import trace_id

RunKey = tuple[str, str]
"""Experiment and key of a run."""


@dataclass
class Told:
    """What one run was told. `points` by metric: (step, time, value), each once; `artifacts`: bytes by path."""

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
        """Everything that can be found again."""
        points = sum(len(each) for each in self.points.values())
        named = len(self.params) + len(self.tags) + len(self.inputs) + len(self.models)
        return points + named + len(self.artifacts) + len(self.traces) + (self.status is not None)


class Tally:
    """Counts records that MLflow has taken. What waits in the spool or was refused is not among them, but numbered."""

    def __init__(self) -> None:
        self.runs: dict[RunKey, Told] = {}
        self.waiting = 0
        self.rejected = 0

    def add(self, record: AnyRecord) -> None:
        """One record that was told."""
        told = self.runs.setdefault((record.experiment, record.run), Told())
        if isinstance(record, Start):
            told.tags |= record.tags.keys()
            told.status = None
        elif isinstance(record, Values):
            told.params |= record.params.keys()
            told.tags |= record.tags.keys()
        elif isinstance(record, Input):
            told.inputs.add((record.name, record.digest))
        elif isinstance(record, Played):
            told.models.add((record.model, record.version))
        elif isinstance(record, Artifact):
            told.artifacts[record.path] = len(record.content)
        elif isinstance(record, Episode | Episodes):
            traces = record.traces if isinstance(record, Episodes) else (record.trace,)
            told.traces |= {trace_id(record.experiment, record.run, each) for each in traces}
        elif isinstance(record, End):
            told.status = record.status
        if isinstance(record, Values | Played):
            for point in record.points:
                told.points[point.key].add(as_kept(point.step, point.time, point.value))


def as_kept(step: int, time: int, value: float) -> tuple[int, int, float | None]:
    """A point as it can be compared: databases keep what is no number, or too large for one, each in its own way."""
    return step, time, value if abs(value) < 1e300 else None
