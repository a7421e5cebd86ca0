"""The last look at what is about to be written."""

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, Pointer, dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import LeakFound, LeakGuard, find_places
from tapeway.errors import StoreError
from tests.support.coded_bodies import flushed

VALUE = "sk-live/0123456789+abc="
SECRET = Secret("authorization", VALUE.encode())
GUARD = LeakGuard([SECRET])
EXCHANGE = Interaction(0, Request("r", "GET", "/"), Response(ResponseHead(200)))

WAYS: dict[str, Callable[[str], str]] = {
    "itself": str,
    "percent-encoded": lambda value: quote(value, safe=""),
    "in JSON inside JSON": lambda value: json.dumps(json.dumps(value)),
    "with escaped slashes": lambda value: value.replace("/", "\\/"),
    "in base64": lambda value: base64.b64encode(f"user:{value}!".encode()).decode(),
    "in base64url": lambda value: base64.urlsafe_b64encode(f"k={value}".encode()).decode(),
    "in hex": lambda value: value.encode().hex(),
}


def check(document: Json, exchange: Interaction = EXCHANGE, guard: LeakGuard = GUARD) -> None:
    guard.check(exchange, document, dump(document))


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_a_credential_is_seen_in_every_encoding_and_its_place_named(
    write: Callable[[str], str],
) -> None:
    document: Json = {"response": {"headers": {"X-Odd": f"it is {write(VALUE)}, then"}}}

    with pytest.raises(LeakFound) as seen:
        check(document)

    assert (seen.value.secret, seen.value.place) == (SECRET, ("response", "headers", "X-Odd"))
    assert "0123456789" not in f"{seen.value} {seen.value!r}"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"request": {"url": f"https://h/?x={VALUE}"}}, ("request", "url")),
        ({"a": ["", {"b": VALUE}]}, ("a", 1, "b")),
        ({"a": {VALUE: 1}}, ("a", "…")),
        ({"a": {f"{VALUE}!": {"b": VALUE}}}, ("a", "…")),
    ],
)
def test_a_place_never_shows_the_credential(document: Json, place: Pointer) -> None:
    with pytest.raises(LeakFound) as seen:
        check(document)

    assert seen.value.place == place


def test_all_places_are_found() -> None:
    document: Json = {"a": [VALUE, "b", {VALUE: [VALUE]}], "c": None, "d": 1}

    found = list(find_places(document, KnownValues([SECRET])))

    assert found == [("a", 0), ("a", 2, "…"), ("a", 2, "…", 0)]


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_what_holds_no_credential_passes(document: Json) -> None:
    check(document)


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_long_text_is_searched_like_a_short_one(size: int) -> None:
    check({"a": "text " * size})
    with pytest.raises(LeakFound):
        check({"a": "text " * size + base64.b64encode(VALUE.encode()).decode()})
    LeakGuard([]).check(EXCHANGE, {}, b"text " * size)


@pytest.mark.parametrize("way", WAYS)
def test_what_the_process_knows_is_seen_beside_what_a_request_showed(way: str) -> None:
    own = [Secret(f"KEY_{number}", f"process-key-{number:04}".encode()) for number in range(30)]
    guard = LeakGuard([SECRET], KnownValues(own))

    check({"a": "process-key-"}, guard=guard)
    for secret in (own[0], own[-1], SECRET):
        with pytest.raises(LeakFound) as seen:
            check({"a": WAYS[way](secret.value.decode())}, guard=guard)
        assert seen.value.secret == secret


def test_digits_behind_a_minus_are_another_value() -> None:
    guard = LeakGuard([Secret("pin", b"123456789012")])

    check({"n": -123456789012}, guard=guard)
    with pytest.raises(LeakFound):
        check({"n": 123456789012}, guard=guard)


@pytest.mark.parametrize("end", [None, -5], ids=["broken", "cut"])
def test_a_body_that_stayed_in_its_coding_is_looked_into_as_far_as_it_can_be_read(
    end: int | None,
) -> None:
    packed = b"".join(flushed(b"gzip", [b"some text ", VALUE.encode(), b" and more"]))[:end]
    broken = packed if end else packed[:-8] + bytes(8)
    headers = ((b"Content-Encoding", b"gzip"),)
    response = Response(ResponseHead(200, headers=headers), broken)
    document: Json = {"response": {"body_b64": base64.b64encode(broken).decode()}}

    with pytest.raises(LeakFound) as seen:
        check(document, replace(EXCHANGE, response=response))

    assert seen.value.place == ("response", "body")
    harmless = replace(response, body=gzip.compress(b"text")[:-1])
    check({}, replace(EXCHANGE, response=harmless))


@pytest.mark.parametrize(
    "text",
    [
        b"sk-proj-Qz7hT2kP9xL4vT8wR1sY6nB3cH5jD0gA7eU2iO9p",
        b'{"password": "hunter2"}',
        base64.b64encode(b"of sk-proj-Qz7hT2kP9xL4vT8wR1sY6nB3cH5jD0gA7eU2iO9p"),
    ],
)
def test_what_a_coded_request_body_shows_is_refused_since_nothing_is_replaced_there(
    text: bytes,
) -> None:
    headers = ((b"Content-Encoding", b"gzip"), (b"Content-Type", b"application/json"))
    request = Request("r", "POST", "/", headers, gzip.compress(text)[:-8])

    with pytest.raises(LeakFound) as seen:
        check({}, replace(EXCHANGE, request=request))
    assert seen.value.place == ("request", "body")


def test_a_secret_far_inside_a_bomb_is_seen() -> None:
    bomb = gzip.compress(bytes(20_000_000) + b" " + VALUE.encode())
    headers = ((b"Content-Encoding", b"gzip"),)

    with pytest.raises(LeakFound):
        check({}, replace(EXCHANGE, response=Response(ResponseHead(200, headers=headers), bomb)))


@given(
    before=st.binary(max_size=300),
    after=st.binary(max_size=300),
    way=st.sampled_from(list(WAYS.values())),
    data=st.data(),
)
def test_no_cut_hides_a_credential_from_a_watched_body(
    before: bytes, after: bytes, way: Callable[[str], str], data: st.DataObject
) -> None:
    body = before + way(VALUE).encode() + after
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=6).map(sorted))
    pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
    out: list[bytes] = []

    with pytest.raises(StoreError, match="'authorization' would still be in a large body"):
        out.extend(GUARD.watched(pieces))

    assert pieces[: len(out)] == out
    assert VALUE.encode() not in b"".join(out)


@given(st.lists(st.binary(max_size=30)))
def test_a_watched_body_comes_through_as_it_is(pieces: list[bytes]) -> None:
    assert list(GUARD.watched(pieces)) == pieces
    assert list(LeakGuard([]).watched(pieces)) == pieces
