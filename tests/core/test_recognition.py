"""What a request is to a cassette, remembered for those who ask the same again."""

import pytest

from tapeway.core.matching.key import REMEMBERED_BODY, Recogniser, request_key
from tapeway.core.matching.rules import NONE, Rules
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import Secret
from tests.core.keys import JSON
from tests.core.redacting import KEY, OTHER, make_request


def asked(body: bytes = b"{}", key: str = KEY) -> Request:
    return make_request((*JSON, (b"x-api-key", key.encode())), body=body)


@pytest.mark.parametrize("size", [0, 10, REMEMBERED_BODY - 2, REMEMBERED_BODY, 3 * REMEMBERED_BODY])
def test_what_is_remembered_is_what_would_be_seen_anew(size: int) -> None:
    recogniser = Recogniser()
    body = b'"' + b"x" * size + KEY.encode() + b'"'
    first, again = (recogniser.recognise("run", asked(body)) for _ in range(2))

    assert first == again == Recogniser().recognise("run", asked(body))
    assert request_key(first.redacted) == first.key
    assert KEY.encode() not in first.redacted.body


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
def test_another_request_is_not_taken_for_one_that_is_remembered(other: Request) -> None:
    recogniser = Recogniser()

    assert recogniser.recognise("run", asked()).key != recogniser.recognise("run", other).key


def test_a_cassettes_salt_counts() -> None:
    recogniser = Recogniser()
    one, two = (recogniser.recognise(salt, asked(KEY.encode())) for salt in ("run-1", "run-2"))

    assert one.redacted.body != two.redacted.body
    assert one.key == two.key


def test_rules_count() -> None:
    recogniser = Recogniser()
    rules = Rules(ignore=("body",))

    keys = [
        recogniser.recognise("run", asked(body), each).key
        for each in (NONE, rules)
        for body in (b"{}", b"[]")
    ]

    assert keys[2] == keys[3]
    assert len(set(keys)) == 3


def test_the_processs_own_secrets_are_taken_out_of_every_request() -> None:
    recogniser = Recogniser([Secret("env", OTHER.encode())])

    for _ in range(2):
        seen = recogniser.recognise("run", asked(b"%b %b" % (OTHER.encode(), KEY.encode())))
        assert seen.redacted.body.count(b"REDACTED.") == 2


def test_what_an_answer_issued_is_taken_out_of_it_and_of_no_other() -> None:
    recogniser = Recogniser()
    issued = [Secret("sid", b"0123456789abcdef")]

    assert b"REDACTED" in recogniser.redactor("run", asked(), issued).value(issued[0].value)
    assert b"REDACTED" not in recogniser.redactor("run", asked()).value(issued[0].value)
