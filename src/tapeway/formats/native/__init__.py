"""tapeway's own cassette document, in AgentTape's schema."""
