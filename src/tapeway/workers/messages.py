"""What a worker tells of the requests it serves: how they ended, and what the journal is to say.

It is told with the time, which is the same clock in all processes of a machine, so that what
several of them tell can be put in order. This is done for every request there is, so it is quick
before it is anything else.

What a worker is told when it begins.

An error on its way from one process to another: message, code and status.

Values on their way from one process to another: the length of each, and what marshal makes of it.

Both ends are the same program in the same interpreter, so its own notation will do; unlike pickle it
makes nothing but plain values.
"""

import marshal
import pickle
from dataclasses import dataclass
from typing import NamedTuple, cast

from tapeway.core.json_text import Json
from tapeway.core.misses.miss import NearestRecording
from tapeway.engine.journal import ServedRequest
from tapeway.errors import ConfigError, TapewayError
from tapeway.server.wiring import Place
from tapeway.settings.options import Settings

Trouble = tuple[str, str, int]
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
_Near = tuple[int, tuple[dict[str, Json], ...], int]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The settings, where the admin API is, and the listeners no upstream may lead to.

    It goes through a pipe between the two processes, as it holds what no command line may show.
    """

    settings: Settings
    admin: str | None
    own: tuple[Place, ...]

    def packed(self) -> bytes:
        return pickle.dumps(self)


def unpacked(data: bytes) -> Assignment:
    """What the process above packed."""
    return cast("Assignment", pickle.loads(data))  # noqa: S301 - it started us, and hands us all we do


def told(error: TapewayError) -> Trouble:
    """What is told of an error."""
    return error.message, error.code, error.status


def raised(trouble: Trouble) -> TapewayError:
    """The error to raise where it was heard."""
    message, code, status = trouble
    kind = ConfigError if code == ConfigError.code else TapewayError
    return kind(message, code=code, status=status)


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


class WorkerMessages(NamedTuple):
    """A request a worker served, and when it said so; `connections` it ever opened to upstreams."""

    at: float
    served: ServedRequest
    connections: int


def written(message: WorkerMessages) -> Value:
    """The same in plain values."""
    at, served, connections = message
    near = tuple([(each.index, each.differences, each.more) for each in served.nearest])
    plain = tuple(served._replace(nearest=()) if near else served)
    return cast("Value", (at, plain, near, connections))


def read(value: Value) -> WorkerMessages:
    """What was told."""
    at, fields, near, connections = cast(
        "tuple[float, tuple[object, ...], tuple[_Near, ...], int]", value
    )
    served = ServedRequest._make(fields)
    if near:
        served = served._replace(nearest=tuple([NearestRecording(*each) for each in near]))
    return WorkerMessages(at, served, connections)
