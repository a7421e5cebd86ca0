"""LlamaIndex's function agent."""

import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI
from tools import PROMPT, population, weather


async def main() -> None:
    model = OpenAI(model="gpt-4o", api_base=os.environ["OPENAI_BASE_URL"])
    agent = FunctionAgent(tools=[weather, population], llm=model, system_prompt="Help.")
    print(await agent.run(PROMPT))


asyncio.run(main())
