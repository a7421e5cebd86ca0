"""Cassettes in PostgreSQL, shared by instances on many machines."""
