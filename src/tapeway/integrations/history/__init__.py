"""Message histories of conversations, kept in any store."""
