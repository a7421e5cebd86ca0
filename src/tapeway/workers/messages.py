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

from tapeway.core.http.sdk_conventions import Attempt
from tapeway.core.json_text import Json
from tapeway.core.misses.miss import NearestRecording
from tapeway.core.model.control import Outcome
from tapeway.engine.journal import ServedRequest
from tapeway.engine.report import Noted
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
_Noted = tuple[Outcome, str, tuple[int, ...], str | None, tuple[bytes, int] | None]
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
    """What was told at once; `connections` is how many a worker ever opened to upstreams."""

    at: float
    noted: tuple[Noted, ...]
    entry: ServedRequest | None
    connections: int


def written(news: WorkerMessages) -> Value:
    """The same in plain values."""
    at, noted, entry, connections = news
    plain, near = None, None
    if entry is not None:
        plain = tuple(entry)
        if entry.nearest:
            near = tuple([(each.index, each.differences, each.more) for each in entry.nearest])
            plain = tuple(entry._replace(nearest=()))
    told = (at, tuple([_plain(each) for each in noted]), plain, near, connections)
    return cast("Value", told)


def read(value: Value) -> WorkerMessages:
    """What was told."""
    at, noted, fields, near, connections = cast(
        "tuple[float, tuple[_Noted, ...], tuple[object, ...] | None, tuple[_Near, ...] | None, int]",
        value,
    )
    entry = None if fields is None else ServedRequest._make(fields)
    if entry is not None and near is not None:
        entry = entry._replace(nearest=tuple([NearestRecording(*each) for each in near]))
    return WorkerMessages(at, tuple([_noted(*each) for each in noted]), entry, connections)


def _plain(noted: Noted) -> _Noted:
    outcome, cassette, tokens, missed, attempt = noted
    tried = None if attempt is None else (attempt.key, attempt.number)
    return outcome, cassette, tokens, missed, tried


def _noted(
    outcome: Outcome,
    cassette: str,
    tokens: tuple[int, ...],
    missed: str | None,
    attempt: tuple[bytes, int] | None,
) -> Noted:
    tried = None if attempt is None else Attempt(*attempt)
    return Noted(outcome, cassette, tokens, missed, tried)
