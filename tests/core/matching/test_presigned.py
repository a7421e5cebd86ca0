"""Presigned requests: what of a signature counts in the match key."""

from urllib.parse import urlencode

import pytest

from tapeway.core.matching.key import request_key
from tapeway.core.model.messages import Request

KINDS = {
    "S3": {
        "X-Amz-Algorithm": ["AWS4-HMAC-SHA256"] * 2,
        "X-Amz-Credential": ["AKIAIOSFODNN7EXAMPLE/20261126/us-east-1/s3/aws4_request", "other"],
        "X-Amz-Date": ["20261126T224500Z", "20261127T101500Z"],
        "X-Amz-Expires": ["3600", "900"],
        "X-Amz-SignedHeaders": ["host", "host;range"],
        "X-Amz-Security-Token": ["FwoGZXIvYXdzEBYaDExampleToken", "IQoJb3JpZ2luX2VjEOther"],
        "X-Amz-Signature": ["aeeed9bbccd4d02ee5c0109b86d86835", "1175139620fffefefe8835f995330da4"],
    },
    "Google": {
        "X-Goog-Algorithm": ["GOOG4-RSA-SHA256"] * 2,
        "X-Goog-Credential": ["a@p.iam/20261126/auto/storage/goog4_request", "b"],
        "X-Goog-Date": ["20261126T224500Z", "20261127T101500Z"],
        "X-Goog-Expires": ["900", "901"],
        "X-Goog-SignedHeaders": ["host", "host"],
        "X-Goog-Signature": [
            "247a2aa45f169edf4d187d54e7cc46e4",
            "731b1e6273242c4f4c39a1d2507a0e58",
        ],
    },
    "Azure": {
        "sv": ["2024-11-04", "2025-01-05"],
        "sr": ["b", "b"],
        "sp": ["r", "rw"],
        "st": ["2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z"],
        "se": ["2026-11-27T00:00:00Z", "2026-11-28T00:00:00Z"],
        "spr": ["https", "https"],
        "sig": ["abcDEF123+xyz/abcDEF123xyz=", "zyxDEF123+xyz/abcDEF123abc="],
    },
    "older S3": {
        "AWSAccessKeyId": ["AKIAIOSFODNN7EXAMPLE", "AKIAI44QH8DHBEXAMPLE"],
        "Signature": ["vjbyPxybdZaNmGa+yT272YEAiv4=", "NpgCjnDzrM+WFzoENXmpNDUsSn8="],
        "Expires": ["1175139620", "1175139999"],
    },
    "CloudFront": {
        "Key-Pair-Id": ["K2JCJMDEHXQW5F", "K2JCJMDEHXQW5F"],
        "Signature": ["nitfHRCrtziwO2HwPfWw~yYDhUF5EwRunQA", "zyxfHRCrtziwO2HwPfWw~yYDhUF5EwRunQA"],
        "Policy": ["eyJTdGF0ZW1lbnQiOlt7fV19", "eyJTdGF0ZW1lbnQiOlt7fX19"],
    },
}


def key(query: dict[str, str], path: str = "/bucket/a.txt") -> bytes:
    return request_key(Request("default", "GET", f"{path}?{urlencode(query)}", ()))


def of_run(kind: str, run: int) -> dict[str, str]:
    return {name: values[run] for name, values in KINDS[kind].items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_signature_do_not_count(kind: str) -> None:
    assert key(of_run(kind, 0)) == key(of_run(kind, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{"versionId": "2"}, {"comp": "list"}, {"partNumber": "2"}])
def test_what_a_presigned_request_asks_for_counts(kind: str, more: dict[str, str]) -> None:
    signed = of_run(kind, 0)

    assert key(signed | more) == key(of_run(kind, 1) | more)
    assert key(signed | more) != key(signed)
    assert key(signed) != key(signed, "/bucket/b.txt")


@pytest.mark.parametrize("kind", KINDS)
def test_a_presigned_request_is_not_that_without_a_signature(kind: str) -> None:
    assert key(of_run(kind, 0)) != key({})


@pytest.mark.parametrize(
    "query",
    [
        {"X-Amz-Date": "20261126T224500Z"},
        {"Expires": "1175139620", "Signature": "vjbyPxybdZaNmGa+yT272YEAiv4="},
        {"se": "2026-11-27", "sp": "r", "sv": "1"},
        {"sig": "4", "sv": "north"},
        {"policy": "strict"},
    ],
    ids=str,
)
def test_names_of_parts_count_where_nothing_is_signed(query: dict[str, str]) -> None:
    for name in query:
        assert key(query) != key(query | {name: "another"})


def form(fields: dict[str, str], boundary: str) -> Request:
    parts = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    kind = f"multipart/form-data; boundary={boundary}".encode()
    body = f"{parts}--{boundary}--\r\n".encode()
    return Request("default", "POST", "/bucket", ((b"content-type", kind),), body)


def test_the_signature_of_a_form_does_not_count() -> None:
    def signed(run: int, **fields: str) -> bytes:
        own = {name.lower(): value for name, value in of_run("S3", run).items()}
        return request_key(form({**fields, "policy": f"eyJ{run}", **own}, f"b{run}"))

    assert signed(0, key="a.txt", file="text") == signed(1, key="a.txt", file="text")
    assert signed(0, key="a.txt", file="text") != signed(0, key="b.txt", file="text")
    assert signed(0, key="a.txt", file="text") != signed(0, key="a.txt", file="other")
