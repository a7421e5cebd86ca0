"""Streamed responses: where they end, what they say, when their pieces are due."""
