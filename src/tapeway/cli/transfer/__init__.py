"""Cassettes moved between places and formats."""
