"""Dialogue: whether a conversation is one that chat templates render, as what it is. Reads messages as they are exported.

Not promised: that a particular template takes it. Some want users and assistants to take turns (`alternates`); where
`params.yaml` names a template, `template` renders each conversation by it.
"""

from collections.abc import Sequence
from typing import Any

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
MARKERS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|begin_of_text|>", "<start_of_turn>", "<end_of_turn>", "<|assistant|>", "<|user|>", "<|system|>", "[/INST]",
)  # fmt: skip
"""What templates write between messages: within a text it would end the message and begin one of another role."""
NUL = "\x00"

Chat = Sequence[dict[str, Any]]


def chat_fault(messages: Chat) -> str | None:
    """The first thing that is wrong with a conversation, None where nothing is.

    Roles are known; the system speaks first or not at all; what tools say follows what the agent said, and answers no call twice;
    calls are answered before the agent goes on; no text holds a marker of a template or a NUL.
    """
    before: str = ""
    asked: set[str] = set()
    answered: set[str] = set()
    for number, message in enumerate(messages, start=1):
        fault = _shape_fault(message)
        if fault is not None:
            return f"message {number} {fault}"
        role = message["role"]
        if role in ("system", "developer") and number > 1:
            return f"message {number} is of the {role}, which speaks first or not at all"
        if role == "tool":
            identity = message.get("tool_call_id") or ""
            if before not in ("assistant", "tool"):
                return f"message {number} is of a tool that nobody has called"
            if identity and identity in answered:
                return f"message {number} answers {identity!r} again"
            answered.add(identity)
        elif lost := asked - answered:
            return f"message {number} goes on before {min(lost)!r} is answered"
        else:
            answered = set()
            asked = {call.get("id") or "" for call in message.get("tool_calls") or ()} - {""}
        before = role
    return None


def _shape_fault(message: dict[str, Any]) -> str | None:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        return f"has the role {role!r}"
    if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
        return f"has a content that is no text ({type(content).__name__})"
    return marked(content or "") or next(filter(None, map(_call_fault, message.get("tool_calls") or ())), None)


def _call_fault(call: dict[str, Any]) -> str | None:
    """A template writes names and arguments of calls into the text as well."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    values = arguments.values() if isinstance(arguments, dict) else (arguments,)
    for value in (call.get("id"), function.get("name"), *values):
        if value is not None and (fault := marked(value if isinstance(value, str) else str(value))):
            return f"{fault}, in a call"
    return None


def tools_fault(tools: Any) -> str | None:
    """What is wrong with the tools that an episode was told of: each is a function with a name, or no reader takes the column."""
    for number, tool in enumerate(tools if isinstance(tools, list) else (), start=1):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return f"tool {number} is no function with a name"
    return None


def marked(text: str) -> str | None:
    """Which marker of a chat template stands in a text, or that a NUL does."""
    if NUL in text:
        return "holds a NUL character"
    if "<" in text or "[/INST]" in text:
        for marker in MARKERS:
            if marker in text:
                return f"holds {marker}, which a chat template reads as its own"
    return None


def alternates(messages: Chat) -> bool:
    """Whether a user begins, and neither users nor assistants speak twice without another in between; the system apart."""
    before = ""
    for message in messages:
        role = message.get("role", "")
        if role in ("system", "developer"):
            continue
        if (not before and role != "user") or (role == before and role != "tool"):
            return False
        before = role
    return bool(before)
