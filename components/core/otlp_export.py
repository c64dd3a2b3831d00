"""Send spans over OTLP, where OpenTelemetry's environment variables name an endpoint. Nothing is imported elsewhere.

Spans are made from records when a step or a shard is finished, with ids derived from their names: a resumed night repeats
none, and no context is passed through the code that is traced. A thread sends them. What a collector does not take within
the exporter's time-out is lost, with a warning: the records are the data, traces only show them.

No global tracer provider is set, so the instrumentation of libraries stays silent.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from .errors import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

BATCH_SPANS = 512
"""Spans of one request."""
PAUSE_SECONDS = 60.0
"""Seconds after a failed request during which spans are dropped, so that a missing collector delays nothing."""
MAX_WAITING = 64
"""Shards or steps that may wait for the thread; more are dropped."""
_log = logging.getLogger(__name__)


class SpanRecord(msgspec.Struct, frozen=True):
    """A finished span. `begin` and `end`: nanoseconds since 1970. `link`: trace and span id of a related span elsewhere.

    `error`: description of a failure, None without one.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    begin: int
    end: int
    attributes: Mapping[str, Any]
    error: str | None = None
    link: tuple[int, int] | None = None


def traces_enabled() -> bool:
    """Return whether the environment names an endpoint for traces, and does not switch them off."""
    get = os.environ.get
    endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or get("OTEL_EXPORTER_OTLP_ENDPOINT")
    exporters = (get("OTEL_TRACES_EXPORTER") or "otlp").split(",")
    return bool(endpoint) and "otlp" in exporters and (get("OTEL_SDK_DISABLED") or "").lower() != "true"


def trace_id(*parts: object) -> int:
    """Return the id of a trace, 128 bits, from the names of what it shows."""
    return int.from_bytes(_digest(parts, 16))


def span_id(*parts: object) -> int:
    """Return the id of a span, 64 bits, from the names of what it shows."""
    return int.from_bytes(_digest(parts, 8))


def night_ids(night: str) -> tuple[int, int]:
    """Return the trace id and the root's span id of a night."""
    return trace_id("night", night), span_id("night", night)


def step_ids(night: str, step: str) -> tuple[int, int]:
    """Return the trace id and the span id of a night's step."""
    return trace_id("night", night), span_id("night", night, step)


def _digest(parts: tuple[object, ...], size: int) -> bytes:
    return blake2b(msgspec.json.encode(parts), digest_size=size).digest()


def send_spans(make: Callable[[], Iterable[SpanRecord]]) -> None:
    """Let a thread call `make` and send the spans that it returns. Does nothing where traces are not enabled."""
    if traces_enabled():
        _exporter().submit(make)


class _Exporter:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="otlp")
        self._waiting: set[Future[None]] = set()
        self._silent_until = 0.0
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
        except ImportError:
            _log.warning("no traces are sent: OTLP needs a package; install it: %s", install_command("telemetry"))
            self._silent_until = float("inf")
            return
        own = Resource.create({"service.name": "ratchet"})
        self._resource = own.merge(OTELResourceDetector().detect())  # OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler  # OTEL_TRACES_SAMPLER
        self._client = OTLPSpanExporter()

    def submit(self, make: Callable[[], Iterable[SpanRecord]]) -> None:
        self._waiting = {one for one in self._waiting if not one.done()}
        if time.monotonic() < self._silent_until:
            return
        if len(self._waiting) >= MAX_WAITING:
            _log.warning("spans are dropped: the collector at the OTLP endpoint is too slow")
            return
        self._waiting.add(self._thread.submit(self._send, make))

    def _send(self, make: Callable[[], Iterable[SpanRecord]]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        if time.monotonic() < self._silent_until:
            return
        try:
            spans = (self._readable(span) for span in make() if self._is_sampled(span))
            while batch := list(islice(spans, BATCH_SPANS)):
                if self._client.export(batch) is not SpanExportResult.SUCCESS:
                    raise ConnectionError("the collector did not take the spans")
        except Exception as error:  # whatever it is: a trace is no reason to lose an episode
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            _log.warning("spans are lost, and none are sent for %.0f s: %s", PAUSE_SECONDS, error)

    def _is_sampled(self, span: SpanRecord) -> bool:
        from opentelemetry.sdk.trace.sampling import Decision

        return self._sampler.should_sample(None, span.trace_id, span.name).decision is Decision.RECORD_AND_SAMPLE

    def _readable(self, span: SpanRecord) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

        def context(trace: int, span: int) -> SpanContext:
            return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return ReadableSpan(
            span.name,
            context(span.trace_id, span.span_id),
            None if span.parent_id is None else context(span.trace_id, span.parent_id),
            self._resource,
            {key: value for key, value in span.attributes.items() if value is not None},
            links=() if span.link is None else (Link(context(*span.link)),),
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error or None),
            start_time=span.begin,
            end_time=max(span.begin, span.end),
            instrumentation_scope=InstrumentationScope("ratchet"),
        )


@cache
def _exporter() -> _Exporter:
    return _Exporter()
