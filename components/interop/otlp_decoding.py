"""Decoding of OTLP, JSON and protocol buffers, to plain mappings: spans, and the log records that hold their events.

A span is `traceId`, `spanId`, `parentSpanId` (hexadecimal text), `name`, `startTimeUnixNano`, `endTimeUnixNano` (integers),
`attributes` (a dictionary of plain values), `events` (each with `name` and `attributes`), `status` (`code`, `message`),
`resource` (attributes of the resource) and `scope` (name of the instrumentation). A log record has `eventName` and `body`
instead of `name`, times, events and status.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from ratchet.components.core import DataError
from ratchet.components.core.errors import install_command

from .log_values import as_mapping, as_mappings, decode_json, drop_empty, to_text


def read_otlp(body: bytes, content_type: str, signal: str = "traces") -> list[dict[str, Any]]:
    """Return the spans, or the log records, of an OTLP/HTTP request or a line of the collector's file exporter.

    `content_type`: `application/json` or `application/x-protobuf`; `signal`: `traces` or `logs`, as the path of the request
    says. Values of a wrong type in JSON are left out. Raises DataError for a body that cannot be decoded.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/json":
            request = decode_json(body)
            if not isinstance(request, dict):
                raise DataError("an OTLP request is no JSON object")
            return list(spans_of_request(request))
        if kind == "application/x-protobuf":
            return list(spans_of_request(_request_of_message(body, signal)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"an OTLP request is unreadable: {' '.join(str(error).split())}") from error
    raise DataError(f"content type '{kind[:100]}' is not OTLP's; send application/json or application/x-protobuf")


def spans_of_request(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans and log records of an OTLP/JSON export request, or of a line of the collector's file exporter."""
    holders = (as_mappings(request.get(key)) for key in ("resourceSpans", "resourceLogs", "batches"))  # the last: Tempo
    for holder in chain.from_iterable(holders):
        resource = plain_attributes(as_mapping(holder.get("resource")).get("attributes"))
        # `instrumentationLibrarySpans`: the name before OTLP 0.19.
        for scope_key in ("scopeSpans", "instrumentationLibrarySpans", "scopeLogs"):
            for scope in as_mappings(holder.get(scope_key)):
                name = to_text(as_mapping(scope.get("scope")).get("name"))
                for span in as_mappings(scope.get("spans")) + as_mappings(scope.get("logRecords")):
                    yield plain_span(span) | {"resource": resource, "scope": name}


def plain_span(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return a span or a log record of OTLP/JSON with its attributes as plain dictionaries."""
    events, links = (
        [{**each, "attributes": plain_attributes(each.get("attributes"))} for each in as_mappings(span.get(key))]
        for key in ("events", "links")
    )
    plain = {**span, "attributes": plain_attributes(span.get("attributes")), "events": events} | drop_empty(links=links)
    plain |= {key: _hexadecimal(span[key]) for key in ("traceId", "spanId", "parentSpanId") if key in span}
    return plain | {"body": _plain_value(span["body"])} if "body" in span else plain


def _hexadecimal(identity: Any) -> Any:
    """Return an id that Tempo writes in base64 as hexadecimal digits; others as they are."""
    if not isinstance(identity, str) or len(identity) not in (12, 24):
        return identity
    try:
        return b64decode(identity, validate=True).hex()
    except ValueError:
        return identity


def plain_attributes(value: Any) -> dict[str, Any]:
    """Return OTLP/JSON's list of keys and values as a dictionary of plain values; {} for other types."""
    return {
        item["key"]: _plain_value(item.get("value")) for item in as_mappings(value) if isinstance(item.get("key"), str)
    }


def _plain_value(value: Any) -> Any:
    kind, inner = next(iter(as_mapping(value).items()), ("", None))
    if kind == "intValue" and isinstance(inner, str):  # JSON of protocol buffers has 64-bit integers as text
        return int(inner) if inner.removeprefix("-").isdecimal() and len(inner) < 21 else inner
    if kind == "arrayValue":
        return [_plain_value(item) for item in as_mapping(inner).get("values") or () if isinstance(item, dict)]
    return plain_attributes(as_mapping(inner).get("values")) if kind == "kvlistValue" else inner


def _request_of_message(body: bytes, signal: str) -> dict[str, Any]:
    """Return the OTLP/JSON form of a protocol buffer; ids become hexadecimal, as OTLP asks for and protocol buffers do not."""
    try:
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
    except ImportError as error:
        raise DataError(
            "OTLP in protocol buffers needs the package opentelemetry-proto; send JSON, or install it: "
            f"{install_command('telemetry')}"
        ) from error

    try:
        request: dict[str, Any] = MessageToDict((LogsData if signal == "logs" else TracesData).FromString(body))
    except DecodeError as error:
        raise DataError("an OTLP request is no protocol buffer of its signal, or is cut short") from error
    for holder in (*request.get("resourceSpans", ()), *request.get("resourceLogs", ())):
        for scope in (*holder.get("scopeSpans", ()), *holder.get("scopeLogs", ())):
            for span in (*scope.get("spans", ()), *scope.get("logRecords", ())):
                span |= {
                    key: b64decode(span[key]).hex() for key in ("traceId", "spanId", "parentSpanId") if key in span
                }
    return request
