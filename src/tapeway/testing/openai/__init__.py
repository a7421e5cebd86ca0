"""OpenAI's APIs as the stand-in speaks them."""
