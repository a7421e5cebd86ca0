"""Calls without a recording, kept in memory for people who look at the journal."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tapeway.core.cassette.plan import LiveCall
from tapeway.core.http.content_codings import readable_response
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.misses.miss import Miss, MissedRequest
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    CUT,
    LARGE_BODY,
    BodyFile,
    Request,
    Response,
    ResponseHead,
    Verdict,
)
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.leak_guard import LeakFound

MOST_KEPT_BYTES = 64 * 1024 * 1024
"""For requests and answers."""

_OVERHEAD = 1024
_CHUNK = 16
_NO_ANSWER = Response(ResponseHead(0))


class KeptCall(NamedTuple):
    """A call without a recording: the request and the answer sent to the client.

    A body above 1 MiB is left out: only the size is kept.
    """

    exchange: Interaction
    missed: MissedRequest | None = None
    """Of a miss: the request as it was compared."""
    redact: Callable[[Interaction], Interaction] | None = None
    """Few calls are ever looked at: `exchange` is redacted when somebody does. None where it is."""

    @classmethod
    def of(
        cls,
        request: Request,
        response: Response,
        *,
        missed: MissedRequest | None = None,
        redact: Callable[[Interaction], Interaction] | None = None,
    ) -> "KeptCall":
        """The call without its large bodies."""
        size = len(request.body) if request.file is None else request.file.size
        if size > LARGE_BODY:
            request = replace(request, body=b"", file=BodyFile("", size, ""))
        if response.size > LARGE_BODY:
            response = replace(response, body=b"", file=BodyFile("", response.size, ""))
        return cls(
            Interaction(0, request, response, latency_ms=response.latency_ms), missed, redact
        )

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        request, response = self.exchange.request, self.exchange.response
        fields = (*request.headers, *response.headers)
        headers = sum([len(name) + len(value) for name, value in fields])
        chunks = _CHUNK * len(response.chunk_times)
        bodies = len(request.body) + len(response.body)
        return bodies + len(request.target) + headers + chunks + _OVERHEAD

    def redacted(self) -> "KeptCall":
        """The call as it may be shown. It may take long: run it in a thread."""
        return self if self.redact is None else KeptCall(self.redact(self.exchange), self.missed)


class KeptCalls:
    """The newest calls that no recording holds, by their id in the journal."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._calls: dict[str, KeptCall] = {}

    def add(self, id: str, call: KeptCall) -> None:
        """Keep a call; the oldest ones make room."""
        self._calls[id] = call
        self._bytes += call.size
        while self._bytes > self._most_bytes or len(self._calls) > self._most:
            self._bytes -= self._calls.pop(next(iter(self._calls))).size

    def get(self, id: str) -> KeptCall | None:
        return self._calls.get(id)

    def replace(self, id: str, call: KeptCall) -> None:
        """Keep a call in another form, if it is kept at all."""
        if (known := self._calls.get(id)) is not None:
            self._bytes += call.size - known.size
            self._calls[id] = call

    def clear(self) -> None:
        self._calls.clear()
        self._bytes = 0


class RelayedBody:
    """The answer that is passed on, up to 1 MiB of it: of a longer one only the size."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._pieces: list[tuple[bytes, float]] = []
        self._size = 0
        self._latency_ms = 0.0

    def add(self, piece: bytes, at_ms: float) -> None:
        """Keep a piece that came so many milliseconds after the request was sent."""
        self._size += len(piece)
        self._latency_ms = at_ms
        if self._size > LARGE_BODY:
            self._pieces.clear()
        else:
            self._pieces.append((piece, at_ms))

    def response(self, verdict: Verdict) -> Response:
        """The answer as far as it came."""
        made = Response.of_chunks(
            self._head, self._pieces, latency_ms=self._latency_ms, verdict=verdict
        )
        if self._size > LARGE_BODY:
            return replace(made, file=BodyFile("", self._size, ""))
        return made


class CallKeeper:
    """Makes what the journal keeps of a call; secrets are replaced as a recording's would be."""

    def __init__(self, redaction: RequestRedaction, salt: str) -> None:
        """`salt` is for the placeholders in what no cassette was asked for."""
        self._redaction = redaction
        self._salt = salt

    def keep(self, asked: Request | LiveCall | Miss, response: Response | None = None) -> KeptCall:
        """A call with the answer to the client, as far as it is known."""
        answer = response or _NO_ANSWER
        if isinstance(asked, Miss):
            return KeptCall.of(asked.request, answer, missed=asked.kept)
        if isinstance(asked, LiveCall):
            return KeptCall.of(
                asked.redacted,
                answer,
                redact=partial(self._redacted_call, asked.cassette.head.run_id, asked.secrets),
            )
        return KeptCall.of(asked, answer, redact=self._redacted_refused)

    # Neither refers to the cassette, or to the request as it came: calls are kept for long.

    def _redacted_call(
        self, salt: str, secrets: tuple[Secret, ...], exchange: Interaction
    ) -> Interaction:
        issued = self._redaction.issued(exchange.response.head)
        return self._redacted(exchange, salt, (*secrets, *issued))

    def _redacted_refused(self, exchange: Interaction) -> Interaction:
        request, secrets = self._redaction.redact_and_learn(self._salt, exchange.request)
        return self._redacted(replace(exchange, request=request), self._salt, secrets)

    def _redacted(self, exchange: Interaction, salt: str, secrets: Sequence[Secret]) -> Interaction:
        """The exchange with its answer redacted; without bodies and fields if a secret is left."""
        response = exchange.response
        held = readable_response(response, exchange.request.method, cut=response.verdict in CUT)
        stored, taught = self._redaction.redactor_of(salt, secrets).response_and_secrets(held)
        asked = self._redaction.redact_again(salt, exchange.request, taught)
        kept = replace(exchange, request=asked, response=stored)
        try:
            self._redaction.guard_of(salt, secrets).check(kept, None, _text(kept))
        except LeakFound:
            return _without_content(kept)
        return kept


def _text(exchange: Interaction) -> bytes:
    request, response = exchange.request, exchange.response
    fields = [value for _, value in (*request.headers, *response.headers)]
    target = request.target.encode("utf-8", "surrogateescape")
    return b"\n".join([target, *fields, request.body, response.body])


def _without_content(exchange: Interaction) -> Interaction:
    request, response = exchange.request, exchange.response
    target = request.target.partition("?")[0]
    head = replace(response.head, headers=())
    return replace(
        exchange,
        request=Request(request.route, request.method, target),
        response=Response(head, file=BodyFile("", response.size, "")),
    )
