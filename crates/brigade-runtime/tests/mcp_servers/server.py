"""A small MCP server with the official Python package: server.py DIR [PORT].

It logs its calls in the directory. A call of `look` or `act` lasts until the file `quick` names it,
so that a test can kill the server during the call.
"""

import asyncio
import os
import pathlib
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

directory = pathlib.Path(sys.argv[1])


def log(line):
    with open(directory / "log", "a") as file:
        file.write(line + "\n")


log(f"started {os.getpid()}")
starts = (directory / "log").read_text().count("started ")
server = MCPServer("kitchen")


async def linger(call):
    log(f"{call} begins")
    quick = directory / "quick"
    while not (quick.exists() and quick.read_text() == call):
        await asyncio.sleep(0.02)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(what: str) -> str:
    """Look at something."""
    await linger("look")
    return f"looked at {what}, start {starts}"


@server.tool()
async def act(what: str) -> str:
    """Use something up."""
    await linger("act")
    return f"used {what}"


def grown() -> str:
    """A tool that was not there at first."""
    return "fresh"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add another tool."""
    log(f"protocol {ctx.protocol_version}")
    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "grown"


class TokenLog:
    """Logs the token of every request."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            log("token " + headers.get(b"authorization", b"").decode())
        await self.app(scope, receive, send)


if len(sys.argv) > 2:
    import uvicorn

    app = TokenLog(server.streamable_http_app())
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
else:
    server.run("stdio")
