"""McpEnvironment: the tools of any MCP server are the tools of an agent, over stdio or streamable HTTP.

A server over stdio is started anew for each episode, in an empty folder that holds the task's files. A server behind a URL
keeps its own state: a task's `world["probes"]` names the calls by which the grader reads it.

HAZARD: a server over stdio runs with the rights of this process. Servers come from the user's own configuration, never from a
taskset, whose authors must not choose what runs on the host.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import pydantic

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, TaskSpec, ToolSpec
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.errors import first_line
from ratchet.components.core.files import write_below

from .episode_environment import EpisodeEnvironment, grade_world
from .outcome_criteria import RecordedCall, World
from .sandbox_tools import Observation, ToolSettings, truncate_text
from .world_tools import SUBMIT

SERVERS_VARIABLE = "RATCHET_MCP_SERVERS"
SERVERS_FILE = ".mcp.json"
MAX_WORKSPACE_FILES = 1000
MAX_FILE_BYTES = 1 << 20
MAX_TOOL_PAGES = 100
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class McpServer(Configuration):
    """One entry of `mcpServers`: a `command` with `args` and `env`, or a `url` with `headers`; `${NAME}` in a value is an
    environment variable. `tools`: names of the only tools that are offered; empty for all.
    """

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = pydantic.Field(default_factory=dict)
    url: str = ""
    headers: dict[str, str] = pydantic.Field(default_factory=dict)
    tools: tuple[str, ...] = ()

    @pydantic.model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give a command (stdio) or a url (streamable HTTP), and not both")
        return self


class McpServers(Configuration):
    """The file of servers, in the format that MCP clients share."""

    mcpServers: dict[str, McpServer] = pydantic.Field(min_length=1)


class McpEnvironment(EpisodeEnvironment):
    """The tools of MCP servers, and `submit`, which ends the episode.

    - `servers`: entries of `mcpServers` by name; None: those of the file that RATCHET_MCP_SERVERS names, else `.mcp.json`.
    - Tools have their own names; with several servers, `SERVER__TOOL`. Servers check the arguments of calls.
    - The world of the criteria: `files` (path: text) is the folder in which servers over stdio run, and `probes` maps the names
      in the task's `world["probes"]`, each `{tool, params}`, to what the call answers (a JSON value, or a text) before the
      first step and after the last.
    - A tool's error is an observation. A server that ends, or is not there, is an InfrastructureError.
    - `call_seconds` limits the start of a server and each call.
    """

    def __init__(
        self, servers: Mapping[str, Any] | None = None, *, max_steps: int = 20, call_seconds: float = 60.0
    ) -> None:
        super().__init__(max_steps)
        source = Path(os.environ.get(SERVERS_VARIABLE, SERVERS_FILE)) if servers is None else {"mcpServers": servers}
        self._servers = McpServers.load(source).mcpServers
        self._seconds = call_seconds
        self._resources = ExitStack()
        self._specs: dict[str, ToolSpec] = {}
        self._owners: dict[str, tuple[Any, str]] = {}
        self._before: World = {}
        self._calls: list[RecordedCall] = []
        self._utterances: list[str] = []

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of the running (or last) episode; before the first, only `submit`."""
        return (*self._specs.values(), SUBMIT.spec)

    def close(self) -> None:
        """End the servers and remove their folder; safe to call twice."""
        resources, self._resources = self._resources, ExitStack()
        resources.close()

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        from anyio.from_thread import start_blocking_portal  # comes with the package `mcp`

        self._calls, self._utterances, self._specs, self._owners = [], [], {}, {}
        self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-mcp-")))
        write_below(self._folder, task.files, f"task '{task.task_id}'")
        log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed with the resources
        self._log = self._resources.enter_context(log)
        self._portal = self._resources.enter_context(start_blocking_portal())
        for name, server in self._servers.items():
            self._connect(name, server)
        self._before = task.world | self._observed_world(task)
        return self._before.get("context") or task.description, {}

    def _connect(self, name: str, server: McpServer) -> None:
        """Start or reach a server, and list its tools. Raises InfrastructureError, ConfigurationError."""
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if server.command:
            command = _expanded(server.command)
            program = shutil.which(command)
            if program is None:
                raise ConfigurationError(f"MCP server '{name}': program '{command}' is not on the PATH; install it")
            parameters = StdioServerParameters(
                command=str(Path(program).absolute()),
                args=[_expanded(argument) for argument in server.args],
                env={key: _expanded(value) for key, value in server.env.items()},
                cwd=self._folder,
            )
            transport = stdio_client(parameters, errlog=self._log)
        else:
            import httpx2  # the HTTP client of the package `mcp`

            headers = {key: _expanded(value) for key, value in server.headers.items()}
            http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(self._seconds))
            self._resources.enter_context(self._portal.wrap_async_context_manager(http))
            transport = streamable_http_client(_expanded(server.url), http_client=http)
        try:
            client = self._resources.enter_context(
                self._portal.wrap_async_context_manager(Client(transport, read_timeout_seconds=self._seconds))
            )
            tools = self._portal.call(_list_tools, client)
        except Exception as error:  # groups of anyio's, of the transport's and of the protocol's errors
            raise InfrastructureError(
                f"MCP server '{name}' does not answer: {_reason(error)}{self._last_log()}"
            ) from error
        prefix = f"{name}__" if len(self._servers) > 1 else ""
        if unknown := set(server.tools) - {tool.name for tool in tools}:
            raise ConfigurationError(f"MCP server '{name}' has no tool '{min(unknown)}'; correct `tools`")
        for tool in tools:
            own_name = prefix + tool.name
            if own_name == SUBMIT.name:
                raise ConfigurationError(f"MCP server '{name}': 'submit' ends an episode; leave it out by `tools`")
            if not server.tools or tool.name in server.tools:
                self._specs[own_name] = ToolSpec(own_name, tool.description or "", tool.input_schema)
                self._owners[own_name] = (client, tool.name)

    def _call_tool(self, tool: Any, params: Any) -> tuple[Observation, bool]:
        if tool == SUBMIT.name:
            observation = SUBMIT.call({}, params)
            if observation.error is None:
                self._utterances.append(params.get("text", ""))
            return observation, observation.error is None
        owner = self._owners.get(tool) if isinstance(tool, str) else None
        if owner is None or not isinstance(params, dict):
            names = ", ".join(spec.name for spec in self.tools)
            fault = f"unknown tool {tool!r}; tools: {names}" if owner is None else f"{tool}: params must be an object"
            return Observation(f"error: {fault}", error=fault), False
        observation = self._call_server(tool, params)
        self._calls.append(RecordedCall(tool, params, observation.error is None))
        return observation, False

    def _call_server(self, tool: str, params: dict[str, Any]) -> Observation:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client, name = self._owners[tool]
        try:
            result = self._portal.call(client.call_tool, name, params)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise InfrastructureError(f"the MCP server of tool '{tool}' has ended{self._last_log()}") from error
            return Observation(f"error: {_reason(error)}", error=_reason(error))
        except Exception as error:  # the connection failed, or the result does not follow the protocol
            raise InfrastructureError(
                f"MCP tool '{tool}' gave no result: {_reason(error)}{self._last_log()}"
            ) from error
        text, truncated = truncate_text(_content_text(result), ToolSettings().observation_limit)
        fault = text.splitlines()[0] if text.strip() else "the tool failed"
        return Observation(text, error=fault if result.is_error else None, truncated=truncated)

    def _observed_world(self, task: TaskSpec) -> World:
        """Return the files of the folder, and the answers of the probes that the task names."""
        probes = {}
        for name, probe in task.world.get("probes", {}).items():
            if not isinstance(probe, dict) or probe.get("tool") not in self._owners:
                raise DataError(f"world.probes.{name} needs a tool of the servers; tools: {', '.join(self._owners)}")
            probes[name] = _json_value(self._call_server(probe["tool"], probe.get("params", {})).content)
        return {"files": _read_files(self._folder)} | ({"probes": probes} if probes else {})

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        after = task.world | self._observed_world(task)
        opening = msgspec.structs.replace(task, world=self._before)
        return grade_world(opening, after, tuple(self._utterances), tuple(self._calls), reason)

    def _last_log(self) -> str:
        """Return the last line that a server wrote to standard error, for a message."""
        self._log.seek(0)
        lines = self._log.read()[-2000:].split("\n")
        return next((f" ({line.strip()[:200]})" for line in reversed(lines) if line.strip()), "")


async def _list_tools(client: Any) -> list[Any]:
    """Return the tools of all pages."""
    page = await client.list_tools()
    tools = list(page.tools)
    for _ in range(MAX_TOOL_PAGES):
        if not page.next_cursor:
            break
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _content_text(result: Any) -> str:
    """Return the text of a result's blocks; of one that is not text, its kind and size."""
    parts = []
    for block in result.content:
        resource = getattr(block, "resource", None)
        text = getattr(block, "text", None) or getattr(resource, "text", None)
        data = getattr(block, "data", None) or getattr(resource, "blob", None) or ""
        place = getattr(block, "uri", None) or getattr(resource, "uri", "")
        parts.append(text if text is not None else " ".join(f"[{block.type} {place} {len(data)} characters]".split()))
    if not parts and result.structured_content is not None:
        return msgspec.json.encode(result.structured_content).decode()
    return "\n".join(parts)


def _json_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _reason(error: BaseException) -> str:
    """Return the first line of an error, of a group that of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return first_line(error) if isinstance(error, Exception) else type(error).__name__


def _expanded(value: str) -> str:
    """Replace `${NAME}` by the environment variable. Raises ConfigurationError where it is not set."""

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ConfigurationError(f"the MCP servers need the environment variable {match[1]}; set it")
        return os.environ[match[1]]

    return _VARIABLE.sub(variable, value)


def _read_files(folder: Path) -> dict[str, str]:
    """Return the text of each file below the folder by its path, without links, larger and surplus files."""
    # rglob does not follow links to folders; a link to a file would show the grader a file of the host.
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    small = [path for path in paths if path.stat().st_size <= MAX_FILE_BYTES]
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in small[:MAX_WORKSPACE_FILES]
    }
