"""Reader of Langfuse: traces of its API and of the interface's download, and exports of observations, one per line or in an array.

Traces of a session are one episode, as spans are in `otel_spans`: a GENERATION is a turn, a TOOL its result; in older exports,
where tools are plain spans, the input of the next generation has their results. Scores are stored unchanged: Langfuse does not
say what they mean, so they are no success.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ratchet.components.trajectories.trajectory import Trajectory

from .chat_import import root_records
from .log_source import LogSource
from .log_values import as_mapping, as_mappings, drop_empty, first_text, parse_time, to_text
from .otel_spans import decode_value, import_session
from .provider_messages import input_messages

_KINDS = {"GENERATION": "CHAT_MODEL", "SPAN": "CHAIN"}


class LangfuseReader:
    """Reader of Langfuse's exports."""

    def detects(self, source: LogSource) -> bool:
        """Return whether the first value is a trace with observations, an observation, or an array of them."""
        first = source.sample[:1]
        values = (value[0] if isinstance(value, list) and value else value for value in first)
        return any(bool(_observations(each)) for value in values for each in _pages(value)[:1])

    def read(self, source: LogSource) -> Iterator[Trajectory]:
        """Yield every session. All of the file is held in memory, since a session may return at any time."""
        sessions: dict[str, list[tuple[dict[str, Any], list[dict[str, Any]]]]] = {}
        records = ((where, each) for where, value in root_records(source) for each in _pages(value))
        for where, value in records:
            if observations := _observations(value):
                trace = as_mapping(as_mapping(value).get("trace")) or as_mapping(value)
                identity = first_text(
                    *(trace.get(key) for key in ("sessionId", "session_id", "traceId", "trace_id", "id"))
                )
                sessions.setdefault(identity or where, []).append((trace, observations))
            else:
                source.bad_value(where, "no trace or observation of Langfuse", value)
        for session, traces in sessions.items():
            yield _trajectory(source, session, traces)


def _pages(value: Any) -> list[Any]:
    """Return the elements of a page of the API (`{"data": [...], "meta": {}}`), or `value` alone."""
    listed = as_mappings(as_mapping(value).get("data"))
    return listed if "meta" in as_mapping(value) and listed else [value]


def _observations(value: Any) -> list[dict[str, Any]]:
    """Return the observations of a trace, or the one that `value` is."""
    value = as_mapping(value)
    listed = as_mappings(value.get("observations")) or [value]
    marks = {"type", "startTime"}, {"type", "start_time"}
    return [
        each
        for each in listed
        if any(mark <= each.keys() for mark in marks)
        and ({"traceId", "trace_id"} & each.keys() or "observations" in value)
    ]


def _trajectory(
    source: LogSource, session: str, traces: list[tuple[dict[str, Any], list[dict[str, Any]]]]
) -> Trajectory:
    # Pages of the API overlap when traces arrive between two requests.
    spans = [_span(each) for each in _unique(each for _, observations in traces for each in observations)]
    conversation = import_session("langfuse", source, session, spans)
    draft, first = conversation.draft, traces[0][0]
    if not draft.messages and not draft.turns and first.get("input") is not None:
        for message in input_messages(decode_value(first["input"])):
            draft.message(to_text(message.get("role")) or "user", to_text(message.get("content")))
    fields = ("userId", "tags", "metadata", "release", "version", "environment")
    draft.extra.update(
        drop_empty(
            traces=sorted(
                {first_text(*(trace.get(key) for key in ("traceId", "trace_id", "id"))) or "" for trace, _ in traces}
            ),
            scores=_unique(score for trace, _ in traces for score in as_mappings(trace.get("scores"))),
            trace={name: first[name] for name in fields if first.get(name) and "observations" in first},
            tools=conversation.tools,
        )
    )
    return conversation.finish(session, first_text(first.get("name"), conversation.first_name))


def _unique(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({to_text(each.get("id")) or number: each for number, each in enumerate(objects)}.values())


def _span(observation: dict[str, Any]) -> dict[str, Any]:
    """Return an observation in MLflow's form. The API of version 1 has names in camel case, the SDK's dump in snake case."""

    def field(camel: str, snake: str) -> Any:
        return observation.get(camel, observation.get(snake))

    kind = to_text(observation.get("type")).upper()
    inputs, outputs = decode_value(observation.get("input")), decode_value(observation.get("output"))
    parameters = as_mapping(decode_value(field("modelParameters", "model_parameters")))
    if kind == "GENERATION":
        inputs = parameters | (inputs if isinstance(inputs, dict) else {"messages": inputs})
    usage = as_mapping(decode_value(field("usageDetails", "usage_details"))) or as_mapping(observation.get("usage"))
    # Exports have the attributes of a span as text.
    metadata = as_mapping(decode_value(as_mapping(decode_value(observation.get("metadata"))).get("attributes")))
    agent = first_text(metadata.get("gen_ai.agent.name"), metadata.get("agent.name")) if kind == "AGENT" else None
    attributes = {
        "mlflow.spanType": _KINDS.get(kind, kind),
        "mlflow.chat.tokenUsage": {
            "prompt_tokens": usage.get("input", field("promptTokens", "inputUsage")),
            "completion_tokens": usage.get("output", field("completionTokens", "outputUsage")),
        },
        "mlflow.llm.model": first_text(observation.get("model"), field("providedModelName", "provided_model_name")),
        "mlflow.llm.cost": {
            "total_cost": field("calculatedTotalCost", "calculated_total_cost") or field("totalCost", "total_cost")
        },
        "tool_call_id": metadata.get("gen_ai.tool.call.id"),
    }
    start, end = (parse_time(field(*names)) for names in (("startTime", "start_time"), ("endTime", "end_time")))
    return {
        "name": agent or observation.get("name"),
        "span_id": observation.get("id"),
        "parent_id": field("parentObservationId", "parent_observation_id"),
        "start_time": None if start is None else round(start.timestamp() * 1e6) * 1000,
        "end_time": None if end is None else round(end.timestamp() * 1e6) * 1000,
        "attributes": attributes,
        "inputs": inputs,
        "outputs": outputs,
        "status": {
            "code": "ERROR" if observation.get("level") == "ERROR" else "OK",
            "message": field("statusMessage", "status_message"),
        },
    }


READER = LangfuseReader()
