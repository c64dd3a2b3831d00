"""A tool that an agent may call, one call of it, and what came back."""

from typing import Any

import msgspec


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a policy is told of a tool. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]

    def as_openai(self) -> dict[str, Any]:
        """The function-calling form of OpenAI's API and of every chat template."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call as the policy wrote it. A call that cannot be read has `parse_error` and keeps its `raw` text."""

    call_id: str
    tool: str
    arguments: dict[str, Any] = {}
    raw: str = ""
    parse_error: str | None = None


class ToolResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a call returned. `content` is text; a large or binary output is a blob named by its hash.

    `exit_code` is None for a tool that has none; `error` is None unless the call itself could not be carried out.
    """

    call_id: str
    content: str
    exit_code: int | None = None
    error: str | None = None
    truncated: bool = False
    blob: str | None = None
