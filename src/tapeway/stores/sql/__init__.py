"""Cassettes in a SQL database: each operation once, for every database that has a driver."""
