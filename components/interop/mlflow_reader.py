"""Reader of MLflow traces: `Trace.to_json` (schema 2 and 3), rows of `search_traces`, and files of spans.

Each trace is a trajectory; its spans are read as in `span_import`, and their kinds are counted. ERROR is a failure; OK is no
proof of success. Assessments are stored unchanged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ratchet.components.trajectories.trajectory import Failure, FailureKind, Outcome, Trajectory

from .chat_import import root_records
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, as_str, drop_empty, first_text, to_iso, to_text, unread_fields
from .message_content import load_json
from .span_import import MlflowSpan, SpanImporter, read_spans
from .trajectory_draft import TrajectoryDraft

_READ_FIELDS = {"trace_id", "request_id", "request_time", "timestamp_ms", "state", "status"}
_READ_FIELDS |= {"request_preview", "response_preview"}


class MLflowReader:
    """Reader of MLflow traces."""

    def detects(self, source: LogSource) -> bool:
        """Return whether most sample values are traces."""
        return source.mostly_matches(lambda value: bool(_traces(value)))

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every trace."""
        for where, value in root_records(source):
            traces = _traces(value)
            for trace in traces:
                yield _trajectory(source, where, trace)
            if not traces:
                source.bad_value(where, "no trace: an object with `info` and `data`, or with `spans`", value)


def _traces(value: Any) -> list[Mapping[str, Any]]:
    """Return the trace that a value is, or those that it lists."""
    listed = value.get("traces") if isinstance(value, Mapping) else None
    candidates = map(_trace, listed if isinstance(listed, list) else [value])
    return [trace for trace in candidates if trace is not None]


def _trace(value: Any) -> Mapping[str, Any] | None:
    """Return `info` and `data` of a trace in any of its forms, else None."""
    if isinstance(value, Mapping) and "trace" in value and "trace_id" in value:  # a row of search_traces
        value = value["trace"]
    if isinstance(value, str):
        value = load_json(value)
    if not isinstance(value, Mapping):
        return None
    info, data = as_mapping(value.get("info")), as_mapping(value.get("data"))
    if _are_spans(data.get("spans")) or (data.get("spans") == [] and info):
        return {"info": info, "data": data}
    if _are_spans(value.get("spans")):
        fields = {key: field for key, field in value.items() if key != "spans"}
        return {"info": fields, "data": {"spans": value["spans"]}}
    return None


def _are_spans(value: Any) -> bool:
    marks = {"attributes", "span_id", "context"}
    return any("name" in span and marks & span.keys() for span in as_mappings(value))


def _trajectory(source: LogSource, where: str, trace: Mapping[str, Any]) -> Trajectory:
    info = as_mapping(trace["info"])
    spans = read_spans(source, where, trace["data"]["spans"])
    draft = TrajectoryDraft("mlflow")
    conversation = SpanImporter(draft, source, where, spans)
    if not draft.messages and not draft.turns:
        request = trace["data"].get("request") or info.get("request_preview")
        request = request or next((span.inputs for span in spans if span.parent_id is None and span.inputs), None)
        if request:
            draft.message("user", to_text(request))
    draft.failure = _failure(info, spans)
    state = to_text(info.get("state") or info.get("status"))
    draft.outcome = Outcome(terminated=state == "OK", reason=state)
    began = spans[0].start_time if spans else None
    draft.collected_at = to_iso(info.get("request_time")) or to_iso(info.get("timestamp_ms")) or began
    metadata = as_mapping(info.get("trace_metadata")) or as_mapping(info.get("request_metadata"))
    draft.extra.update(_extra(info, spans, trace["data"]))
    if conversation.tools:
        draft.extra["tools"] = conversation.tools
    trace_id = info.get("trace_id") or info.get("request_id") or (spans[0].trace_id if spans else None)
    tags = as_mapping(info.get("tags"))
    name = first_text(tags.get("mlflow.traceName"), conversation.first_name)
    return conversation.finish(as_str(trace_id), name, as_str(metadata.get("mlflow.modelId")))


def _failure(info: Mapping[str, Any], spans: list[MlflowSpan]) -> Failure | None:
    """Return the exception of the root span, if the trace ended in an error. A failed tool alone is no such end."""
    if to_text(info.get("state") or info.get("status")) != "ERROR" and not (not info and spans and spans[0].failed):
        return None
    root = next((span for span in spans if span.parent_id is None and span.failed), None)
    kind, message = root.error if root is not None else ("", "")
    return Failure(FailureKind.INFRASTRUCTURE, kind or "Error", message or to_text(info.get("response_preview")))


def _extra(info: Mapping[str, Any], spans: list[MlflowSpan], data: Mapping[str, Any]) -> dict[str, Any]:
    unread = unread_fields(info, _READ_FIELDS, empty=(None, [], {}))
    kinds = Counter(span.kind for span in spans)
    rest = {key: data[key] for key in data if key not in ("spans", "request", "response")}
    return unread | drop_empty(spans=dict(kinds)) | rest


READER = MLflowReader()
