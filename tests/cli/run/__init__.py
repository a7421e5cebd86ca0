"""Tests of `tapeway run` and of what runs a command."""
