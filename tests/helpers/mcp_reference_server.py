"""A server made with the reference package `mcp`: a counter behind stdio, or behind HTTP at the port in argv[1]."""

import os
import sys

from mcp.server import MCPServer

server = MCPServer("counter")
counts: dict[str, int] = {}


@server.tool()
def count(name: str, by: int = 1) -> str:
    """Add to a counter."""
    counts[name] = counts.get(name, 0) + by
    return str(counts[name])


@server.tool()
def show() -> dict[str, int]:
    """Show all counters."""
    return counts


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the tool cannot")


@server.tool()
def leave() -> str:
    """End the server's process."""
    os._exit(3)


@server.tool()
def talk(length: int) -> str:
    """Say something long."""
    return "x" * length


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        print("counter is ready", file=sys.stderr)
        server.run("stdio")
