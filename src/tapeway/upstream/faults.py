"""What can go wrong with an upstream, in tapeway's own words.

The client library's texts repeat URLs and header lines, which may hold keys, so none is kept.
"""

import asyncio

import aiohttp
from yarl import URL

from tapeway.errors import UpstreamError


class translated:
    """The only place where the client library's errors become ours. A context manager."""

    def __init__(self, url: URL) -> None:
        self._where = f"{url.host}:{url.port}"
        self._secure = url.scheme == "https"

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _: object
    ) -> None:
        if isinstance(exc, aiohttp.ClientResponseError) and exc.message.startswith(_OVERSIZE):
            raise UpstreamError(
                f"upstream {self._where} sent more header than tapeway takes; no answer was stored",
                code="upstream_header_too_large",
            ) from None
        if self._secure and isinstance(exc, aiohttp.ClientConnectorError):
            self._check_handshake(exc.os_error)
        for foreign, status, code, said in _ERRORS:
            if isinstance(exc, foreign):
                message = f"upstream {self._where} {said}"
                raise UpstreamError(message, status=status, code=code) from None

    def _check_handshake(self, cause: OSError) -> None:
        # Refused is unreachable; accepted and then broken off is a handshake that failed.
        if isinstance(cause, ConnectionResetError | ConnectionAbortedError):
            message = f"upstream {self._where} {_NO_TLS}"
            raise UpstreamError(message, code="upstream_tls") from None


def broken_off(url: URL) -> UpstreamError:
    """The error for an answer that ended before its end."""
    return UpstreamError(f"upstream {url.host}:{url.port} {_BROKE_OFF}", code="upstream_truncated")


def not_http(url: URL, what: str) -> UpstreamError:
    """The error for an answer that cannot be passed on."""
    return UpstreamError(
        f"upstream {url.host}:{url.port} sent {what}, which cannot be passed on; "
        "no answer was stored",
        code="upstream_protocol",
    )


_OVERSIZE = ("Got more than ", "Too many headers")
_NO_TLS = "could not agree on TLS; check the URL's scheme"
_BROKE_OFF = "broke off in the middle of its answer; no answer was stored"
_ERRORS: tuple[tuple[type[BaseException], int, str, str], ...] = (
    (
        aiohttp.ClientConnectorCertificateError,
        502,
        "upstream_tls",
        "showed a certificate that is not valid for it; check the URL, or give --upstream-ca",
    ),
    (aiohttp.ClientSSLError, 502, "upstream_tls", _NO_TLS),
    (
        aiohttp.ClientConnectorDNSError,
        502,
        "upstream_dns",
        "has a name that cannot be looked up; check the URL and the network",
    ),
    (
        aiohttp.InvalidURL,
        502,
        "upstream_unreachable",
        "has an address that cannot be connected to; write it out in full",
    ),
    (
        aiohttp.ServerTimeoutError,
        504,
        "upstream_timeout",
        "did not answer in time; --connect-timeout and --upstream-timeout set how long to wait",
    ),
    (
        aiohttp.ClientConnectorError,
        502,
        "upstream_unreachable",
        "cannot be reached; is it running, and is the URL right?",
    ),
    (aiohttp.ClientPayloadError, 502, "upstream_truncated", _BROKE_OFF),
    (
        aiohttp.ServerDisconnectedError,
        502,
        "upstream_reset",
        "closed the connection before it answered; no answer was stored",
    ),
    (
        aiohttp.ClientOSError,
        502,
        "upstream_reset",
        "reset the connection; no answer was stored",
    ),
    (
        aiohttp.ClientError,
        502,
        "upstream_protocol",
        "sent something that is not HTTP/1.1; no answer was stored",
    ),
    (asyncio.TimeoutError, 504, "upstream_timeout", "did not answer in time"),
    (OSError, 502, "upstream_reset", "reset the connection; no answer was stored"),
)
