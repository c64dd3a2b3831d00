"""Which night, step, task and episode this thread works on. Logs and traces name them.

Child processes inherit the context in the environment variable BAGGAGE, in W3C's format, under keys with the prefix
`ratchet.`.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

BAGGAGE, PREFIX = "BAGGAGE", "ratchet."
LOG_FORMAT = "RATCHET_LOG_FORMAT"
"""Environment variable; `json` makes every log of Ratchet's processes JSON lines."""
KEYS = ("night", "step", "task", "episode")


def _inherited() -> dict[str, str]:
    items = (item.strip().partition("=") for item in os.environ.get(BAGGAGE, "").split(","))
    return {key.removeprefix(PREFIX): unquote(value) for key, _, value in items if key.startswith(PREFIX)}


_context: ContextVar[Mapping[str, str] | None] = ContextVar("ratchet_run", default=None)


def run_context() -> Mapping[str, str]:
    """Return what is known of KEYS."""
    context = _context.get()
    return _inherited() if context is None else context


@contextmanager
def working_on(**names: str) -> Iterator[None]:
    """Add names to the context during the block; the keys are of KEYS."""
    token = _context.set({**run_context(), **names})
    try:
        yield
    finally:
        _context.reset(token)


def child_environment() -> dict[str, str]:
    """Return the variables that give the context to a child process; empty outside of a night."""
    if not (context := run_context()):
        return {}
    others = [item for item in os.environ.get(BAGGAGE, "").split(",") if item and not item.strip().startswith(PREFIX)]
    return {BAGGAGE: ",".join([*others, *(f"{PREFIX}{key}={quote(value)}" for key, value in context.items())])}


class _JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, the context, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key in KEYS if (value := getattr(record, key, None)) is not None},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def json_logs() -> bool:
    """Return whether logs are JSON lines."""
    return os.environ.get(LOG_FORMAT) == "json"


def log_formatter() -> logging.Formatter:
    """Return the formatter of log files: plain, or JSON lines where LOG_FORMAT says so."""
    name_context_in_logs()
    return _JsonLines() if json_logs() else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


def name_context_in_logs() -> None:
    """Give every log record of this process the context as attributes, for Prefect's handlers too, where logs are JSON."""
    if json_logs():
        logging.setLogRecordFactory(_record_with_context)


_plain_record = logging.getLogRecordFactory()


def _record_with_context(*args: Any, **kwargs: Any) -> logging.LogRecord:
    # When the record is made, not when it is formatted: a queue may hand it to another thread.
    record = _plain_record(*args, **kwargs)
    record.__dict__.update(run_context())
    return record


def log_to_stderr() -> None:
    """Write JSON lines to stderr, the log of a job process, where LOG_FORMAT says so; else leave logging as it is."""
    if json_logs():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(log_formatter())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
