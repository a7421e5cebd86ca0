"""Starts, calls and stops a tapeway for a Python program."""
