"""OpenAI's Agents SDK: two rounds on the Responses API, one on Chat Completions."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from tools import AGAIN, PROMPT, population, weather

TOOLS = [function_tool(weather), function_tool(population)]


async def main() -> None:
    set_tracing_disabled(disabled=True)
    agent = Agent(name="guide", instructions="Help.", tools=list(TOOLS), model="gpt-4o")
    first = await Runner.run(agent, PROMPT)
    said = [*first.to_input_list(), {"role": "user", "content": AGAIN}]
    second = await Runner.run(agent, said)
    chat = OpenAIChatCompletionsModel(model="gpt-4o", openai_client=AsyncOpenAI())
    other = Agent(name="guide", instructions="Help.", tools=list(TOOLS), model=chat)
    third = await Runner.run(other, PROMPT)
    print(first.final_output, second.final_output, third.final_output, sep="\n")


asyncio.run(main())
