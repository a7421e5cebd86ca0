"""Cassettes as files in a folder."""
