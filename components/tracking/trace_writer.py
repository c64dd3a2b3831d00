"""Write traces to MLflow and search them. Their ids are our own: writing twice leaves one trace."""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .episode_trace import Assessment, EpisodeTrace, TraceSpan, trace_id
from .mlflow_client import client, tracking_uri

if TYPE_CHECKING:
    from mlflow.entities import Feedback, Span, TraceInfo
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.tracing.client import TracingClient

KIND_TAG, RUN_TAG = "ratchet.kind", "ratchet.run"
EPISODE_KEY, CONTENT_HASH_KEY, DOMAIN_KEY = "ratchet.episode_id", "ratchet.content_hash", "ratchet.domain"
SESSION, MODEL = "mlflow.trace.session", "mlflow.modelId"
MAX_NAME = 200
"""Characters of a trace's name, without its agent."""
PAGE = 200
_RATIONALE = 4000


def write_traces(experiment_id: str, experiment: str, run: str, run_id: str, traces: Sequence[EpisodeTrace]) -> None:
    """Write traces of a run with spans and assessments, all spans in one transaction. Raises whatever MLflow raises.

    `experiment` and `run` are our names, `experiment_id` and `run_id` MLflow's ids of the same.
    """
    tracing, spans = _tracing(), []
    agents = {version: _agent(version) for version in {trace.tags.get("policy_version", "") for trace in traces}}
    for trace in traces:
        name = trace_id(experiment, run, trace)
        agent = agents[trace.tags.get("policy_version", "")]
        tracing.start_trace(_info(name, experiment_id, run, run_id, trace, agent))
        spans += [_span(name, experiment_id, span) for span in trace.spans]
    tracing.log_spans(experiment_id, spans)


def search_traces(experiment_ids: list[str], run: str | None = None, since: int = 0) -> "Iterator[TraceInfo]":
    """Yield the traces that `write_traces` wrote, oldest first, with assessments and without spans.

    `run`: only of the run with this key; `since`: only begun at or after this time in milliseconds since 1970.
    """
    tracing, token = _tracing(), None
    conditions = [f"tags.`{KIND_TAG}` = 'episode'", f"timestamp_ms >= {since}"]
    if run is not None:
        conditions.append(f"tags.`{RUN_TAG}` = '{run}'")
    while experiment_ids:
        page = tracing.search_traces(
            locations=experiment_ids,
            filter_string=" AND ".join(conditions),
            max_results=PAGE,
            order_by=["timestamp_ms ASC"],
            page_token=token,
            include_spans=False,
        )
        yield from (trace.info for trace in page)
        token = page.token
        if not token:
            return


def _agent(policy_version: str) -> "ModelVersion | None":
    """Return the registered version of an agent, None where there is none."""
    if not policy_version or "'" in policy_version:
        return None
    found = client().search_model_versions(
        f"name = 'agent' AND tags.policy_version = '{policy_version}'", max_results=1
    )
    return found[0] if found else None


def _agent_tags(trace: EpisodeTrace, agent: "ModelVersion | None") -> dict[str, str]:
    """Return the trace's name, which ends with the agent that played, and the agent's version as a tag."""
    words = [trace.tags.get("agent", ""), f"v{agent.version}" if agent else ""]
    player = " ".join(word for word in words if word)
    name = f"{trace.name[:MAX_NAME]} ({player})" if player else trace.name
    return {"mlflow.traceName": name, **({"ratchet.model": f"{agent.name}/{agent.version}"} if agent else {})}


def _tracing() -> "TracingClient":
    # MlflowClient has no public way to write a finished trace under an id of one's own: `start_trace` gives its own, and queues it.
    client()  # quiets MLflow and makes its database
    from mlflow.tracing.client import TracingClient

    return TracingClient(tracking_uri())


def _info(
    name: str, experiment_id: str, run: str, run_id: str, trace: EpisodeTrace, agent: "ModelVersion | None"
) -> "TraceInfo":
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    root = trace.spans[0]
    return TraceInfo(
        trace_id=name,
        trace_location=TraceLocation.from_experiment_id(experiment_id),
        request_time=root.begin // 1_000_000,
        execution_duration=(root.end - root.begin) // 1_000_000,
        state=TraceState.ERROR if trace.failed else TraceState.OK,
        request_preview=trace.request,
        response_preview=trace.response,
        trace_metadata={
            "mlflow.sourceRun": run_id,
            EPISODE_KEY: trace.episode_id,
            CONTENT_HASH_KEY: trace.content_hash,
            DOMAIN_KEY: trace.domain,
            **({SESSION: trace.session} if trace.session else {}),
            **({MODEL: agent.model_id or str(agent.source).rpartition("/")[2]} if agent else {}),
        },
        tags={
            **{f"ratchet.{key}": value for key, value in trace.tags.items()},
            **_agent_tags(trace, agent),
            KIND_TAG: "episode",
            RUN_TAG: run,
        },
        assessments=[_feedback(name, assessment) for assessment in trace.assessments],
    )


def _feedback(name: str, assessment: Assessment) -> "Feedback":
    from mlflow.entities import AssessmentSource, Feedback

    parts = (name, assessment.span_id, assessment.name, assessment.source)
    feedback = Feedback(
        name=assessment.name,
        value=assessment.value,
        source=AssessmentSource("LLM_JUDGE" if assessment.judged else "CODE", assessment.source[:200] or "ratchet"),
        trace_id=name,
        span_id=assessment.span_id,
        rationale=assessment.rationale[:_RATIONALE] or None,
    )
    feedback.assessment_id = "a-" + blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
    return feedback


def _span(name: str, experiment_id: str, span: TraceSpan) -> "Span":
    from mlflow.entities import Span

    attributes: dict[str, Any] = {
        "mlflow.traceRequestId": name,
        "mlflow.experimentId": experiment_id,
        "mlflow.spanType": span.kind,
        "mlflow.spanInputs": span.inputs,
        "mlflow.spanOutputs": span.outputs,
    }
    if span.usage:
        attributes["mlflow.chat.tokenUsage"] = {**span.usage, "total_tokens": sum(span.usage.values())}
    failed = span.error is not None
    return Span.from_dict(
        {
            "name": span.name,
            "trace_id": name,
            "span_id": span.span_id,
            "parent_span_id": span.parent_id,
            "start_time_unix_nano": span.begin,
            "end_time_unix_nano": span.end,
            "status": {"code": "STATUS_CODE_ERROR" if failed else "STATUS_CODE_OK", "message": span.error or ""},
            "attributes": {key: json.dumps(value, ensure_ascii=False) for key, value in attributes.items()},
            "events": [],
        }
    )
