"""A night as an OpenTelemetry trace: `invoke_workflow` over all its starts, and one span for each step of it.

A step is sent when it has ended and stands in the night's state, so a resumed night sends none again. A killed step is sent
by the start that completes it, with that start's begin.
"""

import time
from datetime import datetime
from functools import partial

from ratchet.components.core.otlp_export import SpanRecord, night_ids, send_spans, span_id, step_ids, traces_enabled
from ratchet.components.redaction import error_line

from .night_state import Night


def trace_steps(night: Night) -> None:
    """Send a span for each further step of a night, where traces are enabled."""
    if traces_enabled():
        night.after_each_step(partial(_send_step, night.id))


def _send_step(night: str, step: str, begin: int, error: Exception | None) -> None:
    trace, span = step_ids(night, step)
    if error is not None:
        span = span_id(span, begin)  # the step may fail again, or succeed
    attributes = {"ratchet.night": night, "ratchet.step": step, "error.type": error and type(error).__name__}
    line = None if error is None else error_line(error)
    record = SpanRecord(trace, span, night_ids(night)[1], step, begin, time.time_ns(), attributes, line)
    send_spans(lambda: [record])


def send_night(night: Night, verdict: str) -> None:
    """Send the span of a finished night, where traces are enabled."""
    attributes = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "nightly",
        "ratchet.night": night.id,
        "ratchet.scale": night.scale,
        "ratchet.seed": night.seed,
        "ratchet.recipe": night.recipe,
        "ratchet.verdict": verdict,
    }
    begin = round(datetime.fromisoformat(night.begun).timestamp() * 1e9)
    record = SpanRecord(*night_ids(night.id), None, "invoke_workflow nightly", begin, time.time_ns(), attributes)
    send_spans(lambda: [record])
