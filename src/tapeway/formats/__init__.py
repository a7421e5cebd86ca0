"""Cassette files, their own format and those of other tools, to interactions and back; pure."""
