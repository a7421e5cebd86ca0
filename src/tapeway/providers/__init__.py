"""The differences between LLM providers: routes, paths, ends of streams, token usage; pure."""
