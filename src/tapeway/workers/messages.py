"""What the supervisor and its workers send each other, and how it is encoded.

A frame is a value in marshal's encoding, preceded by its length. Both ends are the same program in
the same interpreter, so marshal fits; unlike pickle it creates only plain values.
"""

import marshal
import pickle
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple, cast

from tapeway.core.json_text import Json
from tapeway.core.misses.miss import MissedRequest, NearestRecording
from tapeway.core.model.messages import CredentialHeaders, Headers, Request
from tapeway.engine.journal import ServedRequest
from tapeway.errors import ConfigError, TapewayError
from tapeway.server.wiring import Place
from tapeway.settings.options import Settings

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
"""The types that a frame can contain."""
EncodedError = tuple[str, str, int]
"""Message, code and status of an error."""
_LENGTH = Struct(">I")
_MARSHAL = 2
"""The last version of marshal's encoding that looks for no object which occurs twice."""
_EncodedNearest = tuple[int, tuple[dict[str, Json], ...], int]
_EncodedMissed = tuple[str, str, str, Headers, bytes, str, CredentialHeaders, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings, the URL of the admin API, tapeway's own listeners, which are no upstreams, and
    the id by which it recognises requests that come back.

    It goes through a pipe, as it holds secrets that no command line may show.
    """

    settings: Settings
    admin_url: str | None
    own_listeners: tuple[Place, ...]
    identity: str

    def encode(self) -> bytes:
        return pickle.dumps(self)


def decode_config(data: bytes) -> WorkerConfig:
    """The inverse of `encode`, called in the worker."""
    return cast("WorkerConfig", pickle.loads(data))  # noqa: S301 - it comes from our own parent


def encode_error(error: TapewayError) -> EncodedError:
    """An error as plain values."""
    return error.message, error.code, error.status


def decode_error(encoded: EncodedError) -> TapewayError:
    """The error, to be raised in this process; a ConfigError stays one."""
    message, code, status = encoded
    kind = ConfigError if code == ConfigError.code else TapewayError
    return kind(message, code=code, status=status)


class WorkerReport(NamedTuple):
    """A request that a worker served, and how many connections to upstreams it has opened.

    `at` is the monotonic time of the report. All processes of a machine share that clock, so it
    orders the reports of several workers.
    """

    at: float
    served: ServedRequest
    connections: int


def encode_report(report: WorkerReport) -> Value:
    """The report as plain values."""
    at, connections, served = report.at, report.connections, report.served.written()
    nearest: tuple[_EncodedNearest, ...] = ()
    missed = None
    if served.nearest or served.missed is not None:
        nearest = tuple([(each.index, each.differences, each.more) for each in served.nearest])
        missed = None if served.missed is None else _encode_missed(served.missed)
        served = served._replace(nearest=(), missed=None)
    return cast("Value", (at, tuple(served), nearest, missed, connections))


def decode_report(value: Value) -> WorkerReport:
    """The inverse of `encode_report`."""
    at, encoded, nearest, missed, connections = cast("tuple[Any, ...]", value)
    served = ServedRequest._make(encoded)
    if nearest:
        served = served._replace(nearest=tuple([NearestRecording(*each) for each in nearest]))
    if missed is not None:
        served = served._replace(missed=_decode_missed(missed))
    return WorkerReport(at, served, connections)


def _encode_missed(missed: MissedRequest) -> _EncodedMissed:
    it = missed.request
    head = (it.route, it.method, it.target, tuple(it.headers), it.body, it.base, it.credentials)
    return (*head, missed.size, missed.used_up)


def _decode_missed(encoded: _EncodedMissed) -> MissedRequest:
    *_, credentials, size, used_up = encoded
    return MissedRequest(Request(*encoded[:6], credentials=credentials), size, used_up)


def encode_frame(value: Value) -> bytes:
    """One value as a frame."""
    data = marshal.dumps(value, _MARSHAL)
    return _LENGTH.pack(len(data)) + data


class FrameDecoder:
    """Values from a stream of frames, wherever its chunks end."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Value]:
        """The values of all frames that are complete now."""
        found: list[Value] = []
        source: bytes | bytearray = data
        if self._rest:
            self._rest += data
            source = self._rest
        start, size, length_of = 0, len(source), _LENGTH.unpack_from
        while size - start >= _LENGTH.size:
            begin = start + _LENGTH.size
            end = begin + length_of(source, start)[0]
            if end > size:
                break
            value = marshal.loads(source[begin:end])  # noqa: S302 - our own process wrote it
            found.append(cast("Value", value))
            start = end
        if source is data:
            self._rest += data[start:]
        else:
            del self._rest[:start]
        return found
