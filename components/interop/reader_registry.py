"""Registry of log readers: detect the format of a log and stream its trajectories.

What a log does not state stays None. Other packages add readers through the entry-point group `ratchet.readers`; each entry
names a `LogReader`. Any error of a reader, of a plugin's too, becomes one DataError that names the file.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ratchet.components.core import ConfigurationError, DataError, RatchetError
from ratchet.components.core.environment_registry import load_plugins
from ratchet.components.core.errors import suggest_name
from ratchet.components.trajectories.blobs import BlobFolder
from ratchet.components.trajectories.trajectory import Trajectory

from .log_source import LogSource, UnreadablePart
from .unknown_formats import describe_foreign, first_object


@contextmanager
def reader_errors(file: Path, what: str) -> Iterator[None]:
    """Convert exceptions other than RatchetError and OSError into a DataError that names the file and the exception.

    `what`: the failed action, for the message.
    """
    try:
        yield
    except (RatchetError, OSError):
        raise
    except RecursionError as error:
        raise DataError(f"{file} is nested too deeply to be read") from error
    except Exception as error:
        raise DataError(f"{file}: {what}: {' '.join(f'{type(error).__name__}: {error}'.split())}") from error


GROUP = "ratchet.readers"


class LogReader(Protocol):
    """Reader of one format.

    `source` may be a folder (`source.is_folder`), which has no sample: only readers of folders accept it.
    """

    def detects(self, source: LogSource) -> bool:
        """Return whether `source.magic` or `source.sample` is of this format. Must raise nothing but DataError."""

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every trajectory, and pass unreadable parts to `source.bad`. Raises DataError."""


BUNDLED = {
    "ratchet": "ratchet_reader",
    "openhands": "openhands_reader",
    "swe_agent": "swe_agent_reader",
    "atif": "atif",
    "mini_swe_agent": "mini_swe_agent_reader",
    "claude_code": "claude_code_reader",
    "codex": "codex_reader",
    "gemini_cli": "gemini_cli_reader",
    "opencode": "opencode_reader",
    "tau_bench": "tau_bench_reader",
    "crew": "crew_reader",
    "inspect_ai": "inspect_ai_reader",
    "verifiers": "verifiers_reader",
    "mlflow": "mlflow_reader",
    "otel": "otel_reader",
    "langfuse": "langfuse_reader",
    "openai_chat": "openai_chat_reader",
    "sharegpt": "sharegpt_reader",
}
"""Module of each bundled format, by the format's id (the value of `--format`). Detection asks in this order: the most specific
formats first, since a general one also accepts their logs."""

_plugin_readers: dict[str, LogReader] = {}


def register_reader(name: str, reader: LogReader) -> None:
    """Register the reader of a format, with the format's id. Raises ConfigurationError where the id is taken."""
    if name in BUNDLED or name in _plugin_readers:
        raise ConfigurationError(f"a reader '{name}' is registered already; choose another name")
    _plugin_readers[name] = reader


def list_formats() -> list[str]:
    """Return the ids of all formats, in the order of detection.

    >>> ratchet.list_formats()[:2]
    ['ratchet', 'openhands']
    """
    load_plugins(GROUP, register_reader)
    return [*BUNDLED, *_plugin_readers]


def detect_format(source: LogSource) -> str:
    """Return the id of the first format whose reader detects the log. Raises DataError if none does."""
    if not source.is_folder and not source.magic.strip(b"\0"):
        # A file that was preallocated and never written: every reader would call it damaged.
        raise DataError(f"{source.path} holds only zeros; its content was lost before it came here")
    with reader_errors(source.path, "its format cannot be detected; name it with --format"):
        for name in list_formats():
            if get_reader(name).detects(source):
                return name
    if foreign := describe_foreign(source):
        raise DataError(f"{source.path} {foreign}")
    if not source.sample:
        _ = source.document  # raises the precise reason: no JSON, or too large
    fields = ", ".join(name for name in list(first_object(source))[:8] if name.isprintable())[:200]
    raise DataError(
        f"{source.path} is of no known format{f' (fields {fields})' if fields else ''}; name it with --format of "
        f"`ratchet trajectories convert` ({', '.join(list_formats())})"
    )


def get_reader(name: str) -> LogReader:
    """Return the reader of a format. Raises ConfigurationError for an unknown id, with the most similar one."""
    if name not in list_formats():
        raise ConfigurationError(f"unknown format '{name}'; {suggest_name(name, list_formats())}")
    if name in _plugin_readers:
        return _plugin_readers[name]
    # Imported on use: readers have dependencies (pyarrow, zstandard) that the others do not need.
    reader: LogReader = importlib.import_module(f"{__package__}.{BUNDLED[name]}").READER
    return reader


def read_records(name: str, source: LogSource) -> Iterator[Trajectory]:
    """Yield the trajectories of a source in the format with the id `name`.

    Exceptions of the reader, also of a plugin's, become DataError, except RatchetError and OSError.
    """
    with reader_errors(source.path, f"the reader '{name}' failed"):
        yield from get_reader(name).read(source)


def read_log(
    path: Path | str,
    format: str = "auto",
    *,
    on_bad: Callable[[UnreadablePart], None] | None = None,
    blobs: BlobFolder | None = None,
) -> Iterator[Trajectory]:
    """Yield the trajectories of a log.

    - `format`: `auto`, or one of `list_formats()`.
    - `on_bad`: called with each unreadable part, which is then skipped; without it the first one raises DataError.
    - `blobs`: stores images and other bytes that a record references.

    Raises ConfigurationError (unknown format), DataError (another format, damaged, empty).
    """
    source = LogSource(Path(path), on_bad=on_bad, blobs=blobs)
    name = detect_format(source) if format == "auto" else format
    source.drop_sample()
    is_empty = False
    for trajectory in read_records(name, source):
        is_empty = True
        yield trajectory
    if not is_empty and not source.reported:
        raise DataError(f"{path} holds no trajectory; is it the right file?")
