"""A service that is instrumented with OpenTelemetry's SDK: it plays recorded episodes again, and its exporter sends the spans."""

import json
from collections.abc import Iterable
from typing import Any

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ratchet.components.trajectories.trajectory import Trajectory


def tracer_provider(url: str, key: str, **exporter: Any) -> TracerProvider:
    """The SDK as a service sets it up: batches, gzip, retries."""
    client = OTLPSpanExporter(
        endpoint=f"{url}/v1/traces",
        headers={"Authorization": f"Bearer {key}"},
        compression=Compression.Gzip,
        **exporter,
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "repair-desk"}))
    provider.add_span_processor(BatchSpanProcessor(client, max_queue_size=100_000, schedule_delay_millis=500))
    return provider


def serve_episodes(provider: TracerProvider, episodes: Iterable[Trajectory], model: str = "") -> list[str]:
    """Send each episode as one conversation; return the conversation ids."""
    return [
        _serve(provider.get_tracer("service"), episode, model or episode.agent.policy_version) for episode in episodes
    ]


def _serve(tracer: Any, episode: Trajectory, model: str) -> str:
    conversation = f"conversation-{episode.episode_id[3:]}"
    history = [_text(message.role, message.content) for message in episode.messages]
    common = {"gen_ai.conversation.id": conversation}
    with tracer.start_as_current_span(
        "invoke_agent desk", attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk", **common}
    ):
        for turn in episode.turns:
            parts: list[dict[str, Any]] = [{"type": "text", "content": turn.text}] if turn.text else []
            parts += [
                {"type": "tool_call", "id": call.call_id, "name": call.tool, "arguments": call.arguments}
                for call in turn.calls
            ]
            reply = {"role": "assistant", "parts": parts, "finish_reason": "tool_calls" if turn.calls else "stop"}
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "vllm",
                "gen_ai.request.model": model,
                "gen_ai.input.messages": json.dumps(history),
                "gen_ai.output.messages": json.dumps([reply]),
                "gen_ai.tool.definitions": json.dumps(episode.source_extra.get("tools", [])),
                **common,
            }
            with tracer.start_as_current_span(f"chat {model}", attributes=attributes):
                pass
            history.append(reply)
            for call, result in zip(turn.calls, turn.results, strict=False):
                attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": call.tool,
                    "gen_ai.tool.call.id": call.call_id,
                    "gen_ai.tool.call.arguments": json.dumps(call.arguments),
                    "gen_ai.tool.call.result": result.content,
                    **common,
                }
                with tracer.start_as_current_span(f"execute_tool {call.tool}", attributes=attributes):
                    pass
                response = {"type": "tool_call_response", "id": call.call_id, "response": result.content}
                history.append({"role": "tool", "parts": [response]})
    return conversation


def _text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}
