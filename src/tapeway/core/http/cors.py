"""Lets the scripts of web pages read tapeway's own responses (Fetch, section 3.2).

A browser hides a response from the script of a page on another origin unless the response names that
origin. The misses and errors of tapeway name the origin. A preflight without a recording is permitted,
because the browser sends the real request only then. `foreign.py` decides which pages are served at all.
"""

from dataclasses import replace
from http import HTTPStatus

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers, Response, ResponseHead
from tapeway.core.model.request_fields import RequestFields

_ORIGIN = b"origin"
_ALLOWED_ORIGIN = b"access-control-allow-origin"
_ASKED_METHOD = b"access-control-request-method"
_ASKED_PRIVATE_NETWORK = b"access-control-request-private-network"
_ALLOWED_PRIVATE_NETWORK = b"Access-Control-Allow-Private-Network"
_EXPOSED = (
    b"Tapeway-Outcome, Tapeway-Cassette, Tapeway-Base, Tapeway-Interaction, Tapeway-Fault, "
    b"x-request-id, request-id"
)
_ECHOED: tuple[tuple[bytes, bytes], ...] = (
    (_ASKED_METHOD, b"Access-Control-Allow-Methods"),
    (b"access-control-request-headers", b"Access-Control-Allow-Headers"),
    (_ASKED_PRIVATE_NETWORK, _ALLOWED_PRIVATE_NETWORK),
)
"""The fields of a preflight, each with the field of the response that permits the value."""


def readable_by_page(request: Headers) -> Headers:
    """The fields that let the requesting page read the response; none without `Origin`."""
    if find_header(request, _ORIGIN) is None:
        return ()
    exposed = (b"Access-Control-Expose-Headers", _EXPOSED)
    return (*_permission(request), exposed, (b"Vary", b"Origin"))


def echoes_origin(head: ResponseHead, asked: Headers) -> bool:
    """Whether a service permitted exactly the origin of the request."""
    allowed = head.value(_ALLOWED_ORIGIN)
    return allowed is not None and allowed == find_header(asked, _ORIGIN)


def for_origin(head: ResponseHead, first: Headers, asked: Headers) -> ResponseHead:
    """The head of the answer to a `first` request for another: the origin it echoed is the asker's."""
    origin = find_header(asked, _ORIGIN)
    if origin is None or not echoes_origin(head, first):
        return head
    headers = [
        (name, origin if name.lower() == _ALLOWED_ORIGIN else value) for name, value in head.headers
    ]
    return replace(head, headers=tuple(headers))


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks for permission to send another request."""
    return method == "OPTIONS" and find_header(headers, _ASKED_METHOD) is not None


def private_network_permission(asked: RequestFields, head: ResponseHead) -> Headers:
    """What lets a page of a public address call this machine: a service's response cannot know of it."""
    value = asked.first.get(_ASKED_PRIVATE_NETWORK)
    if value is None or head.value(_ALLOWED_PRIVATE_NETWORK.lower()) is not None:
        return ()
    return ((_ALLOWED_PRIVATE_NETWORK, value),)


def preflight_response(request: Headers, request_id: str) -> Response:
    """The response that grants all requests of a preflight."""
    permitted = [
        (allowing, value)
        for asking, allowing in _ECHOED
        if (value := find_header(request, asking)) is not None
    ]
    vary = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
    headers: Headers = (
        *_permission(request),
        *permitted,
        (b"Vary", vary),
        (b"x-request-id", request_id.encode()),
    )
    status = HTTPStatus.NO_CONTENT
    return Response(ResponseHead(status, status.phrase, headers), b"")


def _permission(request: Headers) -> Headers:
    """The origin of a request as permitted, with credentials; any origin where it names none."""
    origin = find_header(request, _ORIGIN)
    if origin is None:
        return ((b"Access-Control-Allow-Origin", b"*"),)
    # Where a page sends cookies, browsers do not accept `*`.
    return (
        (b"Access-Control-Allow-Origin", origin),
        (b"Access-Control-Allow-Credentials", b"true"),
    )
