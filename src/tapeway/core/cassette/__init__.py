"""A cassette in memory: its index, the cursors of a take, and what is decided from it."""
