"""Changing cassettes from outside: what the admin API does besides steering and reading."""
