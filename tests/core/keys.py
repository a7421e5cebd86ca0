"""Match keys of requests made up for a test."""

from tapeway.core.matching.key import request_key
from tapeway.core.model.messages import Headers, Request

JSON: Headers = ((b"content-type", b"application/json"),)
FORM: Headers = ((b"content-type", b"application/x-www-form-urlencoded"),)
TEXT: Headers = ((b"content-type", b"text/plain"),)


def key(
    body: bytes = b"",
    headers: Headers = JSON,
    *,
    target: str = "/v1/x",
    method: str = "POST",
    route: str = "openai",
) -> bytes:
    return request_key(Request(route, method, target, headers, body))
