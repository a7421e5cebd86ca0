"""What was drawn at random, and what a person can read."""

import base64
import random
import string
import uuid

import pytest

from tapeway.core.redaction.opaque import is_opaque, is_stand_in

READABLE = [
    "customer_email_address",
    "is_required",
    "must_have_at_least_8_chars",
    "insufficient_permissions",
    "anonymous-user",
    "elastic:elasticsearch",
    "correct-horse-battery-staple",
    "internationalization",
    "OAuthAPIKeyIdentifier",
    "maxCompletionTokens",
    "strengths-and-weaknesses",
    "rate_limit_exceeded_429",
    "gpt-4o-mini-2024-07-18",
    "claude-3-5-sonnet-20241022",
    "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "mixtral-8x7b-32768",
    "nomic-embed-text-v1.5",
    "gemini-2.0-flash-exp-0827",
    "deepseek-r1-distill-llama-70b",
    "anthropic.claude-3-sonnet-20240229-v1:0",
    "ft:gpt-3.5-turbo-0613:acme::7p4lURel",
    "Qwen/Qwen2.5-Coder-32B-Instruct",
    "o3-mini-2025-01-31",
    "command-r-plus-08-2024",
    "/home/me/.ssh/id_ed25519",
    "projects/my-project-123456/locations/us-central1",
    "v1beta1/projects/123456789012/secrets/my-secret/versions/1",
    "us-central1-docker.pkg.dev",
    "https://example.com/4f6b2c9d8e1a7350",
    "arn:aws:iam::123456789012:role/Admin",
    "host-10-0-1-23.ec2.internal",
    "user.name1@mail.example.org",
    "en-US,en;q=0.9,de;q=0.8",
    "application/json;charset=utf-8",
    "python-requests/2.32.3",
    "Windows-1252-encoding",
    "2024-07-18T12:00:00Z",
    "20241022T101112Z",
    "123456789012",
    "1.234567890123",
    "-1234567890123",
    "+49-151-1234567890",
    "my-project-123456",
    "tokens-per-minute:450000",
    "short",
    "4f6b2c9d8e1",
    "YOUR_API_KEY_GOES_HERE",
    "${OPENAI_API_KEY}",
    "$OPENAI_API_KEY_2",
    "{{secrets.KEY}}",
    "<your-token-4f6b2c9d>",
    "sk-...4f6b2c9d",
    "xxxxxxxxxxxxxxxxxxxx",
    "********************",
    "AKIAIOSFODNN7EXAMPLE",
]

OPAQUE = [
    "4f6b2c9d8e1a",
    "crm-4f6b2c9d8e1a7350",
    "tok_5f2b7c9d1e3a4860",
    "sk-live/0123456789+abc=",
    "K3y/0123456789+abc=",
    "synthetic-value-0123456789",
    "AbCdEfGhIjKlMnOpQrStUvWx",
    "qzxkvbnmwrtpl",
    "P@ssw0rd!2024",
    "c0rrect-horse-b4ttery",
    "550e8400-e29b-41d4-a716-446655440000",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzz",
    "correct#horse#battery7",
]


@pytest.mark.parametrize("value", READABLE)
def test_what_a_person_can_read_is_not_opaque(value: str) -> None:
    assert not is_opaque(value.encode())


@pytest.mark.parametrize("value", ["Please enter your password", "4f6b2c9d8e1a 7350", "a\n" * 9])
def test_what_has_a_blank_is_not_opaque(value: str) -> None:
    assert not is_opaque(value.encode())


@pytest.mark.parametrize("value", OPAQUE)
def test_what_nobody_can_read_is_opaque(value: str) -> None:
    assert is_opaque(value.encode())


@pytest.mark.parametrize(
    ("alphabet", "length", "least"),
    [
        (string.ascii_letters + string.digits, 32, 0.999),
        (string.ascii_letters + string.digits, 20, 0.99),
        (string.ascii_letters + string.digits, 12, 0.95),
        (string.ascii_letters + string.digits + "-_", 22, 0.985),
        ("0123456789abcdef", 16, 0.998),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, 0.99),
        (string.ascii_letters, 34, 0.94),
        (string.ascii_letters + string.digits + string.punctuation, 24, 0.95),
    ],
)
def test_nearly_all_that_is_drawn_at_random_is_opaque(
    alphabet: str, length: int, least: float
) -> None:
    draw = random.Random(7)
    drawn = ["".join(draw.choices(alphabet, k=length)).encode() for _ in range(4000)]

    assert sum(map(is_opaque, drawn)) >= least * len(drawn)


def test_keys_in_base64_and_uuids_are_opaque() -> None:
    draw = random.Random(7)
    for _ in range(1000):
        assert is_opaque(base64.b64encode(draw.randbytes(32)))
        assert is_opaque(str(uuid.UUID(int=draw.getrandbits(128), version=4)).encode())


@pytest.mark.parametrize(
    "piece", [b"a", b"aB", b"1a", b"1", b"-", b"{", b"a://", b"<", b"/", b"=/", b"%", b"\xff"]
)
def test_a_long_value_takes_time_linear_in_its_length(piece: bytes) -> None:
    is_opaque(piece * 300_000)


@pytest.mark.parametrize("text", ["sk-xxxxxxxx", "my-EXAMPLE-key", "your_key", "<key>", "a...b"])
def test_documentation_writes_stand_ins(text: str) -> None:
    assert is_stand_in(text)
    assert not is_stand_in("crm-4f6b2c9d8e1a7350")
