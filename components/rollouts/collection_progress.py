"""Progress of a collection (counts, rate, failures by cause), also as read by another process, and its final report."""

import time
from pathlib import Path

import msgspec

from ratchet.components.core import DataError
from ratchet.components.trajectories.trajectory import Trajectory


class CollectionProgress(msgspec.Struct):
    """Counts of a collection, including episodes of earlier runs.

    `failures`: unsuccessful episodes by cause, of which infrastructure ended `lost`. `retried`: repeated attempts by
    the cause that ended the previous one. `played` (episodes), `rate` (episodes per second) and `eta` (seconds, None if
    unknown) refer to this run. `waiting_for`: cause of the current outage, if any. `begun`: `time.monotonic` at the
    start. `cut_replies`: those of all `replies` that ended at the limit of their tokens.
    """

    total: int
    done: int = 0
    successes: int = 0
    failures: dict[str, int] = {}
    lost: int = 0
    retried: dict[str, int] = {}
    played: int = 0
    rate: float = 0.0
    eta: float | None = None
    waiting_for: str | None = None
    begun: float = msgspec.field(default_factory=time.monotonic)
    replies: int = 0
    cut_replies: int = 0

    def add(self, trajectory: Trajectory, *, saved: bool = False) -> None:
        """Count one episode; an unsuccessful one under its outcome's reason or its failure's type. `saved`: it was
        played by an earlier run, so it does not count for `rate`.
        """
        self.done += 1
        self.replies += len(trajectory.turns)
        self.cut_replies += sum(turn.stop_reason == "length" for turn in trajectory.turns)
        failure = trajectory.failure
        if failure is None and trajectory.outcome.success:
            self.successes += 1
        else:
            cause = f"{failure.kind}: {failure.type}" if failure else trajectory.outcome.reason or "unknown"
            self.failures[cause] = self.failures.get(cause, 0) + 1
            self.lost += trajectory.has_infrastructure_failure
        if not saved:
            self.played += 1

    def measure(self) -> None:
        """Update `rate` and `eta` from the time since `begun`."""
        seconds = time.monotonic() - self.begun
        self.rate = self.played / seconds if seconds > 0 else 0.0
        self.eta = (self.total - self.done) / self.rate if self.rate else None

    def remark(self) -> str:
        """Return the current outage, the success rate and the two most frequent causes of failure, in one line."""
        parts = [f"waiting: {self.waiting_for}"] if self.waiting_for else []
        if self.done:
            parts.append(f"{100 * self.successes / self.done:.0f} % succeed")
        if self.failures:
            most_frequent = sorted(self.failures.items(), key=lambda item: -item[1])[:2]
            parts.append(", ".join(f"{cause} {count}" for cause, count in most_frequent))
        return " · ".join(parts)


def read_progress(path: Path) -> CollectionProgress | None:
    """Return the progress that a collection in another process wrote to a file; None before its first report.

    Raises DataError for a file that holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=CollectionProgress)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: {error}") from error


class CollectReport(msgspec.Struct, frozen=True):
    """Final report of a collection.

    `infrastructure_failures`: episodes that infrastructure ended; `failures`: all unsuccessful ones by cause.
    `seconds`, `replayed` (episodes played now) and `retried` (repeated attempts by cause) refer to this run only.
    """

    episodes: int
    successes: int
    infrastructure_failures: int
    failures: dict[str, int]
    policy_version: str
    taskset_hash: str
    seconds: float
    replayed: int
    retried: dict[str, int]
