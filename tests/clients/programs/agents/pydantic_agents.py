"""pydantic-ai with the models of its arguments.

Gemini 2.0 gives its calls no ids, so pydantic-ai draws them.
"""

import asyncio
import os
import sys

from pydantic_ai import Agent
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider
from tools import AGAIN, PROMPT, population, weather


def model_of(name: str) -> Model:
    if not name.startswith("gemini"):
        return infer_model(name)
    # The package does not pass on the variable for its base URL.
    google = GoogleProvider(api_key="any", base_url=os.environ["GOOGLE_GEMINI_BASE_URL"])
    return GoogleModel(name, provider=google)


async def main() -> None:
    for name in sys.argv[1:]:
        agent = Agent(model_of(name), instructions="Help.", tools=[weather, population])
        first = await agent.run(PROMPT)
        second = await agent.run(AGAIN, message_history=first.all_messages())
        print(first.output, second.output, sep="\n")


asyncio.run(main())
