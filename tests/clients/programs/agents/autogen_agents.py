"""AutoGen: two tasks, the second on top of the first."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from tools import AGAIN, PROMPT, population, weather


async def main() -> None:
    agent = AssistantAgent(
        "guide",
        model_client=OpenAIChatCompletionClient(model="gpt-4o"),
        tools=[weather, population],
        reflect_on_tool_use=True,
    )
    for task in (PROMPT, AGAIN):
        print((await agent.run(task=task)).messages[-1].content)


asyncio.run(main())
