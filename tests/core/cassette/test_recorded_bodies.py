"""A body with the bytes of a recorded one has its match key, whatever the rules are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.agenttape.key import ORDERED_KEY
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recorded_bodies import RecordedBodies, selecting_head
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.matching.key import key_digest, request_key
from tapeway.core.matching.rules import NO_RULES, Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tests.core.keys import FORM, JSON, TEXT

RULES = [
    NO_RULES,
    Rules(ignore=("body.a",)),
    Rules(normalise=("uuid",), rewrite=(("/v1", "/v2"),)),
]
RANGE: Headers = (*JSON, (b"Range", b"bytes=0-9"))
BODIES = [b'{"a":1.0,"b":[1e400]}', b'{"b": 1, "a": 2}', b'{"a":1,"a":2}', b"{", b"a=1", b"", b"{}"]
REQUESTS = st.builds(
    Request,
    st.sampled_from(["openai", "r"]),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["/v1/x", "/v1/x?a=1&b=2", "/v1/x?b=2&a=1", "/caf%C3%A9"]),
    st.sampled_from([JSON, FORM, TEXT, RANGE, ((b"content-type", b"application/x+json"),)]),
    st.sampled_from(BODIES),
)


def cassette(requests: list[Request], rules: Rules = NO_RULES) -> CassetteIndex:
    answer = Response(ResponseHead(200))
    made = tuple(Interaction(at, request, answer) for at, request in enumerate(requests))
    meta = meta_with_rules({}, rules) if rules else {}
    head = CassetteHead("2026-01-01T00:00:00+00:00", "run", meta=meta)
    return CassetteIndex("c", StoredCassette(head, made), take=1)


@given(st.lists(REQUESTS, max_size=6), st.lists(REQUESTS, max_size=6), st.sampled_from(RULES))
def test_what_is_known_of_a_body_is_the_match_key_that_it_has(
    recorded: list[Request], asked: list[Request], rules: Rules
) -> None:
    bodies = cassette(recorded, rules).bodies

    for request in [*asked, *recorded]:
        if (head := selecting_head(request)) is not None:
            known = bodies.key_of(head, request.body)
            assert known is None or key_digest(known) == key_digest(request_key(request, rules))


def test_a_recorded_json_body_is_known_on_every_route() -> None:
    request = Request("default", "POST", "/v1/x", JSON, b'{"b": 1}')
    head = selecting_head(Request("openai", "POST", "/v1/x", JSON))
    assert head is not None

    assert cassette([request]).bodies.key_of(head, request.body) == request_key(request)
    assert cassette([request]).bodies.key_of(head, b'{"b":1}') is None


@pytest.mark.parametrize(
    "other",
    [
        Request("r", "PUT", "/v1/x", JSON),
        Request("r", "POST", "/v1/y", JSON),
        Request("r", "POST", "/v1/x?a=1", JSON),
        Request("r", "POST", "/v1/x", RANGE),
    ],
)
def test_a_body_sent_with_another_head_is_not_known(other: Request) -> None:
    bodies = cassette([Request("r", "POST", "/v1/x", JSON, b"{}")]).bodies
    head = selecting_head(other)
    assert head is not None

    assert bodies.key_of(head, b"{}") is None


def test_nothing_is_known_where_a_rule_has_other_headers_count() -> None:
    request = Request("r", "POST", "/v1/x", JSON, b"{}")
    head = selecting_head(request)
    assert head is not None

    assert cassette([request], Rules(match=("x-tenant",))).bodies.key_of(head, b"{}") is None


def test_a_body_that_is_not_said_to_be_plain_json_has_no_selecting_head() -> None:
    coded = (*JSON, (b"content-encoding", b"gzip"))
    assert selecting_head(Request("r", "POST", "/", FORM, b"{}")) is None
    assert selecting_head(Request("r", "POST", "/", coded, b"{}")) is None


def test_a_rule_that_is_added_gives_recorded_bodies_their_new_keys() -> None:
    request = Request("r", "POST", "/v1/x", JSON, b'{"a": 1, "b": 2}')
    rules = Rules(ignore=("body.a",))
    index = cassette([request])
    index.apply_rules(rules)
    head = selecting_head(request)
    assert head is not None

    assert index.bodies.key_of(head, request.body) == request_key(request, rules)


def made_of(request: Request, *stored_keys: str) -> Interaction:
    return Interaction(0, request, Response(ResponseHead(200)), stored_keys=stored_keys)


def test_a_removed_recording_is_forgotten() -> None:
    known, request = RecordedBodies(), Request("r", "POST", "/v1/x", JSON, b"{}")
    head = selecting_head(request)
    assert head is not None
    known.add(made_of(request), request_key(request))
    known.discard(made_of(Request("r", "POST", "/v1/x", TEXT, b"{}")))
    known.discard(made_of(Request("r", "POST", "/v1/other", JSON, b"{}")))
    assert known.key_of(head, b"{}") == request_key(request)

    known.discard(made_of(request))

    assert known.key_of(head, b"{}") is None


def test_a_body_is_forgotten_with_the_recording_that_is_replaced() -> None:
    request = Request("r", "POST", "/v1/x", JSON, b"{}")
    head = selecting_head(request)
    assert head is not None
    index = cassette([request])
    assert index.bodies.key_of(head, b"{}")

    new = replace(made_of(replace(request, body=b"[]")), index=1)
    index.add(Recording(new, (0,)), request_key(new.request), index.take)

    assert index.bodies.key_of(head, b"{}") is None


def test_a_recording_that_answers_in_order_is_not_known_by_its_body() -> None:
    known, request = RecordedBodies(), Request("r", "POST", "/v1/x", JSON, b"{}")
    ordered = made_of(request, ORDERED_KEY)
    head = selecting_head(request)
    assert head is not None
    assert recording_key(ordered, NO_RULES) != request_key(request)

    known.add(ordered, recording_key(ordered, NO_RULES))

    assert known.key_of(head, b"{}") is None
