"""No secret of a body is stored, whatever the body, the secret and the place; all else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Response
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tests.core.redaction import planted
from tests.core.redaction.example_messages import SALT, make_request, make_response
from tests.core.redaction.planted import TYPES, bodies, cut, documents_of, kinds
from tests.support.canary import sightings


def stored_request(redactor: Redactor, kind: str, body: bytes) -> bytes:
    return redactor.request(make_request(((b"content-type", TYPES[kind]),), body=body)).body


def stored_response(redactor: Redactor, kind: str, pieces: list[bytes]) -> Response:
    return redactor.response(make_response(*pieces, headers=((b"content-type", TYPES[kind]),)))


def check(redactor: Redactor, kind: str, body: bytes, cuts: list[int], secret: str) -> None:
    """It is gone from the request and from the response; chunks, JSON and a second time stay."""
    pieces = cut(body, cuts)
    response = stored_response(redactor, kind, pieces)
    request = stored_request(redactor, kind, body)

    places = {"request": request, "response": response.body}
    assert sightings({"secret": secret}, places) == []
    assert len(response.pieces()) <= len(pieces)
    assert len(documents_of(kind, request)) == len(documents_of(kind, body))
    assert len(documents_of(kind, response.body)) == len(documents_of(kind, body))
    assert redactor.response(response) == response
    assert stored_request(redactor, kind, request) == request


cuts = st.lists(st.integers(0, 10_000), max_size=5)


@given(kinds, planted.secrets, cuts, st.data())
def test_a_known_value_is_stored_in_no_body(
    kind: str, secret: str, cuts: list[int], data: st.DataObject
) -> None:
    body = data.draw(bodies(kind, secret))

    check(Redactor(SALT, [Secret("x", secret.encode())]), kind, body, cuts, secret)


@given(
    kinds,
    planted.secrets,
    cuts,
    st.integers(0, 3),
    st.binary(max_size=4),
    st.binary(max_size=4),
    st.data(),
)
def test_a_known_value_in_base64_or_hex_is_stored_in_no_body(
    kind: str,
    secret: str,
    cuts: list[int],
    way: int,
    before: bytes,
    behind: bytes,
    data: st.DataObject,
) -> None:
    body = data.draw(bodies(kind, planted.wrapped(secret, way, before, behind)))

    check(Redactor(SALT, [Secret("x", secret.encode())]), kind, body, cuts, secret)


@given(kinds, planted.pattern_secrets, cuts, st.data())
def test_a_secret_with_a_known_pattern_is_stored_in_no_body(
    kind: str, secret: str, cuts: list[int], data: st.DataObject
) -> None:
    check(Redactor(SALT), kind, data.draw(bodies(kind, secret)), cuts, secret)


@given(
    st.sampled_from(["json", "lines", "events", "form", "parts"]),
    st.sampled_from(planted.NAMES),
    planted.secrets,
    st.data(),
)
def test_what_a_field_is_named_for_is_stored_of_no_request(
    kind: str, name: str, secret: str, data: st.DataObject
) -> None:
    body = data.draw(bodies(kind, secret, name))
    stored = stored_request(Redactor(SALT), kind, body)

    assert sightings({"secret": secret}, {"request": stored}) == []
    assert len(documents_of(kind, stored)) == len(documents_of(kind, body))
    assert stored_request(Redactor(SALT), kind, stored) == stored


@given(
    st.sampled_from(["json", "lines", "events"]),
    st.sampled_from(planted.ISSUED),
    planted.secrets,
    cuts,
    st.data(),
)
def test_what_a_service_issues_is_stored_of_no_response(
    kind: str, name: str, secret: str, cuts: list[int], data: st.DataObject
) -> None:
    check(Redactor(SALT), kind, data.draw(bodies(kind, secret, name)), cuts, secret)


@given(planted.secrets, st.sampled_from(planted.ISSUED), st.data())
def test_json_inside_a_string_is_looked_into(secret: str, name: str, data: st.DataObject) -> None:
    inner = json.dumps(data.draw(planted.documents(secret, name)))
    body = json.dumps({"arguments": inner, "again": json.dumps(inner)}).encode()
    redactor = Redactor(SALT)
    stored = stored_response(redactor, "json", [body]).body

    assert sightings({"secret": secret}, {"response": stored}) == []
    document = json.loads(stored)
    assert json.loads(document["arguments"]) == json.loads(json.loads(document["again"]))
    assert stored_response(redactor, "json", [stored]).body == stored


@given(kinds, cuts, st.data())
def test_a_body_without_a_secret_is_stored_byte_for_byte(
    kind: str, cuts: list[int], data: st.DataObject
) -> None:
    body = data.draw(bodies(kind, "just a word", "note"))
    pieces = cut(body, cuts)
    redactor = Redactor(SALT, [Secret("x", b"sk-live/0123456789+abc=")])

    assert stored_response(redactor, kind, pieces).pieces() == [piece for piece in pieces if piece]
    assert stored_request(redactor, kind, body) == body


@given(planted.secrets, st.lists(st.integers(1, 6), min_size=40, max_size=60), st.booleans())
def test_a_known_value_spread_over_events_is_stored_of_no_stream(
    secret: str, steps: list[int], events: bool
) -> None:
    sentence = f'I say "{secret}", as\nyou asked.'
    deltas, at = [], 0
    for step in steps:
        deltas.append(sentence[at : at + step])
        at += step
    lines = [
        json.dumps({"id": "c-1", "choices": [{"index": 0, "delta": {"content": delta}}]})
        for delta in deltas
    ]
    kind = "events" if events else "lines"
    form = "data: {}\n\n" if events else "{}\n"
    pieces = [form.format(line).encode() for line in lines]
    redactor = Redactor(SALT, [Secret("x", secret.encode())])
    stored = stored_response(redactor, kind, pieces)

    stored_texts = "".join(
        str(document["choices"][0]["delta"]["content"])  # type: ignore[index, call-overload]
        for document in documents_of(kind, stored.body)
    )
    placeholder = redactor.placeholder("x", secret.encode()).decode()
    assert stored_texts == sentence[: sum(steps)].replace(secret, placeholder)
    assert len(stored.pieces()) == len(pieces)
    assert stored_response(redactor, kind, stored.pieces()) == stored


@given(kinds, planted.secrets, st.data())
def test_a_message_of_a_socket_is_redacted_as_a_body_is(
    kind: str, secret: str, data: st.DataObject
) -> None:
    body = data.draw(bodies(kind, secret))
    redactor = Redactor(SALT, [Secret("x", secret.encode())])

    for in_response in (False, True):
        stored = redactor.message(body, in_response=in_response)
        assert sightings({"secret": secret}, {"message": stored}) == []
        assert redactor.message(stored, in_response=in_response) == stored


@pytest.mark.parametrize("in_response", [False, True])
def test_a_binary_message_without_a_secret_is_left_as_it_is(in_response: bool) -> None:
    data = bytes(range(256)) * 4

    assert Redactor(SALT).message(data, in_response=in_response) == data
