"""What stands in a cassette where a secret stood."""

import re

PLACEHOLDER = re.compile(rb"REDACTED\.[A-Za-z0-9_-]+\.[0-9a-f]{8}")
"""Letters, digits, dots, dashes: safe in JSON, URLs, header fields and cookies alike."""

SHORT = "short"
"""Marks the placeholder of a value too short to be a key for certain: it still tells requests
apart in the match key, where a long one is left out."""
