"""A client of another tapeway's admin API: address, TLS, time limits, retries and errors.

A call is retried when the remote tapeway cannot be reached, breaks off, is silent, or answers that
it is busy. Every call may be carried out twice.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from tapeway.core.json_text import Json, NotJson, parse
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
_ERRORS = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
T = TypeVar("T")
Body = Callable[[], AsyncIterator[bytes]]
"""Makes the body of a request, once for each time it is sent."""


class RemoteRefused(StoreError):
    """The remote tapeway refused a request, and did nothing; `remote_code` says why."""

    def __init__(self, message: str, remote_code: str) -> None:
        super().__init__(message)
        self.remote_code = remote_code


class NotAllowed(StoreError):
    """The remote tapeway does not take the token."""


_OWN = (CassetteCorrupt, CassetteEdited, RecordingEdited, CassetteLocked, StoreFull, StorePoisoned)
_REFUSALS: dict[tuple[int, str] | int, type[StoreError]] = {
    **{(kind.status, kind.code): kind for kind in _OWN},
    (412, "precondition_failed"): CassetteEdited,
    (503, "store_poisoned"): StorePoisoned,
    403: NotAllowed,
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
        port, host = parts.port, parts.hostname
    except ValueError:
        raise _unusable("its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise _unusable("it is no http:// or https:// URL with a host")
    if parts.query or parts.fragment:
        raise _unusable("it takes no query")
    if userinfo := parts.netloc.rpartition("@")[0]:
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
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._address.tls(), limit=16),
            headers=headers,
            timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=self._silence_s),
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
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience_s: float | None = None,
    ) -> dict[str, Json]:
        """The JSON object a call answers with.

        Raises StoreAway, RemoteRefused, NotAllowed and other StoreErrors.
        """

        async def attempt() -> dict[str, Json]:
            async with self.response_to(method, path, headers, body, query) as response:
                value = _parsed(await response.read())
            if not isinstance(value, dict):
                raise self.unexpected()
            if isinstance(left_over := value.get("left_over"), list):
                self._left_over |= dict.fromkeys(map(str, left_over))
            return value

        return await self.retried(attempt, patience_s)

    def take_left_over(self) -> list[str]:
        """What calls removed there and others can still read, a sentence each; once."""
        left_over, self._left_over = self._left_over, {}
        return list(left_over)

    async def retried(
        self, attempt: Callable[[], Awaitable[T]], patience_s: float | None = None
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
                if untrusted or loop.time() + pause > end:
                    raise away from exc.__cause__ if exc is away else exc
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    @asynccontextmanager
    async def response_to(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of one successful response. Raises what `ask` does, and errors of aiohttp."""
        if self._session is None:
            raise closed(self._address.root)
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
                raise self._refusal(response.status, _parsed(await response.read()))
            yield response

    async def _refuse_retry(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Prevent a retry by aiohttp, which takes the body as already read."""
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

    def _refusal(self, status: int, answer: Json) -> StoreError:
        root = self._address.root
        if status == 401:
            return NotAllowed(
                f"{root} does not take this token: set {self._address.token_variable} to the one of "
                "its --admin-token"
            )
        match answer:
            case {"error": {"code": str(code), "message": str(message)}, "tapeway": dict()}:
                kind = _REFUSALS.get((status, code)) or _REFUSALS.get(status, StoreError)
                if kind is StoreError and status < 500:
                    return RemoteRefused(f"{root}: {message}", code)
                return kind(f"{root}: {message}")
            case _:
                return StoreError(
                    f"{root} answered {status} and not as a tapeway does: give the address of an "
                    "admin listener, and nothing in between that answers for it"
                )

    def unexpected(self) -> StoreError:
        """The error for a successful response with other content than expected."""
        return StoreError(
            f"{self._address.root} answered what no tapeway of this version answers: see what runs "
            "there, and that nothing in between changes it"
        )


def _parsed(text: bytes) -> Json:
    try:
        return parse(text)
    except NotJson:
        return None
