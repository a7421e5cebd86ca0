"""Which requests are equal to a cassette, their bodies apart."""

import random
from urllib.parse import quote, urlencode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tapeway.core.matching.document import parsed_request
from tapeway.core.matching.key import (
    document_key,
    head_key,
    key_digest,
    key_on_route,
    key_text,
    request_key,
)
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Headers, Request
from tests.core.keys import FORM, JSON, TEXT, key

ANY_REQUEST = st.builds(
    Request,
    st.sampled_from(["openai", "r"]),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["/v1/x", "/caf%C3%A9?z=1&a=%FF", "/a?a=1&a=2&b"]),
    st.sampled_from([JSON, FORM, TEXT, (*JSON, (b"range", b"bytes=0-9"))]),
    st.sampled_from(
        [
            b"",
            b'{"b":1.0,"a":[1e400,"\\u00e9"]}',
            b'{"b":12345678901234567890,"a":1e16}',
            b"a=1&b=2",
        ]
    ),
)


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
    keys = [key(target=f"/{quote(path, safe='')}") for path in (left, right)]

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
    "name", [b"Range", b"X-Amz-Target", b"SOAPAction", b"X-HTTP-Method-Override"]
)
def test_headers_that_say_what_is_asked_for_count(name: bytes) -> None:
    one, other = ((name, b"bytes=0-9"),), ((name.lower(), b"bytes=10-19"),)

    assert len({key(b"{}", (*JSON, *headers)) for headers in ((), one, other)}) == 3
    assert key(b"{}", (*JSON, *one)) == key(b"{}", (*JSON, (name.upper(), b"bytes=0-9")))
    ignoring = Rules(ignore=(f"headers.{name.decode().lower()}",))
    requests = [Request("r", "POST", "/x", (*JSON, *headers), b"{}") for headers in (one, other)]
    assert request_key(requests[0], ignoring) == request_key(requests[1], ignoring)


@pytest.mark.parametrize("where", ["/x?key={}", "/bot{}/send", "/x?via={}"])
def test_everything_in_a_target_counts(where: str) -> None:
    assert key(target=where.format("one")) != key(target=where.format("two"))


@given(ANY_REQUEST)
def test_the_key_of_a_parsed_request_is_that_of_the_request(request: Request) -> None:
    for rules in (NO_RULES, Rules(ignore=("query.z",))):
        assert document_key(request.route, parsed_request(request, rules), rules) == request_key(
            request, rules
        )


@given(ANY_REQUEST, st.lists(st.binary(max_size=200), max_size=4))
def test_a_head_that_is_hashed_once_gives_every_body_the_same_key(
    request: Request, bodies: list[bytes]
) -> None:
    head = head_key(request)
    begun = head.begun(b"json")

    for body in bodies:
        digest = begun.copy()
        digest.update(body)
        assert digest.digest() == key_digest(head.with_body(b"json", body))


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
