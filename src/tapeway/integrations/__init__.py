"""Integrations: tapeway's stores and recordings for other tools inside a Python program."""
