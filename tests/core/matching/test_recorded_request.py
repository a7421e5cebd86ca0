"""The keys of a recorded request share one parse, and are what each would be alone."""

from itertools import product

import pytest

from tapeway.core.json_text import ReadJson
from tapeway.core.matching import document
from tapeway.core.matching.credential_fields import compared_document, open_request
from tapeway.core.matching.key import request_key
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Request

JSON = ((b"content-type", b"application/json"),)
FORM = ((b"content-type", b"application/x-www-form-urlencoded"),)
SENT = {
    "no body": Request("r", "GET", "/a%2Fb?api_key=<REDACTED:0123456789abcdef>&x=1"),
    "JSON": Request("r", "POST", "/a", JSON, b'{"b": 1.0, "a": "text", "api_key": "REDACTED"}'),
    "JSON with a name twice": Request("r", "POST", "/a", JSON, b'{"a": 1, "a": 2}'),
    "no JSON": Request("r", "POST", "/a", JSON, b'{"a": '),
    "a form": Request("r", "POST", "/a", FORM, b"client_secret=REDACTED&a=text"),
    "an unknown coding": Request("r", "POST", "/a", (*JSON, (b"content-encoding", b"x")), b"{}"),
}
RULES = {
    "no rules": NO_RULES,
    "rules": Rules(ignore=("body.b",), normalise=("uuid",), rewrite=(("/a", "/c"),)),
}


@pytest.mark.parametrize(("sent", "rules"), [*product(SENT, RULES)])
def test_each_value_is_the_same_whether_the_key_was_asked_for_first(sent: str, rules: str) -> None:
    request, under = SENT[sent], RULES[rules]
    alone, after_key = RecordedRequest(request, under), RecordedRequest(request, under)

    assert after_key.key() == request_key(request, under)
    for recorded in (alone, after_key):
        assert recorded.opened == open_request(request, under, recorded=True)
        assert recorded.compared == compared_document(request, under, recorded=True)


@pytest.mark.parametrize("rules", RULES)
def test_a_json_body_is_read_once_for_all_values(
    rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[bytes] = []
    read_json = document.read_json

    def counted(octets: bytes) -> ReadJson | None:
        texts.append(octets)
        return read_json(octets)

    monkeypatch.setattr(document, "read_json", counted)
    recorded = RecordedRequest(SENT["JSON"], RULES[rules])

    recorded.key()

    assert recorded.opened.fields
    assert recorded.compared
    assert texts == [SENT["JSON"].body]
