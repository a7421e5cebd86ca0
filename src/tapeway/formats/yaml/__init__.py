"""YAML, read and written safely."""
