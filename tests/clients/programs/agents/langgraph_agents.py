"""LangGraph's agent on LangChain's OpenAI models: Chat Completions, then Responses."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from tools import AGAIN, PROMPT, population, weather

for api in ({}, {"use_responses_api": True}):
    model = ChatOpenAI(model="gpt-4o", **api)
    agent = create_react_agent(model, [tool(weather), tool(population)], prompt="Help.")
    first = agent.invoke({"messages": [("user", PROMPT)]})["messages"]
    second = agent.invoke({"messages": [*first, ("user", AGAIN)]})["messages"]
    print(first[-1].text, second[-1].text, sep="\n")
