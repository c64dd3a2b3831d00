"""Writer of OpenTelemetry spans: an episode is one line of OTLP/JSON, as the collector's file receiver reads it.

The same spans as those that a night sends over OTLP (`trajectories/episode_spans`), with all texts, which are not redacted.
"""

from typing import Any

import msgspec

from ratchet.components.core.otlp_export import SpanRecord
from ratchet.components.trajectories.episode_spans import episode_spans
from ratchet.components.trajectories.trajectory import Trajectory


class OTelWriter:
    """Writer of spans by OpenTelemetry's conventions for generative AI."""

    loses = (
        "texts beyond 20,000 characters; rewards, costs, parent, images and raw calls; messages after a reply that answer no call; "
        "what the reader could not place; an outcome is an attribute of ours, which readers ignore"
    )

    def row(self, trajectory: Trajectory) -> dict[str, Any]:
        """Return an export request with the spans of the episode: `invoke_agent`, `chat` and `execute_tool`."""
        # Spans name only tools that were offered, since another name is any text of a model; here it is the log's own.
        tools = [{"function": {"name": call.tool}} for turn in trajectory.turns for call in turn.calls]
        offered = msgspec.structs.replace(trajectory, source_extra={"tools": tools})
        records = episode_spans(offered, {}, trajectory)
        spans = [_span(record) for record in records if record.error != "parse_error"]  # a call that never ran
        resource = {"attributes": _attributes({"service.name": trajectory.task.taskset})}
        return {
            "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "ratchet"}, "spans": spans}]}]
        }


def _span(record: SpanRecord) -> dict[str, Any]:
    parent = {} if record.parent_id is None else {"parentSpanId": f"{record.parent_id:016x}"}
    return {
        "traceId": f"{record.trace_id:032x}",
        "spanId": f"{record.span_id:016x}",
        **parent,
        "name": record.name,
        "kind": 1,  # internal
        "startTimeUnixNano": str(record.begin),
        "endTimeUnixNano": str(record.end),
        "attributes": _attributes(record.attributes),
        "status": {} if record.error is None else {"code": 2, "message": record.error},
    }


def _attributes(values: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return (
        {"arrayValue": {"values": [_value(item) for item in value]}}
        if isinstance(value, list)
        else {"stringValue": str(value)}
    )


WRITER = OTelWriter()
