"""Ingest of live logs into a store: each call continues where it left a log, across restarts and log rotation.

A log of independent lines is read in parts, each committed together with its cursor. Any other log is read again as a whole
when it changes, and its cursor is committed after its records: a kill in between only repeats the reading, which adds nothing.
Records that extend stored ones replace them (see `store.record_admission`), also where an episode's id is a hash of its content.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ratchet.components.core import DataError
from ratchet.components.core.files import file_sha256
from ratchet.components.interop.log_source import LogSource, UnreadablePart
from ratchet.components.interop.reader_registry import detect_format, read_records
from ratchet.components.interop.trajectory_writers import RATCHET_FORMAT
from ratchet.components.trajectories.blobs import copy_referenced_blobs
from ratchet.components.trajectories.store.record_admission import PutCounts, SetAsideEntry, continues, unreadable_entry
from ratchet.components.trajectories.store.store_writer import StoreWriter
from ratchet.components.trajectories.trajectory import Trajectory, digest

from .log_files import (
    LogCursor,
    LogFile,
    LogState,
    LogWindow,
    count_lines,
    file_key,
    find_file_by_key,
    find_logs,
    last_line_end,
    log_state,
    part_end,
    prefix_fingerprint,
)
from .log_values import words


class LogReport(msgspec.Struct):
    """Result of reading one log once.

    - `state`: a LogState, or `stranger` (unknown format), `empty`, `absent`.
    - `tally`: number of episodes added, replaced and so on; `attached`: number of episodes that got a score or rank
      from `path`, if it is a Parquet table.
    - `rejected`: number of unreadable parts that were set aside now; `waiting`: bytes of an incomplete last line.
    - `blobs_absent`: number of blobs that records name and that are missing, damaged or contain a secret.
    - `note`: a remark that is no error; `error`: why the log could not be read (it is tried again when it changes).
    """

    path: str
    state: str
    format: str = ""
    tally: PutCounts = msgspec.field(default_factory=PutCounts)
    rejected: int = 0
    blobs_absent: int = 0
    waiting: int = 0
    attached: int = 0
    note: str = ""
    error: str = ""

    @property
    def is_news(self) -> bool:
        """Whether the reading changed the store or has a note or an error; `watch` yields only such reports."""
        return self.tally.has_changes or bool(
            self.rejected or self.blobs_absent or self.attached or self.note or self.error
        )


class IngestTotals(msgspec.Struct):
    """Totals over the LogReports of one ingest.

    - `strangers`: number of files of an unknown format; `logs`: number of all other files.
    - `read`: logs that were parsed, as opposed to unchanged, empty and absent ones.
    - `waiting`: logs that end in an incomplete line; `empty`: files of no bytes; `errors`: logs that could not be read.
      The other fields are sums over the fields of the same name.
    """

    logs: int = 0
    read: int = 0
    strangers: int = 0
    tally: PutCounts = msgspec.field(default_factory=PutCounts)
    rejected: int = 0
    blobs_absent: int = 0
    waiting: int = 0
    empty: int = 0
    attached: int = 0
    errors: int = 0

    def include(self, report: LogReport) -> None:
        """Add a report."""
        self.logs += report.state != "stranger"
        self.strangers += report.state == "stranger"
        self.read += report.state not in ("stranger", "unchanged", "empty", "absent") and not report.error
        self.tally.include(report.tally)
        self.rejected += report.rejected
        self.blobs_absent += report.blobs_absent
        self.waiting += report.waiting > 0
        self.empty += report.state == "empty"
        self.attached += report.attached
        self.errors += bool(report.error)


LINE_BY_LINE_FORMATS = frozenset({"ratchet", "openhands", "sharegpt", "mlflow"})
"""Formats in which each record is one line, independent of the others."""
# A line that is a record has one of these fields; a line that is an event has none.
_RECORD = frozenset(words("episode_id task instance_id history trajectory conversations info trace spans"))
MAX_TRACKED_EPISODES = 100
"""Maximum number of episodes of a log for which continued episodes are recognised by content."""


class LogMoved(Exception):
    """The file was renamed or truncated while it was read. What was read since the last commit is discarded."""


class LogStillEmpty(DataError):
    """A log of a known format that holds no episode yet."""


class LogReading:
    """One reading of one log into the store.

    - `log`: the file to read; `key`: its identity (see `file_key`); `format`: `auto` or a format id.
    - `report`: receives the counts; `on_commit`: called with `key` and the cursor after every commit.
    """

    def __init__(
        self,
        writer: StoreWriter,
        log: LogFile,
        key: str,
        format: str,
        report: LogReport,
        on_commit: Callable[[str, LogCursor], None],
    ) -> None:
        self.writer = writer
        self.log = log
        self.path = log.path
        self.key = key
        self.format = format
        self.report = report
        self.status = log.path.stat()  # once: everything below refers to the file as it was at this size and time
        self._on_commit = on_commit
        self._started = time.time_ns()
        self._unreadable: list[UnreadablePart] = []
        self._has_rejected = False
        self._missing_blobs: set[str] = set()

    def run(self, cursor: LogCursor | None) -> None:
        """Read what was added since `cursor` (None: everything) and commit it. Raises DataError, OSError, LogMoved."""
        state = log_state(cursor, self.path, self.status)
        self.report.state = state
        if cursor is not None and state is LogState.UNCHANGED:
            self.report.format = cursor.format
            self.report.waiting = 0 if cursor.whole else self.status.st_size - cursor.offset
            again = msgspec.structs.replace(cursor, path=str(self.path), read_ns=self._started)
            if cursor.path != again.path:
                self._commit((), again)
            self._on_commit(self.key, again)
            return
        self._verify_hash()
        if cursor is not None and state is LogState.GROWN and not cursor.whole:
            self.report.format = cursor.format
            self._read_parts(cursor.format, cursor.offset, cursor.lines)
        else:
            self._from_start(() if cursor is None else cursor.ids)

    def _from_start(self, previous_ids: tuple[str, ...]) -> None:
        end = last_line_end(self.path, 0, self.status.st_size)
        if not end and self._begins_like_json():
            self.report.waiting = self.status.st_size
            return
        source = (
            self._open_window(0, end, 0)
            if end
            else LogSource(self.path, on_bad=self._unreadable.append, blobs=self.writer.blobs)
        )
        format = detect_format(source) if self.format == "auto" else self.format
        self.report.format = format
        lines = end > 0 and source.is_lines
        by_line = lines and format in LINE_BY_LINE_FORMATS and _begins_with_record(source)
        source.drop_sample()
        if by_line and self.log.tokens is None:
            self._read_parts(format, 0, 0)
        else:
            self._read_whole(format, source, end if lines else self.status.st_size, previous_ids)

    def _begins_like_json(self) -> bool:
        """Return whether the file begins with a JSON object or array, after white space."""
        with self.path.open("rb") as file:
            return file.read(64).lstrip()[:1] in (b"{", b"[")

    def _read_parts(self, format: str, start: int, lines: int) -> None:
        end = last_line_end(self.path, start, self.status.st_size)
        self.report.waiting = self.status.st_size - end
        while start < end:
            stop = part_end(self.path, start, end)
            source = self._open_window(start, stop, lines).as_lines()
            lines += count_lines(self.path, start, stop)
            cursor = self._cursor(format, stop, lines, size=self.status.st_size if stop == end else stop)
            self._commit(self._records(format, source, stop), cursor)
            start = stop

    def _read_whole(self, format: str, source: LogSource, end: int, previous_ids: tuple[str, ...]) -> None:
        self.report.waiting = self.status.st_size - end
        ids: dict[str, None] = {}
        records = _collect_ids(self._records(format, source, end), ids)
        tokens = None if self.log.tokens is None else self.log.tokens.read_bytes()
        self._put(records, growing=True, tokens=tokens)
        if not ids and not self._has_rejected:
            raise LogStillEmpty(f"{self.path} holds no trajectory (yet); is it the right file?")
        self._remove_superseded(previous_ids, list(ids))
        # After the records: a kill before this line repeats the reading, which adds nothing.
        cursor = self._cursor(format, end, 0, whole=True)
        self._commit((), msgspec.structs.replace(cursor, ids=tuple(ids) if len(ids) <= MAX_TRACKED_EPISODES else ()))

    def _records(self, format: str, source: LogSource, end: int) -> Iterator[Trajectory]:
        """Yield the records of a log, then set aside its unreadable parts. Raises LogMoved, after the last record."""
        for trajectory in read_records(format, source):
            if format == RATCHET_FORMAT:
                self._missing_blobs |= copy_referenced_blobs(trajectory, self.path, self.writer.blobs)
                self.report.blobs_absent = len(self._missing_blobs)
            yield trajectory
        # After the last record: a log that was truncated or rotated meanwhile may have yielded halves of two files.
        self._check_unmoved(end)
        self._has_rejected = self._has_rejected or bool(self._unreadable)
        self.report.rejected += set_aside_unreadable(self.writer, self.path, self._unreadable)
        self._unreadable.clear()

    def _remove_superseded(self, previous_ids: tuple[str, ...], ids: list[str]) -> None:
        """Remove episodes of the log's last reading that it now holds in an extended form under another id.

        So is one without any turn: it was the prompt of an episode that has begun since.
        """
        missing_ids = [identity for identity in previous_ids if identity not in ids]
        if not missing_ids or len(ids) > MAX_TRACKED_EPISODES:
            return
        now = self._load_stored(ids)
        ended = [
            old.episode_id
            for old in self._load_stored(missing_ids)
            if any(continues(new, old) for new in now) or (now and not old.turns and old.failure is None)
        ]
        if ended:
            self.report.tally.superseded += self.writer.remove(ended)

    def _load_stored(self, ids: Iterable[str]) -> list[Trajectory]:
        stored = []
        for identity in ids:
            try:
                stored.append(self.writer.get(identity))
            except DataError:  # dropped by the redaction policy, or removed by the user
                continue
        return stored

    def _commit(self, records: Iterable[Trajectory], cursor: LogCursor) -> None:
        self._put(records, growing=cursor.whole, cursor=cursor)
        self._on_commit(self.key, cursor)

    def _put(
        self,
        records: Iterable[Trajectory],
        *,
        growing: bool,
        cursor: LogCursor | None = None,
        tokens: bytes | None = None,
    ) -> None:
        cursors = [] if cursor is None else [(self.key, msgspec.json.encode(cursor))]
        tally = self.writer.put(records, growing=growing, tokens=tokens, cursors=cursors, log_name=str(self.path))
        self.report.tally.include(tally)

    def _open_window(self, start: int, end: int, lines: int) -> LogWindow:
        return LogWindow(self.path, start, end, lines, on_bad=self._unreadable.append, blobs=self.writer.blobs)

    def _cursor(
        self, format: str, offset: int, lines: int, *, size: int | None = None, whole: bool = False
    ) -> LogCursor:
        """Return the cursor at `offset`. A `size` smaller than the file's makes the next call read on after a kill."""
        return LogCursor(
            path=str(self.path),
            format=format,
            whole=whole,
            offset=offset,
            lines=lines,
            before=prefix_fingerprint(self.path, offset),
            size=self.status.st_size if size is None else size,
            mtime_ns=self.status.st_mtime_ns,
            read_ns=self._started,
        )

    def _check_unmoved(self, end: int) -> None:
        try:
            now = self.path.stat()
        except OSError as error:
            raise LogMoved from error
        if file_key(now) != self.key or now.st_size < end:
            raise LogMoved

    def _verify_hash(self) -> None:
        """Raise DataError if a sealed shard differs from the hash in its manifest."""
        if self.log.sha256 is not None and file_sha256(self.path) != self.log.sha256:
            raise DataError(f"{self.path} differs from the hash in its manifest; restore it from its night")


def set_aside_unreadable(writer: StoreWriter, path: Path, parts: Iterable[UnreadablePart]) -> int:
    """Store unreadable parts of a log, redacted, in the list of rejected parts; return the number of new ones.

    Raises InfrastructureError.
    """

    def to_entry(bad: UnreadablePart) -> SetAsideEntry:
        key = digest(bad.where, bad.why, hashlib.sha256(bad.raw).hexdigest())
        why, raw = writer.cleaner.text(bad.why), writer.cleaner.data(bad.raw)
        return unreadable_entry(key, f"{path}, {bad.where}", why, raw, bad.truncated)

    return writer.rejected.add(map(to_entry, parts))


def _begins_with_record(source: LogSource) -> bool:
    return all(isinstance(value, dict) and not _RECORD.isdisjoint(value) for value in source.sample[:1])


def _collect_ids(records: Iterator[Trajectory], ids: dict[str, None]) -> Iterator[Trajectory]:
    for trajectory in records:
        ids[trajectory.episode_id] = None
        yield trajectory


class LogIngest:
    """Ingest of logs into the store of `writer`. `format`: `auto`, or the id of the format of all logs."""

    def __init__(self, writer: StoreWriter, *, format: str = "auto") -> None:
        self.writer = writer
        self.format = format
        self._cursors = {key: msgspec.json.decode(body, type=LogCursor) for key, body in writer.cursors().items()}
        # (size, mtime) at which an error or a strange file was last reported: it is reported once until it changes.
        self._reported_versions: dict[str, tuple[int, int]] = {}
        self._is_watching = False

    def once(self, paths: Sequence[Path]) -> Iterator[LogReport]:
        """Read what was added to each log, in order, and yield a report for each. `paths`: logs and folders of logs.

        An error is reported once, until the log changes. The rest of a rotated file is read too, with its own report.

        Raises ConfigurationError (unknown format), InfrastructureError, DataError (damaged manifest).
        """
        names: dict[str, list[str]] = {}
        for key, cursor in self._cursors.items():
            names.setdefault(cursor.path, []).append(key)
        for log in find_logs(paths, self.writer.layout.root):
            yield from self._read_rotated(log.path, names.get(str(log.path), []))
            yield self.ingest_log(log)

    def watch(
        self, paths: Sequence[Path], *, interval: float = 1.0, pause: Callable[[float], None] = time.sleep
    ) -> Iterator[LogReport]:
        """Call `once` without end, with `interval` seconds between calls, and yield the reports with `is_news`.

        `pause`: waits between calls, instead of `time.sleep`.
        """
        self._is_watching = True
        while True:
            for report in self.once(paths):
                if report.is_news:
                    yield report
            pause(interval)

    def ingest_log(self, log: LogFile) -> LogReport:
        """Read what was added to one log. Errors of the log are returned in the report."""
        report = LogReport(str(log.path), LogState.NEW)
        try:
            status = log.path.stat()
        except OSError as error:
            report.state = "absent"
            self._report_error(report, str(log.path), (-1, -1), f"cannot be read: {error.strerror}; check the path")
            return report
        if not status.st_size:
            report.state = "empty"
            return report
        key = file_key(status)
        version = (status.st_size, status.st_mtime_ns)
        if self._reported_versions.get(key) == version:
            report.state = LogState.UNCHANGED
            return report
        try:
            self._read(log, key, report)
            if not log.named and not self._is_watching:
                _refuse_truncated_document(log, status.st_size, report)
        except LogMoved:
            report.note = "moved while it was read; the rest is read next time"
        except LogStillEmpty as nothing:
            report.note = str(nothing).removeprefix(f"{report.path} ")
            self._reported_versions[key] = version
        except DataError as error:
            source = LogSource(log.path)
            damaged = source.is_damaged
            if damaged and not log.named and not self._is_watching:  # a watched log may be half written
                report.rejected += set_aside_unreadable(self.writer, log.path, [source.as_unreadable(error)])
            if damaged or log.named or key in self._cursors:
                self._report_error(report, key, version, str(error))
            else:
                report.state = "stranger"
                self._reported_versions[key] = version
        except OSError as error:
            self._report_error(report, key, version, f"cannot be read: {error.strerror}; check the file")
        return report

    def _read(self, log: LogFile, key: str, report: LogReport) -> None:
        if log.named and log.path.suffix == ".parquet":
            report.format, report.attached = "parquet", self.writer.attach_table(log.path)
            return
        LogReading(self.writer, log, key, self.format, report, self._cursors.__setitem__).run(self._cursors.get(key))

    def _report_error(self, report: LogReport, key: str, version: tuple[int, int], why: str) -> None:
        if self._reported_versions.get(key) != version:
            report.error = why if report.path in why else f"{report.path} {why}"
            self._reported_versions[key] = version

    def _read_rotated(self, path: Path, older: Sequence[str]) -> Iterator[LogReport]:
        """Read the rest of files that had this name before and were rotated: renamed in the folder, or deleted.

        `older`: keys of the cursors with this path.
        """
        if not older:
            return
        try:
            present = file_key(path.stat())
        except OSError:
            present = ""
        for key in older:
            if key == present:
                continue
            renamed = find_file_by_key(path.parent, key)
            if renamed is not None:
                yield self.ingest_log(LogFile(renamed, True))
            elif present:
                cursor = self._cursors.pop(key)
                self.writer.put((), cursors=[(key, None)])
                if not cursor.whole:
                    remark = f"its older file is gone; what stood there behind byte {cursor.offset} was not read"
                    yield LogReport(str(path), LogState.REPLACED, cursor.format, note=remark)


def _refuse_truncated_document(log: LogFile, size: int, report: LogReport) -> None:
    """Raise DataError for a truncated JSON document on one line: unlike JSON lines, it will not grow."""
    if report.waiting == size and log.path.suffix in (".json", ".traj") and LogSource(log.path).is_damaged:
        report.waiting = 0
        raise DataError(f"{log.path} is a JSON document that is cut short")
