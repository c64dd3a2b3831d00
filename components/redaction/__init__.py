"""Redaction of secrets and personal data in texts and trajectories, before they are stored or sent to a language model.

Guarantees: every occurrence of a detected value in a record is replaced by the same placeholder; findings, audits and messages
contain no secret; redacted text has no further findings.

Not covered: names of people and companies (without `NameFinder`), secrets without context or known format, data that is encoded
more than twice, and files beside the record (blobs, token ids).
"""

from collections.abc import Iterable
from typing import TypeVar, overload

from ratchet.components.core import RatchetError

from .name_finder import NameFinder
from .record_fields import RedactableRecord
from .redaction_policy import (
    PERSONAL,
    AllowList,
    RedactionAction,
    RedactionPolicy,
    SanitisedText,
    SecretFinding,
    SecretFound,
    SecretSeverity,
)
from .sanitiser import Sanitiser, holds_credential

__all__ = [
    "AllowList",
    "NameFinder",
    "RedactionAction",
    "RedactionPolicy",
    "SanitisedText",
    "Sanitiser",
    "SecretFinding",
    "SecretFound",
    "SecretSeverity",
    "error_line",
    "holds_credential",
    "remaining_findings",
    "sanitise",
]

Record = TypeVar("Record", bound=RedactableRecord)


@overload
def sanitise(value: str, *, allow: AllowList | None = None, salt: bytes | None = None) -> SanitisedText: ...


@overload
def sanitise(value: Iterable[Record], *, allow: AllowList | None = None, salt: bytes | None = None) -> list[Record]: ...


def sanitise(
    value: str | Iterable[Record], *, allow: AllowList | None = None, salt: bytes | None = None
) -> SanitisedText | list[Record]:
    """Return a redacted text with its findings, or redacted trajectories. `allow`: values that are not redacted.

    `salt`: key of the digests in findings, random by default; with the same salt, equal secrets have equal digests. For
    the findings in trajectories use a `Sanitiser`.

    >>> ratchet.sanitise("the key is sk-proj-4fT9wQz7LmNp2RsVx8Ya1BcD3eFgHj5K").text
    'the key is [OPENAI_KEY_1]'
    >>> len(ratchet.sanitise(ratchet.collect("orders", agent="teacher", tasks=1)))
    1
    """
    sanitiser = Sanitiser(allow=allow, salt=salt)
    if isinstance(value, str):
        return sanitiser.text(value)
    redacted = (sanitiser.trajectory(record)[0] for record in value)
    return [record for record in redacted if record is not None]


def error_line(error: BaseException) -> str:
    """Return an error in one line without secrets; an unexpected one with the name of its class."""
    message = str(error) if isinstance(error, RatchetError) else f"{type(error).__name__}: {error}"
    return sanitise(" ".join(message.split())).text


def remaining_findings(trajectory: RedactableRecord) -> tuple[SecretFinding, ...]:
    """Return the findings of another scan of a redacted record; an empty tuple is expected.

    In episodes that Ratchet recorded only credentials count: the personal data in their tasks is invented.
    """
    _, findings = Sanitiser().trajectory(trajectory)
    if trajectory.provenance.source != "ratchet":
        return findings
    return tuple(finding for finding in findings if finding.kind not in PERSONAL)
