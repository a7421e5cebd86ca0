"""Credentials in URLs that stand in a text."""

import json

import pytest

from tapeway.core.redaction.patterns import find_in_urls
from tapeway.core.redaction.spans import PLACEHOLDER
from tests.core.redacting import make_request, make_response, redactor

SIGNED = (
    "https://files.example.com/a.png?se=2026-01-01T00%3A00%3A00Z&sp=r"
    "&sig=Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D&sv=2024-08-04"
)


def found(text: str) -> list[tuple[str, str]]:
    """Label and text of each credential as it stands there."""
    data = text.encode()
    return [
        (each.secret.label, data[each.start : each.end].decode())
        for each in find_in_urls(data)
        if each.secret
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SIGNED, [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D")]),
        (json.dumps(SIGNED).replace("&", r"\u0026"), [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D")]),
        (SIGNED.replace("&", "&amp;"), [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D")]),
        (f"![it]({SIGNED}&X-Amz-Signature={'0f' * 32})", [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D"), ("x-amz-signature", "0f" * 32)]),
        ("GET https://a/?API_KEY=0123456789abcdef HTTP/1.1", [("api_key", "0123456789abcdef")]),
        ("(https://a/?access_token=0123456789abcdef)", [("access_token", "0123456789abcdef")]),
        ("postgresql://me:c0rrect-horse@db:5432/x", [("userinfo", "c0rrect-horse")]),
        ("https://:c0rrect-horse@db", [("userinfo", "c0rrect-horse")]),
        ("postgresql://user:password@localhost:5432/db", []),
        ("http://localhost:8080/a@b0123456789012345", []),
        ("https://a/?api_key=YOUR_API_KEY_GOES_HERE", []),
        ("https://a/?signature=REDACTED.signature.0a1b2c3d", []),
        ("https://a/?page_token=0123456789abcdef&key=0123456789abcdef", []),
        ("the sig=0123456789abcdef", []),
    ],
)  # fmt: skip
def test_what_looks_like_a_key_in_such_a_place_is_one(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert found(text) == expected


def test_a_signed_link_is_stored_without_its_signature_and_sent_back_equal() -> None:
    answer = json.dumps({"data": [{"url": SIGNED}]}).encode()
    stored = redactor().response(make_response(answer)).body
    link = json.loads(stored)["data"][0]["url"]

    assert PLACEHOLDER.sub(b"*", link.encode()).decode() == SIGNED.replace(
        "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D", "*"
    )
    recorded, replayed = [
        redactor().request(make_request(body=json.dumps({"image_url": url}).encode())).body
        for url in (SIGNED, link)
    ]
    assert recorded == replayed


@pytest.mark.parametrize("text", ["?sig=", "&sig=", "a://:", "a://:0", "&amp;"])
def test_no_text_takes_more_than_time_linear_in_its_length(text: str) -> None:
    assert found(text * 100_000) == []
