"""Conventions of SDKs: the mark of a repeated call, and the error body for users.

SDKs that retry number each try: Stainless ones (OpenAI, Anthropic, Groq, …) count repeats in
`x-stainless-retry-count`, AWS's count tries in `amz-sdk-request: attempt=2; max=3`. Clients that are
traced name each request: the trace in `traceparent` (W3C Trace Context), the request in `x-request-id`.
"""

import hashlib
import re
from collections.abc import Mapping

from tapeway.core.json_text import Json

RETRIES_HEADER = b"x-stainless-retry-count"
TRIES_HEADER = b"amz-sdk-request"
_MARKS = (b"idempotency-key", b"amz-sdk-invocation-id")
"""Fields with one value for all tries of a call (draft-ietf-httpapi-idempotency-key-header)."""
_MOST_DIGITS = 6
_REQUEST_IDS = (b"x-request-id", b"x-client-request-id", b"x-ms-client-request-id")
_VISIBLE = re.compile(rb"[!-~]+")
_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_AMAZON = re.compile(rb"(?:^|;)\s*attempt=([0-9]{1,6})\s*(?:;|$)")


def attempt_number(fields: Mapping[bytes, bytes]) -> int | None:
    """The number of the try within a call, from 1; None if the client sends none.

    `fields` are those of the request, by names in lower case.
    """
    if (retries := fields.get(RETRIES_HEADER)) is not None:
        retries = retries.strip(b" \t")
        if retries.isdigit() and len(retries) <= _MOST_DIGITS:
            return int(retries) + 1
    tries = fields.get(TRIES_HEADER)
    match = None if tries is None else _AMAZON.search(tries)
    return None if match is None else int(match[1]) or None


def call_mark(fields: Mapping[bytes, bytes]) -> bytes:
    """What the tries of one call have in common and no other call has, as a digest; b"" without.

    `fields` are those of the request, by names in lower case.
    """
    for name in _MARKS:
        if value := fields.get(name):
            return hashlib.sha256(name + b"\0" + value.strip(b" \t")).hexdigest()[:24].encode()
    return b""


def client_ids(fields: Mapping[bytes, bytes]) -> tuple[bytes | None, str | None]:
    """The id that the client gave the request, and the trace that the request belongs to.

    `fields` are those of the request, by names in lower case.
    """
    id = trace = None
    for name in _REQUEST_IDS:
        if name in fields and _VISIBLE.fullmatch(given := fields[name].strip(b" \t")):
            id = given
            break
    if b"traceparent" in fields:
        # Versions to come may append fields.
        match = _TRACEPARENT.match(fields[b"traceparent"])
        trace = None if match is None else match[1].decode()
    return id, trace


def error_document(
    code: str, message: str, request_id: str, tapeway: Mapping[str, Json]
) -> dict[str, Json]:
    """The body of one of tapeway's own errors; `tapeway` has more details.

    The clients of OpenAI, Anthropic, Google and AWS print these fields.
    """
    error: dict[str, Json] = {
        "type": code,
        "code": code,
        "status": code.upper(),
        "message": message,
        "param": None,
    }
    return {
        "type": "error",
        "error": error,
        "message": message,
        "request_id": request_id,
        "tapeway": dict(tapeway),
    }
