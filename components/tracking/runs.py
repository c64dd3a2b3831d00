"""Runs: one experiment per taskset, one run per night, nested runs for its agents and stages.

A run is found by its key again: a night that was killed and started again goes on in the same run.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components.protocol import ConfigurationError

from .records import Artifact, End, Episode, Input, Point, Start, Values, table_content
from .spool import Journal
from .trace import EpisodeTrace

PREFIXES = ("eval/", "train/", "data/", "sandbox/", "cost/")
MAX_METRICS = 25
_PARAM_LENGTH, _TAG_LENGTH = 6000, 5000


class Run:
    """One run. Every method returns at once with the record told or spooled; none raises because MLflow is down."""

    def __init__(self, journal: Journal, experiment: str, key: str, name: str) -> None:
        self.experiment, self.key, self.name = experiment, key, name
        self.run_id: str | None = None
        self._journal = journal
        self._metrics: set[str] = set()

    @property
    def spooling(self) -> bool:
        """True where records wait in the spool instead of standing in MLflow."""
        return self._journal.spooling

    def params(self, values: Mapping[str, object]) -> None:
        """Parameters; a parameter never changes within a run."""
        texts = {key: str(value)[:_PARAM_LENGTH] for key, value in values.items()}
        self._journal.write(Values(self.experiment, self.key, params=texts))

    def tags(self, values: Mapping[str, object]) -> None:
        """Tags, replaced where they exist."""
        texts = {key: str(value)[:_TAG_LENGTH] for key, value in values.items()}
        self._journal.write(Values(self.experiment, self.key, tags=texts))

    def describe(self, sentence: str) -> None:
        """The run's description, shown on its page: for a night, the verdict in one sentence."""
        self.tags({"mlflow.note.content": sentence})

    def metrics(self, values: Mapping[str, float | int | None], step: int = 0) -> None:
        """Headline metrics of one step; None is left out (null is not zero).

        Raises ConfigurationError for a name without one of PREFIXES, or for more than MAX_METRICS names in a run: use a table.
        """
        now = _now()
        self.history((key, float(value), step, now) for key, value in values.items() if value is not None)

    def history(self, points: Iterable[tuple[str, float, int] | tuple[str, float, int, int]]) -> None:
        """Many values at once: (metric, value, step) or (metric, value, step, milliseconds since 1970)."""
        now = _now()
        rows = tuple(
            Point(str(row[0]), float(row[1]), int(row[2]), int(row[3]) if len(row) > 3 else now) for row in points
        )
        self._check({row.key for row in rows})
        if rows:
            self._journal.write(Values(self.experiment, self.key, points=rows))

    def table(self, path: str, columns: dict[str, list[Any]]) -> None:
        """Columns of equal length as a table artifact (`.json`)."""
        self._journal.write(Artifact(self.experiment, self.key, path, table_content(columns), table=True))

    def artifact(self, path: str, content: bytes | str) -> None:
        """A file of that path within the run: a figure, a record, a log."""
        data = content.encode() if isinstance(content, str) else content
        self._journal.write(Artifact(self.experiment, self.key, path, data))

    def trace(self, trace: EpisodeTrace) -> bool:
        """An episode as a trace of this run; False where it waits in the spool, or was refused."""
        return self._journal.write(Episode(self.experiment, self.key, trace)) is not None

    def file(self, source: Path, path: str | None = None) -> None:
        """A file from disk, read now."""
        self.artifact(path or source.name, source.read_bytes())

    def dataset(self, name: str, digest: str, source: str, context: str = "training") -> None:
        """A dataset that the run read, by name, content hash (at most 36 characters are kept) and place."""
        self._journal.write(Input(self.experiment, self.key, name, digest[:36], source, context))

    @contextmanager
    def child(self, name: str, tags: Mapping[str, object] | None = None) -> Iterator["Run"]:
        """A nested run: an agent or a stage of the night."""
        with _running(self._journal, self.experiment, f"{self.key}/{name}", name, self.key, tags) as run:
            yield run

    def _check(self, names: set[str]) -> None:
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


@contextmanager
def night_run(
    night: str, taskset: str, *, params: Mapping[str, object] | None = None, tags: Mapping[str, object] | None = None
) -> Iterator[Run]:
    """The run of a night in the experiment of its taskset. An exception ends it as FAILED (KILLED for an interrupt) and goes on."""
    journal = Journal()
    try:
        with _running(journal, taskset, night, night, None, {"ratchet.kind": "night", **(tags or {})}) as run:
            if params:
                run.params(params)
            yield run
    finally:
        journal.close()


@contextmanager
def _running(
    journal: Journal, experiment: str, key: str, name: str, parent: str | None, tags: Mapping[str, object] | None
) -> Iterator[Run]:
    run = Run(journal, experiment, key, name)
    texts = {tag: str(value)[:_TAG_LENGTH] for tag, value in (tags or {}).items()}
    run.run_id = journal.write(Start(experiment, key, name, parent, texts, _now()))
    status = "FAILED"
    try:
        yield run
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        journal.write(End(experiment, key, status, _now()))


def _now() -> int:
    return time.time_ns() // 1_000_000
