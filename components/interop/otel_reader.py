"""Reader of files of spans: OTLP/JSON as the collector writes it, spans one per line, the output of Python's console
exporter, Phoenix's JSON and rows of its data frame, downloads from Jaeger and Tempo. `otel_spans` makes episodes of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.components.trajectories.trajectory import Trajectory

from .chat_import import root_records
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, first_text, parse_time, to_count, to_text
from .otel_spans import episodes_of_spans
from .otlp_decoding import plain_span, spans_of_request


class OTelReader:
    """Reader of files of spans."""

    def detects(self, source: LogSource) -> bool:
        """Return whether most sample values are spans, or export requests of OTLP."""
        return source.mostly_matches(lambda value: bool(_spans(value)))

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every conversation. All spans of the file are held in memory, since a session may return at any time."""
        yield from episodes_of_spans(_file_spans(source), source)


def _file_spans(source: LogSource) -> Iterator[dict[str, Any]]:
    for where, value in root_records(source):
        spans = _spans(value)
        yield from spans
        if not spans and not (
            {"resourceSpans", "resourceLogs", "resourceMetrics", "batches"} & as_mapping(value).keys()
        ):
            source.bad_value(where, "no span: an object with ids and attributes, or with `resourceSpans`", value)


def _spans(value: Any) -> list[dict[str, Any]]:
    """Return the spans and log records in a value of a file, in the form of `read_otlp`."""
    value = as_mapping(value)
    value = as_mapping(value.get("trace")) or as_mapping(value.get("result")) or value  # Tempo's and Jaeger's newer API
    if {"resourceSpans", "resourceLogs", "batches"} & value.keys():
        return list(spans_of_request(value))
    traces = [trace for trace in as_mappings(value.get("data")) if "processes" in trace]
    if traces:
        return [span for trace in traces for span in _jaeger_spans(trace)]
    if "context.trace_id" in value:
        value = _from_columns(value)
    elif "next_cursor" in value:  # a page of Phoenix's API
        return [span for row in as_mappings(value.get("data")) for span in _spans(row)]
    if isinstance(value.get("traceId"), str) and isinstance(value.get("attributes"), list):
        return [plain_span(value)]
    context = as_mapping(value.get("context"))
    trace, identity = (first_text(value.get(key), context.get(key)) for key in ("trace_id", "span_id"))
    if not trace or not identity or "name" not in value or not isinstance(value.get("attributes"), dict):
        return []
    start, end = (_unix_nano(value.get(key)) for key in ("start_time", "end_time"))
    status = as_mapping(value.get("status"))
    code, message = status.get("status_code", value.get("status_code")), status.get("description")
    return [
        {
            **value,
            "traceId": trace.removeprefix("0x"),
            "spanId": identity.removeprefix("0x"),
            "parentSpanId": to_text(value.get("parent_id")).removeprefix("0x"),
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "status": {"code": code, "message": message or value.get("status_message")},
            "attributes": {"openinference.span.kind": value.get("span_kind"), **dict(_flat(value["attributes"]))},
            "resource": as_mapping(as_mapping(value.get("resource")).get("attributes")),
        }
    ]


def _jaeger_spans(trace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans of a trace that was downloaded from Jaeger, whose times are in microseconds."""
    for span in as_mappings(trace.get("spans")):
        values = _tags(span.get("tags"))
        above = (each for each in as_mappings(span.get("references")) if each.get("refType") == "CHILD_OF")
        start, seconds = to_count(span.get("startTime")), to_count(span.get("duration"))
        process = as_mapping(as_mapping(trace["processes"]).get(to_text(span.get("processID"))))
        events = [_tags(log.get("fields")) for log in as_mappings(span.get("logs"))]
        yield {
            "traceId": span.get("traceID"),
            "spanId": span.get("spanID"),
            "parentSpanId": next(above, {}).get("spanID"),
            "name": span.get("operationName"),
            "startTimeUnixNano": None if start is None else start * 1000,
            "endTimeUnixNano": None if start is None or seconds is None else (start + seconds) * 1000,
            "attributes": values,
            "events": [{"name": event.get("event"), "attributes": event} for event in events],
            "status": {"code": values.get("otel.status_code"), "message": values.get("otel.status_description")},
            "resource": {"service.name": process.get("serviceName"), **_tags(process.get("tags"))},
            "scope": first_text(values.get("otel.scope.name"), values.get("otel.library.name")),
        }


def _tags(value: Any) -> dict[str, Any]:
    return {to_text(tag.get("key")): tag.get("value") for tag in as_mappings(value)}


def _from_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of Phoenix's data frame of spans, whose columns have dotted names, in the form of its API."""
    context = {key: row.get(f"context.{key}") for key in ("trace_id", "span_id")}
    prefix = "attributes."
    named = {
        key.removeprefix(prefix): field for key, field in row.items() if key.startswith(prefix) and field is not None
    }
    return {**row, "context": context, "attributes": named}


def _flat(attributes: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield attributes with dotted names: Phoenix nests them (`{"llm": {"input_messages": [{"message": …}]}}`)."""
    is_nested = isinstance(attributes.get("openinference"), dict) or any(map(as_mappings, attributes.values()))
    if not prefix and not is_nested:
        yield from attributes.items()
        return
    for key, value in attributes.items():
        items = dict(enumerate(value)) if isinstance(value, list) and as_mappings(value) else value
        if isinstance(items, dict) and prefix.count(".") < 12:
            yield from _flat({str(name): inner for name, inner in items.items()}, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _unix_nano(value: Any) -> int | None:
    time = None if isinstance(value, str) and value.isdecimal() else parse_time(value)  # data frames have milliseconds
    return to_count(value) if time is None else round(time.timestamp() * 1e6) * 1000


READER = OTelReader()
