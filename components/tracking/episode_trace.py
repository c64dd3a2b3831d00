"""Episode traces: an episode as MLflow shows it, with turns (model calls) and steps (tool calls) as spans and scores as
assessments.

Pure: the same episode and scores give the same trace. Span ids encode the position, so that feedback on a span can be
located without its trace. Texts are cut: a trace is for reading, the record is in the rollouts.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec

from ratchet.components.core import ToolResult
from ratchet.components.core.home import inspector_link
from ratchet.components.rewards.annotation_records import Judgement
from ratchet.components.rewards.episode_score import EpisodeScore
from ratchet.components.trajectories.chat_messages import as_chat_messages, turn_messages
from ratchet.components.trajectories.terminal_rendering import outcome_facts
from ratchet.components.trajectories.trajectory import Trajectory, Turn

WHOLE_EPISODE = -1
"""As a turn: the whole episode; as a step: the whole turn or episode."""
_EPISODE, _TURN, _STEP = "1", "2", "3"


def span_id(turn: int = WHOLE_EPISODE, step: int = WHOLE_EPISODE) -> str:
    """Return 16 hex digits that encode a step of a turn, a whole turn, or the whole episode."""
    kind = _EPISODE if turn == WHOLE_EPISODE else _TURN if step == WHOLE_EPISODE else _STEP
    return f"{kind}{max(turn, 0):08x}{max(step, 0):07x}"


def parse_span_id(span: str | None) -> tuple[int, int] | None:
    """Return the turn and step of a span id, the inverse of `span_id`; None for an id that `span_id` did not make.

    No id (None or "") means the whole episode.
    """
    if not span:
        return WHOLE_EPISODE, WHOLE_EPISODE
    try:
        turn, step = int(span[1:9], 16), int(span[9:], 16)
    except ValueError:
        return None
    positions = {_EPISODE: (WHOLE_EPISODE, WHOLE_EPISODE), _TURN: (turn, WHOLE_EPISODE), _STEP: (turn, step)}
    position = positions.get(span[0])
    # Encoded again: `int` also takes signs, underscores and spaces.
    return position if position is not None and span_id(*position) == span else None


EPISODE_SCORES = ("total", "outcome", "process", "efficiency")


class Assessment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A score of a span, or a yes or no. `source`: a judge's name or a scorer's version; `judged`: whether a model gave
    it.
    """

    span_id: str
    name: str
    value: bool | float
    source: str
    judged: bool = False
    rationale: str = ""


SUCCESS = "success"


def success_assessment(trajectory: Trajectory) -> Iterator[Assessment]:
    """Yield whether the episode succeeded, which MLflow shows as pass or fail; nothing where it is unknown."""
    if (success := trajectory.outcome.success) is not None:
        facts = ", ".join(outcome_facts(trajectory.outcome))
        yield Assessment(span_id(), SUCCESS, success, "outcome", rationale=facts)


def score_assessments(score: EpisodeScore | None) -> Iterator[Assessment]:
    """Yield the episode's four scores and the total of each step, with the reasons for lost points as rationale.
    Missing scores are left out; None yields nothing.
    """
    if score is None:
        return
    reasons: dict[tuple[int, int], list[str]] = {}
    for explanation in score.explanations:
        reasons.setdefault((explanation.turn, explanation.step), []).append(f"{explanation.line}: {explanation.why}")
    for name in EPISODE_SCORES:
        if (value := getattr(score, name)) is not None:
            rationale = "\n".join(reasons.get((WHOLE_EPISODE, WHOLE_EPISODE), ())) if name == "total" else ""
            yield Assessment(span_id(), name, value, score.version, rationale=rationale)
    for step in score.steps:
        if step.total is not None:
            rationale = "\n".join(reasons.get((step.turn, step.step), ()))
            yield Assessment(span_id(step.turn, step.step), "process", step.total, score.version, rationale=rationale)


def judge_assessments(judgements: Iterable[Judgement], content: str) -> Iterator[Assessment]:
    """Yield the scores of judges and step reward models, overall and of each criterion, without missing ones.

    `content`: hash of the episode's content; judgements of other content are left out.
    """
    for judgement in sorted(judgements, key=lambda one: one.key):
        if judgement.content_hash != content:
            continue
        judged_span = span_id(judgement.turn, judgement.step)
        if judgement.overall is not None:
            yield Assessment(judged_span, judgement.layer, judgement.overall, judgement.judge, judged=True)
        for line, value in judgement.scores.items():
            if value is not None:
                reason = judgement.reasons.get(line, "")
                yield Assessment(
                    judged_span, f"{judgement.layer}.{line}", value, judgement.judge, judged=True, rationale=reason
                )


MAX_TEXT = 20_000
"""Characters of a text in a span."""
MAX_TAG = 200
MAX_PREVIEW = 1000
"""Characters shown in MLflow's list of traces."""
_TICK = 1000
"""Nanoseconds between starts of spans without a known time: readers sort by start."""


class TraceSpan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A span: the episode, a model call or a tool call. `begin` and `end`: nanoseconds since 1970; `kind`: MLflow's
    span type; `error`: message of a failure; `usage`: token counts.
    """

    span_id: str
    parent_id: str | None
    name: str
    kind: str
    begin: int
    end: int
    inputs: Any = None
    outputs: Any = None
    error: str | None = None
    usage: dict[str, int] = {}


class EpisodeTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The trace of an episode, its root span first. `request` and `response`: previews in MLflow's list. `failed`: an
    infrastructure failure ended the episode. Missing scores have no assessment: null is not zero.

    MLflow shows the traces of one `session` together.
    """

    episode_id: str
    content_hash: str
    name: str
    domain: str
    request: str
    response: str
    failed: bool
    tags: dict[str, str]
    spans: tuple[TraceSpan, ...]
    assessments: tuple[Assessment, ...] = ()
    session: str = ""


def trace_id(experiment: str, run: str, trace: EpisodeTrace) -> str:
    """Return the id under which an episode's trace is stored in MLflow, from the experiment's name, the run's key, and
    the episode: uploading again changes nothing.
    """
    parts = "\n".join((experiment, run, trace.episode_id, trace.content_hash))
    return "tr-" + blake2b(parts.encode(), digest_size=16).hexdigest()


def episode_trace(
    trajectory: Trajectory, score: EpisodeScore | None = None, judgements: Iterable[Judgement] = (), begin: int = 0
) -> EpisodeTrace:
    """Return the trace of an episode, with long texts cut, and its scores and judgements as assessments.

    `begin`: start in nanoseconds since 1970, used only if the record has no collection time.
    """
    task, agent = trajectory.task, trajectory.agent
    collected = _nanoseconds(trajectory.provenance.collected_at)
    start = begin if collected is None else max(0, collected - sum(map(_duration, trajectory.turns)))
    turns = list(_turn_spans(trajectory, start))
    end = max([start + _TICK, *(span.end for span in turns)])
    facts = ", ".join(outcome_facts(trajectory.outcome))
    failure = f"{trajectory.failure.type}: {trajectory.failure.message}" if trajectory.failure else None
    root = TraceSpan(
        span_id(),
        None,
        _span_name(task.task_id),
        "AGENT",
        start,
        end,
        inputs={"messages": [_shorten_texts(message) for message in as_chat_messages(trajectory.messages)]},
        outputs={"outcome": facts, **({"failure": failure} if failure else {})},
        error=failure if trajectory.has_infrastructure_failure else None,
    )
    tags = {
        "task": task.task_id,
        "taskset": task.taskset,
        "family": task.family,
        "role": task.role,
        "policy": agent.policy,
        "policy_version": agent.policy_version,
        "attempt": str(trajectory.attempt),
        "success": {True: "yes", False: "no", None: "unknown"}[trajectory.outcome.success],
    }
    tags = {name: _database_text(value, MAX_TAG) for name, value in tags.items()}
    tags["inspector"] = inspector_link(trajectory.episode_id)
    return EpisodeTrace(
        trajectory.episode_id,
        trajectory.content_hash,
        _span_name(task.task_id),
        task.domain,
        _database_text(task.description, MAX_PREVIEW),
        _database_text(facts, MAX_PREVIEW),
        trajectory.has_infrastructure_failure,
        tags,
        (root, *turns),
        (
            *success_assessment(trajectory),
            *score_assessments(score),
            *judge_assessments(judgements, trajectory.content_hash),
        ),
    )


def _turn_spans(trajectory: Trajectory, start: int) -> Iterator[TraceSpan]:
    """Yield a model call and then its steps. A call's input is what came since the call before, so the length stays
    linear.
    """
    begin = start + _TICK
    new_messages: list[Any] = as_chat_messages(trajectory.messages)
    for turn in trajectory.turns:
        reply, *results = turn_messages(turn)
        end = begin + max(_duration(turn), (len(turn.calls) + 2) * _TICK)
        usage, thought = turn.usage, {"reasoning_content": turn.thought} if turn.thought else {}
        counts = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens} if usage else {}
        yield TraceSpan(
            span_id(turn.index),
            span_id(),
            f"turn {turn.index}",
            "CHAT_MODEL",
            begin,
            end - len(turn.calls) * _TICK,
            inputs={"messages": [_shorten_texts(message) for message in new_messages]},
            outputs={"choices": [{"message": _shorten_texts(reply | thought), "finish_reason": turn.stop_reason}]},
            usage={name: count for name, count in counts.items() if count is not None},
        )
        yield from _step_spans(turn, end)
        new_messages, begin = results, end + _TICK


def _step_spans(turn: Turn, end: int) -> Iterator[TraceSpan]:
    results = {result.call_id: result for result in turn.results}
    for step, call in enumerate(turn.calls):
        result = results.get(call.call_id)
        begin = end - (len(turn.calls) - step) * _TICK
        readable = call.parse_error is None
        yield TraceSpan(
            span_id(turn.index, step),
            span_id(),
            _span_name(call.tool) if readable else "(unreadable)",
            "TOOL",
            begin,
            begin + _TICK,
            inputs=_shorten_texts(call.arguments) if readable else {"raw": _shorten_texts(call.raw)},
            outputs=None if result is None else _tool_message(result, call.call_id),
            error=call.parse_error if not readable else result.error if result is not None else None,
        )


def _tool_message(result: ToolResult, call_id: str) -> dict[str, Any]:
    answer = {"type": "tool", "tool_call_id": call_id, "content": _shorten_texts(result.content)}
    return answer if result.exit_code is None else {**answer, "exit_code": result.exit_code}


def _shorten_texts(value: Any) -> Any:
    """Return the value with every long text in it cut."""
    if isinstance(value, str):
        cut = _database_text(value, MAX_TEXT)
        return cut if len(value) <= MAX_TEXT else f"{cut} … {len(value) - MAX_TEXT:,} characters left out"
    if isinstance(value, Mapping):
        return {key: _shorten_texts(item) for key, item in value.items()}
    return [_shorten_texts(item) for item in value] if isinstance(value, list | tuple) else value


def _span_name(text: str) -> str:
    """Return a name that MLflow accepts: not empty, one line, at most 200 characters."""
    return _database_text(" ".join(text.split()), 200) or "(none)"


def _database_text(text: str, limit: int) -> str:
    """Return a text that every database accepts: PostgreSQL has no zero bytes."""
    return text[:limit].replace("\x00", "\ufffd")


def _duration(turn: Turn) -> int:
    """Return the nanoseconds of a turn, at most a day."""
    return round(min(turn.seconds or 0.0, 86_400.0) * 1e9)


def _nanoseconds(moment: str | None) -> int | None:
    """Return nanoseconds since 1970; None for an unknown date or one that a database cannot hold."""
    try:
        since_epoch = None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1e6) * 1000
    except (ValueError, OverflowError):
        return None
    return since_epoch if since_epoch is not None and 0 <= since_epoch < 1 << 62 else None
