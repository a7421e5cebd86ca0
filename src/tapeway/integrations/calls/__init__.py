"""A program's own calls, recorded and replayed."""
