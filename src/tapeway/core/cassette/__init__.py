"""A cassette in memory: index, cursors of takes, and decisions."""
