"""An MCP server over streamable HTTP with two tools, one of which asks its caller."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from tools import weather


class Wanted(BaseModel):
    """What the caller is asked for."""

    city: str


server = MCPServer("guide")
server.tool()(weather)


@server.tool()
async def ask_back(context: Context) -> str:
    """Tell the weather of a city that the caller is asked for."""
    answer = await context.elicit("Which city?", Wanted)
    return weather(answer.data.city)


server.run("streamable-http", port=int(sys.argv[1]))
