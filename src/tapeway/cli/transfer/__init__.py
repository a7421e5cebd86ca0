"""Cassettes carried from one place and format to another."""
