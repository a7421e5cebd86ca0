"""The tools of the agents, and what they are asked; the stand-in calls both in one turn."""

PROMPT = "Tell me of Málaga, in pairs"
AGAIN = "And once more, in pairs"


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


def population(city: str) -> str:
    """Tell the population of a city."""
    return f"many in {city}"
