"""Identifiers: issued by answers, sent back by clients."""
