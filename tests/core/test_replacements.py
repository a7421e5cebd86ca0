"""What redaction replaced, and where."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.redaction.findings import Finding, masked, replacements
from tapeway.core.redaction.leak_guard import Place
from tests.core.redacting import KEY, OTHER, redactor
from tests.formats.exchanges import json_like

MARK = "REDACTED.x-api-key.0123abcd"
SHORT = "REDACTED.short-token.0123abcd"
LONG = "sk-0123456789abcdef"


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
    before: Json, after: Json, found: list[Place]
) -> None:
    assert list(replacements(before, after)) == [
        Finding(place, "x-api-key", "sk-0") for place in found
    ]


def test_digits_that_became_a_placeholder_are_a_finding() -> None:
    found = list(replacements({"pin": 123456789012}, {"pin": MARK}))

    assert found == [Finding(("pin",), "x-api-key", "123")]


def test_a_body_that_is_no_text_is_compared_decoded() -> None:
    def packed(text: str) -> str:
        return base64.b64encode(b"\xff " + text.encode()).decode()

    found = list(replacements({"body_b64": packed(LONG)}, {"body_b64": packed(MARK)}))

    assert found == [Finding(("body_b64",), "x-api-key", "sk-0")]


def test_a_value_too_short_to_be_a_key_is_named_like_one() -> None:
    assert list(replacements(["abc"], [SHORT])) == [Finding((0,), "token", "")]


@given(st.text())
def test_a_mask_shows_four_characters_at_most_and_no_more_than_a_quarter(secret: str) -> None:
    shown = masked(secret.encode("utf-8", "surrogatepass") if secret.isprintable() else b"")

    assert len(shown) <= min(4, len(secret) // 4)


@given(value=json_like, before=st.text(max_size=9), after=st.text(max_size=9))
def test_what_a_redactor_replaces_is_found_and_nothing_else(
    value: Json, before: str, after: str
) -> None:
    def document(text: str) -> Json:
        return {"value": value, "text": text}

    mark = redactor(KEY, OTHER).placeholder("authorization", KEY.encode()).decode()
    shown, hidden = document(f"{before}\0{KEY}\0{after}"), document(f"{before}\0{mark}\0{after}")

    assert list(replacements(shown, hidden)) == [Finding(("text",), "authorization", "sk-l")]
    assert list(replacements(hidden, hidden)) == []
