"""Recognises requests that come back: some tapeways are each other's upstream, in a circle.

Requests carry no sign of a circle, since services get the client's header alone. So tapeway finds a
circle on the way back. A request that equals a request in flight may be the same request again. Then
its sender gets an interim response (`100 Continue`, RFC 9110 section 15.2) with this tapeway's id.
Every tapeway passes interim responses on to its client. If the id arrives on a connection from here to
an upstream, that upstream leads back here. A known tapeway gets the ids in a request header, and no
search is needed.
"""

import asyncio
import hashlib
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tapeway.core.http.headers import HOPS_HEADER, find_header
from tapeway.core.http.location import without_userinfo
from tapeway.core.model.messages import Headers, Request
from tapeway.errors import UpstreamError

_OUTCOME = b"tapeway-outcome"
HELD_S = 0.25
"""How long the search for a request that may have come back takes at most: a round trip."""
LATE_S = 1.0
"""When the search begins. A quick service has answered by then, and no search is needed."""

Interim = Callable[[bytes], None]
"""Sends the client an interim response with this value of the header."""


class Passage:
    """A request on its way through, until its response begins."""

    def __init__(self, request: Request, interim: Interim, *, suspect: bool) -> None:
        self.request = request
        self.suspect = suspect
        self.asked = False
        self.decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the request came back."""
        self._interim = interim
        self._ended = False

    def tell(self, ids: bytes) -> None:
        """Pass ids on towards the client, unless the final response has begun."""
        if not self._ended:
            self._interim(ids)

    def decide(self, came_back: bool) -> None:
        """End the search."""
        if not self.decided.done():
            self.decided.set_result(came_back)

    def end(self) -> None:
        """The final response begins: nothing may be sent before it any more."""
        self._ended = True


class LoopGuard:
    """The requests in flight to upstreams that may lead back here."""

    def __init__(self, *, late_s: float = LATE_S) -> None:
        self._id = secrets.token_hex(8).encode()
        self._late_s = late_s
        self._is_tapeway: dict[str, bool] = {}
        """By the URL of an upstream that has answered."""
        self._passages: defaultdict[bytes, list[Passage]] = defaultdict(list)

    def leads_elsewhere(self, request: Request) -> bool:
        """Whether the upstream is known not to be a tapeway: no way leads back from there.

        Raises UpstreamError (508) for a request that was here before.
        """
        hops = request.fields.value(HOPS_HEADER)
        if hops is not None and self._id in _ids(hops):
            raise loop_error(request.base)
        return self._is_tapeway.get(request.base) is False

    @contextmanager
    def passing(self, request: Request, interim: Interim) -> Iterator[Passage]:
        """A request on the way to an upstream of which `leads_elsewhere` is unknown."""
        known = self._is_tapeway.get(request.base)
        key = _key(request)
        among = self._passages[key]
        # The base of an upstream on the way may have been put before the path.
        suspect = known is None and any(
            request.target.endswith(other.request.target) for other in among
        )
        among.append(passage := Passage(request, interim, suspect=suspect))
        try:
            yield passage
        finally:
            passage.end()
            among.remove(passage)
            if not among:
                del self._passages[key]

    async def search(self, passage: Passage, *, joins: bool) -> None:
        """Hold up a request that equals one in flight. Raises UpstreamError (508) if it came back.

        A request that `joins` an equal call is not held up: the call waits, and the error is for both.
        """
        if self._is_tapeway.get(passage.request.base) is False:
            return
        if joins or not passage.suspect:
            asyncio.get_running_loop().call_later(self._late_s, self._search_late, passage)
            return
        # Most services answer meanwhile, and are no tapeway then: their clients get no interim response.
        await asyncio.wait((passage.decided,), timeout=self._late_s)
        if not passage.decided.done():
            passage.tell(self._id)
            await asyncio.wait((passage.decided,), timeout=HELD_S)
        if passage.decided.done() and passage.decided.result():
            raise loop_error(passage.request.base)

    def _search_late(self, passage: Passage) -> None:
        # A request that was not asked waits for another call, and may be the cause of that call.
        if not passage.asked and self._is_tapeway.get(passage.request.base) is not False:
            passage.tell(self._id)

    def sent(self, request: Request) -> Headers:
        """The header field to add to the request; no field if the upstream is no tapeway."""
        for passage in self._equal(request):
            passage.asked = True
        if not self._is_tapeway.get(request.base):
            return ()
        ids = (*_ids(request.fields.value(HOPS_HEADER)), self._id)
        return ((HOPS_HEADER, b",".join(ids)),)

    def interim(self, request: Request, headers: Headers) -> None:
        """Take an interim response of an upstream. Raises UpstreamError (508) if the upstream leads back."""
        ids = find_header(headers, HOPS_HEADER)
        if ids is None:
            return
        equal = self._equal(request)
        if self._id not in _ids(ids):
            for passage in equal:
                passage.tell(ids)
            return
        self._is_tapeway[request.base] = True
        for passage in equal:
            passage.decide(passage.suspect)
        raise loop_error(request.base)

    def answered(self, request: Request, status: int, headers: Headers) -> None:
        """Take the head of a response. Raises UpstreamError (508) if a tapeway found a circle."""
        outcome = find_header(headers, _OUTCOME)
        self._is_tapeway[request.base] = outcome is not None
        for passage in self._equal(request):
            passage.decide(False)
        if status == 508 and outcome == b"error":
            raise loop_error(request.base)

    def failed(self, request: Request) -> None:
        """Forget the upstream, which did not respond: another program may respond next."""
        self._is_tapeway.pop(request.base, None)

    def _equal(self, request: Request) -> list[Passage]:
        if not self._passages:
            return []
        return [
            passage
            for passage in self._passages.get(_key(request), ())
            if request.target.endswith(passage.request.target)
            or passage.request.target.endswith(request.target)
        ]


def loop_error(base: str) -> UpstreamError:
    """The error for an upstream that leads back to this proxy."""
    return UpstreamError(
        f"the upstream {without_userinfo(base)} leads back to this proxy; give another --upstream",
        status=508,
        code="upstream_loop",
    )


def _ids(value: bytes | None) -> tuple[bytes, ...]:
    return tuple(part.strip() for part in value.split(b",")) if value else ()


def _key(request: Request) -> bytes:
    """A request that comes back has the same key, whatever its path."""
    body = request.body if request.file is None else request.file.digest.encode()
    return hashlib.blake2b(request.method.encode() + b"\0" + body, digest_size=16).digest()
