"""Streamed responses: where they end, what they hold, when their pieces are due."""
