"""Cassettes at another tapeway, through its admin API."""
