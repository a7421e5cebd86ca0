"""What the supervisor and its workers send each other, and how it is encoded.

A frame is a value in marshal's encoding, preceded by its length. Both ends are the same program in
the same interpreter, so marshal fits; unlike pickle it creates only plain values. A WorkerReport is
encoded for every request, so that code is written for speed.
"""

import marshal
import pickle
from dataclasses import dataclass
from typing import NamedTuple, cast

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
_LENGTH_BYTES = 4
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


class UsedRecording(NamedTuple):
    """The first use of a recording in a take: what `PrimaryCassettes.note_use` is called with."""

    copy: int
    own: int
    take: int
    recording: int


def encode_report(report: WorkerReport) -> Value:
    """The report as plain values."""
    at, served, connections = report
    nearest = tuple([(each.index, each.differences, each.more) for each in served.nearest])
    missed = None if served.missed is None else _encode_missed(served.missed)
    fields = tuple(served._replace(nearest=(), missed=None) if nearest or missed else served)
    return cast("Value", (at, fields, nearest, missed, connections))


def decode_report(value: Value) -> WorkerReport | UsedRecording:
    """The inverse of `encode_report`; a frame of four numbers is a recording that was used."""
    match value:
        case (int(copy), int(own), int(take), int(index)):
            return UsedRecording(copy, own, take, index)
    at, fields, nearest, missed, connections = cast(
        "tuple[float, tuple[object, ...], tuple[_EncodedNearest, ...], _EncodedMissed | None, int]",
        value,
    )
    served = ServedRequest._make(fields)
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
    data = marshal.dumps(value)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


class FrameDecoder:
    """Values from a stream of frames, wherever its chunks end."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Value]:
        """The values of all frames that are complete now."""
        self._buffer += data
        found: list[Value] = []
        start, buffer = 0, self._buffer
        with memoryview(buffer) as view:
            while len(buffer) - start >= _LENGTH_BYTES:
                begin = start + _LENGTH_BYTES
                end = begin + int.from_bytes(view[start:begin], "big")
                if end > len(buffer):
                    break
                value = marshal.loads(view[begin:end])  # noqa: S302 - our own process wrote it
                found.append(cast("Value", value))
                start = end
        del buffer[:start]
        return found
