"""Reads and removes the AWS Signature Version 4 of a client's request.

The signature covers the host and the path, which a proxy changes. AWS would refuse the request, so it
is signed anew (`upstream/aws_signing.py`). This module reads the service and region of the client.
"""

import re
from dataclasses import dataclass

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers

SCHEME = b"AWS4-HMAC-SHA256"
UNSIGNED_PAYLOAD = b"UNSIGNED-PAYLOAD"
UNSIGNED_TRAILER = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"
"""A body in AWS's chunks without signatures (S3)."""

_ASYMMETRIC = b"AWS4-ECDSA-P256-SHA256"
_AUTHORIZATION = b"authorization"
_PAYLOAD = b"x-amz-content-sha256"
_CREDENTIAL = re.compile(
    rb"Credential=[^,/\s]+/[0-9]{8}/([A-Za-z0-9-]+)/([A-Za-z0-9.-]+)/aws4_request"
)
_QUERY_CREDENTIAL = re.compile(
    r"[?&]X-Amz-Credential=[^&]+?(?:/|%2[Ff])[0-9]{8}(?:/|%2[Ff])([A-Za-z0-9-]+)(?:/|%2[Ff])"
    r"([A-Za-z0-9.-]+)(?:/|%2[Ff])aws4_request"
)
_VERSION_2 = re.compile(r"\?(?=.*\bAWSAccessKeyId=)(?=.*\bSignature=)")
"""A presigned address with S3's older signature, which names no region."""
_QUERY_PARAMETER = re.compile(
    r"X-Amz-(?:Algorithm|Credential|Date|Expires|SignedHeaders|Signature|Security-Token)="
)
_VERSION_2_PARAMETER = re.compile(r"(?:AWSAccessKeyId|Signature|Expires)=")
_SIGNATURE_FIELDS = frozenset(
    {_AUTHORIZATION, _PAYLOAD, b"x-amz-date", b"x-amz-security-token", b"x-amz-region-set"}
)


@dataclass(frozen=True, slots=True)
class Signing:
    """What the requests of a route are signed for; empty takes it from the client's signature."""

    service: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class ClientSignature:
    """The service and region that a client signed for.

    `refusal` says why the signature cannot be replaced; empty if it can.
    """

    region: str
    service: str
    payload: bytes
    """What `x-amz-content-sha256` says of the body; empty without that field."""
    refusal: str = ""


def client_signature(target: str, headers: Headers) -> ClientSignature | None:
    """The signature of a request, from the header or the query, or None."""
    payload = find_header(headers, _PAYLOAD) or b""
    authorization = find_header(headers, _AUTHORIZATION) or b""
    if authorization.startswith(_ASYMMETRIC):
        return ClientSignature("", "", payload, "it is signed for several regions (SigV4a)")
    if authorization.startswith(SCHEME):
        match = _CREDENTIAL.search(authorization)
        region, service = (b"", b"") if match is None else match.groups()
        return ClientSignature(region.decode(), service.decode(), payload, _refusal(payload))
    if _VERSION_2.search(target):
        return ClientSignature("", "s3", payload or UNSIGNED_PAYLOAD)
    if (presigned := _QUERY_CREDENTIAL.search(target)) is not None:
        return ClientSignature(presigned[1], presigned[2], payload or UNSIGNED_PAYLOAD)
    return None


def to_be_signed(region: str, service: str) -> bytes:
    """The Authorization of a request that nobody has signed yet: what it is to be signed for."""
    return b"%b Credential=-/20000101/%b/%b/aws4_request" % (
        SCHEME,
        region.encode(),
        service.encode(),
    )


def without_signature(target: str, headers: Headers) -> tuple[str, Headers]:
    """Target and header fields of a request without the parts of a signature."""
    path, question, query = target.partition("?")
    of_signature = _VERSION_2_PARAMETER if _VERSION_2.search(target) else _QUERY_PARAMETER
    if question and of_signature.search(query):
        kept = [part for part in query.split("&") if not of_signature.match(part)]
        target = f"{path}?{'&'.join(kept)}" if kept else path
    return target, tuple(
        [header for header in headers if header[0].lower() not in _SIGNATURE_FIELDS]
    )


def _refusal(payload: bytes) -> str:
    if payload.startswith(b"STREAMING-") and payload.endswith(b"-EVENTS"):
        return "each message of its event stream is signed by itself"
    if payload.startswith(b"STREAMING-") and payload != UNSIGNED_TRAILER:
        return (
            "each chunk of its body is signed by itself; have the client sign the body as a whole, "
            "or leave it unsigned"
        )
    return ""
