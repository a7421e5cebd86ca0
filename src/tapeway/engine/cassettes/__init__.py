"""Cassettes of a store that many processes use at once."""
