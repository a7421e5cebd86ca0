"""Text and UTF-8: bytes that may not be UTF-8, and strings that cannot be encoded as it.

Python represents octets that it could not decode as lone surrogates (`surrogateescape`), and JSON
can escape such surrogates too. Neither can be written to a document or a terminal unchanged.
"""


def decode_utf8(data: bytes) -> str | None:
    """The text, or None where the bytes are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_utf8(text: bytes | str) -> bool:
    """Whether the bytes are UTF-8, or the string can be written as it: a lone surrogate cannot."""
    if isinstance(text, bytes):
        return decode_utf8(text) is not None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def escape_surrogates(text: str) -> str:
    """The text with each lone surrogate written as an escape, `\\udcff`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def escape_octets(text: str) -> str:
    """The text with each octet that could not be decoded written as an escape, `\\xff`.

    Raises UnicodeEncodeError for any other lone surrogate.
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
