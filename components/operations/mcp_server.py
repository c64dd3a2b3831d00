"""The MCP server of `ratchet mcp`, over standard input and output or streamable HTTP.

Each call runs in a process of its own, forked from a small server process, and is killed with all that it started when its
time is over or the client cancels it. A result is one JSON text that never exceeds MAX_CHARACTERS; an error is one line.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from importlib.metadata import version
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations
from pydantic import ValidationError

from ratchet.components.core import ConfigurationError, RatchetError
from ratchet.components.core.errors import first_line, suggest_name
from ratchet.components.core.processes import exit_when_process_ends
from ratchet.components.core.request_guard import RequestGuard
from ratchet.components.trajectories.terminal_rendering import single_line

from .agent_tools import AGENT_TOOLS, AgentTool
from .tool_scope import ToolScope

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MAX_CHARACTERS = 60_000
"""Maximum length of a result."""
MAX_ITEMS, MAX_TEXT = 500, 20_000
"""Maximum items of a list or an object, and characters of a text, in a result; less where it would be too long."""
MAX_ERROR = 1_000
CALLS_AT_ONCE = 4
MEMORY_BYTES = 8 << 30
"""Address space of a call below the level `run`."""
GRACE_SECONDS = 5.0
"""Seconds between SIGTERM, at which a collection keeps its episodes, and SIGKILL."""
_context = multiprocessing.get_context("forkserver")


def build_server(scope: ToolScope, seconds: float) -> Server[Any]:
    """Return a server with the tools that `scope` allows; `seconds`: time limit of a call."""
    tools = [tool for tool in AGENT_TOOLS.values() if scope.allows(tool.level)]
    listed = ListToolsResult(tools=[_describe(tool) for tool in tools])
    slots = anyio.CapacityLimiter(CALLS_AT_ONCE)
    # The module is imported once, in the process that is forked for each call.
    _context.set_forkserver_preload(["__main__", __name__])

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return listed

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            arguments = _checked_arguments(scope, params.name, params.arguments or {})
            async with slots:
                text, is_error = await _call_in_process(scope, params.name, arguments, seconds)
        except RatchetError as error:
            text, is_error = str(error), True
        text = single_line(text, MAX_ERROR) if is_error else text
        return CallToolResult(content=[TextContent(text=text)], is_error=is_error)

    about = (
        f"Ratchet trains LLM tool-use agents every night. This server allows the level '{scope.level}'. Results are JSON; "
        f"long lists and texts are cut, and say so. Files: below {', '.join(map(str, (scope.home, *scope.roots)))}."
    )
    return Server(
        "ratchet", version=version("ratchet"), instructions=about, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _describe(tool: AgentTool) -> Tool:
    hints = ToolAnnotations(read_only_hint=tool.level == "read", destructive_hint=False, open_world_hint=False)
    schema = tool.arguments.model_json_schema()
    return Tool(name=tool.name, description=tool.description, input_schema=schema, annotations=hints)


def _checked_arguments(scope: ToolScope, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the validated arguments of a call. Raises ConfigurationError, also for an unknown or forbidden tool."""
    tool = AGENT_TOOLS.get(name)
    if tool is None:
        offered = [each.name for each in AGENT_TOOLS.values() if scope.allows(each.level)]
        raise ConfigurationError(f"there is no tool '{name}'; {suggest_name(name, offered)}")
    scope.require(tool.level, name)
    try:
        checked = tool.arguments.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "arguments"
        known = ", ".join(tool.arguments.model_fields) or "none"
        raise ConfigurationError(f"{name}: {place}: {first['msg']}; arguments: {known}") from error
    return {field: getattr(checked, field) for field in tool.arguments.model_fields}


async def _call_in_process(scope: ToolScope, name: str, arguments: dict[str, Any], seconds: float) -> tuple[str, bool]:
    """Return the JSON text of a result, or an error line and True."""
    reader, writer = _context.Pipe(duplex=False)
    process = _context.Process(target=_run_call, args=(writer, os.getpid(), scope, name, arguments))
    deadline = time.monotonic() + seconds
    try:
        await anyio.to_thread.run_sync(process.start)
        writer.close()
        left = deadline - time.monotonic()
        if not await anyio.to_thread.run_sync(reader.poll, left, abandon_on_cancel=True):
            advice = "ask for less, or start the server with a larger --timeout"
            return f"{name} took longer than {seconds:g} s and was ended; {advice}", True
        answer: tuple[str, bool] = await anyio.to_thread.run_sync(reader.recv)
        return answer
    except EOFError:
        return f"the process of {name} was killed (out of memory?); ask for less", True
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_end_process, process)


def _end_process(process: "BaseProcess") -> None:
    """End a call's process and all that it started, but not the daemons of persistent sandboxes."""
    if process.pid is None:
        return
    process.join(0.2)
    if process.is_alive():
        process.terminate()
        process.join(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # its session: workers of a collection
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


def _run_call(channel: Connection, owner: int, scope: ToolScope, name: str, arguments: dict[str, Any]) -> None:
    """Run one call in this process and send the JSON text of its result, or an error line and True."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as in the command line: `finally` blocks are run
    exit_when_process_ends(owner)
    if not scope.allows("run"):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        channel.send((bounded_json(AGENT_TOOLS[name].function(scope, **arguments)), False))
    except KeyboardInterrupt:  # ended by `_end_process`, and nobody reads the answer
        pass
    except RatchetError as error:
        channel.send((str(error), True))
    except OSError as error:
        channel.send(
            (f"{error.filename or name}: {error.strerror or error}; give another path, or repeat the call", True)
        )
    except ModuleNotFoundError as error:
        channel.send((f"{name} needs the package '{error.name}', which is not installed here", True))
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        channel.send(
            (f"{name} failed: {type(error).__name__}: {first_line(error)}; the server's log has the traceback", True)
        )


def bounded_json(value: Any) -> str:
    """Return a value as JSON of at most MAX_CHARACTERS; where it is longer, lists, objects and texts are cut and say so."""
    plain = msgspec.to_builtins(value)
    text = ""
    for divisor in (1, 4, 20, 100, 500):
        text = msgspec.json.encode(_cut(plain, MAX_ITEMS // divisor, MAX_TEXT // divisor)).decode()
        if len(text) <= MAX_CHARACTERS:
            return text
    raise ConfigurationError(
        f"the result has more than {MAX_CHARACTERS:,} characters even when it is cut; ask for less"
    )


def _cut(value: Any, items: int, characters: int) -> Any:
    if isinstance(value, str) and len(value) > characters:
        return f"{value[:characters]} [cut: {len(value) - characters:,} more characters]"
    if isinstance(value, list | tuple):
        kept = [_cut(item, items, characters) for item in value[:items]]
        return [*kept, f"[cut: {len(value) - items:,} more]"] if len(value) > items else kept
    if isinstance(value, dict):
        pairs = [(key, _cut(item, items, characters)) for key, item in list(value.items())[: max(items, 40)]]
        return dict(pairs) | ({"[cut]": f"{len(value) - len(pairs):,} more"} if len(value) > len(pairs) else {})
    return value


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output until it closes them."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(server: Server[Any], port: int, key: str) -> None:
    """Serve streamable HTTP at /mcp of the loopback interface to clients that present `key`, until SIGINT or SIGTERM."""
    import uvicorn

    app = RequestGuard(server.streamable_http_app(), key)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", limit_concurrency=64)
    await uvicorn.Server(config).serve()
