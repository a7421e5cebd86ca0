"""The tools of the tests' agents: four, of which the stand-in asks for two at a time."""

import hashlib

PROMPT = "Plan my trip to Málaga, in pairs"
NAMES = ("weather", "population", "timezone", "airport")
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def result_of(name: str, arguments: object) -> str:
    """What the tool says, which depends on who is asked and what."""
    return f"{name}: {hashlib.sha256(repr((name, arguments)).encode()).hexdigest()[:12]}"


def conclusion(arguments: object) -> str:
    """What the last answer says if each result reached the model under its own call."""
    return "; ".join(result_of(name, arguments) for name in NAMES)
