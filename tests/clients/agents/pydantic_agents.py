"""pydantic-ai on four APIs; Gemini 2.0 gives its calls no ids, so pydantic-ai draws them."""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.google import GoogleProvider
from tools import AGAIN, PROMPT, population, weather


async def main() -> None:
    google = GoogleProvider(api_key="any", base_url=os.environ["GOOGLE_GEMINI_BASE_URL"])
    models = [
        OpenAIChatModel("gpt-4o"),
        OpenAIResponsesModel("gpt-4o"),
        AnthropicModel("claude-sonnet-5"),
        GoogleModel("gemini-2.0-flash", provider=google),
        GoogleModel("gemini-2.5-flash", provider=google),
    ]
    for model in models:
        agent = Agent(model, instructions="Help.", tools=[weather, population])
        first = await agent.run(PROMPT)
        second = await agent.run(AGAIN, message_history=first.all_messages())
        print(first.output, second.output, sep="\n")


asyncio.run(main())
