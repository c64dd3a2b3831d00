"""The index of the inspector: one SQLite file over shards, journals of running collections, and logs of other formats.

A file is indexed from the byte up to which it was indexed before. The position is committed with the rows that lie before
it, so that a kill at any write costs one batch at most. A file that shrank or was replaced is indexed anew; a damaged
index is removed and built again. Records are read by their offset; the index holds none, only a full-text index of
the first TEXT_INDEXED characters of each text.
"""

import hashlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.files import file_sha256, hold_lock, try_lock_file
from ratchet.components.datasets.export.row_filter import Kind
from ratchet.components.trajectories.record_decoding import read_line
from ratchet.components.trajectories.shards import LINE_LIMIT, ShardEntry, has_valid_hash, read_manifest
from ratchet.components.trajectories.store.episode_index import normalize_time
from ratchet.components.trajectories.trajectory import Trajectory
from ratchet.components.trajectories.trajectory_list import episode_cause

from .clean_texts import clean_text

SCHEMA_VERSION = 3
BATCH_BYTES = 4 << 20
"""Bytes of records in a transaction."""
TEXT_INDEXED = 4_096
"""Characters of one text in the full-text index."""
EPISODE_TEXT = 131_072
"""Characters of an episode in the full-text index."""
WASTED_KEYS = 10_000
"""Removed records whose words may stay in the full-text index, besides as many as there are records."""
PROGRESS_STEPS = 10_000
"""Instructions of SQLite's virtual machine after which a search asks whether it goes on: about a millisecond."""
RECORD_COLUMNS: dict[str, Kind] = {
    "episode_id": "text", "group_id": "text", "task_id": "text", "taskset": "text", "family": "text", "kind": "text",
    "role": "text", "domain": "text", "agent": "text", "policy_version": "text", "attempt": "number", "success": "truth",
    "score": "number", "failure": "text", "cause": "text", "turns": "number", "steps": "number", "tokens": "number",
    "seconds": "number", "collected_at": "text",
}  # fmt: skip
SCORE_COLUMNS: dict[str, Kind] = {
    "reward": "number", "process": "number", "efficiency": "number", "outcome": "number", "findings": "text",
}  # fmt: skip
# Rows of removed episodes stay in the contentless full-text tables; AUTOINCREMENT never gives their keys again. `words` has no
# positions, and the beginnings of words as words of their own: it answers in a fifth of the time, and refuses phrases.
_SCHEMA = f"""
CREATE TABLE files (file INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, source TEXT NOT NULL, stamp TEXT NOT NULL,
    size INTEGER NOT NULL, done INTEGER NOT NULL, lines INTEGER NOT NULL, complete INTEGER NOT NULL, tail TEXT, damage TEXT);
CREATE TABLE episodes (key INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, offset INTEGER, length INTEGER,
    {", ".join(RECORD_COLUMNS)}, damaged TEXT);
CREATE INDEX by_episode ON episodes (episode_id);
CREATE INDEX by_group ON episodes (group_id);
CREATE INDEX by_file ON episodes (file);
CREATE TABLE score_tables (path TEXT PRIMARY KEY, stamp TEXT NOT NULL);
CREATE TABLE scores (episode_id TEXT PRIMARY KEY, {", ".join(SCORE_COLUMNS)}, version TEXT, rows BLOB, path TEXT)
    WITHOUT ROWID;
CREATE TABLE revision (number INTEGER NOT NULL, cleared INTEGER NOT NULL);
INSERT INTO revision VALUES (0, 0);
CREATE VIRTUAL TABLE words USING fts5(text, content='', detail='none', prefix='1 2 3 4 5 6',
    tokenize="unicode61 tokenchars '_'");
CREATE VIRTUAL TABLE phrases USING fts5(text, content='', tokenize="unicode61 tokenchars '_'");
"""


class SourceFile(NamedTuple):
    """A file of records. `entry`: its line in a manifest; `is_journal`: of a running collection."""

    path: Path
    source: str
    entry: ShardEntry | None = None
    is_journal: bool = False


class RecordLocation(NamedTuple):
    """Where a record lies. `offset` is None for one that a manifest lists and its shard lacks."""

    key: int
    path: Path
    source: str
    offset: int | None
    length: int
    damaged: str | None


class JournalRecord(msgspec.Struct):
    """The fields of a journal's line that are read."""

    trajectory: msgspec.Raw
    branches: list[msgspec.Raw] = []


def file_stamp(path: Path) -> str:
    """Return a text that changes when a file is written."""
    status = path.stat()
    return f"{status.st_mtime_ns} {status.st_size}"


def _tail(path: Path, done: int) -> str:
    """Return the hash of the last bytes before the position up to which a file was read."""
    with path.open("rb") as file:
        file.seek(max(0, done - 256))
        return hashlib.sha256(file.read(min(256, done))).hexdigest()[:16]


def source_files(folder: Path, name: str) -> tuple[list[SourceFile], str | None]:
    """Return the shards and journals of a folder of episodes, and the damage of its manifest, None where it is whole."""
    damage = None
    try:
        entries = {entry.shard: entry for entry in read_manifest(folder)}
    except DataError as error:
        entries, damage = {}, str(error)
    # Where the manifest is unreadable its shards still are.
    shards = sorted({*entries, *(path.name for path in folder.glob("shard-*.jsonl"))} if damage else entries)
    files = [SourceFile(folder / shard, name, entries.get(shard)) for shard in shards]
    finished = {shard[-11:-6] for shard in shards}
    journals = [path for path in sorted(folder.glob("journal-*.jsonl")) if path.stem[-5:] not in finished]
    return files + [SourceFile(path, name, is_journal=True) for path in journals], damage


class InspectorIndex:
    """Reads and, in one thread, updates the index at `path`, which several servers may share. Raises InfrastructureError
    where it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock, self._read_lock = threading.Lock(), threading.Lock()
        try:
            # Two that start at once would remove the other's new file.
            with hold_lock(path.with_suffix(".open")):
                self._connection = self._open()
        except (OSError, sqlite3.Error) as error:
            raise InfrastructureError(
                f"the index {path} cannot be written: {error}; make room, or give its folder the right to write"
            ) from error
        # Readers have a second connection, so that they do not wait for a batch that is being written.
        self._reader = self._connect()

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == SCHEMA_VERSION and connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                return connection
        except sqlite3.DatabaseError:
            pass
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        connection = self._connect()
        connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=30, check_same_thread=False)
        with suppress(sqlite3.DatabaseError):  # a damaged file: the caller builds it again
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA cache_size = -8192")  # KiB when negative
        return connection

    def close(self) -> None:
        """Close the index."""
        with self._lock, self._read_lock:
            self._reader.close()
            self._connection.close()

    @contextmanager
    def _transaction(self, *, revises: bool = False) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                if revises:
                    self._connection.execute("UPDATE revision SET number = number + 1")
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it by itself on a full disk
                    self._connection.execute("ROLLBACK")
                raise

    def state(self) -> tuple[int, int]:
        """Return two numbers: one changes with every change of the index by any process, the other with those that are no
        new records.
        """
        ((change, revision),) = self.rows("SELECT data_version, number FROM pragma_data_version, revision")
        return change, revision

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one statement."""
        with self._read_lock:
            return self._reader.execute(sql, parameters).fetchall()

    def search(self, query: str, is_abandoned: Callable[[], bool] = lambda: False) -> NDArray[np.int64]:
        """Return the keys of episodes that contain all words of a query; a text in double quotes is a phrase, and the last
        word a beginning. A query without words finds all. Raises sqlite3.OperationalError soon after `is_abandoned()`.
        """
        words = _fts_query(query)
        if not words:
            return np.array(self.rows("SELECT key FROM episodes"), np.int64).ravel()
        # One text: Python objects of 100,000 rows take three times as long.
        select = "SELECT group_concat(rowid) FROM {0} WHERE {0} MATCH ?"
        with self._read_lock:
            self._reader.set_progress_handler(is_abandoned, PROGRESS_STEPS)
            try:
                try:
                    found = self._reader.execute(select.format("words"), (words,))
                except sqlite3.OperationalError:  # a phrase: two words in quotes, or `a.b`
                    if is_abandoned():
                        raise
                    found = self._reader.execute(select.format("phrases"), (words,))
                (keys,) = found.fetchone()
            finally:
                self._reader.set_progress_handler(None, 0)
        return np.fromstring(keys, np.int64, sep=",") if keys else np.empty(0, np.int64)

    def locate(self, episode_id: str) -> RecordLocation:
        """Return where the latest record of an episode lies. Raises KeyError for an unknown one."""
        found = self.rows(
            "SELECT e.key, path, source, offset, length, damaged FROM episodes e JOIN files f USING (file)"
            " WHERE episode_id = ? ORDER BY damaged IS NOT NULL, e.key DESC LIMIT 1",
            (episode_id,),
        )
        if not found:
            raise KeyError(episode_id)
        key, path, *place = found[0]
        return RecordLocation(key, Path(path), *place)

    def update(self, files: Sequence[SourceFile], on_batch: Any = lambda: None) -> bool:
        """Bring the index up to date with these files, in order; forget all others. `on_batch()` is called after each
        transaction, and may raise to stop. Return False where another process is at it, whose work is then used.
        """
        with self.path.with_suffix(".lock").open("a") as lock:
            if not try_lock_file(lock):
                return False
            self._update(files, on_batch)
            return True

    def _update(self, files: Sequence[SourceFile], on_batch: Any) -> None:
        rows = "(SELECT count(*) FROM episodes)"
        keys = "(SELECT coalesce(max(seq), 0) FROM sqlite_sequence)"
        if self.rows(f"SELECT 1 FROM revision WHERE {keys} - cleared > 2 * {rows} + {WASTED_KEYS}"):
            with self._transaction(revises=True) as connection:
                for table in ("episodes", "files"):
                    connection.execute(f"DELETE FROM {table}")
                for table in ("words", "phrases"):
                    connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
                connection.execute(f"UPDATE revision SET cleared = {keys}")
        found = self.rows("SELECT path, file, stamp, size, done, lines, complete, tail FROM files")
        known = {path: state for path, *state in found}
        if gone := [known[path][0] for path in known.keys() - {str(file.path) for file in files}]:
            self._forget(gone)
        for file in files:
            self._update_file(file, known.get(str(file.path)), on_batch)

    def _forget(self, numbers: Sequence[int]) -> None:
        with self._transaction(revises=True) as connection:
            for table in ("episodes", "files"):
                connection.executemany(f"DELETE FROM {table} WHERE file = ?", [(number,) for number in numbers])

    def _update_file(self, file: SourceFile, known: Sequence[Any] | None, on_batch: Any) -> None:
        stamp, size, missing, is_replaced = "", 0, None, False
        try:
            status = file.path.stat()
            with file.path.open("rb") as opened:
                beginning = opened.read(256).split(b"\n", 1)[0]
            # The inode, the beginning, and the end of what was read tell a file that grew from one that was replaced.
            is_replaced = known is not None and known[3] > 0 and known[6] != _tail(file.path, known[3])
            stamp, size = f"{status.st_ino} {hashlib.sha256(beginning).hexdigest()[:16]}", status.st_size
            if file.entry is not None:
                stamp += f" {file.entry.sha256[:16]} {status.st_mtime_ns}"
        except OSError as error:
            if file.entry is None:
                return
            reason = "absent" if isinstance(error, FileNotFoundError) else error.strerror
            missing = f"{file.path.name} is in the manifest and {reason}; restore it from its night"
        if known is not None and (known[1] != stamp or is_replaced or size < known[2]):
            self._forget([known[0]])
            known = None
        if known is None:
            with self._transaction() as connection:
                values = (str(file.path), file.source, stamp, size)
                sql = (
                    "INSERT INTO files (path, source, stamp, size, done, lines, complete) VALUES (?, ?, ?, ?, 0, 0, 0)"
                )
                known = [connection.execute(sql, values).lastrowid, stamp, size, 0, 0, False]
        elif known[5] and known[2] == size:
            return
        self._read_on(file, known, size, missing, on_batch)

    def _read_on(self, file: SourceFile, known: Sequence[Any], size: int, missing: str | None, on_batch: Any) -> None:
        number, _, _, done, lines, *_ = known
        listed = file.entry.episode_ids if file.entry else ()
        damage = missing
        if file.entry is not None and missing is None and file_sha256(file.path) != file.entry.sha256:
            damage = f"{file.path.name} differs from the hash in its manifest; restore it from its night"
        for batch, offset, line in () if missing else _batches(file, done, lines, damage is not None, listed):
            with self._transaction() as connection:
                for row, text in batch:
                    self._insert(number, row, text)
                sql = "UPDATE files SET done = ?, lines = ?, size = ?, tail = ? WHERE file = ?"
                connection.execute(sql, (offset, line, size, _tail(file.path, offset), number))
            on_batch()
        with self._transaction() as connection:
            present = {id for (id,) in connection.execute("SELECT episode_id FROM episodes WHERE file = ?", (number,))}
            for identity in listed:
                if identity not in present:
                    problem = missing or f"{file.path.name} lacks this record"
                    self._insert(number, _damaged_row(identity, None, 0, problem), "")
            sql = "UPDATE files SET complete = 1, size = ?, damage = ? WHERE file = ?"
            connection.execute(sql, (size, damage, number))

    def _insert(self, number: int, row: tuple[Any, ...], text: str) -> None:
        names = ("file", "offset", "length", *RECORD_COLUMNS, "damaged")
        key = self._connection.execute(
            f"INSERT INTO episodes ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", (number, *row)
        ).lastrowid
        for table in ("words", "phrases") if text else ():
            self._connection.execute(f"INSERT INTO {table} (rowid, text) VALUES (?, ?)", (key, text))

    def write_scores(self, tables: Sequence[Path], read: Callable[[Path], Iterable[Sequence[tuple[Any, ...]]]]) -> None:
        """Bring the scores up to date with these tables; forget those of all others. `read` yields batches of (episode_id,
        *SCORE_COLUMNS, version, rows). A table counts as indexed when its last batch is.
        """
        known = dict(self.rows("SELECT path, stamp FROM score_tables"))
        for path in sorted(known.keys() - set(map(str, tables))):
            self._replace_scores(path, None, ())
        for table in tables:
            if known.get(str(table)) != (stamp := file_stamp(table)):
                self._replace_scores(str(table), stamp, read(table))

    def _replace_scores(self, path: str, stamp: str | None, rows: Iterable[Sequence[tuple[Any, ...]]]) -> None:
        stale = {id for (id,) in self.rows("SELECT episode_id FROM scores WHERE path = ?", (path,))}
        for batch in rows:
            with self._transaction(revises=True) as connection:
                values = [(*row, path) for row in batch]
                connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            stale.difference_update(row[0] for row in batch)
        with self._transaction(revises=True) as connection:
            sql = "DELETE FROM scores WHERE episode_id = ? AND path = ?"
            connection.executemany(sql, [(id, path) for id in stale])
            connection.execute("DELETE FROM score_tables WHERE path = ?", (path,))
            if stamp is not None:
                connection.execute("INSERT INTO score_tables VALUES (?, ?)", (path, stamp))


def read_record(location: RecordLocation, episode_id: str) -> Trajectory:
    """Read a record at its offset. Raises DataError where it is damaged or no longer there."""
    if location.offset is None:
        raise DataError(location.damaged or "the record is missing")
    try:
        with location.path.open("rb") as file:
            file.seek(location.offset)
            line = file.read(location.length)
    except OSError as error:
        raise DataError(f"{location.path.name} cannot be read: {error.strerror}; reload in a moment") from error
    for record, problem in decode_records(line, location.path.name.startswith("journal-")):
        if record is not None and record.episode_id == episode_id:
            return record
        if problem:
            raise DataError(f"{location.path.name}, byte {location.offset}: {problem}")
    raise DataError(f"{location.path.name}, byte {location.offset} holds another record now; reload in a moment")


def decode_records(line: bytes, is_journal: bool) -> Iterator[tuple[Trajectory | None, str]]:
    """Yield the records of a line, a journal's with its branches; (None, problem) for one that cannot be read."""
    lines = [line]
    if is_journal:
        try:
            entry = msgspec.json.decode(line, type=JournalRecord)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield None, str(error)
            return
        lines = [bytes(entry.trajectory), *map(bytes, entry.branches)]
    for each in lines:
        record, problems = read_line(each)
        yield record, "" if record else str(problems[0])


def _batches(
    file: SourceFile, done: int, lines: int, check_hashes: bool, listed: Sequence[str]
) -> Iterator[tuple[list[tuple[tuple[Any, ...], str]], int, int]]:
    """Yield (rows with their texts, bytes read so far, lines read so far). A last line without its newline is read when
    it is complete, except in a sealed shard.
    """
    batch: list[tuple[tuple[Any, ...], str]] = []
    size = 0
    with file.path.open("rb") as opened:
        opened.seek(done)
        while line := opened.readline(LINE_LIMIT + 1):
            if len(line) > LINE_LIMIT:
                problem, length = f"longer than {LINE_LIMIT >> 20} MiB", len(line)
                while not line.endswith(b"\n") and (line := opened.readline(LINE_LIMIT)):
                    length += len(line)
                batch.append((_damaged_row(_listed_id(file, listed, lines), done, 0, problem), ""))
            elif not line.endswith(b"\n") and (file.is_journal or file.entry is None) and not _is_whole(line):
                break
            else:
                length = len(line)
                if line.strip():
                    batch.extend(_line_rows(file, line, done, check_hashes, _listed_id(file, listed, lines)))
            done, lines, size = done + length, lines + 1, size + length
            if size >= BATCH_BYTES:
                yield batch, done, lines
                batch, size = [], 0
    if size:
        yield batch, done, lines


def _is_whole(line: bytes) -> bool:
    with suppress(msgspec.DecodeError):
        msgspec.json.decode(line, type=msgspec.Raw)
        return True
    return False


def _listed_id(file: SourceFile, listed: Sequence[str], line: int) -> str:
    return listed[line] if line < len(listed) else f"unreadable-{file.source}-{file.path.stem}-{line + 1}"


def _line_rows(
    file: SourceFile, line: bytes, offset: int, check_hashes: bool, listed_id: str
) -> Iterator[tuple[tuple[Any, ...], str]]:
    for record, problem in decode_records(line, file.is_journal):
        if record is None:
            yield _damaged_row(listed_id, offset, len(line), problem), ""
        else:
            damaged = (
                "the record is not what its content_hash says" if check_hashes and not has_valid_hash(record) else None
            )
            yield (offset, len(line), *_columns(record), damaged), _text(record)


def _damaged_row(identity: str, offset: int | None, length: int, problem: str) -> tuple[Any, ...]:
    return (offset, length, identity, *([None] * (len(RECORD_COLUMNS) - 1)), problem)


def _columns(record: Trajectory) -> tuple[Any, ...]:
    task, agent, outcome = record.task, record.agent, record.outcome
    tokens = [
        turn.usage.completion_tokens for turn in record.turns if turn.usage and turn.usage.completion_tokens is not None
    ]
    seconds = [turn.seconds for turn in record.turns if turn.seconds is not None]
    values = (
        record.episode_id, record.group_id, task.task_id, task.taskset, task.family, task.kind, task.role, task.domain,
        agent.name, agent.policy_version, record.attempt, outcome.success, outcome.score,
        record.failure.kind.value if record.failure else None, episode_cause(record), len(record.turns),
        sum(len(turn.calls) for turn in record.turns), sum(tokens) if tokens else None, sum(seconds) if seconds else None,
        normalize_time(record.provenance.collected_at),
    )  # fmt: skip
    return tuple(map(_sql_value, values))


def _sql_value(value: Any) -> Any:
    """Return a text that UTF-8 can hold, and None for an integer of more than 64 bits, which SQLite cannot."""
    if isinstance(value, str):
        return clean_text(value)
    return None if isinstance(value, int) and value.bit_length() > 63 else value


def _text(record: Trajectory) -> str:
    """Return the searched text of an episode: its ids and task, messages, turns, calls and results."""

    def texts() -> Iterator[str]:
        yield f"{record.episode_id} {record.task.task_id}"
        yield record.task.description
        yield from (message.content for message in record.messages)
        for turn in record.turns:
            yield turn.text
            yield turn.thought or ""
            for call in turn.calls:
                yield call.tool
                yield call.raw or ""
                with suppress(RecursionError, TypeError):
                    yield msgspec.json.encode(call.arguments).decode(errors="replace")
            yield from (result.content for result in turn.results)

    return _spaced(clean_text("\n".join(text[:TEXT_INDEXED] for text in texts())[:EPISODE_TEXT]))


_UNSPACED = re.compile("[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")


def _spaced(text: str) -> str:
    """Make a word of each character of Chinese and Japanese, which have no spaces between words."""
    return text if text.isascii() else _UNSPACED.sub(r" \g<0> ", text)


def _fts_query(query: str) -> str:
    """Quote the words and phrases of a query for FTS5, so that nothing in it is an operator."""
    phrases = [part for number, part in enumerate(query.split('"')) if number % 2 and part.strip()]
    words = [word for part in query.split('"')[::2] for word in part.split()]
    quoted = [f'"{_spaced(part)}"' for part in (*phrases, *words)]
    if words:
        quoted[-1] += "*"
    return " ".join(quoted).replace("\0", "")
