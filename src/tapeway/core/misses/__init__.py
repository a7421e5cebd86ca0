"""Explains a miss: the nearest recordings, the differences, the rule to add."""
