"""Spans and feedback of a running service, in one SQLite file, until a night takes them or they expire.

- `commit` is one durable transaction: when it returns, its spans survive a kill and a power cut. A span is stored once per
  trace and span id, feedback once per id; feedback sent again under its id replaces the former.
- Conversations are groups of spans that share a trace or a session. A night claims whole conversations; what arrives later
  for a claimed trace or session is not stored, so that no episode is taken twice.
- The file never exceeds `max_bytes`. One process writes spans; a night may claim at the same time.

Texts must be sanitised before they are given to this module.
"""

import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.home import home

MAX_CONVERSATION_SPANS = 5_000
"""Spans of a conversation; a larger one (a session id that everything shares) is never claimed, and expires."""
RETENTION_DAYS = 30.0
"""Days after which spans and feedback that no night has taken are deleted."""
MAX_BYTES = 8 << 30
"""Maximum size of the file in bytes, without SQLite's write-ahead log."""
_PAGE = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spans (
    trace TEXT NOT NULL, span TEXT NOT NULL, session TEXT, received REAL NOT NULL, body BLOB NOT NULL, UNIQUE (trace, span));
CREATE INDEX IF NOT EXISTS spans_of_session ON spans (session) WHERE session IS NOT NULL;
CREATE TABLE IF NOT EXISTS feedback (
    id TEXT PRIMARY KEY, trace TEXT, session TEXT, received REAL NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS feedback_of_trace ON feedback (trace);
CREATE INDEX IF NOT EXISTS feedback_of_session ON feedback (session);
CREATE TABLE IF NOT EXISTS taken (key TEXT PRIMARY KEY, root TEXT, night TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS taken_by_night ON taken (night);
"""


class StoredSpan(msgspec.Struct, frozen=True):
    """A span. `session`: id of its conversation, None where it names none; `body`: JSON of what `read_otlp` returns, sanitised."""

    trace: str
    span: str
    session: str | None
    body: bytes


class Feedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a person or a program found of a conversation, which `trace_id` or `conversation_id` names.

    `id`: feedback under the same id replaces this; by default a hash of the content, so that it counts once. `success`:
    whether the task was solved; None: not said. `score`: in the sender's own unit.
    """

    trace_id: str | None = None
    conversation_id: str | None = None
    success: bool | None = None
    score: float | None = None
    comment: str = ""
    id: str = ""


class CommitCounts(msgspec.Struct):
    """Result of a commit: stored spans, spans that were stored before, and spans of conversations that a night has taken."""

    stored: int = 0
    duplicates: int = 0
    late: int = 0


class Conversation(msgspec.Struct, frozen=True):
    """Spans that share traces or sessions, in the order in which they arrived, and the feedback on them."""

    traces: tuple[str, ...]
    sessions: tuple[str, ...]
    spans: list[dict[str, Any]]
    feedback: list[Feedback]


class TrafficStats(msgspec.Struct, frozen=True):
    """`spans`, `traces` and `feedback` that wait for a night; `taken`: traces that nights took; `bytes`: size in use."""

    spans: int
    traces: int
    feedback: int
    taken: int
    bytes: int


def traffic_file() -> Path:
    """Return the file of this home's traffic, which may not exist."""
    return home() / "traffic" / "traffic.db"


class TrafficStore:
    """The traffic in `path`, for one thread. Raises InfrastructureError where the file cannot be opened, or is damaged."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._errors():
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # in WAL mode: fsync of the log at every commit
            self._db.execute(f"PRAGMA max_page_count = {max(max_bytes // _PAGE, 16)}")
            self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "full" in str(error):
                raise InfrastructureError(
                    f"{self.path} is full; let a night take the traffic, or give ratchet receive a larger --max-gb"
                ) from error
            raise InfrastructureError(f"{self.path}: {error}; check the disk and who else uses the file") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def commit(self, spans: Iterable[StoredSpan], feedback: Iterable[Feedback] = ()) -> CommitCounts:
        """Store spans and feedback durably, all or nothing. Raises InfrastructureError on a full or failing disk."""
        counts, now = CommitCounts(), time.time()
        with self._transaction():
            for item in spans:
                if self._is_taken(item.trace, item.session):
                    counts.late += 1
                    continue
                row = (item.trace, item.span, item.session, now, zlib.compress(item.body, 1))
                added = self._db.execute("INSERT OR IGNORE INTO spans VALUES (?, ?, ?, ?, ?)", row).rowcount
                counts.stored += added
                counts.duplicates += not added
            for note in feedback:
                row_of_note = (note.id, note.trace_id, note.conversation_id, now, msgspec.json.encode(note))
                self._db.execute("INSERT OR REPLACE INTO feedback VALUES (?, ?, ?, ?, ?)", row_of_note)
        return counts

    def stats(self) -> TrafficStats:
        """Return what is stored."""
        with self._errors():
            (spans, traces), (notes,), (taken,), (pages,), (free,) = (
                self._db.execute(query).fetchone()
                for query in (
                    "SELECT count(*), count(DISTINCT trace) FROM spans",
                    "SELECT count(*) FROM feedback",
                    "SELECT count(*) FROM taken WHERE root IS NOT NULL",
                    "PRAGMA page_count",
                    "PRAGMA freelist_count",
                )
            )
        return TrafficStats(spans, traces, notes, taken, (pages - free) * _PAGE)

    def expire(self, days: float = RETENTION_DAYS) -> int:
        """Delete what arrived more than `days` ago; return the number of spans."""
        limit = time.time() - days * 86400
        with self._transaction():
            self._db.execute("DELETE FROM feedback WHERE received < ?", (limit,))
            self._db.execute("DELETE FROM taken WHERE at < ?", (limit,))
            return self._db.execute("DELETE FROM spans WHERE received < ?", (limit,)).rowcount

    def settled(self, quiet_seconds: float) -> Iterator[Conversation]:
        """Yield the conversations that no night has taken and to which nothing was added for `quiet_seconds`, in the order
        of their first spans.
        """
        limit, seen = time.time() - quiet_seconds, set[str]()
        query = (
            "SELECT trace FROM spans WHERE trace NOT IN (SELECT key FROM taken) GROUP BY trace "
            "HAVING max(received) <= ? ORDER BY min(rowid)"
        )
        with self._errors():
            roots = [trace for (trace,) in self._db.execute(query, (limit,))]
        for root in roots:
            if root in seen:
                continue
            with self._errors():
                traces, sessions = self._connected(root)
                seen.update(traces)
                latest, count = self._select(traces, "max(received), count(*)")[0]
                is_taken = any(self._is_taken(root, session) for session in sessions)
            if not is_taken and latest <= limit and count <= MAX_CONVERSATION_SPANS:
                yield self._load(traces, sessions)

    def claim(self, night: str, conversations: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        """Record durably that a night takes conversations, each given by its traces and its sessions."""
        with self._transaction():
            for traces, sessions in conversations:
                rows: list[tuple[str, str | None, str, float]]
                rows = [(trace, traces[0], night, time.time()) for trace in traces]
                rows += [(_session_key(session), None, night, time.time()) for session in sessions]
                self._db.executemany("INSERT OR IGNORE INTO taken VALUES (?, ?, ?, ?)", rows)

    def claimed(self, night: str) -> Iterator[Conversation]:
        """Yield the conversations that a night has claimed, in the order of the claim, until `delete` is called."""
        with self._errors():
            query = "SELECT root FROM taken WHERE night = ? AND root IS NOT NULL GROUP BY root ORDER BY min(rowid)"
            roots = [root for (root,) in self._db.execute(query, (night,))]
        for root in roots:
            with self._errors():
                rows = self._db.execute("SELECT key FROM taken WHERE night = ? AND root = ?", (night, root))
                traces = [trace for (trace,) in rows]
                sessions = {session for (session,) in self._select(traces, "DISTINCT session") if session is not None}
            yield self._load(traces, sessions)

    def release(self, night: str) -> None:
        """Take back the claims of a night that sealed nothing."""
        with self._transaction():
            self._db.execute("DELETE FROM taken WHERE night = ?", (night,))

    def delete(self, night: str) -> None:
        """Delete the spans and the feedback of the conversations that a night has claimed, once they are sealed."""
        mine = "SELECT key FROM taken WHERE night = ?"
        with self._transaction():
            sessions = f"SELECT session FROM spans WHERE trace IN ({mine})"
            self._db.execute(f"DELETE FROM feedback WHERE trace IN ({mine}) OR session IN ({sessions})", (night, night))
            self._db.execute(f"DELETE FROM spans WHERE trace IN ({mine})", (night,))

    def _is_taken(self, trace: str, session: str | None) -> bool:
        keys = (trace, trace if session is None else _session_key(session))
        return self._db.execute("SELECT 1 FROM taken WHERE key IN (?, ?)", keys).fetchone() is not None

    def _connected(self, root: str) -> tuple[list[str], set[str]]:
        """Return the traces that are connected to a trace by shared sessions, and these sessions."""
        traces, sessions, waiting = {root: None}, set[str](), [root]
        while waiting:
            for (session,) in self._select([waiting.pop()], "DISTINCT session"):
                if session is None or session in sessions:
                    continue
                sessions.add(session)
                for (trace,) in self._db.execute("SELECT DISTINCT trace FROM spans WHERE session = ?", (session,)):
                    if trace not in traces:
                        traces[trace] = None
                        waiting.append(trace)
        return list(traces), sessions

    def _select(self, traces: Sequence[str], columns: str, tail: str = "") -> list[Any]:
        # One JSON parameter: SQLite limits the number of parameters.
        query = f"SELECT {columns} FROM spans WHERE trace IN (SELECT value FROM json_each(?)) {tail}"
        return self._db.execute(query, (msgspec.json.encode(traces).decode(),)).fetchall()

    def _load(self, traces: Sequence[str], sessions: Iterable[str]) -> Conversation:
        with self._errors():
            bodies = self._select(traces, "body", "ORDER BY rowid")
            given = [msgspec.json.encode(sorted(names)).decode() for names in (traces, sessions)]
            notes = self._db.execute(
                "SELECT body FROM feedback WHERE trace IN (SELECT value FROM json_each(?)) "
                "OR session IN (SELECT value FROM json_each(?)) ORDER BY received, id",
                given,
            ).fetchall()
        try:
            spans = [msgspec.json.decode(zlib.decompress(body)) for (body,) in bodies]
        except (zlib.error, msgspec.DecodeError) as error:
            raise DataError(f"{self.path} is damaged: a span of trace {traces[0]} is unreadable ({error})") from error
        return Conversation(
            tuple(traces),
            tuple(sorted(sessions)),
            spans,
            [msgspec.json.decode(body, type=Feedback) for (body,) in notes],
        )


def _session_key(session: str) -> str:
    """Return the key of a session in the table `taken`, which no trace id equals."""
    return f"session {session}"
