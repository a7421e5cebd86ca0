"""OpenAI's APIs in the stand-in."""
