"""Messages between supervisor and workers, and the encoding of messages.

A frame is a value in marshal's encoding, preceded by its length. Both ends run equal code in equal
interpreters, as marshal demands. Unlike pickle, marshal creates only plain values.
"""

import marshal
import pickle
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, NamedTuple, cast

from tapeway.core.json_text import Json
from tapeway.core.misses.miss import MissedRequest, NearestRecording
from tapeway.core.model.messages import (
    BodyFile,
    ChunkTimes,
    CredentialHeaders,
    Headers,
    Request,
    Response,
    ResponseHead,
)
from tapeway.engine.journal import ClientTexts, ServedRequest
from tapeway.engine.kept_calls import KeptCall
from tapeway.errors import ConfigError, TapewayError
from tapeway.server.wiring import BoundAddress
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
"""The last version of marshal's encoding without a search for repeated objects."""
_EncodedNearest = tuple[int, tuple[dict[str, Json], ...], int]
_EncodedRequest = tuple[str, str, str, Headers, bytes, str, CredentialHeaders, bytes, int | None]
"""The last member is the size of a body left out."""
_EncodedHead = tuple[int, str, Headers, str, str, int | None]
_EncodedResponse = tuple[
    _EncodedHead, bytes, float, tuple[tuple[float, int], ...], float, int | None, str
]
_EncodedKept = tuple[_EncodedRequest, _EncodedResponse, tuple[int, tuple[int, ...]] | None]

_NO_TEXTS = cast("ClientTexts", ())
"""A placeholder in an encoded request: the client's texts come separately."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings, the URLs and the id that a worker needs to serve.

    `own_listeners` are no upstreams. By `identity` the worker recognises requests that come back.
    The config goes through a pipe: no command line may show the secrets.
    """

    settings: Settings
    admin_url: str | None
    own_listeners: tuple[BoundAddress, ...]
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
    """The error, to be raised in this process; a ConfigError stays a ConfigError."""
    message, code, status = encoded
    kind = ConfigError if code == ConfigError.code else TapewayError
    return kind(message, code=code, status=status)


class WorkerReport(NamedTuple):
    """A request served by a worker, and the number of upstream connections opened so far.

    `at` is the monotonic time of the report. All processes of a machine share the monotonic clock,
    so `at` orders the reports of several workers.
    """

    at: float
    served: ServedRequest
    connections: int


def encode_report(report: WorkerReport) -> Value:
    """The report as plain values."""
    at, connections, served = report.at, report.connections, report.served.written()
    texts = tuple(served.client_texts)
    nearest: tuple[_EncodedNearest, ...] = ()
    kept = None
    if served.nearest or served.kept is not None:
        nearest = tuple(
            [
                (recording.index, recording.differences, recording.more)
                for recording in served.nearest
            ]
        )
        kept = None if served.kept is None else _encode_kept(served.kept)
        served = served._replace(nearest=(), kept=None)
    encoded = tuple(served._replace(texts=_NO_TEXTS))
    return cast("Value", (at, encoded, texts, nearest, kept, connections))


def decode_report(value: Value) -> WorkerReport:
    """The inverse of `encode_report`."""
    at, encoded, texts, nearest, kept, connections = cast("tuple[Any, ...]", value)
    served = ServedRequest._make(encoded)._replace(texts=ClientTexts(*texts))
    if nearest:
        served = served._replace(
            nearest=tuple([NearestRecording(*recording) for recording in nearest])
        )
    if kept is not None:
        served = served._replace(kept=_decode_kept(kept))
    return WorkerReport(at, served, connections)


def _encode_kept(kept: KeptCall) -> _EncodedKept:
    exchange, missed = kept.exchange, kept.missed
    compared = None if missed is None else (missed.size, missed.used_up)
    return _encode_request(exchange.request), _encode_response(exchange.response), compared


def _decode_kept(encoded: _EncodedKept) -> KeptCall:
    request, response = _decode_request(encoded[0]), _decode_response(encoded[1])
    missed = None
    if encoded[2] is not None:
        missed = MissedRequest(replace(request, file=None), *encoded[2])
    return KeptCall.of(request, response, missed=missed)


def _encode_request(request: Request) -> _EncodedRequest:
    headers, size = tuple(request.headers), None if request.file is None else request.file.size
    head = (
        request.route,
        request.method,
        request.target,
        headers,
        request.body,
        request.base,
        request.credentials,
    )
    return (*head, request.coding, size)


def _decode_request(encoded: _EncodedRequest) -> Request:
    *_, credentials, coding, size = encoded
    return Request(*encoded[:6], file=_left_out(size), credentials=credentials, coding=coding)


def _encode_response(response: Response) -> _EncodedResponse:
    head, size = response.head, None if response.file is None else response.file.size
    encoded = (
        *(head.status, head.reason, tuple(head.headers), head.framing, head.version),
        head.length,
    )
    return (
        encoded,
        response.body,
        response.at_ms,
        tuple(response.chunk_times),
        response.latency_ms,
        size,
        response.verdict,
    )


def _decode_response(encoded: _EncodedResponse) -> Response:
    head, body, at_ms, chunks, latency_ms, size, verdict = cast("tuple[Any, ...]", encoded)
    times = ChunkTimes(chunks)
    made = ResponseHead(*head)
    return Response(made, body, at_ms, times, latency_ms, _left_out(size), verdict)


def _left_out(size: int | None) -> BodyFile | None:
    return None if size is None else BodyFile("", size, "")


def encode_frame(value: Value) -> bytes:
    """One value as a frame."""
    data = marshal.dumps(value, _MARSHAL)
    return _LENGTH.pack(len(data)) + data


class FrameDecoder:
    """Reads values from a stream of frames, wherever chunks end."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Value]:
        """The values of all frames that are complete now."""
        values: list[Value] = []
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
            values.append(cast("Value", value))
            start = end
        if source is data:
            self._rest += data[start:]
        else:
            del self._rest[:start]
        return values
