"""The LLM calls of a cassette as conversations."""
