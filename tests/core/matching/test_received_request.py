"""A received request, and what was computed of it before."""

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.key import KeyAndBody, key_and_body
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.rules import NO_RULES, Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import Request

REQUEST = Request("", "POST", "/", ((b"content-type", b"application/json"),), b'{"a": 1}')
KEYED = KeyAndBody(b"key", key_and_body(REQUEST, NO_RULES).read)


def test_a_key_that_is_known_is_not_made_again() -> None:
    asked = ReceivedRequest(REQUEST, NO_RULES, SecretDigests("run-1"), KEYED)

    assert (asked.key, asked.read) == (KEYED.key, KEYED.read)


def test_a_key_that_was_made_without_rules_is_not_taken_where_there_are_some() -> None:
    rules = Rules(ignore=("body.a",))
    head = CassetteHead("2026-01-01T00:00:00+00:00", "run-1", meta=meta_with_rules({}, rules))
    cassette = CassetteIndex("c", StoredCassette(head, ()), take=1)

    asked = cassette.asked(REQUEST, KEYED)

    assert asked.key == key_and_body(REQUEST, rules).key
    assert asked.read is None
