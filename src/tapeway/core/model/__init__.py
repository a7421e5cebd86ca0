"""Requests, responses, cassettes, and the state that is in force."""
