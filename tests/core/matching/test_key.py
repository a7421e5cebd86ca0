"""Which requests are equal to a cassette, their bodies apart, and how that is remembered."""

import random
from urllib.parse import quote, urlencode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tapeway.core.json_text import dump
from tapeway.core.matching.key import (
    CACHED_BODY,
    RequestRedaction,
    key_on_route,
    key_text,
    request_key,
)
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Headers, Request
from tapeway.core.redaction.credentials import Secret
from tests.core.keys import JSON, TEXT, key
from tests.core.redaction.example_messages import KEY, OTHER, make_request


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("/v1/models/a%3Ab", "/v1/models/a:b", True),
        ("/%7Euser", "/~user", True),
        ("/caf%C3%A9", "/caf%c3%a9", True),
        ("/caf%C3%A9", "/café", True),
        ("/a%20b", "/a+b", False),
        ("/a%2Fb", "/a/b", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/a%252Fb", "/a%2Fb", False),
        ("/a%3Fb=1", "/a?b=1", False),
        ("/a%00b", "/ab", False),
        ("/a", "//a", False),
        ("/a", "/a/", False),
        ("/a/b", "/a//b", False),
        ("/A", "/a", False),
        ("/a/../b", "/b", False),
        ("/a;x=1", "/a", False),
        ("/x?a=1&b=2", "/x?b=2&a=1", True),
        ("/x?a=1&a=2", "/x?a=2&a=1", False),
        ("/x?a=1&a=1", "/x?a=1", False),
        ("/x?a=b%20c", "/x?a=b+c", True),
        ("/x?a=b%2Bc", "/x?a=b+c", False),
        ("/x?a=%2F", "/x?a=/", True),
        ("/x?a=b%26c=d", "/x?a=b&c=d", False),
        ("/x?a", "/x?a=", True),
        ("/x?a=", "/x", False),
        ("/x?a=&b=1", "/x?b=1", False),
        ("/x?&", "/x", True),
        ("/x?a=1", "/x?a=2", False),
        ("/x?a=1", "/x", False),
        ("/x?", "/x", True),
        ("/x?a=?", "/x?a=%3F", True),
        ("/x?a=%FF", "/x?a=%FE", False),
        ("/x?A=1", "/x?a=1", False),
        ("/x?alt=sse", "/x?alt=json", False),
        ("/x?pageToken=1", "/x?pageToken=2", False),
    ],
)
def test_paths_and_queries_count_as_what_they_decode_to(left: str, right: str, equal: bool) -> None:
    assert (key(target=left) == key(target=right)) is equal


queries = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=6)


@given(queries, st.randoms(use_true_random=False))
def test_the_order_of_a_querys_names_does_not_count(
    pairs: list[tuple[str, str]], chance: random.Random
) -> None:
    assume(all(c < "\ud800" or c > "\udfff" for pair in pairs for text in pair for c in text))
    by_name = {name: [pair for pair in pairs if pair[0] == name] for name, _ in pairs}
    shuffled = [
        pair for name in chance.sample(sorted(by_name), len(by_name)) for pair in by_name[name]
    ]

    assert key(target=f"/x?{urlencode(pairs)}") == key(
        target=f"/x?{urlencode(shuffled, quote_via=quote)}"
    )


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_two_path_segments_are_equal_only_where_their_bytes_are(left: bytes, right: bytes) -> None:
    keys = [key(target=f"/{quote(each, safe='')}") for each in (left, right)]

    assert (keys[0] == keys[1]) is (left == right)


@pytest.mark.parametrize("other", [{"method": "PUT"}, {"method": "post"}, {"route": "azure"}])
def test_method_and_route_count(other: dict[str, str]) -> None:
    assert key(b"{}") != key(b"{}", **other)  # type: ignore[arg-type]


def test_headers_do_not_count() -> None:
    sent: Headers = (
        (b"authorization", b"Bearer x"),
        (b"user-agent", b"one"),
        (b"accept", b"text/event-stream"),
        (b"x-stainless-retry-count", b"1"),
    )

    assert key(b"{}", JSON + sent) == key(b"{}", JSON)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/x?key=REDACTED.key.0a1b2c3d&alt=sse",
        "/v1/x?alt=sse&key=REDACTED.key.ffffffff",
        "/v1/x?alt=sse&%6Bey=REDACTED.x-goog-api-key.ffffffff",
        "/v1/x?alt=sse&key=one-that-another-tool-has-kept",
        "/v1/x?alt=sse&sig=%FFsomething-that-is-no-text",
    ],
)
def test_a_credential_in_the_query_does_not_count(target: str) -> None:
    assert key(target=target) == key(target="/v1/x?alt=sse")


def test_a_credential_that_is_the_whole_query_does_not_count() -> None:
    assert key(target="/v1/x?key=REDACTED.key.0a1b2c3d") == key(target="/v1/x")


def test_a_short_value_under_a_credentials_name_counts() -> None:
    one = "/x?token=REDACTED.short-token.0a1b2c3d"

    assert key(target=one) != key(target="/x?token=REDACTED.short-token.0a1b2c3e")
    assert key(target=one) != key(target="/x")


@pytest.mark.parametrize("where", ["path", "query", "body"])
def test_requests_with_different_credentials_are_equal_wherever_they_stand(where: str) -> None:
    def with_placeholder(placeholder: str) -> bytes:
        match where:
            case "path":
                return key(target=f"/bot{placeholder}/send")
            case "query":
                return key(target=f"/x?via={placeholder}")
            case _:
                return key(dump({"mcp": f"Bearer {placeholder}", "t": 1.0}))

    assert with_placeholder("REDACTED.authorization.0a1b2c3d") == with_placeholder(
        "REDACTED.OPENAI_API_KEY.99999999"
    )


def test_a_key_names_its_route_and_can_be_moved_to_another() -> None:
    assert key(b"{}").startswith(b"openai\0")
    assert key_on_route(key(b"{}"), "default") == key(b"{}", route="default")


def test_a_key_is_shown_without_its_route() -> None:
    assert key_text(key(b"{}")) == key_text(key(b"{}", route="other"))
    assert key_text(key(b"{}")).startswith("v1:")
    assert len(key_text(key(b"{}"))) == 3 + 64


def test_the_same_bytes_divided_in_another_way_are_not_equal() -> None:
    assert key(b"b", TEXT, target="/a") != key(b"", TEXT, target="/ab")
    assert key(target="/a?b") != key(target="/a%3Fb")


def asked(body: bytes = b"{}", key: str = KEY) -> Request:
    return make_request((*JSON, (b"x-api-key", key.encode())), body=body)


@pytest.mark.parametrize("size", [0, 10, CACHED_BODY - 2, CACHED_BODY, 3 * CACHED_BODY])
def test_a_cached_result_is_what_would_be_computed_again(size: int) -> None:
    redaction = RequestRedaction()
    body = b'"' + b"x" * size + KEY.encode() + b'"'
    first, again = (redaction.redact("run", asked(body)) for _ in range(2))

    assert first == again == RequestRedaction().redact("run", asked(body))
    assert request_key(first.request) == first.key
    assert KEY.encode() not in first.request.body


@pytest.mark.parametrize(
    "other",
    [
        asked(b"[]"),
        Request("azure", "POST", "/v1/x", asked().headers, b"{}"),
        Request("openai", "PUT", "/v1/x", asked().headers, b"{}"),
        Request("openai", "POST", "/v1/y", asked().headers, b"{}"),
        Request("openai", "POST", "/v1/x", ((b"content-type", b"text/plain"),), b"{}"),
    ],
)
def test_another_request_does_not_get_a_cached_result(other: Request) -> None:
    redaction = RequestRedaction()

    assert redaction.redact("run", asked()).key != redaction.redact("run", other).key


def test_a_cassettes_salt_counts() -> None:
    redaction = RequestRedaction()
    one, two = (redaction.redact(salt, asked(KEY.encode())) for salt in ("run-1", "run-2"))

    assert one.request.body != two.request.body
    assert one.key == two.key


def test_rules_count() -> None:
    redaction = RequestRedaction()
    rules = Rules(ignore=("body",))

    keys = [
        redaction.redact("run", asked(body), each).key
        for each in (NO_RULES, rules)
        for body in (b"{}", b"[]")
    ]

    assert keys[2] == keys[3]
    assert len(set(keys)) == 3


def test_the_processs_own_secrets_are_redacted_in_every_request() -> None:
    redaction = RequestRedaction([Secret("env", OTHER.encode())])

    for _ in range(2):
        seen = redaction.redact("run", asked(b"%b %b" % (OTHER.encode(), KEY.encode())))
        assert seen.request.body.count(b"REDACTED.") == 2


def test_a_secret_that_an_answer_issued_is_redacted_there_and_nowhere_else() -> None:
    redaction = RequestRedaction()
    issued = [Secret("sid", b"0123456789abcdef")]

    assert b"REDACTED" in redaction.redactor("run", asked(), issued).value(issued[0].value)
    assert b"REDACTED" not in redaction.redactor("run", asked()).value(issued[0].value)
