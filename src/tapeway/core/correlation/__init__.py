"""Identifiers that answers issue and clients send back."""
