"""Streamed responses: where they end, their content, and when their chunks are due."""
