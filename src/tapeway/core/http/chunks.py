"""Bodies in HTTP chunks (RFC 9112 section 7.1)."""

LAST_CHUNK = b"0\r\n\r\n"

_FEW = 4096


class _SizeLines(dict[int, bytes]):
    """What stands before a chunk of so many bytes; that of small ones, as most are, is remembered."""

    def __missing__(self, size: int) -> bytes:
        line = b"%x" % size
        if size < _FEW:
            self[size] = line
        return line


size_line = _SizeLines().__getitem__
"""The line before a chunk of so many bytes, without its end."""
