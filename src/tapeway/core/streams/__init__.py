"""Streamed responses: ends, contents, and the times of chunks."""
