"""Redaction of whole files, in bounded memory, with an audit of the findings: the work of `ratchet sanitise`.

Outputs are written whole or not at all. Messages and audits contain neither a secret nor the text around it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec

from ratchet.components.core import ConfigurationError, DataError
from ratchet.components.core.files import open_atomically
from ratchet.components.redaction.redaction_policy import RedactionAction, SecretFinding
from ratchet.components.redaction.sanitiser import Sanitiser
from ratchet.components.trajectories.blobs import BlobFolder, blob_name, blobs_folder, copy_referenced_blobs
from ratchet.components.trajectories.shards import read_jsonl

CHUNK = 4 << 20
"""Bytes of a text file that are read at once."""
# Bytes before the end of a chunk that are searched for a good boundary.
_BOUNDARY_BYTES = 1 << 17


class RedactionSummary(msgspec.Struct):
    """Counts of one run: records (or chunks of text) read, written, changed and dropped, and findings.

    `blobs_absent`: blobs that are missing beside the source; `blobs_unclean`: blobs that contain a secret and were
    therefore not copied. `kinds`, `severities`: number of findings by kind and by severity.
    """

    read: int = 0
    written: int = 0
    changed: int = 0
    dropped: int = 0
    findings: int = 0
    blobs_absent: int = 0
    blobs_unclean: int = 0
    kinds: dict[str, int] = {}
    severities: dict[str, int] = {}


class _CleanBlobs(BlobFolder):
    """Blob folder that accepts only blobs without findings. `unclean`: names of those that it refused."""

    def __init__(self, folder: Path, sanitiser: Sanitiser) -> None:
        super().__init__(folder)
        self._sanitiser = sanitiser
        self.unclean: set[str] = set()

    def accepts(self, data: bytes) -> bool:
        """Return whether `data` may be stored: it is no UTF-8 text, or text without findings."""
        try:
            has_findings = bool(self._sanitiser.text(data.decode()).findings)
        except UnicodeDecodeError:
            return True
        if has_findings:
            self.unclean.add(blob_name(data))
        return not has_findings


class _AuditedRun:
    """Counts findings and writes audit lines."""

    def __init__(self, audit: BinaryIO | None) -> None:
        self.summary = RedactionSummary()
        self._audit = audit
        self._kinds: Counter[str] = Counter()
        self._severities: Counter[str] = Counter()

    def note(self, source: str, findings: Iterable[SecretFinding], action: RedactionAction) -> None:
        """Count findings and write them to the audit file. `source`: episode id, or name of the text file."""
        for finding in findings:
            self.summary.findings += 1
            self._kinds[finding.kind] += 1
            self._severities[finding.severity.value] += 1
            if self._audit is not None:
                line = {"source": source, **msgspec.to_builtins(finding), "action": action.value}
                self._audit.write(msgspec.json.encode(line) + b"\n")

    def finish(self) -> RedactionSummary:
        """Return the counts, sorted by kind and severity."""
        self.summary.kinds = dict(sorted(self._kinds.items()))
        self.summary.severities = dict(sorted(self._severities.items()))
        return self.summary


def sanitise_records(source: Path, target: Path, sanitiser: Sanitiser, audit: Path | None = None) -> RedactionSummary:
    """Redact a JSONL file of trajectories into `target`, and copy the blobs that they reference beside it.

    `audit`: JSONL file to write, with one line per finding. Raises DataError, SecretFound where the policy is to fail,
    ConfigurationError if `audit` is the source or the target.
    """
    _check_audit_path(source, target, audit)
    with ExitStack() as stack:
        out = stack.enter_context(open_atomically(target))
        run = _AuditedRun(stack.enter_context(open_atomically(audit)) if audit else None)
        blobs, lacking = _CleanBlobs(blobs_folder(target), sanitiser), set[str]()
        for trajectory in read_jsonl(source):
            clean, findings = sanitiser.trajectory(trajectory)
            run.summary.read += 1
            run.summary.changed += bool(findings) and clean is not None
            run.summary.dropped += clean is None
            run.note(trajectory.episode_id, findings, RedactionAction.DROP if clean is None else RedactionAction.REDACT)
            if clean is not None:
                out.write(msgspec.json.encode(clean) + b"\n")
                run.summary.written += 1
                lacking |= copy_referenced_blobs(clean, source, blobs)
        if not run.summary.read:
            raise DataError(f"{source} is empty; give a file that holds a trajectory")
        run.summary.blobs_unclean = len(blobs.unclean)
        run.summary.blobs_absent = len(lacking - blobs.unclean)
    return run.finish()


def sanitise_text(source: Path, target: Path, sanitiser: Sanitiser, audit: Path | None = None) -> RedactionSummary:
    """Redact a text file into `target`, in chunks of about CHUNK bytes that end at line ends.

    Each chunk counts as one record, and its placeholders are numbered from 1. Bytes that are no UTF-8 are kept.
    `audit`: as for `sanitise_records`. Raises DataError, SecretFound where the policy is to drop or fail,
    ConfigurationError if `audit` is the source or the target.
    """
    _check_audit_path(source, target, audit)
    with ExitStack() as stack:
        out = stack.enter_context(open_atomically(target))
        run = _AuditedRun(stack.enter_context(open_atomically(audit)) if audit else None)
        line = 0
        for piece in _text_chunks(source):
            clean = sanitiser.text(piece.decode("utf-8", "surrogateescape"), f"after line {line}" if line else "text")
            if sanitiser.policy.decide(clean.findings) in (RedactionAction.DROP, RedactionAction.FAIL):
                raise sanitiser.policy.refuse(clean.findings, str(source))
            run.summary.read += 1
            run.summary.changed += bool(clean.findings)
            run.note(source.name, clean.findings, RedactionAction.REDACT)
            out.write(clean.text.encode("utf-8", "surrogateescape"))
            run.summary.written += 1
            line += piece.count(b"\n")
    return run.finish()


def _check_audit_path(source: Path, target: Path, audit: Path | None) -> None:
    """Raise ConfigurationError if the audit would overwrite the input or the output."""
    if audit is None:
        return
    for other, what in ((source, "the file to be sanitised"), (target, "the clean file")):
        try:
            same = audit.resolve() == other.resolve() or audit.samefile(other)
        except OSError:  # one of them does not exist yet, so they differ; a missing source is reported when it is read
            same = False
        if same:
            raise ConfigurationError(f"{audit} is {what}; give the audit a path of its own")


def _text_chunks(source: Path) -> Iterator[bytes]:
    try:
        file = source.open("rb")
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror}; check the path") from error
    with file:
        rest = b""
        while piece := file.read(CHUNK):
            piece = rest + piece
            cut = _chunk_end(piece)
            rest = piece[cut:]
            yield piece[:cut]
        if rest:
            yield rest


def _chunk_end(piece: bytes) -> int:
    """Return the offset at which a chunk ends: after a blank line, else a line, and never within a private key.

    A secret that lies across two chunks would be found in neither.
    """
    low = max(0, len(piece) - _BOUNDARY_BYTES)
    begun = piece.rfind(b"-----BEGIN ", low)
    if begun > 0 and piece.find(b"-----END ", begun) < 0:
        cut = piece.rfind(b"\n", 0, begun) + 1
        if cut > 0:
            return cut
    empty = piece.rfind(b"\n\n", low)
    end = empty + 2 if empty > 0 else piece.rfind(b"\n", low) + 1
    return end if end > 0 else len(piece)
