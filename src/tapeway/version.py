"""The version of tapeway; the package is built from it."""

VERSION = "1.0.0rc1"

VERSION_HEADER = "Tapeway-Store-Version"
"""What a store calls the tapeway with that keeps its cassettes: both have to know the same fields."""
