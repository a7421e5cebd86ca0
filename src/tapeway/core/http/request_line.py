"""Checks request lines and Host fields before forwarding (RFC 9112 section 3)."""

import re
from collections.abc import Collection

from tapeway.core.model.request_fields import RequestFields
from tapeway.errors import RequestError

_HOST = re.compile(rb"(?:[A-Za-z0-9._~%!$&'()*+,;=-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_TARGET = re.compile(r"/[!-\"$-~]*")
_CONTINUE = b"100-continue"


def origin_form(method: str, target: str, version: tuple[int, int], fields: RequestFields) -> str:
    """The origin-form target of a forwardable request.

    Raises RequestError for an unforwardable request, with the status of RFC 9110.
    """
    if not (1, 0) <= version <= (1, 1):
        raise RequestError(
            "only HTTP/1.0 and HTTP/1.1 are supported", status=505, code="http_version"
        )
    # In any case: methods are case-sensitive, but not every upstream knows that.
    if method.upper() in ("CONNECT", "TRACE"):
        raise RequestError(
            f"{method} is not proxied: send requests to the proxy's own address",
            status=405,
            code="method_not_allowed",
        )
    _check_presence_of_host(fields.value(b"host"), version)
    _check_framing(fields, version)
    return _origin_form(method, target)


def asks_for_websocket(fields: RequestFields) -> bool:
    """Whether a request asks to become a WebSocket connection."""
    return b"websocket" in fields.first.get(b"upgrade", b"").lower()


def own_path(target: str, own_scheme: str, authorities: Collection[str]) -> str:
    """The origin-form of an absolute-form target at these authorities; other targets unchanged."""
    scheme, separator, rest = target.partition("://")
    authority, _, path = rest.partition("/")
    if separator and scheme.lower() == own_scheme and authority.lower() in authorities:
        return f"/{path}"
    return target


def check_host(host: bytes) -> None:
    """Raises RequestError for a malformed Host header."""
    if _HOST.fullmatch(host) is None:
        raise RequestError("the Host header is not a host and port")


def _check_presence_of_host(host: bytes | None, version: tuple[int, int]) -> None:
    if host is None:
        if version >= (1, 1):
            raise RequestError("an HTTP/1.1 request needs a Host header")
    else:
        check_host(host)


def _check_framing(fields: RequestFields, version: tuple[int, int]) -> None:
    if (coding := fields.value(b"transfer-encoding")) is not None:
        if version < (1, 1):
            # Faulty framing by definition (RFC 9112 section 6.1).
            raise RequestError("HTTP/1.0 has no Transfer-Encoding")
        if coding.lower() != b"chunked":
            raise RequestError(
                "the only transfer coding understood here is chunked",
                status=501,
                code="transfer_coding_unsupported",
            )
    expected = fields.value(b"expect")
    if expected is not None and version >= (1, 1) and expected.lower() != _CONTINUE:
        raise RequestError(
            "only 'Expect: 100-continue' is understood", status=417, code="expectation_failed"
        )


def _origin_form(method: str, target: str) -> str:
    if method == "OPTIONS" and target == "*":
        raise RequestError(
            "'OPTIONS *' asks about the proxy itself and is not proxied",
            status=405,
            code="method_not_allowed",
        )
    if not target.startswith("/"):
        raise RequestError(
            "this is a reverse proxy: it forwards to its configured upstreams only, "
            "not to the address in the request line",
            status=421,
            code="misdirected",
        )
    if _TARGET.fullmatch(target) is None:
        raise RequestError("the request target holds a character that must be percent-encoded")
    return target
