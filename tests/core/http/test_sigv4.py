"""What a client signed its request for, and the request without its signature."""

import pytest

from tapeway.core.http.sigv4 import ClientSignature, client_signature, without_signature
from tapeway.core.model.messages import Headers

CREDENTIAL = b"Credential=AKIDDUMMY/20261126/us-east-1/bedrock/aws4_request"
SIGNED: Headers = (
    (b"Content-Type", b"application/json"),
    (b"X-Amz-Date", b"20261126T120000Z"),
    (b"Authorization", b"AWS4-HMAC-SHA256 " + CREDENTIAL + b", SignedHeaders=host, Signature=ab"),
    (b"x-amz-security-token", b"session"),
    (b"X-Amz-Target", b"Service.Call"),
)
PRESIGNED = (
    "/k?versionId=1&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F20261126%2Feu-west-1%2Fs3"
    "%2Faws4_request&X-Amz-Date=20261126T120000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=ab&X-Amz-Security-Token=cd"
)


def test_region_and_service_are_those_of_the_credential() -> None:
    assert client_signature("/model/m", SIGNED) == ClientSignature("us-east-1", "bedrock", b"")


def test_a_presigned_address_is_a_signature_too() -> None:
    found = client_signature(PRESIGNED, ())

    assert found == ClientSignature("eu-west-1", "s3", b"UNSIGNED-PAYLOAD")


@pytest.mark.parametrize(
    "headers", [(), ((b"Authorization", b"Bearer key"),), ((b"X-Amz-Date", b"20261126T120000Z"),)]
)
def test_a_request_with_another_credential_or_none_has_no_signature(headers: Headers) -> None:
    assert client_signature("/?X-Amz-Date=1", headers) is None


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"STREAMING-AWS4-HMAC-SHA256-EVENTS", "each message"),
        (b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "each chunk"),
        (b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "each chunk"),
        (b"STREAMING-UNSIGNED-PAYLOAD-TRAILER", ""),
        (b"UNSIGNED-PAYLOAD", ""),
    ],
)
def test_a_body_that_is_signed_piece_by_piece_is_refused_with_the_reason(
    payload: bytes, why: str
) -> None:
    found = client_signature("/", (*SIGNED, (b"X-Amz-Content-SHA256", payload)))

    assert found is not None
    assert (found.payload, found.refusal[: len(why)]) == (payload, why)
    assert bool(found.refusal) == bool(why)


def test_a_signature_for_several_regions_is_refused() -> None:
    found = client_signature("/", ((b"authorization", b"AWS4-ECDSA-P256-SHA256 Credential=A/b/c"),))

    assert found is not None
    assert "SigV4a" in found.refusal


def test_a_request_without_its_signature_keeps_all_else() -> None:
    assert without_signature("/model/m", SIGNED) == ("/model/m", (SIGNED[0], SIGNED[4]))
    assert without_signature(PRESIGNED, ()) == ("/k?versionId=1", ())
    older = "/k?AWSAccessKeyId=AK&a=1&Signature=s%3D&Expires=1"
    assert without_signature(older, ()) == ("/k?a=1", ())
    assert client_signature(older, ()) == ClientSignature("", "s3", b"UNSIGNED-PAYLOAD")
    assert without_signature("/k?Signature=mine", ()) == ("/k?Signature=mine", ())
    assert without_signature("/k?X-Amz-Algorithm=x&X-Amz-Signature=y", ()) == ("/k", ())
