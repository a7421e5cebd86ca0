"""Recordings of other tools."""
