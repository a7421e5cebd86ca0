"""What stands in a cassette where a secret stood."""

import re

PLACEHOLDER = re.compile(rb"REDACTED\.[A-Za-z0-9_-]+\.[0-9a-p]{8}")
"""Safe in JSON, URLs, header fields and cookies alike. What is made here has no digits, and so is no
key to the scanners that people run over their repositories; earlier ones had them."""

SHORT = "short"
"""Marks the placeholder of a value too short to be a key for certain: it still tells requests
apart in the match key, where a long one is left out."""

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_ODD = re.compile(r"[^A-Za-z_-]+")


def placeholder(label: str, digest: bytes) -> bytes:
    """What stands for a secret seen in this place, of which the digest tells it from others."""
    mark = digest[:4].hex().translate(_LETTERS)
    return f"REDACTED.{_ODD.sub('-', label) or 'value'}.{mark}".encode()
