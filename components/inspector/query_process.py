"""Queries that need MLflow, transformers or torch, answered by processes of their own: these would fill the server's memory.

The server writes a query as one line of JSON and reads one line. A process ends with the server, whose pipe it reads.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.processes import LineProcess
from ratchet.components.redaction import error_line

QUERY_SECONDS = 120.0
MAX_WAITING = 8
"""Requests that wait for a process; further ones are refused, so that they do not take all threads of the server."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    value: Any = None
    error: str | None = None


class QueryProcess:
    """Answers queries of one kind, one after the other. The first starts the process, which is kept: its imports take
    seconds. Thread-safe. `seconds`: limit of a query; `idle_seconds`: the process ends when none was asked for so long.
    """

    def __init__(self, kind: str, *, seconds: float | None = None, idle_seconds: float | None = None) -> None:
        self._command = [sys.executable, "-m", __name__, kind]
        self._advice = "is MLflow reachable, and is there memory?" if kind == "lineage" else "is there memory?"
        self._seconds, self._idle_seconds = seconds, idle_seconds
        self._process: LineProcess | None = None
        self._idle: threading.Timer | None = None
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_WAITING)

    def ask(self, *arguments: Any) -> Any:
        """Return the answer. Raises DataError where there is none, InfrastructureError where the process does not answer in
        time, ends, or is asked too much; the next query then starts another.
        """
        try:
            query = msgspec.json.encode(arguments)
        except UnicodeEncodeError as error:
            raise DataError("nothing has a name that is no Unicode text") from error
        if not self._places.acquire(blocking=False):
            raise InfrastructureError(f"{MAX_WAITING} queries wait for an answer already; reload in a moment")
        try:
            with self._lock:
                answer = self._exchange(query)
        finally:
            self._places.release()
        if answer.error is not None:
            raise DataError(answer.error)
        return answer.value

    def _exchange(self, query: bytes) -> _Answer:
        if self._idle is not None:
            self._idle.cancel()
        self._process, seconds = self._process or LineProcess(self._command), self._seconds or QUERY_SECONDS
        try:
            return msgspec.json.decode(self._process.ask(query, seconds) or b"", type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.close()
            raise InfrastructureError(
                f"the query's process ended, or gave no answer within {seconds:.0f} s; {self._advice} (`ratchet status`)"
            ) from error
        finally:
            if self._idle_seconds is not None:
                self._idle = threading.Timer(self._idle_seconds, self._end_idle)
                self._idle.daemon = True
                self._idle.start()

    def _end_idle(self) -> None:
        with self._lock:
            if threading.current_thread() is self._idle:  # else a query came in between
                self.close()

    def end_queries(self) -> None:
        """End the process, the query that it answers, and those that wait for it: each raises InfrastructureError."""
        for _ in range(MAX_WAITING):
            while not self._places.acquire(timeout=0.1):
                if process := self._process:
                    process.kill()
        self.close()
        self._places.release(MAX_WAITING)

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.close()


def main(kind: str) -> None:
    """Answer the queries of standard input, until it ends."""
    # Libraries print: descriptor 1 becomes that of errors, and answers get a copy.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    function: Callable[..., Any]
    if kind == "tokens":
        from .token_views import tokenize_row as function
    elif kind == "drift":
        from .drift_views import measure_drift as function
    else:
        from .lineage_views import find_lineage as function
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_queries, args=(lines,), daemon=True).start()
    while True:
        try:
            answer = msgspec.json.encode(_Answer(function(*msgspec.json.decode(lines.get()))))
        except Exception as error:  # whatever a library raises: the next query is answered
            text = error_line(error)[:500].encode("utf-8", "replace").decode()
            answer = msgspec.json.encode(_Answer(error=text))
        answers.write(answer + b"\n")


def _read_queries(lines: "queue.SimpleQueue[bytes]") -> None:
    """Read until the server ends, and end with it: a query that hangs would outlive a server that was killed."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
