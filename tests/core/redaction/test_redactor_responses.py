"""No credential of a response is stored, and nothing else of it is changed."""

import gzip
import json
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.content_codings import readable_response
from tapeway.core.model.messages import Response
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import issued_credentials
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER
from tests.core.redaction.example_messages import (
    JSON,
    KEY,
    SALT,
    everything_of,
    make_response,
    redactor,
)
from tests.core.redaction.test_known_values import WRITERS
from tests.support.canary import canary, sightings
from tests.support.coded_bodies import flushed


def respond(response: Response, *values: str) -> Response:
    """What is stored of a response to a request with these credentials."""
    known = [Secret("authorization", value.encode()) for value in values]
    held = readable_response(response, "POST")
    return Redactor(SALT, [*known, *issued_credentials(response.head)]).response(held)


def echoing(write: Callable[[str], str]) -> Callable[[str], Response]:
    return lambda key: make_response(f'{{"k": "{write(key)}"}}'.encode())


RESPONSES: dict[str, Callable[[str], Response]] = {
    "body": lambda key: make_response(json.dumps({"error": f"bad key {key}"}).encode()),
    "split body": lambda key: make_response(b'{"a": "', key[:9].encode(), key[9:].encode(), b'"}'),
    "field": lambda key: make_response(headers=((b"x-echo", f"key {key}".encode()),)),
    "reason": lambda key: make_response(reason=f"Bad key {key}"),
    "location": lambda key: make_response(
        headers=((b"location", f"/x?via={WRITERS['percent-encoded'](key)}".encode()),)
    ),
    "gzip": lambda key: make_response(
        gzip.compress(json.dumps({"key": key}).encode()),
        headers=(*JSON, (b"content-encoding", b"gzip")),
    ),
    "deflate": lambda key: make_response(
        zlib.compress(key.encode()), headers=((b"Content-Encoding", b"deflate"),)
    ),
    "event stream": lambda key: make_response(
        b"data: " + json.dumps({"k": key}).encode() + b"\n\n", b"data: [DONE]\n\n"
    ),
    **{f"body {writer}": echoing(write) for writer, write in WRITERS.items()},
}


@pytest.mark.parametrize("place", RESPONSES)
def test_a_credential_that_a_response_echoes_is_not_stored(place: str) -> None:
    key = canary()
    stored = respond(RESPONSES[place](key), key)

    assert sightings({"key": key}, {"response": everything_of(stored)}) == []
    assert PLACEHOLDER.search(everything_of(stored))


@pytest.mark.parametrize("place", RESPONSES)
def test_redacting_a_response_twice_is_redacting_it_once(place: str) -> None:
    once = respond(RESPONSES[place](KEY), KEY)

    assert respond(once, KEY) == once


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"Set-Cookie", b"sid=%b; Path=/; HttpOnly"),
        (b"set-cookie", b'sid="%b"; Path=/'),
        (b"x-auth-token", b"%b"),
        (b"x-csrf", b"%b"),
        (b"Set-Cookie2", b'sid="%b"; Version=1'),
        (b"Authentication-Info", b'nextnonce="%b"'),
        (b"Location", b"https://host/cb?state=1&access_token=%b"),
        (b"location", b"https://host/cb#token=%b&x=1"),
        (b"content-location", b"/files?sig=%b"),
        (b"x-goog-upload-url", b"https://host/upload?upload_id=%b"),
    ],
)
def test_a_credential_that_a_response_issues_is_not_stored(name: bytes, value: bytes) -> None:
    key = canary()
    headers = (*JSON, (name, value % key.encode()))
    stored = respond(make_response(json.dumps({"again": key}).encode(), headers=headers))

    assert sightings({"key": key}, {"response": everything_of(stored)}) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"theme=dark; Path=/; Secure", b"theme=dark; Path=/; Secure"),
        (b"sid=012345678901234; Path=/", b"sid=012345678901234; Path=/"),
        (
            b"sid=0123456789abcdef; Path=/; SameSite=Lax",
            b"sid=REDACTED.sid.%b; Path=/; SameSite=Lax",
        ),
        (b"a b=0123456789abcdef", b"a b=REDACTED.a-b.%b"),
        (b"=0123456789abcdef", b"=REDACTED.value.%b"),
    ],
)
def test_a_cookie_keeps_its_name_and_attributes_and_a_short_value(
    before: bytes, after: bytes
) -> None:
    stored = respond(make_response(headers=((b"Set-Cookie", before),)))
    mark = redactor().placeholder("", b"0123456789abcdef").rpartition(b".")[2]

    assert stored.headers == ((b"Set-Cookie", after.replace(b"%b", mark)),)


@pytest.mark.parametrize("value", [b"short", b"two words", b"0123456789abc"])
def test_a_credential_field_of_a_response_is_hidden_whole(value: bytes) -> None:
    stored = respond(make_response(headers=((b"X-Auth-Token", value), (b"x-b", b"short"))))

    assert PLACEHOLDER.fullmatch(stored.headers[0][1])
    assert stored.headers[1] == (b"x-b", b"short")
    assert respond(stored) == stored


def test_an_empty_credential_field_is_left_as_it_is() -> None:
    assert respond(make_response(headers=((b"x-api-key", b""),))).headers == ((b"x-api-key", b""),)


def test_a_cookie_that_holds_a_known_key_among_other_things_is_hidden_whole() -> None:
    cookie = f"sid={KEY}.and-a-session-secret; Path=/".encode()
    stored = redactor(KEY).response(make_response(headers=((b"set-cookie", cookie),)))

    assert b"session-secret" not in stored.headers[0][1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"logprobs": [{"token": "sk", "logprob": -0.1}, {"token": "-live-0123456789"}]}',
        b'{"authorization": "required", "password": "policy", "tokens": 12}',
        b"\x00\xff\xfe",
        b"",
    ],
)
def test_a_response_without_a_credential_keeps_its_bytes(body: bytes) -> None:
    sent = make_response(body[:7], body[7:])

    assert respond(sent, KEY) == sent


def recut(text: bytes, borders: list[int]) -> list[bytes]:
    """The chunks expected: what a border cut in two goes to the chunk it began in."""
    octets = [text[at : at + 1] for at in range(len(text))]
    at = text.find(KEY.encode())
    while at >= 0:
        octets[at] = redactor().placeholder("authorization", KEY.encode())
        octets[at + 1 : at + len(KEY)] = [b""] * (len(KEY) - 1)
        at = text.find(KEY.encode(), at + 1)
    return [b"".join(octets[start:end]) for start, end in pairwise([0, *borders, len(text)])]


def split(text: bytes, borders: list[int]) -> list[bytes]:
    return [text[start:end] for start, end in pairwise([0, *borders, len(text)])]


def test_a_key_split_at_any_place_leaves_all_borders_where_they_were() -> None:
    text = f'data: {{"a": "{KEY}", "b": "{KEY}"}}\n\ndata: end\n\n'.encode()

    for first in range(len(text) + 1):
        for second in (first, first + 1, first + 20, len(text)):
            borders = [first, max(first, min(second, len(text)))]
            stored = redactor(KEY).response(make_response(*split(text, borders)))

            expected = [(piece, at) for at, piece in enumerate(recut(text, borders)) if piece]
            assert [*zip(stored.pieces(), stored.arrivals().times, strict=True)] == expected


@given(
    st.lists(st.sampled_from([KEY.encode(), KEY[:5].encode(), b"ab", b"\n", b'"', b"data: "])),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_any_chunks_keep_their_borders(pieces: list[bytes], cuts: list[int]) -> None:
    text = b"".join(pieces)
    borders = sorted(cut for cut in cuts if cut <= len(text))
    stored = redactor(KEY).response(make_response(*split(text, borders)))

    assert stored.pieces() == [piece for piece in recut(text, borders) if piece]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.from_regex(r"[A-Za-z0-9_/+.~ -]{14,30}[=]{0,2}", fullmatch=True).filter(
    lambda key: key.strip() == key
)
digits = st.from_regex(r"[1-9][0-9]{11,15}", fullmatch=True)


@given(keys | digits, json_values, st.sampled_from([None, 2]), st.booleans())
def test_json_stays_json_and_only_the_credential_changes(
    key: str, rest: object, indent: int | None, in_ascii: bool
) -> None:
    def written(secret: str) -> str:
        document = {"echo": secret, "rest": rest, "in a text": f'a "quoted" {secret}, and more'}
        return json.dumps(document, indent=indent, ensure_ascii=in_ascii)

    body = redactor(key).response(make_response(written(key).encode())).body
    placeholder = redactor(key).placeholder("authorization", key.encode()).decode()

    assert json.loads(body) == json.loads(written(placeholder).replace(key, placeholder))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"id": 123456789012}', b'{"id": "%b"}'),
        (b'{"id":123456789012,"x":[123456789012 ]}', b'{"id":"%b","x":["%b" ]}'),
        (b'{\n  "id":\n    123456789012\n}', b'{\n  "id":\n    "%b"\n}'),
        (b"123456789012", b'"%b"'),
        (b'data: {"id": 123456789012}\n\n', b'data: {"id": "%b"}\n\n'),
        (b'{"p": "projects/123456789012/x"}', b'{"p": "projects/%b/x"}'),
        (b'{"p": "a: 123456789012, b"}', b'{"p": "a: %b, b"}'),
        (b'{"p\\"": "a: 123456789012, b"}', b'{"p\\"": "a: %b, b"}'),
        (b'{"p": "\\\\", "q": 123456789012}', b'{"p": "\\\\", "q": "%b"}'),
        (b'{"id": -123456789012}', b'{"id": -123456789012}'),
        (b'{"id": 1234567890123}', b'{"id": 1234567890123}'),
        (b'{"id": 0.123456789012}', b'{"id": 0.123456789012}'),
        (b"account 123456789012 is new", b"account %b is new"),
    ],
)
def test_a_credential_of_digits_leaves_json_what_it_is(before: bytes, after: bytes) -> None:
    known = redactor("123456789012")
    placeholder = known.placeholder("authorization", b"123456789012")

    assert known.response(make_response(before)).body == after.replace(b"%b", placeholder)


def test_a_project_number_in_a_field_is_hidden_as_any_other_value() -> None:
    stored = redactor("123456789012").response(make_response(headers=((b"x-p", b"123456789012"),)))

    assert PLACEHOLDER.fullmatch(stored.headers[0][1])


def test_very_many_chunks_with_very_many_credentials_take_time_linear_in_their_number() -> None:
    event = f"data: {KEY}\n\n".encode()
    stored = redactor(KEY).response(make_response(*([event] * 20_000)))

    assert {*stored.pieces()} == {redactor(KEY).value(event)}


def test_digits_that_stand_in_one_line_very_often_take_time_linear_in_their_number() -> None:
    body = b"[" + b"123456789012, " * 50_000 + b"-123456789012]"
    stored = redactor("123456789012").response(make_response(body))

    assert len(PLACEHOLDER.findall(stored.body)) == 50_000
    assert json.loads(stored.body)[-1] == -123456789012


@pytest.mark.slow
def test_very_many_different_credentials_do_not_each_cost_a_look_at_everything() -> None:
    users = [{"access_token": f"4f6b2c9d8e1a-{number:06}"} for number in range(20_000)]
    stored = redactor().response(make_response(json.dumps(users).encode()))

    assert len(set(PLACEHOLDER.findall(stored.body))) == 20_000


def test_a_link_keeps_all_but_the_credentials_of_its_urls() -> None:
    link = b'<https://a/?p=2&access_token=0123456789abcdef>; rel="next", <https://a/?api_key=1>; rel="last"'
    stored = redactor().response(make_response(b"{}", headers=((b"link", link),)))
    redacted = stored.headers[0][1]

    assert b"0123456789abcdef" not in redacted
    assert PLACEHOLDER.sub(b"*", redacted) == (
        b'<https://a/?p=2&access_token=*>; rel="next", <https://a/?api_key=*>; rel="last"'
    )


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "without its checksum": lambda body: gzip.compress(body)[:-8],
    "with a wrong checksum": lambda body: gzip.compress(body)[:-8] + bytes(8),
    "with bytes behind its end": lambda body: gzip.compress(body) + bytes(99),
    "cut off": lambda body: b"".join(flushed(b"gzip", [body, b" and more"]))[:-12],
}
SHOWN: dict[str, bytes] = {
    "a known value": KEY.encode(),
    "a key of a known form": b"sk-proj-Qz7hT2kP9xL4vT8wR1sY6nB3cH5jD0gA7eU2iO9p",
    "a named field": b'{"access_token":"Zk3vQ9xT2mB7pL5c"}',
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("shown", SHOWN)
def test_a_broken_coded_body_with_a_secret_is_stored_as_what_it_says(
    fault: str, shown: str
) -> None:
    headers = (
        (b"Content-Type", b"text/plain"),
        (b"Content-Encoding", b"gzip"),
        (b"Content-MD5", b"Zk3vQ9xT2mB7pL5cZk3vQQ=="),
        (b"ETag", b"x"),
    )
    body = BROKEN[fault](b"It is " + SHOWN[shown] + b", is it not?")
    stored = redactor(KEY).response(make_response(body[:9], body[9:], headers=headers))

    assert [name for name, _ in stored.headers] == [b"Content-Type", b"ETag"]
    assert PLACEHOLDER.search(stored.body)
    assert stored.body.startswith((b"It is REDACTED.", b'It is {"access_token":"REDACTED.'))
    assert len(stored.pieces()) == 1


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_coded_body_without_a_secret_stays_as_it_came(fault: str) -> None:
    headers = ((b"Content-Type", b"text/plain"), (b"Content-Encoding", b"gzip"))
    response = make_response(BROKEN[fault](b"It is a body, is it not?"), headers=headers)

    assert redactor(KEY).response(response) == response
