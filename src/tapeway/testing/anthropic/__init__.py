"""Anthropic: messages, models and batches."""
