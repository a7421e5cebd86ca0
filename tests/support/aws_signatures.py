"""Whether AWS would accept the signature of a request, by botocore's own reckoning."""

import re
from collections.abc import Mapping

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tapeway.testing import Received

_SIGNATURE = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/[0-9]{8}/([^/]+)/([^/]+)/aws4_request, "
    r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})"
)


def is_accepted(
    method: str,
    target: str,
    headers: tuple[tuple[str, str], ...],
    body: bytes,
    *,
    access_key: str,
    secret_key: str,
) -> bool:
    """Whether who has this secret key computes the same signature; `headers` include the host."""
    fields = {name.lower(): value for name, value in headers}
    found = _SIGNATURE.fullmatch(fields.get("authorization", ""))
    if found is None or found[1] != access_key:
        return False
    asked = AWSRequest(method=method, url=f"https://{fields['host']}{target}", data=body)
    for name in found[4].split(";"):
        asked.headers[name] = fields[name]
    asked.context["timestamp"] = fields["x-amz-date"]
    kind = S3SigV4Auth if found[3] == "s3" else SigV4Auth
    auth = kind(Credentials(access_key, secret_key), found[3], found[2])
    computed = auth.signature(auth.string_to_sign(asked, auth.canonical_request(asked)), asked)
    return bool(computed == found[5])


def is_signed_by(request: Received, keys: Mapping[str, str]) -> bool:
    """Whether AWS would accept a request of who has these keys, named as their variables."""
    return is_accepted(
        *(request.method, request.target, request.headers, request.body),
        access_key=keys["AWS_ACCESS_KEY_ID"],
        secret_key=keys["AWS_SECRET_ACCESS_KEY"],
    )


def signature_of(request: Received) -> str:
    """The signature that a request carries."""
    fields = {name.lower(): value for name, value in request.headers}
    found = _SIGNATURE.fullmatch(fields["authorization"])
    assert found is not None
    return found[5]
