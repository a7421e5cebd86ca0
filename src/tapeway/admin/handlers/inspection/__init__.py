"""Handlers for people who look at requests, answers, and the reasons of misses."""
