"""CrewAI: a crew of one agent with one task."""

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from tools import PROMPT, population, weather

model = LLM(model="openai/gpt-4o", base_url=os.environ["OPENAI_BASE_URL"])
guide = Agent(
    role="guide", goal="help", backstory="knows", tools=[tool(weather), tool(population)], llm=model
)
task = Task(description=PROMPT, expected_output="a sentence", agent=guide)
print(Crew(agents=[guide], tasks=[task]).kickoff())
