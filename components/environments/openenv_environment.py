"""OpenEnvEnvironment: play an environment behind an OpenEnv server (`openenv-core` 0.3), by its own client.

Servers of MCP tools offer these tools; any other server offers the tool `act`, whose parameters are the fields of its action.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ratchet.components.core import ConfigurationError, InfrastructureError, TaskSpec, ToolSpec
from ratchet.components.core.errors import first_line

from .peer_environment import PeerEnvironment, bounded_observation, peer_outcome, tool_fault
from .peer_task import PeerTask, missing_package, read_peer_task
from .sandbox_tools import Observation

MCP_ACTIONS = {"Action", "CallToolAction", "ListToolsAction"}
ACT = "act"


class OpenEnvEnvironment(PeerEnvironment):
    """The score is the sum of the server's rewards; success is a sum of at least 1.

    An action that the server refuses is an observation; a lost connection is an InfrastructureError. `seconds` limits each call.
    """

    def __init__(self, *, max_steps: int = 20, seconds: float = 60.0) -> None:
        super().__init__(max_steps)
        self._seconds = seconds
        self._client: Any = None
        self._calls_tools = False
        self._reward = 0.0

    def close(self) -> None:
        """Close the session at the server; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # a connection that is lost already
                client.close()

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        peer = read_peer_task(task.criteria, "openenv")
        try:
            from openenv import GenericEnvClient
        except ImportError as error:
            raise missing_package("openenv-core", error) from error
        self._reward = 0.0
        try:
            schema = _action_schema(peer.package, self._seconds)
            client = GenericEnvClient(base_url=peer.package, message_timeout_s=self._seconds)
            self._client = client.sync()
            self._client.connect()
            first = self._client.reset(**peer.data.get("reset", {}))
            self._calls_tools = schema.get("title") in MCP_ACTIONS
            self._tools = self._mcp_tools() if self._calls_tools else (_act_tool(schema),)
        except Exception as error:  # of httpx, websockets, the client and the server's code
            raise InfrastructureError(f"OpenEnv server {peer.package} does not answer: {first_line(error)}") from error
        return _text(first.observation), {}

    def _mcp_tools(self) -> tuple[ToolSpec, ...]:
        tools = self._client.step({"type": "list_tools"}).observation["tools"]
        return tuple(ToolSpec(tool["name"], tool.get("description") or "", tool["input_schema"]) for tool in tools)

    def _call_peer(self, tool: str, params: dict[str, Any]) -> tuple[Observation, bool]:
        action = {"type": "call_tool", "tool_name": tool, "arguments": params} if self._calls_tools else params
        try:
            result = self._client.step(action)
            self._reward += float(result.reward or 0.0)
        except RuntimeError as error:  # the client's error for a message of the server
            return Observation(f"error: {first_line(error)}", error=first_line(error)), False
        except Exception as error:
            raise InfrastructureError(f"the OpenEnv server is lost: {first_line(error)}") from error
        shown = (
            _tool_result(result.observation) if self._calls_tools else bounded_observation(_text(result.observation))
        )
        return shown, bool(result.done)

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        return peer_outcome(self._reward, reason)


def peer_tasks(url: str, config: dict[str, Any], size: int) -> Iterator[tuple[PeerTask, str]]:
    """Yield `size` tasks of a server, with the seeds from 0; `config`: further arguments of its reset. Raises
    ConfigurationError where the server does not answer.
    """
    import httpx

    try:
        _action_schema(url, 30.0)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        raise ConfigurationError(f"no OpenEnv server answers at {url}: {first_line(error)}; start it first") from error
    for seed in range(size):
        data = {"name": f"seed-{seed}", "reset": {"seed": seed, **config}}
        yield PeerTask("openenv", url, {}, data), f"The episode with seed {seed} of {url}."


def _action_schema(url: str, seconds: float) -> dict[str, Any]:
    """Return the JSON Schema of a server's action; its client does not ask for it."""
    import httpx

    schema: dict[str, Any] = httpx.get(f"{url.rstrip('/')}/schema", timeout=seconds).raise_for_status().json()["action"]
    return schema


def _act_tool(schema: dict[str, Any]) -> ToolSpec:
    properties = {name: value for name, value in schema.get("properties", {}).items() if name != "metadata"}
    parameters = {key: value for key, value in schema.items() if key in ("$defs", "required")}
    return ToolSpec(ACT, schema.get("description", ""), {"type": "object", "properties": properties, **parameters})


def _tool_result(observation: dict[str, Any]) -> Observation:
    """Return the texts of an MCP tool's result, a result with other parts as JSON, or the tool's error."""
    error, result = observation.get("error"), observation.get("result")
    if isinstance(error, dict):
        message = str(error.get("message") or "")
        return bounded_observation(f"error: {message.strip() or tool_fault(message)}", tool_fault(message))
    content = result.get("content") if isinstance(result, dict) else None
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    text = "\n".join(texts) if texts and len(texts) == len(parts) else _text({"result": result})
    failed = isinstance(result, dict) and result.get("is_error")
    return bounded_observation(text, tool_fault(text) if failed else None)


def _text(observation: dict[str, Any]) -> str:
    """Return an observation as JSON, without empty fields; one text alone as it is."""
    fields = {
        key: value
        for key, value in observation.items()
        if key not in ("metadata", "done", "reward") and value is not None
    }
    values = list(fields.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else json.dumps(fields, ensure_ascii=False)
