"""How each API writes a conversation, in its requests and in its answers, streamed or not."""
