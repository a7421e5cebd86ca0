"""The last look at a text finds every secret in it, and says where."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import Sighting, find
from tapeway.core.redaction.known_values import KnownValues
from tests.core import planted
from tests.core.test_disguises import WRITERS

KEY = "K3y/0123456789+abc="
SECRETS = [Secret("authorization", KEY.encode())]


@pytest.mark.parametrize("writer", WRITERS)
def test_a_known_value_is_seen_however_it_is_written(writer: str) -> None:
    written = WRITERS[writer](KEY).encode()

    assert find(b'{"a": "' + written + b'"}', SECRETS) == [
        Sighting("authorization", 7, len(written))
    ]


@given(planted.secrets, st.integers(0, 3), st.binary(max_size=5), st.binary(max_size=5))
def test_a_known_value_is_seen_in_base64_and_in_hex(
    secret: str, way: int, before: bytes, behind: bytes
) -> None:
    text = planted.wrapped(secret, way, before, behind).encode()
    [seen] = find(b'"' + text + b'"', [Secret("x", secret.encode())])

    assert (seen.label, seen.offset > 0, seen.length >= len(secret)) == ("x", True, True)


@given(planted.shaped)
def test_a_shape_is_seen_without_knowing_any_value(secret: str) -> None:
    text = json.dumps({"a": secret}).encode()

    assert [(each.offset, each.length) for each in find(text)] == [(7, len(text) - 9)]
    assert find(text, shapes=False) == []


@given(planted.values)
def test_a_text_without_a_secret_shows_none(value: object) -> None:
    assert find(json.dumps(value).encode(), SECRETS) == []


def test_what_is_seen_comes_in_order_each_once() -> None:
    text = f"sk-ant-api03-0123456789abcdefgh {KEY} {KEY}".encode()

    assert [(each.label, each.offset) for each in find(text, SECRETS * 2)] == [
        ("anthropic-key", 0),
        ("authorization", 32),
        ("authorization", 52),
    ]


def test_no_sighting_shows_the_secret() -> None:
    assert KEY not in repr(find(KEY.encode(), SECRETS))


def test_a_short_value_is_looked_for_as_it_is_and_not_in_base64() -> None:
    secrets = [Secret("x", b"short")]

    assert find(b"a short one", secrets) == [Sighting("x", 2, 5)]
    assert find(base64.b64encode(b"short") + b"short".hex().encode(), secrets) == []


def test_an_empty_value_and_a_placeholder_are_no_secrets() -> None:
    known = KnownValues([Secret("x", b""), Secret("y", b"REDACTED.y.0a1b2c3d")])

    assert known.secrets == ()
    assert not known.shows(b"REDACTED.y.0a1b2c3d")
