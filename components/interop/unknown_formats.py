"""Description of a file that no reader detects: what it is, and how to get a log that can be read."""

from typing import Any

from .log_source import LogSource
from .log_values import as_mapping, words

_BY_MAGIC = {
    b"SQLite f": ("a SQLite database", "export its sessions as JSON (`opencode export`, `goose session export`)"),
    b"PAR1": (
        "a Parquet file",
        "write its rows as JSON lines, such as by pandas: read_parquet(FILE).to_json(OUT, orient='records', lines=True)",
    ),
    b"\x1f\x8b": ("compressed by gzip", "decompress it: gunzip"),
    b"\x28\xb5\x2f\xfd": ("compressed by Zstandard", "decompress it: unzstd"),
}
_OPENCODE = ("a file of OpenCode's storage", "export the session: opencode export SESSION")
_BY_FIELDS = (
    (
        "bookmarked public release",
        "a list of Langfuse's traces without their observations",
        "export the observations, or each trace with them (GET /api/public/traces/ID)",
    ),
    (
        "run_type trace_id",
        "runs of LangSmith",
        "send the spans to `ratchet receive` instead (LANGSMITH_TRACING, LANGSMITH_OTEL_ENABLED)",
    ),
    ("sessionID messageID", *_OPENCODE),
    ("sessionID role", *_OPENCODE),
    ("projectID directory", *_OPENCODE),
    ("ts type say", "what Cline showed to its user", "give api_conversation_history.json, which is beside it"),
)
"""Fields of the first object, what it is, what to do instead."""


def describe_foreign(source: LogSource) -> str | None:
    """Return what a file is that no reader reads, and what to do instead, as the rest of a sentence; None if that is unknown."""
    for magic, (what, advice) in _BY_MAGIC.items():
        if source.magic.startswith(magic):
            return f"is {what}; {advice}"
    first = first_object(source)
    found = ((what, advice) for fields, what, advice in _BY_FIELDS if first.keys() >= set(words(fields)))
    what, advice = next(found, ("", ""))
    return f"is {what}; {advice}" if what else None


def first_object(source: LogSource) -> dict[str, Any]:
    """Return the first object of a log, or of its first list; {} without one."""
    first = next(iter(source.sample), None)
    return as_mapping(first[0] if isinstance(first, list) and first else first)
