"""Handlers for people who look at what was asked, what answered, and why not."""
