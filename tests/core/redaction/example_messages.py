"""Requests, responses and what takes a key out of them, made up for a test."""

from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor

SALT = "run-1"
KEY = "sk-live/0123456789+abc="
OTHER = "sk-test/9876543210+xyz="
JSON: Headers = ((b"content-type", b"application/json"),)


def redactor(*values: str, salt: str = SALT) -> Redactor:
    return Redactor(salt, [Secret("authorization", value.encode()) for value in values])


def make_request(
    headers: Headers = JSON, *, target: str = "/v1/x", body: bytes = b"{}", base: str = ""
) -> Request:
    return Request("openai", "POST", target, headers, body, base)


def make_response(
    *pieces: bytes, headers: Headers = JSON, reason: str = "OK", framing: str = "chunked"
) -> Response:
    head = ResponseHead(200, reason, headers, "length" if framing == "length" else "chunked")
    return Response.of_chunks(head, [(data, float(at)) for at, data in enumerate(pieces)])


def everything(request: Request) -> bytes:
    return repr(request).encode() + request.body + b"".join(b"".join(p) for p in request.headers)


def everything_of(response: Response) -> bytes:
    return repr(response).encode() + response.body + b"".join(b"".join(p) for p in response.headers)
