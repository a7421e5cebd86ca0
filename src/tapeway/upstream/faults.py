"""The errors of upstreams, in tapeway's words.

aiohttp's messages are never used: they repeat URLs and header lines, which may hold API keys.
"""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from tapeway.errors import UnprovenEnd, UpstreamError, forget_frames
from tapeway.upstream.outer_proxy import OuterProxy


class RefusedResponse(Exception):
    """A service sends more than is allowed. Nothing more is read."""

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
    return _without_frames(exc, _upstream_error(exc, url))


def proxy_failed(exc: Exception, url: URL, proxy: OuterProxy) -> Exception:
    """The UpstreamError for an error on the way to an upstream through a proxy."""
    return _without_frames(exc, _proxy_error(exc, url, proxy) or _upstream_error(exc, url))


def _without_frames(exc: Exception, error: UpstreamError | None) -> Exception:
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
        return UpstreamError(f"upstream {where} {_BROKE_OFF}", code="upstream_tls")
    if (fault := _tls_fault(exc, url)) is not None:
        return UpstreamError(f"upstream {where} {fault}", code="upstream_tls")
    for foreign, status, code, text in _ERRORS:
        if isinstance(exc, foreign):
            return UpstreamError(f"upstream {where} {text}", status=status, code=code)
    return None


def login_needed(proxy: OuterProxy) -> UpstreamError:
    """The error for a proxy that answers 407."""
    reason = (
        "asks for a user and password (407): give them in its URL, http://USER:PASSWORD@HOST:PORT"
        if proxy.authorization is None
        else "does not accept the user and password of its URL (407)"
    )
    return UpstreamError(f"{proxy} {reason}", code="upstream_proxy_auth")


def _proxy_error(exc: Exception, url: URL, proxy: OuterProxy) -> UpstreamError | None:
    """The error of the proxy on the way; None where the upstream's own side failed."""
    status = 502
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        if exc.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return login_needed(proxy)
        reason = f"refuses to connect to {url.host}:{url.port}: it answered {exc.status}"
    elif isinstance(exc, aiohttp.ClientSSLError):
        if (exc.host, exc.port) != (proxy.url.host, proxy.url.port):
            return None
        reason = _tls_fault(exc, proxy.url) or _NO_TLS
    elif isinstance(exc, aiohttp.ClientConnectorDNSError):
        reason = "has a name that does not resolve; check its URL and the network"
    elif isinstance(exc, aiohttp.ClientProxyConnectionError):
        reason = "cannot be reached: check that it is running and that its URL is right"
    elif isinstance(exc, TimeoutError):
        reason, status = f"did not connect to {url.host}:{url.port} in time", 504
    elif isinstance(exc, aiohttp.ClientConnectorError):
        return None
    elif isinstance(exc, aiohttp.ClientError | HttpProcessingError | OSError):
        reason = f"broke off when it was to connect to {url.host}:{url.port}"
    else:
        return None
    return UpstreamError(
        f"{proxy} {reason}; --upstream-proxy names another, or none (off)",
        status=status,
        code="upstream_proxy",
    )


def _failed_in_handshake(exc: Exception) -> bool:
    # A refused connection is unreachable; a connection reset after its start failed in TLS.
    return isinstance(exc, aiohttp.ClientConnectorError) and isinstance(
        exc.os_error, ConnectionResetError | ConnectionAbortedError
    )


def _tls_fault(exc: Exception, url: URL) -> str | None:
    """The refusing side and the reason in a TLS handshake; None for other errors."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        failed = exc.certificate_error
        code = failed.verify_code if isinstance(failed, ssl.SSLCertVerificationError) else 0
        why, remedy = _VERIFIED.get(code, ("is not valid", _TRUST))
        return f"has a certificate that tapeway refuses: it {why.format(url.host)}; {remedy}"
    cause = exc.os_error if isinstance(exc, aiohttp.ClientSSLError) else exc
    if not isinstance(cause, ssl.SSLError):
        return None
    reason = cause.reason or ""
    return next((text for word, text in _REFUSALS.items() if word in reason), _NO_TLS)


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
_BROKE_OFF = (
    "broke off in the TLS handshake; check the URL's scheme, and whether it wants a client "
    "certificate (--upstream-cert)"
)
_TRUST = "check the URL, or give --upstream-ca"
_UNKNOWN_ISSUER = (
    "is of an authority that is not known",
    "if it is to be trusted, give its certificate with --upstream-ca",
)
_VERIFIED: Mapping[int, tuple[str, str]] = {
    9: ("is not yet valid", "check the clock of this machine"),
    10: ("has expired", "its owner must renew it; --upstream-ca does not help"),
    18: _UNKNOWN_ISSUER,
    19: _UNKNOWN_ISSUER,
    20: _UNKNOWN_ISSUER,
    21: _UNKNOWN_ISSUER,
    62: ("is for another name than {}", "check the URL; --upstream-ca does not help"),
    64: ("is for another name than {}", "check the URL; --upstream-ca does not help"),
}
"""The fault of a certificate, and what to do, by OpenSSL's number."""
_CERTIFICATE_REFUSED = (
    "refuses the client certificate of --upstream-cert, or wants one that was not given"
)
_REFUSALS: Mapping[str, str] = {
    "CERTIFICATE_REQUIRED": "wants a client certificate: give it with --upstream-cert FILE[:KEY]",
    "ALERT_UNKNOWN_CA": f"{_CERTIFICATE_REFUSED}: it does not know its issuer",
    "CERTIFICATE_EXPIRED": f"{_CERTIFICATE_REFUSED}: it has expired",
    "CERTIFICATE_REVOKED": f"{_CERTIFICATE_REFUSED}: it was revoked",
    "_CERTIFICATE": _CERTIFICATE_REFUSED,
    "ACCESS_DENIED": _CERTIFICATE_REFUSED,
    "HANDSHAKE_FAILURE": "refuses the TLS handshake: it may want a client certificate "
    "(--upstream-cert), or ciphers that tapeway does not offer",
    "ALERT_PROTOCOL_VERSION": "refuses TLS 1.2 and 1.3, and tapeway speaks no older version",
    "UNSUPPORTED_PROTOCOL": "offers a version of TLS that tapeway refuses: older than 1.2",
    "UNRECOGNIZED_NAME": "refuses the TLS handshake: it has no certificate for the name in the URL",
    "WRONG_VERSION_NUMBER": "does not answer in TLS; is its URL http://?",
}
"""The reason for a refused handshake, by a part of OpenSSL's name. The first match counts."""
_TRUNCATED = "broke off in the middle of its response; nothing was stored"
_NO_CLOSE_NOTIFY = (
    "sent a response without a length and closed its TLS connection without saying so "
    "(close_notify), so that nothing shows whether it is whole; nothing was stored"
)
_NOT_HTTP = "sent something that is not HTTP/1.1; nothing was stored"
_ERRORS: tuple[tuple[type[BaseException], int, str, str], ...] = (
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
