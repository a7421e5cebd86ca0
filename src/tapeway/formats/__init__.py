"""Converts cassette files, in tapeway's format and foreign formats, to interactions and back; pure."""
