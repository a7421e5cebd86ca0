"""An MCP client: it calls both tools, and answers what it is asked."""

import asyncio
import os

from mcp.client.client import Client
from mcp_types import ElicitResult


async def answer(_context: object, asked: object) -> ElicitResult:
    print("asked", asked.message)
    return ElicitResult(action="accept", content={"city": "Málaga"})


async def main() -> None:
    url = f"{os.environ['TAPEWAY_URL']}/mcp"
    # Only with a session can a server ask its caller.
    async with Client(url, mode="legacy", elicitation_callback=answer) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        for name, arguments in (("weather", {"city": "Oslo"}), ("ask_back", {})):
            called = await client.call_tool(name, arguments)
            print(called.content[0].text)


asyncio.run(main())
