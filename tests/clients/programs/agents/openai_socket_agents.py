"""OpenAI's Agents SDK with its WebSocket model: two rounds with tools, on one connection."""

import asyncio

from agents import (
    Agent,
    Runner,
    function_tool,
    set_default_openai_responses_transport,
    set_tracing_disabled,
)
from tools import AGAIN, PROMPT, population, weather

TOOLS = [function_tool(weather), function_tool(population)]


async def main() -> None:
    set_tracing_disabled(disabled=True)
    set_default_openai_responses_transport("websocket")
    agent = Agent(name="guide", instructions="Help.", tools=list(TOOLS), model="gpt-4o")
    first = await Runner.run(agent, PROMPT)
    said = [*first.to_input_list(), {"role": "user", "content": AGAIN}]
    stream = Runner.run_streamed(agent, said)
    async for _ in stream.stream_events():
        pass
    print(first.final_output, stream.final_output, sep="\n")


asyncio.run(main())
