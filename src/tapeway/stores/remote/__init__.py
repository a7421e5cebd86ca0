"""Cassettes at a remote tapeway, through its admin API."""
