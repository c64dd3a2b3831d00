"""`Sanitiser` redacts texts and trajectories with one salt, policy and allow-list for a whole run."""

import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from .byte_patterns import SecretSpan
from .placeholders import Pseudonyms, find_occurrences, replace_spans
from .record_fields import (
    SEPARATOR,
    RedactableRecord,
    TextField,
    collect_fields,
    decode_fields,
    field_path,
    is_secret_field,
    join_fields,
    json_strings,
    without_identities,
    write_field,
)
from .redaction_policy import AllowList, RedactionAction, RedactionPolicy, SanitisedText, SecretFinding, SecretKind
from .text_scanner import may_hold_credential, may_hold_secret, merge_spans, scan

ROUNDS = 4
"""Maximum number of scans of a text: a replaced secret can make the text beside it match another detector."""
Record = TypeVar("Record", bound=RedactableRecord)
FindNames = Callable[[Sequence[str]], dict[str, SecretKind]]
"""A function that returns the names of people and companies in redacted texts, with their kinds; see `NameFinder`."""


class Sanitiser:
    """Redaction of one run. A sanitiser stores nothing of what it reads, so threads may share it.

    - `policy`: what `trajectory` does about findings; by default it redacts all. `allow`: values that are not redacted.
    - `salt`: key of the digests of findings; one random salt per sanitiser by default.
    - `names`: finds names of people and companies, after all other redaction; None: names are not redacted.
    - `stable`: equal values get equal placeholders in everything that this sanitiser redacts, and not only within a record.
    """

    def __init__(
        self,
        policy: RedactionPolicy | None = None,
        *,
        allow: AllowList | None = None,
        salt: bytes | None = None,
        names: FindNames | None = None,
        stable: bool = False,
    ) -> None:
        self._stable = stable
        self.policy = policy or RedactionPolicy()
        self._allow = allow or AllowList()
        self._salt = salt
        self._names = names

    def text(self, text: str, where: str = "text") -> SanitisedText:
        """Return the redacted text with its findings. `where`: location of the text, to which findings add the line.

        The policy is not applied: callers pass the findings to `policy.decide`.
        """
        data = text.encode("utf-8", "surrogatepass")
        if self._names is None and not may_hold_secret(data):
            return SanitisedText(text, ())
        pseudonyms = self._pseudonyms()
        findings: list[SecretFinding] = []
        # Scanned until nothing is found: the promise is that redacted text has no further findings.
        for _ in range(ROUNDS):
            spans = self._add_occurrences(data, self._scan(data), pseudonyms)
            if not spans:
                break
            findings += self._findings(data, spans, pseudonyms, where)
            data = replace_spans(data, spans, pseudonyms)
        if self._names is not None:
            clean = data.decode("utf-8", "surrogatepass")
            spans = _name_spans(data, self._names([clean]))
            findings += self._findings(data, spans, pseudonyms, where)
            data = replace_spans(data, spans, pseudonyms)
        return SanitisedText(data.decode("utf-8", "surrogatepass") if findings else text, tuple(findings))

    def trajectory(self, trajectory: Record) -> tuple[Record | None, tuple[SecretFinding, ...]]:
        """Return the redacted record, or None where the policy is to drop it, and the findings.

        The record keeps its identity and gets a new `content_hash`; without findings it is returned as it is. All texts
        are scanned: keys and values of arguments, raw calls, thoughts, results, `source_extra`; blobs and token ids are
        separate files and are not scanned. Raises SecretFound where the policy is to fail.
        """
        # Most records hold nothing: one pass over their JSON shows that without decoding it.
        strings = json_strings(msgspec.json.encode(without_identities(trajectory))) if self._names is None else None
        if strings is not None and not may_hold_secret(strings):
            return trajectory, ()
        plain, fields = decode_fields(msgspec.json.encode(trajectory))
        findings = self._redact(fields)
        action = self.policy.decide(findings)
        if action is None:
            return trajectory, ()
        if action is RedactionAction.FAIL:
            raise self.policy.refuse(findings, trajectory.episode_id)
        if action is RedactionAction.DROP:
            return None, findings
        return msgspec.convert(plain, type(trajectory)).with_content_hash(), findings

    def values(self, values: list[Any]) -> list[Any]:
        """Return JSON values (mappings or lists with arbitrary keys) with redacted texts; the policy is not applied."""
        encoded = msgspec.json.encode({"source_extra": values})
        strings = json_strings(encoded) if self._names is None else None
        if strings is not None and not may_hold_secret(strings):
            return values
        plain, fields = decode_fields(encoded)
        self._redact(fields)
        redacted: list[Any] = plain["source_extra"]
        return redacted

    def _pseudonyms(self) -> Pseudonyms:
        if self._salt is None:
            # Never stored: with it, short secrets could be guessed from their digests.
            self._salt = secrets.token_bytes(32)
        return Pseudonyms(self._salt, stable=self._stable)

    def _redact(self, fields: list[TextField]) -> tuple[SecretFinding, ...]:
        """Redact the fields in place."""
        pseudonyms = self._pseudonyms()
        replaced: list[tuple[TextField, bytes, Sequence[SecretSpan]]] = []
        current = fields
        data = join_fields(current)
        spans = self._scan(data, current)
        for _ in range(ROUNDS):
            if not spans:
                break
            before = current
            current = _redact_fields(before, self._add_occurrences(data, spans, pseudonyms), pseudonyms, replaced)
            changed = [new for old, new in zip(before, current, strict=True) if new is not old]
            # Unchanged fields had no findings in this scan, so a scan of the changed ones decides whether to stop.
            if not self._scan(join_fields(changed), changed):
                break
            data = join_fields(current)
            spans = self._scan(data, current)
        if self._names is not None:
            data = join_fields(current)
            spans = _name_spans(data, self._names([field.text.decode("utf-8", "surrogatepass") for field in current]))
            current = _redact_fields(current, spans, pseudonyms, replaced)
        renamed = _write_back(fields, current)
        return tuple(
            finding
            for field, text, spans in replaced
            for finding in self._findings(text, spans, pseudonyms, field_path(field, renamed))
        )

    def _scan(self, data: bytes, fields: Sequence[TextField] = ()) -> list[SecretSpan]:
        """Return the spans in `data` that the allow-list does not permit.

        `fields`: those that `data` joins. Spans are then clipped to their field, and fields whose key announces a secret
        are added.
        """
        spans = scan(data)
        if fields:
            spans = merge_spans([*_clip_to_fields(spans, fields), *_secret_fields(fields)])
        permits = self._allow.permits
        return [span for span in spans if not (permits(data[span.start : span.end]) or permits(span.value(data)))]

    def _add_occurrences(self, data: bytes, spans: list[SecretSpan], pseudonyms: Pseudonyms) -> list[SecretSpan]:
        """Return the spans and every other occurrence of the same secrets."""
        # First: numbers that the text already uses, from an earlier redaction, must not be given to other secrets.
        if spans:
            pseudonyms.reserve(data)
        for span in spans:
            pseudonyms.placeholder(span.kind, span.value(data))
        if not pseudonyms.kind_by_spelling:
            return spans
        return merge_spans([*spans, *find_occurrences(data, spans, pseudonyms.kind_by_spelling)])

    def _findings(
        self, data: bytes, spans: Iterable[SecretSpan], pseudonyms: Pseudonyms, where: str
    ) -> list[SecretFinding]:
        findings, line, at = [], 1, 0
        many = b"\n" in data
        for span in spans:
            value = data[span.start : span.end]
            line, at = line + data.count(b"\n", at, span.start), span.start
            findings.append(
                SecretFinding(
                    span.kind.name,
                    span.kind.severity,
                    f"{where}, line {line}" if many else where,
                    len(value.decode("utf-8", "replace")),
                    pseudonyms.digest(span.kind, span.value(data)),
                    pseudonyms.placeholder(span.kind, span.value(data)).decode(),
                )
            )
        return findings


def holds_credential(encoded: bytes, plain: dict[str, Any]) -> bool:
    """Return whether a JSON object contains a password, key or token; personal data does not count.

    `encoded`: the object as compact JSON; `plain`: the same object, decoded.
    """
    strings = json_strings(encoded)
    if strings is not None and not may_hold_credential(strings):
        return False
    fields = collect_fields(plain)
    spans = merge_spans([*_clip_to_fields(scan(join_fields(fields)), fields), *_secret_fields(fields)])
    return any(span.kind.is_credential for span in spans)


def _offsets(fields: Sequence[TextField]) -> list[int]:
    """Return the offset of each field in the text that `join_fields` makes of them."""
    offsets, at = [], 0
    for field in fields:
        offsets.append(at)
        at += len(field.prefix) + len(field.text) + len(SEPARATOR)
    return offsets


def _clip_to_fields(spans: Iterable[SecretSpan], fields: Sequence[TextField]) -> list[SecretSpan]:
    """Return spans clipped to the field in which they begin, without its prefix."""
    ordered = list(spans)
    offsets = _offsets(fields) if ordered else []
    clipped = []
    for span in ordered:
        index = bisect_right(offsets, span.start) - 1
        begin = offsets[index] + len(fields[index].prefix)
        start, end = max(span.start, begin), min(span.end, begin + len(fields[index].text))
        clipped.append(span if (start, end) == span[:2] else SecretSpan(start, end, span.kind))
    return clipped


def _secret_fields(fields: Sequence[TextField]) -> list[SecretSpan]:
    """Return spans over the fields that are secrets as a whole, according to their keys."""
    if all(field.meaning is None for field in fields):
        return []
    return [
        SecretSpan(offset + len(field.prefix), offset + len(field.prefix) + len(field.text), field.meaning.kind)
        for offset, field in zip(_offsets(fields), fields, strict=True)
        if field.meaning is not None and is_secret_field(field)
    ]


def _name_spans(data: bytes, names: dict[str, SecretKind]) -> list[SecretSpan]:
    """Return the occurrences of `names` in `data`."""
    return merge_spans(
        find_occurrences(data, (), {name.encode("utf-8", "surrogatepass"): kind for name, kind in names.items()})
    )


def _redact_fields(
    fields: list[TextField],
    spans: Sequence[SecretSpan],
    pseudonyms: Pseudonyms,
    replaced: list[tuple[TextField, bytes, Sequence[SecretSpan]]],
) -> list[TextField]:
    """Return the fields with placeholders; append (field, its text, spans in it) for each changed field to `replaced`."""
    offsets = _offsets(fields)
    clean = list(fields)
    spans_by_field: dict[int, list[SecretSpan]] = {}
    for span in _clip_to_fields(spans, fields):
        index = bisect_right(offsets, span.start) - 1
        base = offsets[index] + len(fields[index].prefix)
        if span.start < span.end:
            spans_by_field.setdefault(index, []).append(span._replace(start=span.start - base, end=span.end - base))
    for index, field_spans in spans_by_field.items():
        field = fields[index]
        replaced.append((field, field.text, field_spans))
        clean[index] = field._replace(text=replace_spans(field.text, field_spans, pseudonyms))
    return clean


def _write_back(before: Sequence[TextField], after: Sequence[TextField]) -> dict[str, str]:
    """Write changed texts back to their holders; return the new names of renamed keys.

    Values come before keys, since they are written under the old keys.
    """
    changed = [new for old, new in zip(before, after, strict=True) if new is not old]
    for field in changed:
        if not field.is_key:
            write_field(field, field.text)
    keys = [field for field in changed if field.is_key]
    for field in keys:
        write_field(field, field.text)
    return {field.key: field.text.decode("utf-8", "surrogatepass") for field in keys}
