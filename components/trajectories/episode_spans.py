"""An episode as OpenTelemetry spans, by the semantic conventions for generative AI: `invoke_agent`, its model calls
(`chat`) and its tool calls (`execute_tool`).

Each episode is a separate trace with a link to the step of the night that played it. A night has thousands of episodes,
and no tracing back end shows one trace of that size. Texts of the episode are left out, unless OpenTelemetry's variable
for the capture of messages asks for them; then they are redacted.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain, islice, repeat
from typing import Any

import msgspec

from ratchet.components.core.otlp_export import SpanRecord, send_spans, span_id, step_ids, trace_id
from ratchet.components.core.run_context import run_context
from ratchet.components.redaction import Sanitiser

from .chat_messages import as_chat_messages, turn_messages
from .trajectory import Trajectory, Turn

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_TEXT = 20_000
"""Characters of a captured text."""
OTHER_TOOL = "_OTHER"
"""Name of a tool that the agent was not offered: it is text of a model, and not bounded."""


def send_episodes(lines: bytes) -> None:
    """Send the episodes of a new shard (`lines`: its JSON lines) as traces."""
    context = dict(run_context())

    def make() -> Iterator[SpanRecord]:
        sanitiser = Sanitiser() if captures_content() else None
        decoder = msgspec.json.Decoder(Trajectory)
        for line in lines.splitlines():
            trajectory = decoder.decode(line)
            redacted = sanitiser.trajectory(trajectory)[0] if sanitiser is not None else None
            yield from episode_spans(trajectory, context, redacted)

    send_spans(make)


def captures_content() -> bool:
    """Return whether the environment asks for messages, arguments and results on spans."""
    return (os.environ.get(CAPTURE) or "").lower() in ("true", "span_only", "span_and_event")


def episode_spans(
    trajectory: Trajectory, context: Mapping[str, str], redacted: Trajectory | None = None
) -> Iterator[SpanRecord]:
    """Yield the spans of an episode, its `invoke_agent` span first. `context`: night and step that played it.

    `redacted`: the episode whose texts are captured; None: without texts. A model call takes the turn's time without that of its
    tool calls; where that was not recorded, tool calls have no duration.
    """
    task, agent, outcome, failure = trajectory.task, trajectory.agent, trajectory.outcome, trajectory.failure
    night, step = context.get("night"), context.get("step")
    trace = trace_id("episode", night, trajectory.episode_id)
    begin = _nanoseconds(trajectory.provenance.collected_at)
    turns = list(_turn_spans(trajectory, redacted, trace, begin))
    usages = [turn.usage for turn in trajectory.turns if turn.usage is not None]
    yield SpanRecord(
        trace,
        span_id(trace),
        None,
        f"invoke_agent {_text(agent.name)}",
        begin,
        max([begin, *(span.end for span in turns)]),
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": agent.policy,
            "gen_ai.agent.name": _text(agent.name),
            "gen_ai.agent.version": agent.policy_version,
            "gen_ai.conversation.id": trajectory.episode_id,
            "gen_ai.usage.input_tokens": _total(usage.prompt_tokens for usage in usages),
            "gen_ai.usage.output_tokens": _total(usage.completion_tokens for usage in usages),
            "ratchet.night": night,
            "ratchet.step": step,
            "ratchet.episode": trajectory.episode_id,
            "ratchet.task": _text(task.task_id),
            "ratchet.taskset": task.taskset,
            "ratchet.role": task.role,
            "ratchet.attempt": trajectory.attempt,
            "ratchet.success": outcome.success,
            "ratchet.reason": _text(outcome.reason) or None,
            "error.type": None if failure is None else failure.type,
        },
        None if failure is None else failure.kind.value,
        step_ids(night, step) if night and step else None,
    )
    yield from turns


def _turn_spans(trajectory: Trajectory, redacted: Trajectory | None, trace: int, begin: int) -> Iterator[SpanRecord]:
    """Yield each model call, then its tool calls. The captured input of a call is what came since the call before."""
    root, agent = span_id(trace), trajectory.agent
    offered = {str(tool.get("function", {}).get("name")) for tool in trajectory.source_extra.get("tools", ())}
    new_messages = as_chat_messages(redacted.messages) if redacted is not None else []
    for number, turn in enumerate(trajectory.turns):
        measured = [_duration(seconds) for seconds in turn.call_seconds or ()]
        answered = begin + max(0, _duration(turn.seconds) - sum(measured))
        content: dict[str, Any] = {}
        if redacted is not None:
            reply, *results = turn_messages(redacted.turns[number])
            answer = _message(reply, redacted.turns[number].thought) | {"finish_reason": turn.stop_reason or "stop"}
            content = {
                "gen_ai.input.messages": _json([_message(message) for message in new_messages]),
                "gen_ai.output.messages": _json([answer]),
            }
            new_messages = results
        usage = turn.usage
        yield SpanRecord(
            trace,
            span_id(trace, turn.index),
            root,
            f"chat {_text(agent.name)}",
            begin,
            answered,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": agent.policy,
                "gen_ai.request.model": _text(agent.name),
                "gen_ai.response.finish_reasons": [turn.stop_reason] if turn.stop_reason else None,
                "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
                "gen_ai.usage.output_tokens": usage.completion_tokens if usage else None,
                **_sampling(agent.sampling),
                **content,
            },
        )
        begin = answered
        for place, duration in enumerate(islice(chain(measured, repeat(0)), len(turn.calls))):
            where = (trace, root, begin, begin + duration)
            yield _call_span(turn, place, redacted.turns[number] if redacted else None, offered, where)
            begin += duration


def _call_span(
    turn: Turn, place: int, redacted: Turn | None, offered: set[str], where: tuple[int, int, int, int]
) -> SpanRecord:
    """Return the span of a tool call. `where`: ids of the trace and of the parent, begin and end."""
    trace, parent, begin, end = where
    call, result = turn.calls[place], turn.results[place] if place < len(turn.results) else None
    tool = _text(call.tool) if call.tool in offered else OTHER_TOOL
    error = "parse_error" if call.parse_error is not None else "tool_error" if result and result.error else None
    content: dict[str, Any] = {}
    if redacted is not None:
        asked = redacted.calls[place]
        content["gen_ai.tool.call.arguments"] = (
            _text(asked.raw) if asked.parse_error else _json(_short(asked.arguments))
        )
        if result is not None:
            content["gen_ai.tool.call.result"] = _text(redacted.results[place].content)
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": _text(call.call_id),
        "process.exit.code": result.exit_code if result is not None else None,
        "error.type": error,
        **content,
    }
    return SpanRecord(
        trace, span_id(trace, turn.index, place), parent, f"execute_tool {tool}", begin, end, attributes, error
    )


def _message(message: Mapping[str, Any], thought: str | None = None) -> dict[str, Any]:
    """Return a chat message in the conventions' form: a role and parts."""
    if message["role"] == "tool":
        answer = {"type": "tool_call_response", "id": message["tool_call_id"], "response": _text(message["content"])}
        return {"role": "tool", "parts": [answer]}
    parts: list[dict[str, Any]] = [{"type": "reasoning", "content": _text(thought)}] if thought else []
    parts += [{"type": "text", "content": _text(message["content"])}] if message["content"] else []
    parts += [
        {"type": "tool_call", "id": call["id"], **_short(call["function"])} for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "parts": parts}


def _sampling(sampling: Mapping[str, Any]) -> dict[str, float]:
    names = {"temperature": "temperature", "top_p": "top_p", "max_new_tokens": "max_tokens"}
    return {
        f"gen_ai.request.{name}": sampling[key]
        for key, name in names.items()
        if isinstance(sampling.get(key), int | float)
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _short(value: Any) -> Any:
    """Return a JSON value with every long text in it cut."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list | tuple) else value


def _text(text: str) -> str:
    return text[:MAX_TEXT]


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _duration(seconds: float | None) -> int:
    """Return nanoseconds, at most a day."""
    return round(min(seconds or 0.0, 86_400.0) * 1e9)


def _nanoseconds(moment: str | None) -> int:
    """Return nanoseconds since 1970; 0 for an unknown time."""
    try:
        return 0 if moment is None else max(0, round(datetime.fromisoformat(moment).timestamp() * 1e9))
    except (ValueError, OverflowError):
        return 0
