"""Command of the MCP server: mcp."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from ratchet.components.core import ConfigurationError
from ratchet.components.core.errors import install_command
from ratchet.render.terminal import print_note


def mcp(
    allow: Annotated[
        Literal["read", "write", "run"], Option(help="Level of its tools; each includes those before it.")
    ] = "read",
    root: Annotated[
        list[Path] | None, Option(help="Folder that tools may use, beside the home (repeatable).", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        Option(min=0, max=65535, help="Serve HTTP on 127.0.0.1, with a key; 0: a free port. Default: stdio."),
    ] = None,
    timeout: Annotated[float, Option(min=1, max=86400, help="Maximum seconds of a call.")] = 120.0,
) -> None:
    """Serve Ratchet's tools to agents over the Model Context Protocol.

    `read`: look at trajectories, rewards, nights, decisions, lineage. `write`: also write datasets and converted logs, as new
    files below a --root. `run`: also start sandboxes and collections. Needs the extra `mcp`.

    Examples: `ratchet mcp --root .`, `ratchet mcp --allow run --root runs --port 8765`
    """
    try:
        import anyio

        from ratchet.components.operations import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise ConfigurationError(f"the package 'mcp' is not installed; install it: {install_command('mcp')}") from error
    from ratchet.components.core.home import credential, credential_path
    from ratchet.components.core.processes import free_port, require_free_port
    from ratchet.components.operations.tool_scope import ToolScope

    server = mcp_server.build_server(ToolScope.of(allow, root or []), timeout)
    if port is None:
        anyio.run(mcp_server.serve_stdio, server)
        return
    port = port or free_port()
    require_free_port(port, "the MCP server", "--port")
    key = credential("mcp")
    print_note(
        f"http://127.0.0.1:{port}/mcp serves the level {allow}; its key, a bearer token: {credential_path('mcp')}"
    )
    try:
        anyio.run(mcp_server.serve_http, server, port, key)
    except KeyboardInterrupt:
        print_note("stopped")
