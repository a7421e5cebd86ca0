"""A client of another tapeway's admin API: the address, and calls with retries.

A call is retried when the remote tapeway cannot be reached, breaks off, is silent, or answers that
it is busy. Every call may be carried out twice.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

import aiohttp
from yarl import URL

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.json_text import Json
from tapeway.errors import ConfigError, StoreAway, closed
from tapeway.stores.remote.errors import refusal, unexpected, value_of
from tapeway.version import VERSION, VERSION_HEADER

TOKEN = "TAPEWAY_STORE_TOKEN"  # noqa: S105 - a name
CA = "TAPEWAY_STORE_CA"
T = TypeVar("T")

Body = Callable[[], AsyncIterator[bytes]]
"""Makes the body of a request, once for each time it is sent."""
API = "/api/v1"

ATTEMPT = "Tapeway-Attempt"
"""Which try of a call this is: from the second on it may have been carried out before."""

PATIENCE_S = 8.0
"""So long a call is retried before the store counts as away."""

SILENCE_S = 20.0
"""So long the remote tapeway may send nothing."""
_CONNECT_S = 3.0
_FIRST_PAUSE_S = 0.1
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_UNTRUSTED = aiohttp.ClientConnectorCertificateError
_ANOTHER_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_ERRORS = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """`root` is the URL that paths of the API are appended to; it holds no token."""

    root: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    token_variable: str = TOKEN
    """Where the token comes from, for the error if it is wrong."""

    @property
    def shown(self) -> str:
        return self.root

    def tls(self) -> ssl.SSLContext | bool:
        """How certificates are checked. Raises ConfigError for a bundle that cannot be read."""
        if not self.root.startswith("https:"):
            return True
        try:
            # Not left to aiohttp: `tapeway serve` has it read no authorities.
            context = ssl.create_default_context()
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as exc:
            raise ConfigError(f"{CA} {self.ca} cannot be read as PEM certificates") from exc
        return context


def address_of(url: str, token: str | None = None, ca: str | None = None) -> RemoteAddress:
    """The address in `http(s)://[TOKEN@]HOST[:PORT][/PREFIX]`; a token in it wins.

    Raises ConfigError, which does not repeat the token.
    """
    try:
        parts = urlsplit(url)
        # Read here, since it may raise.
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise _unusable("its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise _unusable("it is no http:// or https:// URL with a host")
    if parts.query or parts.fragment:
        raise _unusable("it takes no query")
    userinfo = parts.netloc.rpartition("@")[0]
    if userinfo:
        # `:TOKEN@` as well as `TOKEN@`: tools write either.
        token = unquote(userinfo.removeprefix(":"))
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise _unusable("its token is empty, or no visible ASCII")
    bracketed = f"[{host}]" if ":" in host else host
    place = bracketed if port is None else f"{bracketed}:{port}"
    return RemoteAddress(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", token, ca)


def _unusable(why: str) -> ConfigError:
    return ConfigError(
        f"this address of a tapeway cannot be used, {why}: give that of its admin listener, such as "
        "http://tapeway.internal:8081"
    )


class RemoteClient:
    """A client of one admin listener, from `open` to `close`."""

    def __init__(
        self, address: RemoteAddress, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S
    ) -> None:
        self.shown = address.shown
        self._address = address
        self._patience_s = patience_s
        self._silence_s = silence_s
        self._session: aiohttp.ClientSession | None = None
        self._left_over: dict[str, None] = {}

    def for_another_loop(self) -> "RemoteClient":
        """A client of the same address for another event loop, not yet open."""
        return RemoteClient(self._address, self._patience_s, self._silence_s)

    async def open(self) -> None:
        """Raises ConfigError for certificates that cannot be read."""
        headers = {"Accept-Encoding": "identity"}
        if self._address.token is not None:
            headers["Authorization"] = f"Bearer {self._address.token}"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_S, connect=None, sock_read=self._silence_s
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._address.tls(), limit=16),
            headers=headers,
            timeout=timeout,
            auto_decompress=False,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        once: bool = False,
        patience_s: float | None = None,
        api: str = API,
    ) -> dict[str, Json]:
        """The JSON object a call answers with; `once` does not retry it.

        Raises StoreAway, RemoteRefused, NotAllowed and other StoreErrors.
        """

        tries = count(1)

        async def attempt() -> dict[str, Json]:
            sent = {**(headers or {}), ATTEMPT: str(next(tries))}
            async with self._response_to(method, api + path, query, sent, body) as response:
                return value_of(self.shown, await self._text(response))

        answer = await self.retried(attempt, once=once, patience_s=patience_s)
        match answer.get("left_over"):
            case [*sentences]:
                self._left_over |= {
                    sentence: None for sentence in sentences if isinstance(sentence, str)
                }
        return answer

    def take_left_over(self) -> list[str]:
        """What calls removed there and others can still read, a sentence each; once."""
        left_over, self._left_over = self._left_over, {}
        return list(left_over)

    async def retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        once: bool = False,
        patience_s: float | None = None,
    ) -> T:
        """What an attempt gives, retried for a while as long as the remote tapeway is away.

        Raises StoreAway, and whatever else an attempt raises.
        """
        loop = asyncio.get_running_loop()
        patience_s = self._patience_s if patience_s is None else patience_s
        end, pause = loop.time() + patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except (StoreAway, *_ERRORS) as exc:
                away = exc if isinstance(exc, StoreAway) else self._not_reached(exc)
                untrusted = isinstance(exc, _UNTRUSTED) or isinstance(exc.__cause__, _UNTRUSTED)
                if once or untrusted or loop.time() + pause > end:
                    raise away from exc.__cause__ if exc is away else exc
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    @asynccontextmanager
    async def pieces(
        self, path: str, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a GET as it comes, to be used in an attempt. Raises what `ask` does."""
        async with self._response_to("GET", API + path, query, None, None) as response:
            yield response.content.iter_chunked(_PIECE_BYTES)

    @asynccontextmanager
    async def _response_to(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        body: Body | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise closed(self.shown)
        async with self._session.request(
            method,
            # As it is written: a name's slash is encoded, and stays so.
            URL(self._address.root + path, encoded=True).update_query(query or {}),
            headers={**(headers or {}), VERSION_HEADER: VERSION},
            data=None if body is None else body(),
            allow_redirects=False,
            middlewares=(self._refuse_retry,),
        ) as response:
            if response.status != 200:
                text, variable = await self._text(response), self._address.token_variable
                raise refusal(self.shown, response.status, text, variable)
            yield response

    async def _refuse_retry(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Prevent a retry by aiohttp, which takes the body as already read."""
        try:
            return await send(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
            raise self._not_reached(exc) from exc

    async def _text(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > _MAX_ANSWER_BYTES:
                raise unexpected(self.shown)
        return bytes(body)

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
        return StoreAway(f"{self.shown} {why}: see whether tapeway runs there")


def path_of(name: str) -> str:
    """The path of a cassette below the API. Raises RequestError for a name that is none."""
    return f"/cassettes/{quote(check_cassette_name(name), safe='')}"
