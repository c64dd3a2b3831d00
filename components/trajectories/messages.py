"""A trajectory as chat messages: the one rendering that collection, export and training share."""

from collections.abc import Iterable

from components.protocol import Message as ChatMessage

from .record import Message, Trajectory, Turn


def opening(messages: Iterable[Message]) -> list[ChatMessage]:
    """The messages that stand before the first turn."""
    return [{"role": message.role, "content": message.content} for message in messages]


def turn_messages(turn: Turn) -> list[ChatMessage]:
    """One assistant message, then one tool message per result.

    Calls that could be parsed stand in `tool_calls`; `content` holds the text beside them, and then
    each call that could not be parsed, as it was written.
    """
    parsed = [call for call in turn.calls if call.parse_error is None]
    unreadable = "".join(call.raw for call in turn.calls if call.parse_error is not None)
    message: ChatMessage = {"role": "assistant", "content": turn.text + unreadable}
    if parsed:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.tool, "arguments": call.arguments},
            }
            for call in parsed
        ]
    names = {call.call_id: call.tool for call in turn.calls}
    replies: list[ChatMessage] = [
        {
            "role": "tool",
            "tool_call_id": result.call_id,
            "name": names.get(result.call_id, ""),
            "content": result.content,
        }
        for result in turn.results
    ]
    return [message, *replies]


def chat(trajectory: Trajectory) -> list[ChatMessage]:
    """The whole conversation."""
    messages = opening(trajectory.messages)
    for turn in trajectory.turns:
        messages.extend(turn_messages(turn))
    return messages
