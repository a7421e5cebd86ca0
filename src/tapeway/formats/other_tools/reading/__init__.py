"""Shared parts of the readers for other tools' formats."""
