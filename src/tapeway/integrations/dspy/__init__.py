"""DSPy's programs, recorded and replayed."""
