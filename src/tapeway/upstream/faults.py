"""The errors of upstreams, in tapeway's own words.

aiohttp's messages repeat URLs and header lines, which may hold API keys, so none of them is used.
"""

import asyncio
from http import HTTPStatus

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from tapeway.errors import UnprovenEnd, UpstreamError, forget_frames
from tapeway.upstream.outer_proxy import OuterProxy


class RefusedResponse(Exception):
    """What a service sends is more than anybody needs; nothing more of it is read."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


HEAD_TOO_LARGE = RefusedResponse(
    "upstream_header_too_large", "sent headers that are too large; nothing was stored"
)
TOO_MANY_INTERIM = RefusedResponse(
    "upstream_protocol", "sent more than 100 interim responses; nothing was stored"
)
TOO_MUCH_FRAMING = RefusedResponse(
    "upstream_protocol", "sent far more framing than body; nothing was stored"
)


def translated(exc: Exception, url: URL) -> Exception:
    """The UpstreamError for an error of aiohttp's client; any other error as it is."""
    return _forgetting(exc, _upstream_error(exc, url))


def proxy_failed(exc: Exception, url: URL, proxy: OuterProxy) -> Exception:
    """The same for an error of the way to an upstream through a proxy."""
    return _forgetting(exc, _proxy_error(exc, url, proxy) or _upstream_error(exc, url))


def _forgetting(exc: Exception, error: UpstreamError | None) -> Exception:
    if error is None:
        return exc
    # The connection remembers it.
    forget_frames(exc)
    return error


def _upstream_error(exc: Exception, url: URL) -> UpstreamError | None:
    where = f"{url.host}:{url.port}"
    if isinstance(exc, HttpProcessingError) and exc.message.startswith(_OVERSIZE):
        exc = HEAD_TOO_LARGE
    if isinstance(exc, RefusedResponse):
        return UpstreamError(f"upstream {where} {exc.text}", code=exc.code)
    if url.scheme == "https" and _failed_in_handshake(exc):
        return UpstreamError(f"upstream {where} {_NO_TLS}", code="upstream_tls")
    for foreign, status, code, text in _ERRORS:
        if isinstance(exc, foreign):
            return UpstreamError(f"upstream {where} {text}", status=status, code=code)
    return None


def login_needed(proxy: OuterProxy) -> UpstreamError:
    """The error for a proxy that answers 407."""
    said = (
        "asks for a user and password (407): give them in its URL, http://USER:PASSWORD@HOST:PORT"
        if proxy.authorization is None
        else "does not accept the user and password of its URL (407)"
    )
    return UpstreamError(f"{proxy} {said}", code="upstream_proxy_auth")


def _proxy_error(exc: Exception, url: URL, proxy: OuterProxy) -> UpstreamError | None:
    """The error of the proxy on the way; None where the upstream's own side failed."""
    status = 502
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        if exc.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return login_needed(proxy)
        said = f"refuses to connect to {url.host}:{url.port}: it answered {exc.status}"
    elif isinstance(exc, aiohttp.ClientSSLError):
        if (exc.host, exc.port) != (proxy.url.host, proxy.url.port):
            return None
        said = "failed in the TLS handshake; check its URL's scheme, or give --upstream-ca"
    elif isinstance(exc, aiohttp.ClientConnectorDNSError):
        said = "has a name that does not resolve; check its URL and the network"
    elif isinstance(exc, aiohttp.ClientProxyConnectionError):
        said = "cannot be reached; is it running, and is its URL right?"
    elif isinstance(exc, TimeoutError):
        said, status = f"did not connect to {url.host}:{url.port} in time", 504
    elif isinstance(exc, aiohttp.ClientConnectorError):
        return None
    elif isinstance(exc, aiohttp.ClientError | HttpProcessingError | OSError):
        said = f"broke off when it was to connect to {url.host}:{url.port}"
    else:
        return None
    return UpstreamError(
        f"{proxy} {said}; --upstream-proxy names another, or none (off)",
        status=status,
        code="upstream_proxy",
    )


def _failed_in_handshake(exc: Exception) -> bool:
    # A refused connection is unreachable; one that is accepted and then reset failed in TLS.
    return isinstance(exc, aiohttp.ClientConnectorError) and isinstance(
        exc.os_error, ConnectionResetError | ConnectionAbortedError
    )


def truncated(url: URL) -> UpstreamError:
    """The error for a response that ended early."""
    return UpstreamError(f"upstream {url.host}:{url.port} {_TRUNCATED}", code="upstream_truncated")


def unproven_end(url: URL) -> UnprovenEnd:
    """The error for a body that an attacker or a fault on the way may have cut (RFC 9112 section 9.8)."""
    return UnprovenEnd(f"upstream {url.host}:{url.port} {_NO_CLOSE_NOTIFY}")


def not_http(url: URL, what: str) -> UpstreamError:
    """The error for a response that cannot be passed on."""
    return UpstreamError(
        f"upstream {url.host}:{url.port} sent {what}, which cannot be passed on; "
        "nothing was stored",
        code="upstream_protocol",
    )


_OVERSIZE = ("Got more than ", "Too many headers")
_NO_TLS = "failed in the TLS handshake; check the URL's scheme"
_TRUNCATED = "broke off in the middle of its response; nothing was stored"
_NO_CLOSE_NOTIFY = (
    "sent a response without a length and closed its TLS connection without saying so "
    "(close_notify), so that nothing shows whether it is whole; nothing was stored"
)
_NOT_HTTP = "sent something that is not HTTP/1.1; nothing was stored"
_ERRORS: tuple[tuple[type[BaseException], int, str, str], ...] = (
    (
        aiohttp.ClientConnectorCertificateError,
        502,
        "upstream_tls",
        "has a certificate that is not valid for it; check the URL, or give --upstream-ca",
    ),
    (aiohttp.ClientSSLError, 502, "upstream_tls", _NO_TLS),
    (
        aiohttp.ClientConnectorDNSError,
        502,
        "upstream_dns",
        "has a name that does not resolve; check the URL and the network",
    ),
    (
        aiohttp.InvalidURL,
        502,
        "upstream_unreachable",
        "has an invalid address; write it out in full",
    ),
    (
        asyncio.TimeoutError,
        504,
        "upstream_timeout",
        "did not respond in time; --connect-timeout and --upstream-timeout set how long to wait",
    ),
    (
        aiohttp.ClientConnectorError,
        502,
        "upstream_unreachable",
        "cannot be reached; is it running, and is the URL right?",
    ),
    (aiohttp.ClientPayloadError, 502, "upstream_truncated", _TRUNCATED),
    (
        aiohttp.ServerDisconnectedError,
        502,
        "upstream_reset",
        "closed the connection before it responded; nothing was stored",
    ),
    (
        aiohttp.ClientOSError,
        502,
        "upstream_reset",
        "reset the connection; nothing was stored",
    ),
    (aiohttp.ClientError, 502, "upstream_protocol", _NOT_HTTP),
    (HttpProcessingError, 502, "upstream_protocol", _NOT_HTTP),
    (OSError, 502, "upstream_reset", "reset the connection; nothing was stored"),
)
