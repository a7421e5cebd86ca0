"""Where an answer sends its client: not around the proxy."""

from dataclasses import replace

from tapeway.core.headers import find
from tapeway.core.model import Headers, ResponseHead
from tapeway.core.routing import relocate

LOCATION = b"location"


def localised(head: ResponseHead, request: Headers, base: str, prefix: str) -> ResponseHead:
    """The head with a Location on the upstream's own origin pointing at the proxy.

    `request` are the client's fields, which say what it calls the proxy; `prefix` is what stood
    before the path below the upstream's `base`.
    """
    host = find(request, b"host")
    if not base or not host or find(head.headers, LOCATION) is None:
        return head
    proxy = f"http://{host.decode('latin-1')}{prefix}"
    headers = [
        (name, relocate(value.decode("latin-1"), base, proxy).encode("latin-1"))
        if name.lower() == LOCATION
        else (name, value)
        for name, value in head.headers
    ]
    return replace(head, headers=tuple(headers))
