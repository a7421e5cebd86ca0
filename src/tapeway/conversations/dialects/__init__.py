"""How each provider writes a conversation."""
