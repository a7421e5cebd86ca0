"""A received request, and what was computed of it before."""

from tapeway.core.matching.asked import AskedRequest
from tapeway.core.matching.key import key_and_body
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Request

REQUEST = Request("", "POST", "/", ((b"content-type", b"application/json"),), b'{"a": 1}')
KEYED = b"key", key_and_body(REQUEST)[1]


def test_a_key_that_is_known_is_not_made_again() -> None:
    asked = AskedRequest(REQUEST, NO_RULES, SecretDigests("run-1"), KEYED)

    assert (asked.key, asked.read) == KEYED
    assert AskedRequest(REQUEST, Rules(), SecretDigests("run-1"), KEYED).key == b"key"


def test_a_key_that_was_made_without_rules_is_not_taken_where_there_are_some() -> None:
    rules = Rules(ignore=("body.a",))

    asked = AskedRequest(REQUEST, rules, SecretDigests("run-1"), KEYED)

    assert asked.key == key_and_body(REQUEST, rules)[0]
    assert asked.read is None
