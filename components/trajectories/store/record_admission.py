"""Admission of records to a store: redaction, the decision on records whose id is stored already, and rejected entries.

A record with the same content changes nothing. Where the log grows between reads (a session, or a document that is
rewritten while the agent runs):

- a record that continues another replaces it, whichever came first;
- of two records with the same content the longer one stays, of equally long ones the later;
- a record is also replaced where another record of the same log continues it (after a rewind, the new branch holds the
  earlier turns), and where its log says that it took messages back since (`source_extra["rewinds"]`, their number).

Anything else is a conflict: the stored record stays and the new one is set aside.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.components.core.files import write_atomically, write_error

from ..blobs import BlobFolder, blob_name
from ..trajectory import Trajectory

if TYPE_CHECKING:
    from ratchet.components.redaction import RedactionPolicy, Sanitiser
import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from ratchet.components.core import DataError
from ratchet.components.core.files import append_json_lines, read_json_lines

from ..trajectory import Outcome, Turn, content_hash
from .episode_index import LineLocation
from .store_files import SegmentFolder


class RecordCleaner:
    """Redacts records, texts and blobs with one policy (None: the default policy); with `raw` it changes nothing."""

    def __init__(self, policy: "RedactionPolicy | None" = None, *, raw: bool = False) -> None:
        self.raw = raw
        self._policy = policy

    @cached_property
    def _sanitiser(self) -> "Sanitiser":
        from ratchet.components.redaction import Sanitiser

        return Sanitiser(self._policy)

    def record(self, trajectory: Trajectory) -> tuple[Trajectory | None, int]:
        """Return the redacted record (None where the policy drops it) and the number of findings. Raises what the
        policy raises.
        """
        if self.raw:
            return trajectory, 0
        clean, findings = self._sanitiser.trajectory(trajectory)
        return clean, len(findings)

    def text(self, text: str) -> str:
        """Return the redacted text."""
        if self.raw:
            return text
        return self._sanitiser.text(text).text

    def data(self, data: bytes) -> bytes:
        """Redact bytes that are UTF-8 text; return others, such as images, unchanged."""
        if self.raw:
            return data
        try:
            return self.text(data.decode()).encode()
        except UnicodeDecodeError:
            return data


class StoreBlobs(BlobFolder):
    """Blobs of a store: redacted, durable, and named by the redacted content."""

    def __init__(self, folder: Path, cleaner: RecordCleaner) -> None:
        super().__init__(folder)
        self._folder = folder
        self._cleaner = cleaner

    def put(self, data: bytes) -> str:
        """Store a blob and return the name of its redacted content. Raises InfrastructureError."""
        # Named after redaction: the hash of a secret would let anybody test guesses of it.
        clean = self._cleaner.data(data)
        name = blob_name(clean)
        path = self._folder / name
        if not path.exists():
            try:
                write_atomically(path, clean)
            except OSError as error:
                raise write_error(path, error) from error
        return name

    def accepts(self, data: bytes) -> bool:
        """Return whether redaction leaves the bytes unchanged."""
        return self._cleaner.data(data) == data


class PutCounts(msgspec.Struct):
    """Counts of put records: `added` + `same` + `superseded` + `conflicts` + `dropped` + `removed` are all of them.

    - `same`: stored already. `superseded`: replaced a record that they extend.
    - `conflicts`: different content under a stored id; set aside. `dropped`: by the redaction policy.
    - `removed`: records of permanently removed episodes, left out.
    - `duplicates`: added records whose content is stored under another id.
    - `found`: findings of the redaction. `tokens_dropped`: episodes whose token ids were left out because they would
      spell redacted text.
    """

    added: int = 0
    same: int = 0
    superseded: int = 0
    conflicts: int = 0
    dropped: int = 0
    removed: int = 0
    duplicates: int = 0
    found: int = 0
    tokens_dropped: int = 0

    def include(self, other: "PutCounts") -> None:
        """Add other counts to these."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def has_changes(self) -> bool:
        """Whether the store has changed."""
        return bool(self.added or self.superseded or self.conflicts)


class RecordVerdict(StrEnum):
    """Relation of a new record to the stored one: equal or a part of it, a continuation of it, or in conflict with it."""

    SAME = "same"
    CONTINUATION = "continuation"
    CONFLICT = "conflict"


def compare_with_stored(old: Trajectory, new: Trajectory, *, growing: bool, longer: bool) -> RecordVerdict:
    """Compare a new record with the stored one of the same id.

    `growing`: the new record comes from a log that grows between reads. `longer`: the new record is at least as long in bytes.
    """
    if content_hash(old) == content_hash(new):
        return RecordVerdict.CONTINUATION if growing and longer else RecordVerdict.SAME
    if growing and (continues(new, old) or _rewinds(new) > _rewinds(old)):
        return RecordVerdict.CONTINUATION
    if growing and continues(old, new):
        return RecordVerdict.SAME
    return RecordVerdict.CONFLICT


def _rewinds(trajectory: Trajectory) -> int:
    count = trajectory.source_extra.get("rewinds")
    return count if isinstance(count, int) else 0


def continues(new: Trajectory, old: Trajectory) -> bool:
    """Return whether `new` continues `old`: everything in `old` stands in `new`, in order, with a compatible outcome.

    Texts may be longer, calls and results may be added, an agent may get its name, turns (of another agent) may be
    inserted; a known outcome may change only together with the turns.
    """
    if old.messages != new.messages[: len(old.messages)]:
        return False
    # One iterator for all turns: each later turn is matched once, and in order.
    later_turns = iter(new.turns)
    if not all(any(_turn_continues(turn, later) for later in later_turns) for turn in old.turns):
        return False
    return _lengths(new.turns) > _lengths(old.turns) or _outcome_agrees(old.outcome, new.outcome)


def _turn_continues(old: Turn, new: Turn) -> bool:
    return (
        # "agent" stands for a name that the log states later, such as that of a trace's root span, which ends last.
        old.agent_id in (new.agent_id, "agent")
        and new.text.startswith(old.text)
        and (new.thought or "").startswith(old.thought or "")
        and old.calls == new.calls[: len(old.calls)]
        and _is_subsequence(old.results, new.results)
    )


def _is_subsequence(items: Sequence[object], longer: Sequence[object]) -> bool:
    """Return whether all items occur in `longer`, in order."""
    remaining = iter(longer)
    return all(any(item == candidate for candidate in remaining) for item in items)


def _lengths(turns: Sequence[Turn]) -> tuple[int, int, int]:
    return len(turns), sum(len(turn.calls) for turn in turns), sum(len(turn.results) for turn in turns)


def _outcome_agrees(old: Outcome, new: Outcome) -> bool:
    """Return whether every known field of the old outcome is unchanged."""
    fields = ("success", "score", "tests_passed", "tests_total")
    return all(getattr(old, field) in (None, getattr(new, field)) for field in fields)


class SetAsideEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An unreadable line (`text`, or `base64` where it is not UTF-8), or a conflicting record (`record`).

    `key`: identifies the entry in its file. `where`: name of the log. `why`: reason. `truncated`: only the beginning of
    the line is kept.
    """

    key: str
    where: str
    why: str
    episode_id: str = ""
    text: str = ""
    base64: str = ""
    truncated: bool = False
    record: Trajectory | None = None


def unreadable_entry(key: str, log_name: str, reason: str, raw: bytes, truncated: bool = False) -> SetAsideEntry:
    """Return the entry of a line, `raw`, of a log that could not be read. `truncated`: `raw` is only its beginning."""
    try:
        return SetAsideEntry(key, log_name, reason, text=raw.decode(), truncated=truncated)
    except UnicodeDecodeError:
        return SetAsideEntry(key, log_name, reason, base64=base64.b64encode(raw).decode("ascii"), truncated=truncated)


class SetAsideFile:
    """JSON lines of what was set aside, each entry once by its key. Only the writer appends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: set[str] | None = None

    def add(self, entries: Iterable[SetAsideEntry]) -> int:
        """Append the entries whose key is new, durably, and return their number. Raises InfrastructureError."""
        items = list(entries)
        if items and self._keys is None:
            self._keys = {entry.key for entry in self.entries()}
        keys = self._keys or set()
        new = {entry.key: entry for entry in items if entry.key not in keys}
        try:
            append_json_lines(self.path, new.values())
        except OSError as error:
            raise write_error(self.path, error) from error
        keys.update(new)
        return len(new)

    def entries(self) -> Iterator[SetAsideEntry]:
        """Yield all entries in order. Raises DataError."""
        return read_json_lines(self.path, SetAsideEntry, skip_partial=True) if self.path.exists() else iter(())

    def __len__(self) -> int:
        return sum(1 for _ in self.entries())

    def encode_without(self, ids: Collection[str]) -> bytes | None:
        """Return the file's bytes without the entries of these episodes; None where it has none of them."""
        entries = list(self.entries())
        remaining = [entry for entry in entries if entry.episode_id not in ids]
        return None if len(remaining) == len(entries) else msgspec.json.Encoder().encode_lines(remaining)


class PreparedRecord(NamedTuple):
    """A redacted and encoded record. `clean`: the redaction found nothing."""

    trajectory: Trajectory
    line: bytes
    clean: bool


class BatchDecision(NamedTuple):
    """Decision on a batch: new records, records that replace stored ones, and conflicting records, each with the
    content hash of the stored record. The other records of the batch are stored already.
    """

    new: list[PreparedRecord]
    replacements: list[PreparedRecord]
    conflicts: list[tuple[Trajectory, str]]


def prepare_records(
    trajectories: Iterable[Trajectory], cleaner: RecordCleaner, removed: Collection[str], tally: PutCounts
) -> Iterator[PreparedRecord]:
    """Yield redacted and encoded records, without those of the episodes `removed` and those that the redaction drops;
    `tally` counts both, and the findings, while they are yielded. Raises DataError where one cannot be encoded.
    """
    encoder = msgspec.json.Encoder()
    for trajectory in trajectories:
        if trajectory.episode_id in removed:
            tally.removed += 1
            continue
        cleaned, findings = cleaner.record(trajectory)
        tally.found += findings
        if cleaned is None:
            tally.dropped += 1
            continue
        try:
            if not cleaned.content_hash:
                cleaned = msgspec.structs.replace(cleaned, content_hash=content_hash(cleaned))
            line = encoder.encode(cleaned)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise DataError(f"episode {trajectory.episode_id} cannot be written as JSON: {error}") from error
        yield PreparedRecord(cleaned, line, findings == 0)


def decide_batch(
    batch: Sequence[PreparedRecord], stored: Mapping[str, LineLocation], segments: SegmentFolder, *, growing: bool
) -> BatchDecision:
    """Compare a batch with the stored records of the same ids, at the locations `stored`; `growing` as in
    `compare_with_stored`. Nothing is written.
    """
    decision = BatchDecision([], [], [])
    for record in batch:
        location = stored.get(record.trajectory.episode_id)
        if location is None:
            decision.new.append(record)
            continue
        line = next(segments.read_each([location]))
        # Equal bytes are the common case when a log is read again, and cost no decoding.
        if line == record.line:
            continue
        stored_record = segments.decode(location, line)
        verdict = compare_with_stored(
            stored_record, record.trajectory, growing=growing, longer=len(record.line) >= len(line)
        )
        if (
            verdict is RecordVerdict.CONFLICT
            and growing
            and any(continues(other.trajectory, stored_record) for other in batch if other is not record)
        ):
            verdict = RecordVerdict.CONTINUATION  # a session was rewound: its branch holds the earlier turns
        if verdict is RecordVerdict.CONTINUATION:
            decision.replacements.append(record)
        elif verdict is RecordVerdict.CONFLICT:
            decision.conflicts.append((record.trajectory, content_hash(stored_record)))
    return decision


def conflict_entry(log_name: str, trajectory: Trajectory, stored_hash: str) -> SetAsideEntry:
    """Return the entry of a conflicting record. `log_name`: empty for the record's source. `stored_hash`: content hash
    of the stored record.
    """
    identity, new_hash = trajectory.episode_id, content_hash(trajectory)
    reason = f"another content ({new_hash}) than the record that is kept ({stored_hash})"
    return SetAsideEntry(
        f"{identity}:{new_hash}", log_name or trajectory.provenance.source, reason, identity, record=trajectory
    )
