"""No credential of a request is stored, none counts in its key, and a text in pieces is redacted as the whole is."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.redaction import patterns
from tapeway.core.redaction.assignments import LONGEST_CONTEXT
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER
from tests.core.redaction import planted
from tests.core.redaction.credential_places import REQUESTS
from tests.core.redaction.example_messages import (
    JSON,
    KEY,
    OTHER,
    SALT,
    everything,
    everything_of,
    make_request,
    make_response,
    redactor,
)
from tests.core.redaction.planted import cut, wrapped
from tests.support.canary import canary, sightings

KEYS = ("K3y/0123456789+abc=", "another-key-9876543210", "K3y/0123456789+abc=and-more")
REDACTOR = Redactor("run", [Secret(f"k{at}", key.encode()) for at, key in enumerate(KEYS)])
BOUND = patterns.MAX_LENGTH


@pytest.mark.parametrize("place", REQUESTS)
def test_no_credential_of_a_request_is_stored(place: str) -> None:
    key = canary()
    redacted = RequestRedaction().redact(SALT, REQUESTS[place](key))

    assert sightings({"key": key}, {"request": everything(redacted)}) == []


@pytest.mark.parametrize("place", REQUESTS)
def test_redacting_a_request_twice_is_redacting_it_once(place: str) -> None:
    redaction = RequestRedaction()
    request = REQUESTS[place](KEY)
    once = redaction.redact(SALT, request)

    assert redaction.redactor(SALT, request).request(once) == once


def test_a_number_in_a_header_is_not_looked_for_in_the_body() -> None:
    request = make_request((*JSON, (b"x-api-key", b"123456789012")), body=b'{"id": 123456789012}')

    assert RequestRedaction().redact(SALT, request).body == request.body


def test_a_schema_that_names_a_password_is_stored_as_it_is() -> None:
    properties = {"password": {"type": "string"}, "api_key": {"type": ["string", "null"]}}
    tool = {"name": "login", "parameters": {"properties": properties, "required": ["password"]}}
    body = json.dumps({"tools": [{"type": "function", "function": tool}]}).encode()

    assert RequestRedaction().redact(SALT, make_request(body=body)).body == body


def test_what_a_body_names_is_taken_out_of_the_response_too() -> None:
    key = canary()
    request = make_request(body=json.dumps({"client_secret": key}).encode())
    response = make_response(json.dumps({"error": f"{key} is not known"}).encode())
    stored = RequestRedaction().redactor(SALT, request).response(response)

    assert sightings({"key": key}, {"response": stored.body}) == []


def test_what_a_response_names_is_taken_out_of_all_of_it() -> None:
    key = canary()
    response = make_response(
        json.dumps({"a": key, "access_token": key, "url": f"https://h/{key}"}).encode(),
        headers=(*JSON, (b"x-echo", key.encode())),
        reason=key,
    )
    stored = Redactor(SALT).response(response)

    assert sightings({"key": key}, {"response": everything_of(stored)}) == []


def test_a_short_value_under_a_credentials_name_still_tells_requests_apart() -> None:
    redaction = RequestRedaction()
    seen = [
        redaction.redact(SALT, make_request(target=f"/x?api_key={token}"))
        for token in ("page1", "page2", "page1")
    ]

    assert b"page" not in everything(seen[0])
    assert seen[0] == seen[2]
    assert seen[0] != seen[1]


def test_only_allowed_fields_of_a_request_are_stored() -> None:
    sent = (*JSON, (b"x-new", b"1"), (b"user-agent", b"u"), (b"Accept", b"*/*"))

    assert redactor().request(make_request(sent)).headers == (*JSON, (b"Accept", b"*/*"))


def test_a_signature_is_not_taken_apart() -> None:
    signed = (
        b"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/us-east-1/bedrock/aws4_request, "
        b"SignedHeaders=content-type;host;x-amz-date, Signature=" + b"0f" * 32
    )
    body = b'{"headers": "content-type;host;x-amz-date", "service": "bedrock/aws4_request"}'
    request = make_request((*JSON, (b"authorization", signed)), body=body)

    assert RequestRedaction().redact(SALT, request).body == body


@given(st.text(max_size=30), st.binary(min_size=1, max_size=30))
def test_a_placeholder_is_recognised_and_stands_anywhere(label: str, value: bytes) -> None:
    placeholder = redactor().placeholder(label, value)

    assert PLACEHOLDER.fullmatch(placeholder)
    assert json.loads(b'"%b"' % placeholder) == placeholder.decode()


def test_one_credential_has_one_placeholder_in_a_cassette_and_another_in_the_next() -> None:
    def stored(salt: str, value: str) -> bytes:
        return redactor(value, salt=salt).response(make_response(value.encode())).body

    assert stored("run-1", KEY) == stored("run-1", KEY)
    assert stored("run-1", KEY) != stored("run-2", KEY)
    assert stored("run-1", KEY) != stored("run-1", OTHER)


def test_a_parameter_has_the_same_placeholder_known_or_not() -> None:
    target = "/x?key=sk%2Flive+0123456789%3D"
    request = make_request(target=target)

    assert RequestRedaction().redact(SALT, request).target == redactor().target(target)


def test_a_longer_credential_that_holds_a_shorter_one_is_replaced_whole() -> None:
    known = redactor("0123456789abc", "0123456789abc.tail")

    assert known.value(b"0123456789abc.tail").count(b"REDACTED") == 1
    assert b"tail" not in known.value(b"0123456789abc.tail")


def test_an_empty_value_is_no_credential() -> None:
    assert Redactor(SALT, [Secret("x", b"")]).value(b"text") == b"text"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/v1/x?a=1&b=2", "/v1/x?a=1&b=2"),
        ("/v1/x?", "/v1/x?"),
        ("/v1//x?a=b%2Fc&&d", "/v1//x?a=b%2Fc&&d"),
        ("/x?key=", "/x?key="),
        ("/x?key", "/x?key"),
        ("/x?monkey=0123456789abc", "/x?monkey=0123456789abc"),
        ("/x=1?y=key", "/x=1?y=key"),
        ("/x?key=REDACTED.key.0a1b2c3d", "/x?key=REDACTED.key.0a1b2c3d"),
        ("/caf\u00e9", "/caf\u00e9"),
        ("/caf\udce9/x", "/caf%E9/x"),
    ],
)
def test_a_target_without_a_credential_stays_as_it_is(before: str, after: str) -> None:
    assert RequestRedaction().redact(SALT, make_request(target=before)).target == after
    assert redactor(KEY).target(before) == after


@pytest.mark.parametrize("target", ["/x?key=\udcff", "/\udcff?key=\udcff0123456789abc", "/\udcff"])
def test_a_target_that_is_no_text_can_still_be_shown(target: str) -> None:
    request = make_request(target=target)
    shown = RequestRedaction().redactor(SALT, request).target(target)

    assert b"%FF" in shown.encode() or b"REDACTED" in shown.encode()


def test_the_user_and_password_of_an_upstream_are_not_stored() -> None:
    request = make_request(base="https://me:pass-word-long@host/base")

    assert RequestRedaction().redact(SALT, request).base == "https://host/base"


@given(st.text(), st.binary())
def test_no_placeholder_looks_like_a_key_to_a_scanner(label: str, secret: bytes) -> None:
    # What gitleaks takes for none: letters, underscores, dots and dashes alone.
    made = Redactor("run-1").placeholder(label, secret)

    assert re.fullmatch(rb"[A-Za-z_.-]+", made)
    assert PLACEHOLDER.fullmatch(made)


def through_a_window(pieces: list[bytes]) -> bytes:
    window = REDACTOR.stream(b"text/plain")
    return b"".join([*[window.feed(piece) for piece in pieces], window.finish()])


fillers = st.sampled_from([b"a", b" ", b"-", b'"', b"\\n", b"eyJ", b"sk-", b"%2B"]).flatmap(
    lambda unit: st.integers(0, 3 * BOUND).map(lambda count: (unit * count)[: 3 * BOUND])
)
plants = st.one_of(
    st.sampled_from([key.encode() for key in KEYS]),
    planted.pattern_secrets.map(str.encode),
    st.builds(
        wrapped,
        st.sampled_from(KEYS),
        st.integers(0, 3),
        st.binary(max_size=4),
        st.binary(max_size=4),
    ).map(str.encode),
    st.sampled_from([b" ", b"/", b"x", b"\\n", b"%20"]),
)


@given(st.lists(st.one_of(fillers, plants), max_size=12), st.lists(st.integers(0, 400_000)))
@example([b" " * (2 * BOUND), KEYS[0].encode(), b" " * (2 * BOUND)], [2 * BOUND + 5])
def test_any_pieces_give_what_the_whole_gives(texts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(texts)

    assert through_a_window(cut(whole, cuts)) == REDACTOR.value(whole)


@pytest.mark.parametrize(
    "text",
    [
        f" {KEYS[0]} sk-ant-api03-0123456789abcdefgh ",
        f"{KEYS[2]}{KEYS[1]}",
        f" {wrapped(KEYS[0], 0, b'x', b'y')} ",
        " https://h/?sig=4f6b2c9d8e1a7350Xq&x ",
        " postgresql://me:hunter2@db ",
        ' api_key = "4f6b2c9d8e1a7350Xq" ',
        " curl --fail -u admin:hunter2 x ",
        " /services/T01234567/B01234567/4f6b2c9d8e1a7350Xq4f6b2c ",
        # These are none for what stands before them.
        "xAKIAIOSFODNN7QWERTZY ",
        "xsk-ant-api03-0123456789abcdefgh ",
    ],
)
def test_what_is_let_out_may_end_at_any_place_of_a_secret(text: str) -> None:
    before, end = b"x" * (BOUND + 100), b"y" * (2 * BOUND)
    whole = before + text.encode() + end
    for place in range(-70, len(text) + 70, 3):
        # All but the bound is let out.
        fed = len(before) + place + BOUND + LONGEST_CONTEXT

        assert through_a_window([whole[:fed], whole[fed:]]) == REDACTOR.value(whole)


def test_no_more_is_held_back_than_twice_the_bound_and_a_piece() -> None:
    window = REDACTOR.stream(b"text/plain")
    given_, taken = 0, 0
    for _ in range(200):
        given_ += 10_000
        taken += len(window.feed(b"x" * 10_000))

        assert given_ - taken < 2 * BOUND + 10_000 + 1000


def test_a_window_of_nothing_is_nothing() -> None:
    assert through_a_window([]) == b""
    assert through_a_window([b"", b""]) == b""


@pytest.mark.parametrize(
    "target",
    [
        "/back?payment_intent_client_secret={}&redirect_status=succeeded",
        "/x?url=https%3A%2F%2Fh%2F%3Fclient_secret%3D{}%26a%3D1",
        "/checkout/{}",
    ],
)
def test_the_id_before_a_secret_of_stripes_stays_in_a_target(target: str) -> None:
    secret = "pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_YrKJUKribcBjcG8HVhfZluoGH"
    stored = redactor().target(target.format(secret))

    assert PLACEHOLDER.sub(b"*", stored.encode()).decode() == target.format(
        "pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_*"
    )
    assert redactor().target(stored) == stored


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_text_in_utf_16_is_searched_and_stays_one(codec: str, mark: str) -> None:
    key = canary()
    told = f'{mark}{{"password": "hunter22", "said": "{key} é 漢"}}'
    body = told.encode(codec)
    headers = ((b"content-type", f"application/json; charset={codec}".encode()),)
    known = redactor(key)
    request = known.request(make_request(headers, body=body)).body.decode(codec)
    pieces = [body[:33], body[33:60], body[60:]]
    response = known.response(make_response(*pieces, headers=headers))

    hidden = known.placeholder("authorization", key.encode()).decode()
    assert response.body.decode(codec) == told.replace(key, hidden)
    assert len(response.pieces()) == 3
    assert response.pieces()[0] == pieces[0]
    assert json.loads(request.removeprefix(mark)).keys() == {"password", "said"}
    assert "hunter22" not in request
    assert key not in request
