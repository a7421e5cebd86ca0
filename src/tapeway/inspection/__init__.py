"""Requests, recordings and conversations as people look at them: parts, texts, times, differences."""
