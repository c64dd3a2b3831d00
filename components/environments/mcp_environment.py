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
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, TaskSpec, ToolSpec
from ratchet.components.core.configuration import Configuration
from ratchet.components.core.errors import first_line
from ratchet.components.core.files import write_below
from ratchet.components.core.processes import last_lines

from .episode_environment import grade_world
from .outcome_criteria import RecordedCall, World
from .peer_environment import PeerEnvironment, bounded_observation, tool_fault
from .sandbox_tools import Observation
from .world_tools import SUBMIT

SERVERS_VARIABLE = "RATCHET_MCP_SERVERS"
SERVERS_FILE = ".mcp.json"
MAX_WORKSPACE_FILES = 1000
MAX_FILE_BYTES = 1 << 20
MAX_TOOL_PAGES = 100
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _expand(value: str) -> str:
    """Replace each `${NAME}` by the environment variable. Raises ValueError where it is not set."""
    try:
        return _VARIABLE.sub(lambda match: os.environ[match[1]], value)
    except KeyError as error:
        raise ValueError(f"the environment variable {error.args[0]} is not set") from error


Text = Annotated[str, pydantic.AfterValidator(_expand)]


class McpServer(Configuration):
    """One entry of `mcpServers`: a `command` with `args` and `env`, or a `url` with `headers`; `${NAME}` in a value is an
    environment variable. `tools`: names of the only tools that are offered; empty for all.
    """

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: Text = ""
    args: tuple[Text, ...] = ()
    env: dict[str, Text] = pydantic.Field(default_factory=dict)
    url: Text = ""
    headers: dict[str, Text] = pydantic.Field(default_factory=dict)
    tools: tuple[str, ...] = ()

    @pydantic.model_validator(mode="after")
    def _check_transport(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give a command (stdio) or a url (streamable HTTP), and not both")
        return self


class McpServers(Configuration):
    """The file of servers, in the format that MCP clients share."""

    mcpServers: dict[str, McpServer] = pydantic.Field(min_length=1)


class McpEnvironment(PeerEnvironment):
    """The tools of MCP servers, and `submit`, which ends the episode.

    - `servers`: entries of `mcpServers` by name; None: those of the file that RATCHET_MCP_SERVERS names, else `.mcp.json`.
    - Tools have their own names; with several servers, `SERVER__TOOL`. Servers check the arguments of calls.
    - The world of the criteria: `files` (path: text) is the folder in which servers over stdio run, and `probes` maps the names
      in the task's `world["probes"]`, each `{tool, params}`, to what the call answers (a JSON value, or a text) before the
      first step and after the last.
    - A tool's error is an observation. A server that ends, or is not there, is an InfrastructureError.
    - `call_seconds` limits the start of a server and each call.
    """

    own_tool = SUBMIT.spec

    def __init__(
        self, servers: Mapping[str, Any] | None = None, *, max_steps: int = 20, call_seconds: float = 60.0
    ) -> None:
        super().__init__(max_steps)
        source = Path(os.environ.get(SERVERS_VARIABLE, SERVERS_FILE)) if servers is None else {"mcpServers": servers}
        self._servers = McpServers.load(source).mcpServers
        self._seconds = call_seconds
        self._resources = ExitStack()
        self._owners: dict[str, tuple[Any, str]] = {}
        self._before: World = {}
        self._calls: list[RecordedCall] = []
        self._utterances: list[str] = []

    def close(self) -> None:
        """End the servers and remove their folder; safe to call twice."""
        resources, self._resources = self._resources, ExitStack()
        resources.close()

    def _begin_episode(self, task: TaskSpec) -> tuple[str, dict[str, Any]]:
        from anyio.from_thread import start_blocking_portal  # comes with the package `mcp`

        self._calls, self._utterances, self._tools, self._owners = [], [], (), {}
        folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-mcp-")))
        self._folder, self._log = folder / "work", folder / "servers.log"
        self._folder.mkdir()
        write_below(self._folder, task.files, f"task '{task.task_id}'")
        self._portal = self._resources.enter_context(start_blocking_portal())
        for name, server in self._servers.items():
            self._connect(name, server)
        self._tools += (SUBMIT.spec,)
        self._before = task.world | self._observed_world(task)
        return self._before.get("context") or task.description, {}

    def _connect(self, name: str, server: McpServer) -> None:
        """Start or reach a server, and list its tools. Raises InfrastructureError, ConfigurationError."""
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if server.command:
            program = shutil.which(server.command)
            if program is None:
                raise ConfigurationError(
                    f"MCP server '{name}': program '{server.command}' is not on the PATH; install it"
                )
            command = str(Path(program).absolute())
            parameters = StdioServerParameters(
                command=command, args=list(server.args), env=server.env, cwd=self._folder
            )
            log = self._resources.enter_context(self._log.open("a"))
            transport = stdio_client(parameters, errlog=log)
        else:
            import httpx2  # the HTTP client of the package `mcp`

            http = httpx2.AsyncClient(headers=server.headers, timeout=self._seconds)
            self._resources.enter_context(self._portal.wrap_async_context_manager(http))
            transport = streamable_http_client(server.url, http_client=http)
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
        offered = {tool.name: tool for tool in tools if not server.tools or tool.name in server.tools}
        if unknown := set(server.tools) - offered.keys():
            raise ConfigurationError(f"MCP server '{name}' has no tool '{min(unknown)}'; correct `tools`")
        for tool in offered.values():
            own_name = prefix + tool.name
            if own_name == SUBMIT.name:
                raise ConfigurationError(f"MCP server '{name}': 'submit' ends an episode; leave it out by `tools`")
            self._tools += (ToolSpec(own_name, tool.description or "", tool.input_schema),)
            self._owners[own_name] = (client, tool.name)

    def _speak(self, text: str) -> tuple[Observation, bool]:
        self._utterances.append(text)
        return SUBMIT.call({}, {"text": text}), True

    def _call_peer(self, tool: str, params: dict[str, Any]) -> tuple[Observation, bool]:
        text, fault = self._call_server(tool, params)
        self._calls.append(RecordedCall(tool, params, fault is None))
        return bounded_observation(text, fault), False

    def _call_server(self, tool: str, params: dict[str, Any]) -> tuple[str, str | None]:
        """Return the text of a result, and the reason of an error."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client, name = self._owners[tool]
        try:
            result = self._portal.call(client.call_tool, name, params)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise InfrastructureError(f"the MCP server of tool '{tool}' has ended{self._last_log()}") from error
            return f"error: {_reason(error)}", _reason(error)
        except Exception as error:  # the connection failed, or the result does not follow the protocol
            raise InfrastructureError(
                f"MCP tool '{tool}' gave no result: {_reason(error)}{self._last_log()}"
            ) from error
        text = _content_text(result)
        return text, tool_fault(text) if result.is_error else None

    def _observed_world(self, task: TaskSpec) -> World:
        """Return the files of the folder, and the answers of the probes that the task names."""
        probes = {}
        for name, probe in task.world.get("probes", {}).items():
            if not isinstance(probe, dict) or probe.get("tool") not in self._owners:
                raise DataError(f"world.probes.{name} needs a tool of the servers; tools: {', '.join(self._owners)}")
            probes[name] = _json_value(self._call_server(probe["tool"], probe.get("params", {}))[0])
        return {"files": _read_files(self._folder)} | ({"probes": probes} if probes else {})

    def _grade(self, task: TaskSpec, reason: str | None) -> tuple[float | None, dict[str, Any]]:
        after = task.world | self._observed_world(task)
        opening = msgspec.structs.replace(task, world=self._before)
        return grade_world(opening, after, tuple(self._utterances), tuple(self._calls), reason)

    def _last_log(self) -> str:
        """Return the last line that a server wrote to standard error, for a message."""
        line = last_lines(self._log)
        return f" ({line[:200]})" if line else ""


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
        text = getattr(block, "text", getattr(resource, "text", None))
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


def _read_files(folder: Path) -> dict[str, str]:
    """Return the text of each file below the folder by its path, without links, larger and surplus files."""
    # rglob does not follow links to folders; a link to a file would show the grader a file of the host.
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    small = [path for path in paths if path.stat().st_size <= MAX_FILE_BYTES]
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in small[:MAX_WORKSPACE_FILES]
    }
