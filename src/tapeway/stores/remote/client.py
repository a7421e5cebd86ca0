"""A client of another tapeway's admin API: address, TLS, time limits, retries and errors.

A call is retried when the remote tapeway cannot be reached, breaks off, is silent, or answers that
it is busy. Every call may be carried out twice.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from tapeway.core.json_text import NotJson, parse
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    ConfigError,
    RecordingEdited,
    StoreAway,
    StoreError,
    StoreFull,
    StorePoisoned,
    closed,
)
from tapeway.version import VERSION, VERSION_HEADER

TOKEN = "TAPEWAY_STORE_TOKEN"  # noqa: S105 - a name
CA = "TAPEWAY_STORE_CA"
API = "/api/v1"
PATIENCE_S = 8.0
"""So long a call is retried before the store counts as away."""
SILENCE_S = 20.0
"""So long the remote tapeway may send nothing."""
_CONNECT_S = 3.0
_FIRST_PAUSE_S = 0.1
_UNTRUSTED = aiohttp.ClientConnectorCertificateError
_ANOTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
T = TypeVar("T")
Read = Callable[[aiohttp.ClientResponse], Awaitable[T]]
"""Reads a successful response. Raises StoreAway for one that is to be asked for again."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the admin API."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], AsyncIterator[bytes] | BytesIO] | None = None
    """Makes the body, once for each time it is sent."""


class RemoteRefused(StoreError):
    """The remote tapeway refused a request, and did nothing."""


class NoCassette(RemoteRefused):
    """The remote tapeway has no such cassette."""


class NotServed(RemoteRefused):
    """The remote tapeway does not take the token, or has another version."""


_OWN = (CassetteCorrupt, CassetteEdited, RecordingEdited, CassetteLocked, StoreFull, StorePoisoned)
_REFUSALS: dict[tuple[int, str] | int, type[StoreError]] = {
    **{(kind.status, kind.code): kind for kind in _OWN},
    (404, "no_cassette"): NoCassette,
    (409, "store_version"): NotServed,
    (412, "precondition_failed"): CassetteEdited,
    (503, "store_poisoned"): StorePoisoned,
    403: NotServed,
    429: StoreAway,
    503: StoreAway,
}
"""Errors by status and code of an answer, or else by its status."""


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """`root` is the URL that paths of the API are appended to; it holds no token."""

    root: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    token_variable: str = TOKEN
    """Where the token comes from, for the error if it is wrong."""


def address_of(url: str, token: str | None = None, ca: str | None = None) -> RemoteAddress:
    """The address in `http(s)://[TOKEN@]HOST[:PORT][/PREFIX]`; a token in it wins.

    Raises ConfigError, which does not repeat the token.
    """
    try:
        parts = urlsplit(url)
        # Reading the port may raise too.
        has_host = parts.scheme in ("http", "https") and (parts.port, parts.hostname)[1]
    except ValueError:
        raise _unusable("its host or port cannot be read") from None
    if not has_host:
        raise _unusable("it is no http:// or https:// URL with a host")
    if parts.query or parts.fragment:
        raise _unusable("it takes no query")
    userinfo, _, place = parts.netloc.rpartition("@")
    if userinfo:
        # `:TOKEN@` as well as `TOKEN@`: tools write either.
        token = unquote(userinfo.removeprefix(":"))
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise _unusable("its token is empty, or no visible ASCII")
    root = f"{parts.scheme}://{place.lower()}{parts.path.rstrip('/')}"
    return RemoteAddress(root, token, ca)


def _unusable(why: str) -> ConfigError:
    return ConfigError(
        f"this address of a tapeway cannot be used, {why}: give that of its admin listener, such as "
        "http://tapeway.internal:8081"
    )


class RemoteClient:
    """A client of one admin listener, from `open` to `close`. A copy opens for another loop."""

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self._address = address
        self._patience_s = patience_s
        self._silence_s = silence_s
        self._session: aiohttp.ClientSession | None = None
        self._left_over: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        return self._session is not None

    async def open(self) -> None:
        """Raises ConfigError for certificates that cannot be read."""
        tls: ssl.SSLContext | bool = True
        if self._address.root.startswith("https:"):
            # Not left to aiohttp: `tapeway serve` has it read no authorities.
            tls = ssl.create_default_context()
            if (ca := self._address.ca) is not None:
                try:
                    tls.load_verify_locations(ca)
                except OSError as exc:
                    raise ConfigError(f"{CA} {ca} cannot be read as PEM certificates") from exc
        headers = {"Accept-Encoding": "identity"}
        if self._address.token is not None:
            headers["Authorization"] = f"Bearer {self._address.token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=16),
            headers=headers,
            middlewares=(self._send_once,),
            timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=self._silence_s),
            auto_decompress=False,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(
        self, call: Call, found: Callable[[dict[str, Any]], T], patience_s: float | None = None
    ) -> T:
        """What `found` takes out of the JSON object a call answers with.

        Raises what `receive` does, and StoreError where `found` cannot find what it looks for.
        """
        answer = await self.receive(call, _read_json, patience_s)
        try:
            self._left_over |= dict.fromkeys(answer.get("left_over", ()))
            return found(answer)
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StoreError(
                f"{self._address.root} answered what no tapeway of this version answers: see what "
                "runs there, and that nothing in between changes it"
            ) from None

    def take_left_over(self) -> list[str]:
        """What calls removed there and others can still read, a sentence each; once."""
        left_over, self._left_over = self._left_over, {}
        return list(left_over)

    async def receive(self, call: Call, read: Read[T], patience_s: float | None = None) -> T:
        """What `read` makes of a successful response to a call, which is repeated for a while.

        With `patience_s`, the call ends within a second more. Raises StoreAway, RemoteRefused and
        other StoreErrors, and whatever else `read` raises.
        """
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE_S
        end = loop.time() + (self._patience_s if patience_s is None else patience_s)
        try:
            async with asyncio.timeout_at(None if patience_s is None else end + 1):
                while True:
                    try:
                        return await self._receive(call, read)
                    except StoreAway as exc:
                        untrusted = isinstance(exc.__cause__, _UNTRUSTED)
                        if untrusted or loop.time() + pause > end:
                            raise
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 1.0)
        except TimeoutError as exc:
            raise self._not_reached(exc) from exc

    async def _receive(self, call: Call, read: Read[T]) -> T:
        if self._session is None:
            raise closed(self._address.root)
        try:
            async with self._session.request(
                call.method,
                # As it is written: a name's slash is encoded, and stays so.
                URL(self._address.root + call.path, encoded=True),
                headers={**call.headers, VERSION_HEADER: VERSION},
                data=None if call.body is None else call.body(),
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    raise self._refusal(response.status, await _read_json(response))
                return await read(response)
        except (aiohttp.ClientError, OSError) as exc:
            raise self._not_reached(exc) from exc

    async def _send_once(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Prevent a retry by aiohttp."""
        try:
            return await send(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
            raise self._not_reached(exc) from exc

    def _not_reached(self, exc: BaseException) -> StoreAway:
        why = "did not answer in time" if isinstance(exc, TimeoutError) else "cannot be reached"
        if isinstance(exc, _UNTRUSTED):
            why = "has a certificate nobody here vouches for (TAPEWAY_STORE_CA names a bundle)"
            if getattr(exc.certificate_error, "verify_code", None) in _ANOTHER_NAME:
                why = "has a certificate of another name: use that"
        elif isinstance(exc, aiohttp.ClientSSLError):
            why = "could not agree with us on TLS"
        elif isinstance(exc, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
            why = "broke off its answer"
        return StoreAway(f"{self._address.root} {why}: see whether tapeway runs there")

    def _refusal(self, status: int, answer: object) -> StoreError:
        root = self._address.root
        if status == 401:
            return NotServed(
                f"{root} does not take this token: set {self._address.token_variable} to the one of "
                "its --admin-token"
            )
        match answer:
            case {"error": {"code": str(code), "message": str(message)}, "tapeway": dict()}:
                other = RemoteRefused if status < 500 else StoreError
                kind = _REFUSALS.get((status, code)) or _REFUSALS.get(status, other)
                return kind(f"{root}: {message}")
            case _:
                return StoreError(
                    f"{root} answered {status} and not as a tapeway does: give the address of an "
                    "admin listener, and nothing in between that answers for it"
                )


async def _read_json(response: aiohttp.ClientResponse) -> Any:
    try:
        return parse(await response.read())
    except NotJson:
        return None
