"""Message histories of conversations, kept as cassettes in any store."""
