"""Values on their way from one process to another: the length of each, and what marshal makes of it.

Both ends are the same program in the same interpreter, so its own notation will do; unlike pickle it
makes nothing but plain values.
"""

import marshal
from typing import cast

Value = (
    None
    | bool
    | int
    | float
    | str
    | bytes
    | tuple["Value", ...]
    | list["Value"]
    | dict[str, "Value"]
)

_LENGTH = 4


def pack(value: Value) -> bytes:
    """The bytes of one value."""
    data = marshal.dumps(value)
    return len(data).to_bytes(_LENGTH, "big") + data


class Frames:
    """Values out of a stream of bytes, however it was cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Value]:
        """All that are whole by now."""
        self._rest += data
        found: list[Value] = []
        start, rest = 0, self._rest
        with memoryview(rest) as view:
            while len(rest) - start >= _LENGTH:
                begin = start + _LENGTH
                end = begin + int.from_bytes(view[start:begin], "big")
                if end > len(rest):
                    break
                value = marshal.loads(view[begin:end])  # noqa: S302 - our own process wrote it
                found.append(cast("Value", value))
                start = end
        del rest[:start]
        return found
