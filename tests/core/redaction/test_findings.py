"""What redaction replaced and where, and every secret that a text still shows."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, Pointer
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import (
    Finding,
    SecretMatch,
    find_replaced,
    find_secrets,
    masked_prefix,
)
from tapeway.core.redaction.known_values import NO_KNOWN_VALUES, KnownValues
from tests.core.redaction import planted
from tests.core.redaction.example_messages import KEY, OTHER, redactor
from tests.core.redaction.test_known_values import WRITERS
from tests.support.exchanges import json_like

MARK = "REDACTED.x-api-key.0123abcd"
SHORT = "REDACTED.short-token.0123abcd"
LONG = "sk-0123456789abcdef"
KNOWN_KEY = "K3y/0123456789+abc="
SECRETS = [Secret("authorization", KNOWN_KEY.encode())]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": LONG}, {"a": MARK}, [("a",)]),
        ({"a": [1, f"x {LONG} y"]}, {"a": [1, f"x {MARK} y"]}, [("a", 1)]),
        ({"a": LONG, "b": LONG}, {"a": MARK, "b": MARK}, [("a",), ("b",)]),
        ({"a": f"{LONG} {LONG}"}, {"a": f"{MARK} {MARK}"}, [("a",), ("a",)]),
        ({"a": {LONG: 1}}, {"a": {MARK: 1}}, [("a", "…")]),
        ({"a": {LONG: {"b": LONG}}}, {"a": {MARK: {"b": MARK}}}, [("a", "…"), ("a", "…", "b")]),
        ({"a": f"{MARK} {LONG}"}, {"a": f"{MARK} {MARK}"}, [("a",)]),
        ({"a": MARK}, {"a": MARK}, []),
        ({"json": 1, "raw_b64": "eHg="}, {"json": 1}, []),
    ],
)
def test_each_replaced_value_is_found_at_its_place(
    before: Json, after: Json, found: list[Pointer]
) -> None:
    assert list(find_replaced(before, after)) == [
        Finding(place, "x-api-key", "sk-0") for place in found
    ]


def test_digits_that_became_a_placeholder_are_a_finding() -> None:
    found = list(find_replaced({"pin": 123456789012}, {"pin": MARK}))

    assert found == [Finding(("pin",), "x-api-key", "123")]


def test_a_body_that_is_no_text_is_compared_decoded() -> None:
    def packed(text: str) -> str:
        return base64.b64encode(b"\xff " + text.encode()).decode()

    found = list(find_replaced({"body_b64": packed(LONG)}, {"body_b64": packed(MARK)}))

    assert found == [Finding(("body_b64",), "x-api-key", "sk-0")]


def test_a_value_too_short_to_be_a_key_is_named_like_one() -> None:
    assert list(find_replaced(["abc"], [SHORT])) == [Finding((0,), "token", "")]


@given(st.text())
def test_a_mask_shows_four_characters_at_most_and_no_more_than_a_quarter(secret: str) -> None:
    shown = masked_prefix(secret.encode("utf-8", "surrogatepass") if secret.isprintable() else b"")

    assert len(shown) <= min(4, len(secret) // 4)


@given(value=json_like, before=st.text(max_size=9), after=st.text(max_size=9))
def test_what_a_redactor_replaces_is_found_and_nothing_else(
    value: Json, before: str, after: str
) -> None:
    def document(text: str) -> Json:
        return {"value": value, "text": text}

    mark = redactor(KEY, OTHER).placeholder("authorization", KEY.encode()).decode()
    shown, hidden = document(f"{before}\0{KEY}\0{after}"), document(f"{before}\0{mark}\0{after}")

    assert list(find_replaced(shown, hidden)) == [Finding(("text",), "authorization", "sk-l")]
    assert list(find_replaced(hidden, hidden)) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_a_known_value_is_seen_however_it_is_written(writer: str) -> None:
    written = WRITERS[writer](KNOWN_KEY).encode()

    assert find_secrets(b'{"a": "' + written + b'"}', KnownValues(SECRETS)) == [
        SecretMatch("authorization", 7, len(written))
    ]


@given(planted.secrets, st.integers(0, 3), st.binary(max_size=5), st.binary(max_size=5))
def test_a_known_value_is_seen_in_base64_and_in_hex(
    secret: str, way: int, before: bytes, behind: bytes
) -> None:
    text = planted.wrapped(secret, way, before, behind).encode()
    [seen] = find_secrets(b'"' + text + b'"', KnownValues([Secret("x", secret.encode())]))

    assert (seen.label, seen.offset > 0, seen.length >= len(secret)) == ("x", True, True)


@given(planted.pattern_secrets)
def test_a_pattern_is_seen_without_knowing_any_value(secret: str) -> None:
    text = json.dumps({"a": secret}).encode()

    assert [
        (found_secret.offset, found_secret.length)
        for found_secret in find_secrets(text, NO_KNOWN_VALUES)
    ] == [(7, len(text) - 9)]


@given(planted.values)
def test_a_text_without_a_secret_shows_none(value: object) -> None:
    assert find_secrets(json.dumps(value).encode(), KnownValues(SECRETS)) == []


def test_what_is_seen_comes_in_order_each_once() -> None:
    text = f"sk-ant-api03-0123456789abcdefgh {KNOWN_KEY} {KNOWN_KEY}".encode()

    assert [
        (secret.label, secret.offset) for secret in find_secrets(text, KnownValues(SECRETS * 2))
    ] == [
        ("anthropic-key", 0),
        ("authorization", 32),
        ("authorization", 52),
    ]


def test_no_match_shows_the_secret() -> None:
    assert KNOWN_KEY not in repr(find_secrets(KNOWN_KEY.encode(), KnownValues(SECRETS)))


def test_a_short_value_is_looked_for_as_it_is_and_not_in_base64() -> None:
    secrets = [Secret("x", b"short")]

    assert find_secrets(b"a short one", KnownValues(secrets)) == [SecretMatch("x", 2, 5)]
    assert (
        find_secrets(base64.b64encode(b"short") + b"short".hex().encode(), KnownValues(secrets))
        == []
    )


def test_an_empty_value_and_a_placeholder_are_no_secrets() -> None:
    known = KnownValues([Secret("x", b""), Secret("y", b"REDACTED.y.0a1b2c3d")])

    assert known.secrets == ()
    assert not known.may_occur_in(b"REDACTED.y.0a1b2c3d")
