"""Conversion of logs of any format to one file, of trajectories or of another format, which is written whole or not at all.

`LogStream` yields the trajectories of a path: of a log of any format, a folder of sealed shards, or a folder of logs.
"""

import base64
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from ratchet.components.core import ConfigurationError, DataError, list_domains
from ratchet.components.core.errors import suggest_name
from ratchet.components.core.files import open_atomically
from ratchet.components.interop.log_source import LogSource, UnreadablePart
from ratchet.components.interop.reader_registry import detect_format, get_reader, list_formats, read_records
from ratchet.components.interop.trajectory_writers import RATCHET_FORMAT, get_writer, line_encoder
from ratchet.components.trajectories.blobs import BlobFolder, blobs_folder, copy_referenced_blobs, is_blob_name
from ratchet.components.trajectories.trajectory import Trajectory, digest, episode_id, group_id, with_content_hash

Reject = Callable[[Path, UnreadablePart], None]
_JOURNAL = re.compile(r"journal-\d+\.jsonl")


class LogStream:
    """The trajectories of a log or a folder of logs, to be iterated once; the attributes then describe what was read.

    - `files`: files to read, in order. Of a folder that is no log itself: all files below it except hidden ones, blobs
      and `leave_out`.
    - `files_begun`: number of files of which the reading has begun; `formats`: number of trajectories per format.
    - `strangers`: files of a folder whose format is unknown, each with the reason; `empty`: logs without a trajectory.
    - `blobs`: folder to which images in logs are extracted and the blobs of Ratchet's own records are copied;
      `blobs_absent`: names of the blobs that such records name and that are missing.
    - `reject`: called with the file and each unreadable part; without it the first unreadable part raises DataError.
    """

    def __init__(
        self,
        path: Path,
        format: str = "auto",
        *,
        reject: Reject | None = None,
        blobs: BlobFolder | None = None,
        leave_out: Collection[Path] = (),
    ) -> None:
        self.path = path
        self.format = format
        self.formats: Counter[str] = Counter()
        self.strangers: list[tuple[Path, str]] = []
        self.empty: list[Path] = []
        self.files_begun = 0
        self.blobs_absent: set[str] = set()
        self._reject = reject
        self._blobs = blobs
        self._excluded = [excluded.resolve() for excluded in leave_out]
        self._seen: set[Path] = set()
        # Listed before anything is written, since the output may be in the same folder.
        self.files = list(self._find_files(path))
        self._is_single_file = self.files == [path]

    def __iter__(self) -> Iterator[Trajectory]:
        """Yield every trajectory. Raises DataError, and ConfigurationError for an unknown format."""
        if not self.files:
            raise DataError(f"{self.path} holds no file; give a log, or a folder of logs")
        for file in self.files:
            self.files_begun += 1
            yield from self._read_guarded(file)

    def _find_files(self, path: Path) -> Iterator[Path]:
        """Yield the files to read: files of a folder before its subfolders, each once, even through links."""
        resolved = path.resolve()
        if resolved in self._seen or any(resolved.is_relative_to(other) for other in self._excluded):
            return
        self._seen.add(resolved)
        if not path.is_dir() or self._is_log_folder(path):
            yield path
            return
        try:
            entries = sorted(path.iterdir(), key=lambda entry: (entry.is_dir(), entry.name))
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
        for entry in entries:
            if not entry.name.startswith(".") and not is_blob_name(entry.name) and (entry.is_file() or entry.is_dir()):
                yield from self._find_files(entry)

    def _is_log_folder(self, folder: Path) -> bool:
        """Return whether a folder is one log, such as sealed shards with their manifest."""
        source = LogSource(folder)
        names = list_formats() if self.format == "auto" else [self.format]
        return any(get_reader(name).detects(source) for name in names)

    def _read_guarded(self, file: Path) -> Iterator[Trajectory]:
        try:
            yield from self._read_file(file)
        except DataError as error:
            # A single log of which nothing was read is an error of the command, also with --skip-bad.
            if self._reject is None or (self._is_single_file and not self.formats):
                raise
            self._reject(file, LogSource(file).as_unreadable(error))

    def _read_file(self, file: Path) -> Iterator[Trajectory]:
        on_bad = None if self._reject is None else partial(self._reject, file)
        source = LogSource(file, on_bad=on_bad, blobs=self._blobs)
        name = self._detect_format(source)
        if name is None:
            return
        source.drop_sample()  # it would stay in memory while the log is read
        before = self.formats.total()
        for trajectory in read_records(name, source):
            self.formats[name] += 1
            if name == RATCHET_FORMAT and self._blobs is not None and self._blobs.folder is not None:
                self.blobs_absent |= copy_referenced_blobs(trajectory, file, self._blobs)
            yield trajectory
        if self.formats.total() == before:
            self.empty.append(file)
            if self._is_single_file and on_bad is None:
                raise DataError(f"{file} holds no trajectory; is it the right file?")

    def _detect_format(self, source: LogSource) -> str | None:
        """Return the format of a file; None for an unrecognised file of a folder."""
        if self.format != "auto":
            return self.format
        try:
            return detect_format(source)
        except DataError as error:
            if _JOURNAL.fullmatch(source.path.name):
                journal = f"{source.path} belongs to an interrupted collection; the same command continues it"
                raise DataError(journal) from error
            if self._is_single_file:
                raise
            if not source.path.is_dir() and not source.path.stat().st_size:
                self.empty.append(source.path)
                return None
            if source.is_damaged:
                raise DataError(
                    f"{error}; mend or remove it, or read on with `ratchet trajectories convert --skip-bad`"
                    if self._reject is None
                    else str(error)
                ) from error
            self.strangers.append((source.path, str(error)))
            return None


class ConversionReport(msgspec.Struct):
    """Counts of a conversion, printed as JSON by `--json`.

    - `repeated`: number of further occurrences of an episode with equal content; each episode is written once.
    - `rejected`: number of unreadable parts; `rejects`: the file that they were written to.
    - `strangers`: files of a folder whose format is unknown; `empty`: logs without a trajectory.
    - `blobs_absent`: number of blobs that Ratchet's own records name and that are missing.
    - `lost`: what the output format cannot represent, in one sentence.
    """

    to: str
    files: int = 0
    trajectories: int = 0
    turns: int = 0
    steps: int = 0
    succeeded: int = 0
    not_succeeded: int = 0
    success_unknown: int = 0
    repeated: int = 0
    rejected: int = 0
    rejects: str | None = None
    blobs: str | None = None
    blobs_absent: int = 0
    lost: str | None = None
    formats: dict[str, int] = {}
    strangers: list[str] = []
    empty: list[str] = []


ConversionProgress = Callable[[ConversionReport], None]


class EpisodeNames(msgspec.Struct, frozen=True):
    """Names that replace those of a log; None keeps the log's name.

    With `task_id`, all episodes are attempts at that task, counted from 0 in the order of the log.
    """

    policy: str | None = None
    policy_version: str | None = None
    task_id: str | None = None
    taskset: str | None = None
    domain: str | None = None

    def __post_init__(self) -> None:
        if self.domain is not None and self.domain not in (domains := list_domains()):
            raise ConfigurationError(f"unknown domain '{self.domain}'; {suggest_name(self.domain, domains)}")


KEEP_NAMES = EpisodeNames()


class _EpisodeRenamer:
    """Applies EpisodeNames to records one by one; references to parent episodes follow their new ids."""

    def __init__(self, naming: EpisodeNames) -> None:
        self.naming = naming
        self._ids: dict[str, str] = {}
        self._attempts: dict[str, int] = {}

    def apply(self, trajectory: Trajectory) -> Trajectory:
        names, task, agent = self.naming, trajectory.task, trajectory.agent
        task_id = names.task_id or task.task_id
        task = msgspec.structs.replace(
            task,
            task_id=task_id,
            taskset=names.taskset or task.taskset,
            family=task_id if task.family == task.task_id else task.family,
            domain=names.domain or task.domain,
        )
        version = names.policy_version or agent.policy_version
        agent = msgspec.structs.replace(agent, policy=names.policy or agent.policy, policy_version=version)
        parent = trajectory.parent
        if parent is not None and parent.episode_id in self._ids:
            parent = msgspec.structs.replace(parent, episode_id=self._ids[parent.episode_id])
        attempt = trajectory.attempt
        if names.task_id is not None:  # an episode that occurs twice in the log is one attempt
            attempt = self._attempts.setdefault(trajectory.episode_id, len(self._attempts))
        if (task, agent, parent, attempt) == (trajectory.task, trajectory.agent, trajectory.parent, trajectory.attempt):
            return trajectory
        if trajectory.provenance.source == RATCHET_FORMAT:
            renamed = episode_id(task_id, task.task_hash, version, attempt, trajectory.seed)
        else:
            renamed = f"ep-{digest(trajectory.episode_id, task_id, version)}"
        self._ids[trajectory.episode_id] = renamed
        return with_content_hash(
            msgspec.structs.replace(
                trajectory,
                episode_id=renamed,
                group_id=group_id(task_id, task.task_hash, version),
                attempt=attempt,
                task=task,
                agent=agent,
                parent=parent,
            )
        )


def convert_logs(
    path: Path,
    out: Path | BinaryIO,
    *,
    format: str = "auto",
    to: str = RATCHET_FORMAT,
    skip_bad: bool = False,
    blobs: Path | None = None,
    naming: EpisodeNames = KEEP_NAMES,
    progress: ConversionProgress = lambda report: None,
) -> ConversionReport:
    """Read a log, or a folder of logs, and write all trajectories to one file.

    - `out`: a file, which is replaced whole or not at all, or a binary stream.
    - `format`, `to`: input format (see `list_formats`) and output format (`ratchet`, or see `list_written_formats`).
    - `skip_bad`: write unreadable parts to `OUT.rejected.jsonl`, with location, reason and bytes; otherwise the first
      one raises DataError.
    - `blobs`: folder for images and other bytes. Default: beside `out`, or none if `out` is a stream. Blobs that
      Ratchet's own records name are copied there from beside their file.
    - `naming`: names that replace those of the log.
    - `progress`: called with the counts after every trajectory.

    Raises ConfigurationError (unknown format, unsuitable output), DataError (nothing to read, damaged).
    """
    report = ConversionReport(to, lost=None if to == RATCHET_FORMAT else get_writer(to).loses)
    folder = blobs
    with ExitStack() as stack:
        if isinstance(out, Path):
            rejects, folder = sibling_file(out, "rejected.jsonl"), blobs or blobs_folder(out)
            # By inode, not by name: a link to the log would be replaced by its own conversion.
            if out.exists() and path.exists() and out.samefile(path):
                raise ConfigurationError(f"{out} is the log itself, which stays as it is; give another -o")
            reject = stack.enter_context(_open_rejects(rejects, report)) if skip_bad else None
            logs = LogStream(path, format, reject=reject, blobs=BlobFolder(folder), leave_out=(out, rejects, folder))
            file = stack.enter_context(open_atomically(out))
        elif skip_bad:
            raise ConfigurationError("what is skipped is kept beside the output: give a file with -o")
        else:
            file = out
            logs = LogStream(path, format, blobs=BlobFolder(folder))
        _write_records(logs, file, to, report, _EpisodeRenamer(naming), progress)
        report.blobs_absent = len(logs.blobs_absent)
        if not report.trajectories:
            raise DataError(_describe_empty(path, report))
    if folder is not None and folder.is_dir():
        report.blobs = str(folder)
    return report


def sibling_file(out: Path, name: str) -> Path:
    """Return the path beside `out` of a file that belongs to it.

    For `runs.jsonl` and the name `rejected.jsonl` this is `runs.rejected.jsonl`.
    """
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.{name}")


def _write_records(
    logs: LogStream,
    file: BinaryIO,
    to: str,
    report: ConversionReport,
    renaming: _EpisodeRenamer,
    progress: ConversionProgress,
) -> None:
    encode = line_encoder(to)
    hashes: dict[str, str] = {}
    for original in logs:
        trajectory = renaming.apply(original)
        if hashes.get(trajectory.episode_id) == trajectory.content_hash:
            report.repeated += 1
        else:
            hashes[trajectory.episode_id] = trajectory.content_hash
            file.write(encode(trajectory))
            _count(report, trajectory)
        report.files, report.formats = logs.files_begun - len(logs.strangers), dict(logs.formats)
        progress(report)
    report.files = logs.files_begun - len(logs.strangers)
    report.strangers = [str(path) for path, _ in logs.strangers]
    report.empty = [str(path) for path in logs.empty]


def _count(report: ConversionReport, trajectory: Trajectory) -> None:
    success = trajectory.outcome.success
    report.trajectories += 1
    report.turns += len(trajectory.turns)
    report.steps += sum(len(turn.calls) for turn in trajectory.turns)
    report.succeeded += success is True
    report.not_succeeded += success is False
    report.success_unknown += success is None


@contextmanager
def _open_rejects(path: Path, report: ConversionReport) -> Iterator[Reject]:
    """Yield the function that writes unreadable parts to `path`, which is created with the first of them.

    Without any, a file of an earlier run is removed. A line has `file`, `where`, `why` and `raw` (the bytes as text); also
    `raw_base64` where they are not UTF-8, and `truncated` where they are only the first bytes of the part.
    """
    with ExitStack() as stack:
        files: list[BinaryIO] = []

        def reject(file: Path, bad: UnreadablePart) -> None:
            if not files:
                files.append(stack.enter_context(open_atomically(path)))
                report.rejects = str(path)
            report.rejected += 1
            raw = bad.raw.decode("utf-8", "replace")
            line: dict[str, str | bool] = {"file": str(file), "where": bad.where, "why": bad.why, "raw": raw}
            if bad.truncated:
                line["truncated"] = True
            if "\ufffd" in raw:
                line["raw_base64"] = base64.b64encode(bad.raw).decode()
            files[0].write(msgspec.json.encode(line) + b"\n")

        yield reject
    if not files:
        path.unlink(missing_ok=True)


def _describe_empty(path: Path, report: ConversionReport) -> str:
    if report.rejected:
        return f"{path}: nothing could be read; {report.rejected} parts were refused: see them without --skip-bad"
    if report.strangers:
        return f"{path} holds no log of a known format; name the format with --format"
    return f"{path} holds no trajectory; is it the right file?"
