"""Chat messages of a trajectory, the one rendering that collection, export and training share; and tool calls written
as text.

For chat templates without tools, calls stand in the assistant's text as `<tool_call>{"name": …, "arguments":
…}</tool_call>`, results in a user message as `<tool_response>…</tool_response>`, and the tools in the system message,
in the format of Hermes models.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from ratchet.components.core import DataError, ToolCall, assistant_message
from ratchet.components.core import Message as ChatMessage

from .trajectory import Message, Trajectory, Turn


def as_chat_messages(messages: Iterable[Message]) -> list[ChatMessage]:
    """Return an episode's `messages` (those before its first turn) as chat messages; only role and content are
    kept.
    """
    return [{"role": message.role, "content": message.content} for message in messages]


def turn_messages(turn: Turn) -> list[ChatMessage]:
    """Return one assistant message (see `assistant_message`) and one tool message per result."""
    names = {call.call_id: call.tool for call in turn.calls}
    messages = [assistant_message(turn.text, turn.calls)]
    for result in turn.results:
        name = names.get(result.call_id, "")
        messages.append({"role": "tool", "tool_call_id": result.call_id, "name": name, "content": result.content})
    return messages


def chat_messages(trajectory: Trajectory) -> list[ChatMessage]:
    """Return the whole conversation: the messages before the first turn, then those of each turn."""
    messages = as_chat_messages(trajectory.messages)
    for turn in trajectory.turns:
        messages.extend(turn_messages(turn))
    return messages


class EditedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call in a message that a person wrote."""

    tool: Annotated[str, msgspec.Meta(min_length=1)]
    arguments: dict[str, Any] = {}


class EditedMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An assistant message that a person wrote in place of an agent's."""

    text: str = ""
    calls: tuple[EditedCall, ...] = ()


def edited_turn(edit: str) -> Turn:
    """Return the turn of a person's message, the JSON of an EditedMessage; it has no results. Raises DataError, also for an
    empty message.
    """
    try:
        message = msgspec.json.decode(edit, type=EditedMessage)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(
            f"an edited message is not valid: {error}; write text and calls with tool and arguments"
        ) from error
    if not message.text.strip() and not message.calls:
        raise DataError("an edited message is empty; write a text or a call")
    calls = tuple(ToolCall(f"call_{place}", call.tool, call.arguments) for place, call in enumerate(message.calls))
    return Turn(0, "", message.text, calls=calls)


TOOLS_PROMPT = (
    "You have tools. To call one, write its name and arguments as JSON between <tool_call> and </tool_call>; its result follows "
    "between <tool_response> and </tool_response>.\n<tools>\n{tools}\n</tools>"
)


def inline_tools(messages: Sequence[ChatMessage], tools: Sequence[Any]) -> list[ChatMessage]:
    """Return a conversation for a chat template without tools, in the format of this module. `tools`: descriptions
    as JSON values, appended to the system message (which is added if missing); none if empty.
    """
    rewritten: list[ChatMessage] = []
    for message in messages:
        if message["role"] == "tool":
            _append_result(rewritten, message)
        elif message["role"] == "assistant":
            rewritten.append(inline_calls(message))
        else:
            rewritten.append(message)
    if tools:
        prompt = TOOLS_PROMPT.format(tools="\n".join(_json(tool) for tool in tools))
        if rewritten and rewritten[0]["role"] in ("system", "developer"):
            rewritten[0] = {**rewritten[0], "content": f"{rewritten[0]['content']}\n\n{prompt}"}
        else:
            rewritten.insert(0, {"role": "system", "content": prompt})
    return rewritten


def inline_calls(message: ChatMessage) -> ChatMessage:
    """Return an assistant message with its `tool_calls` appended to its content as text."""
    calls = "".join(f"<tool_call>{_json(call['function'])}</tool_call>" for call in message.get("tool_calls", ()))
    others = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**others, "content": (message.get("content") or "") + calls}


def _append_result(rewritten: list[ChatMessage], message: ChatMessage) -> None:
    """Append a result; consecutive results share one message, so that roles alternate."""
    content = inline_result(message)["content"]
    before = rewritten[-1] if rewritten else {}
    if before.get("role") == "user" and str(before["content"]).endswith("</tool_response>"):
        rewritten[-1] = {**before, "content": f"{before['content']}\n{content}"}
    else:
        rewritten.append({"role": "user", "content": content})


def inline_result(message: ChatMessage) -> ChatMessage:
    """Return a message of the role tool as a user message, with its content between `<tool_response>` tags."""
    return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
