"""OTLP/HTTP receiver: an ASGI application that sanitises and stores spans, log records and feedback, and one thread that writes.

- `POST /v1/traces`, `POST /v1/logs`: export requests of OTLP, JSON or protocol buffers, also compressed (gzip, deflate).
- `POST /v1/feedback`: one JSON object with the fields of `Feedback`, or a list of them.
- `GET /v1/status`: what is stored, and what was counted since the start.

A request is answered with 200 only after its content is durable. The thread writes all requests that wait as one transaction,
so that one fsync serves many clients. Where more than MAX_WAITING_BYTES wait, requests are refused with 503 and `Retry-After`,
which OTLP's exporters obey; the same holds on a full disk. A request that cannot be read is refused alone, with one sentence.
"""

import asyncio
import hashlib
import hmac
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ratchet.components.core import DataError, InfrastructureError
from ratchet.components.core.http_requests import Message, Receive, RequestFault, Send, header_values, read_body
from ratchet.components.interop.log_values import words
from ratchet.components.interop.otel_spans import SESSION_KEYS
from ratchet.components.interop.otlp_decoding import read_otlp
from ratchet.components.redaction import Sanitiser, error_line

from .traffic_store import MAX_BYTES, Feedback, StoredSpan, TrafficStore

MAX_BODY = 16 << 20
"""Maximum size of a request in bytes, as sent and after decompression."""
MAX_WAITING_BYTES = 64 << 20
"""Maximum size of the requests that wait to be written."""
MAX_GROUP_BYTES = 8 << 20
"""Size of the requests at which a transaction takes no further one."""
EXPIRE_SECONDS = 3600.0
"""Time between two deletions of what has expired."""
MAX_CONNECTIONS = 256
"""Simultaneous connections; further ones are refused with 503."""
LANGFUSE_PREFIX = "/api/public/otel"
"""Path below which Langfuse's SDK sends its spans; its secret key is then the receiver's key."""
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
# Not sanitised: ids and times, which detectors would take for tokens and telephone numbers.
_IDENTITY = frozenset(
    words("traceId spanId parentSpanId startTimeUnixNano endTimeUnixNano timeUnixNano observedTimeUnixNano")
)


class ReceivedRequest(NamedTuple):
    """The body of a request that waits to be written, and the future of the number of its rejected spans."""

    path: str
    content_type: str
    body: bytes
    answer: "Future[int]"


class SpanReceiver:
    """The application and its writing thread, over the traffic in `file`; `close` ends the thread after all that waits.

    `key`: secret that hides session ids that hold personal data; the same key gives the same id, so that later spans and
    feedback find their conversation.
    """

    def __init__(self, file: Path, key: str, *, max_bytes: int = MAX_BYTES) -> None:
        self.counts: Counter[str] = Counter()
        self._key = key.encode()
        self._sanitiser = Sanitiser(stable=True)
        self._waiting: queue.SimpleQueue[ReceivedRequest | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._open_store = partial(TrafficStore, file, max_bytes=max_bytes)
        self._open_store().close()  # a file that cannot be opened ends the command, not the thread
        self._thread = threading.Thread(target=self._write_all, name="traffic", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            return
        content_type = next(iter(header_values(scope, b"content-type")), "").partition(";")[0].strip().lower()
        is_protobuf = content_type == _PROTOBUF
        extra: list[tuple[bytes, bytes]] = []
        try:
            status, answer = 200, await self._handle(scope, content_type, receive)
        except RequestFault as fault:
            self.counts["refused"] += 1
            status, answer = fault.status, _status_message(str(fault), is_protobuf=is_protobuf)
            extra = [(b"retry-after", str(fault.wait).encode())] if fault.wait else []
        kind = (_PROTOBUF if is_protobuf else _JSON).encode()
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *extra]}
        await send(start)
        await send({"type": "http.response.body", "body": answer})

    async def _handle(self, scope: Message, content_type: str, receive: Receive) -> bytes:
        method, path = scope["method"], scope["path"].removeprefix(LANGFUSE_PREFIX)
        if path == "/v1/status" and method == "GET":
            return msgspec.json.encode(await asyncio.to_thread(self.status))
        if path not in ("/v1/traces", "/v1/logs", "/v1/feedback"):
            raise RequestFault(
                f"nothing is received at {path[:100]}; send to /v1/traces, /v1/logs or /v1/feedback", 404
            )
        if method != "POST":
            raise RequestFault(f"{path} takes POST alone", 405)
        if content_type not in (_JSON, _PROTOBUF) or (path == "/v1/feedback" and content_type != _JSON):
            raise RequestFault(
                f"content type '{content_type[:100]}' is not read; send application/json or application/x-protobuf", 415
            )
        body = await read_body(scope, receive, MAX_BODY)
        rejected = await asyncio.wrap_future(self._submit(path, content_type, body))
        return _success(rejected, is_protobuf=content_type == _PROTOBUF, is_logs=path == "/v1/logs")

    def status(self) -> dict[str, Any]:
        """Return what is stored, and the counts since the start."""
        with closing(self._open_store()) as store:
            return {**msgspec.to_builtins(store.stats()), "since_start": dict(self.counts)}

    def _submit(self, path: str, content_type: str, body: bytes) -> "Future[int]":
        with self._lock:
            if self._waiting_bytes + len(body) > MAX_WAITING_BYTES:
                raise RequestFault("too many requests wait to be written; send it again", 503, wait=1)
            self._waiting_bytes += len(body)
        answer: Future[int] = Future()
        self._waiting.put(ReceivedRequest(path, content_type, body, answer))
        return answer

    def _write_all(self) -> None:
        store = self._open_store()
        expired = float("-inf")
        ended = False
        while not ended:
            group, ended = self._next_group()
            if time.monotonic() - expired > EXPIRE_SECONDS:
                expired = time.monotonic()
                with suppress(InfrastructureError):  # a failing disk is reported by the commit
                    store.expire()
            self._write(store, group)
        store.close()

    def _next_group(self) -> tuple[list[ReceivedRequest], bool]:
        """Wait for a request; return it and those behind it up to MAX_GROUP_BYTES, and whether the receiver is closed."""
        group: list[ReceivedRequest] = []
        size = 0
        while size < MAX_GROUP_BYTES:
            try:
                request = self._waiting.get(block=not group)
            except queue.Empty:
                break
            if request is None:
                return group, True
            group.append(request)
            size += len(request.body)
        return group, False

    def _write(self, store: TrafficStore, group: list[ReceivedRequest]) -> None:
        spans: list[StoredSpan] = []
        feedback: list[Feedback] = []
        answers: list[tuple[ReceivedRequest, int | RequestFault]] = []
        for request in group:
            # From here the future cannot be cancelled by a client that leaves; its answer would raise InvalidStateError.
            if not request.answer.set_running_or_notify_cancel():
                continue
            try:
                if request.path == "/v1/feedback":
                    feedback += self._feedback(request.body)
                    answers.append((request, 0))
                else:
                    values = read_otlp(request.body, request.content_type, request.path.rpartition("/")[2])
                    good = [value for value in values if _has_ids(value)]
                    spans += self._sanitised(good)
                    answers.append((request, len(values) - len(good)))
            except DataError as error:
                answers.append((request, RequestFault(error_line(error))))
            except Exception as error:  # whatever one request holds: the others and the thread go on
                answers.append((request, RequestFault(f"the request is unreadable: {error_line(error)}")))
        try:
            if spans or feedback:
                self.counts.update(msgspec.to_builtins(store.commit(spans, feedback)))
                self.counts["feedback"] += len(feedback)
        except Exception as error:  # a full or failing disk; nothing of the group is stored
            failure = RequestFault(error_line(error), 503, wait=1)
            answers = [
                (request, answer if isinstance(answer, RequestFault) else failure) for request, answer in answers
            ]
        with self._lock:  # before the answers: a client that is answered may send as much again
            self._waiting_bytes -= sum(len(request.body) for request in group)
        for request, answer in answers:
            if isinstance(answer, RequestFault):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)

    def _sanitised(self, values: list[dict[str, Any]]) -> Iterator[StoredSpan]:
        names = dict.fromkeys(name for value in values if (name := _own_session(value)) is not None)
        stored = dict(zip(names, self._session_ids(list(names)), strict=True))
        sessions = [stored.get(_own_session(value) or "") for value in values]
        texts = [{key: inner for key, inner in value.items() if key not in _IDENTITY} for value in values]
        for value, session, text in zip(values, sessions, self._sanitiser.values(texts), strict=True):
            # The redacted copy of a session id with a secret in it would get another placeholder after a restart.
            if session is not None:
                text["attributes"] |= {key: session for key in SESSION_KEYS if key in text["attributes"]}
            span, trace = value["spanId"].lower(), value["traceId"].lower()
            body = _identity(value) | {"traceId": trace, "spanId": span} | text
            if "body" in value or "eventName" in value:  # a log record has no id of its own
                span = f"{span} {hashlib.sha256(msgspec.json.encode(value, order='sorted')).hexdigest()[:16]}"
            yield StoredSpan(trace, span, session, msgspec.json.encode(body))

    def _session_ids(self, sessions: list[str]) -> list[str]:
        """Return session ids as they are stored: hashed with the key where they hold personal data or a secret."""
        given = [{"session.id": session} for session in sessions]
        return [
            session if clean == one else f"session-{self._keyed_hash(session)}"
            for session, one, clean in zip(sessions, given, self._sanitiser.values(given), strict=True)
        ]

    def _keyed_hash(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:24]

    def _feedback(self, body: bytes) -> list[Feedback]:
        try:
            notes = msgspec.json.decode(body, type=Feedback | list[Feedback])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(
                f"feedback is unreadable: {error}; its fields are {', '.join(Feedback.__struct_fields__)}"
            ) from error
        return [self._clean(note) for note in ([notes] if isinstance(notes, Feedback) else notes)]

    def _clean(self, note: Feedback) -> Feedback:
        if not note.trace_id and not note.conversation_id:
            raise DataError("feedback names no conversation; give trace_id or conversation_id")
        if note.success is None and note.score is None and not note.comment:
            raise DataError("feedback says nothing; give success, score or comment")
        trace = note.trace_id.lower().replace("-", "") if note.trace_id else None
        if trace and not _is_hex(trace, 32):
            raise DataError("a trace_id of feedback is no id of 32 hexadecimal digits; give that of the spans")
        identity = note.id or msgspec.json.encode(note).decode()
        return Feedback(
            trace_id=trace,
            conversation_id=self._session_ids([note.conversation_id])[0] if note.conversation_id else None,
            success=note.success,
            score=note.score,
            comment=self._sanitiser.text(note.comment).text,
            id=hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:24],
        )


def _has_ids(value: dict[str, Any]) -> bool:
    """Return whether a span or log record has a valid trace id and span id: hexadecimal, and not only zeros."""
    return all(
        isinstance(name := value.get(key), str) and _is_hex(name, size) and name.strip("0") != ""
        for key, size in (("traceId", 32), ("spanId", 16))
    )


def _identity(value: dict[str, Any]) -> dict[str, Any]:
    """Return the parent's id and the times; any other text in their place is dropped, since it is not sanitised."""
    parent = value.get("parentSpanId")
    times = {key: int(value[key]) for key in _IDENTITY & value.keys() if key.endswith("Nano") and _is_time(value[key])}
    return times | ({"parentSpanId": parent.lower()} if isinstance(parent, str) and _is_hex(parent, 16) else {})


def _is_time(value: Any) -> bool:
    return (type(value) is int and 0 <= value < 1 << 63) or (
        isinstance(value, str) and value.isdecimal() and len(value) < 20
    )


def _is_hex(text: str, size: int) -> bool:
    return len(text) == size and text.strip("0123456789abcdefABCDEF") == ""


def _own_session(value: dict[str, Any]) -> str | None:
    attributes = value["attributes"]
    return next((name for key in SESSION_KEYS if isinstance(name := attributes.get(key), str) and name), None)


def _success(rejected: int, *, is_protobuf: bool, is_logs: bool) -> bytes:
    """Return the response to an export request: empty, or with the number of rejected spans or log records."""
    what, count = ("log records", "rejectedLogRecords") if is_logs else ("spans", "rejectedSpans")
    reason = f"{what} need a traceId of 32 and a spanId of 16 hexadecimal digits"
    if not is_protobuf:
        partial = {"partialSuccess": {count: str(rejected), "errorMessage": reason}}
        return msgspec.json.encode(partial if rejected else {})
    if not rejected:
        return b""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    response = ExportTraceServiceResponse()  # the response for logs has the same numbers of fields
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = reason
    return bytes(response.SerializeToString())


def _status_message(text: str, *, is_protobuf: bool) -> bytes:
    """Return an error as OTLP asks for it: google.rpc.Status with the message alone, in the encoding of the request."""
    if not is_protobuf:
        return msgspec.json.encode({"message": text})
    data = text.encode()[:2000]
    return b"\x12" + (bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])) + data
