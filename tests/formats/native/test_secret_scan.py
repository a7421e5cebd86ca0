"""Secrets in interactions and large bodies are found, and redacted without other changes."""

import base64
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.formats.errors import pointer_text
from tapeway.formats.native.document import decode, encode
from tapeway.formats.native.secret_scan import ScanResult, SecretScanner, patched
from tests.core.redaction.carriers import GIVEN
from tests.support.canary import sightings
from tests.support.coded_bodies import flushed, pack
from tests.support.exchanges import interaction

ENV = "environment/secret+value-01"
KEY = "sk-proj-abcdefghij0123456789ABCDEFGHIJ"
KNOWN = KnownValues([Secret("my-key", ENV.encode())])
BY_HAND: dict[str, Json] = {
    "kind": "http",
    "request": {"url": "https://h/x", "method": "GET", "headers": {"a": "1"}},
    "response": {"status_code": 200, "text": "old", "headers": {"b": "2"}},
    "tags": ["mine"],
}


def inspect(document: dict[str, Json]) -> ScanResult:
    return SecretScanner("run-1", KNOWN).interaction(decode(document, 0), document)


def places(findings: tuple[Finding, ...]) -> dict[str, str]:
    return {pointer_text(finding.place): finding.kind for finding in findings}


def exchange(request: dict[str, Json], response: dict[str, Json]) -> dict[str, Json]:
    return {
        "kind": "http",
        "request": {"method": "POST", "url": "https://h/x", **request},
        "response": {"status_code": 200, **response},
    }


def coded(coding: str, body: bytes) -> dict[str, Json]:
    packed = pack(coding.encode(), body)
    return {
        "headers": {"content-type": "application/json", "content-encoding": coding},
        "body_b64": base64.b64encode(packed).decode(),
    }


def split_over_events(secret: str) -> str:
    pieces = [secret[:9], secret[9:20], secret[20:]]
    return "".join([f"data: {json.dumps({'delta': {'content': piece}})}\n\n" for piece in pieces])


def tool_calls_in_turns(secret: str) -> str:
    events = [
        {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        for pair in zip(secret, "0123456789" * len(secret), strict=False)
        for index, text in enumerate(pair)
    ]
    return "".join([f"data: {json.dumps({'choices': [{'delta': event}]})}\n\n" for event in events])


JSON_TYPE: dict[str, Json] = {"headers": {"content-type": "application/json"}}
TOKEN = json.dumps({"access_token": "issued-4f6b2c9d8e1a"}).encode()
CASES: dict[str, tuple[dict[str, Json], str, str]] = {
    "a header": (
        exchange({"headers": {"Authorization": f"Bearer {KEY}"}}, {}),
        "request.headers.Authorization",
        "authorization",
    ),
    "a cookie": (
        exchange({"headers": {"cookie": "a=b; sid=0123456789abcdef01"}}, {}),
        "request.headers.cookie",
        "sid",
    ),
    "a cookie that is set": (
        exchange({}, {"headers": {"Set-Cookie": "sid=0123456789abcdef01; Path=/"}}),
        "response.headers.Set-Cookie",
        "sid",
    ),
    "a URL": (
        exchange({"url": "https://h/x?api_key=0123456789abcdef"}, {}),
        "request.url",
        "api_key",
    ),
    "a field of JSON": (
        exchange(JSON_TYPE | {"json": {"a": [{"password": "correct-horse"}]}}, {}),
        "request.json.a[0].password",
        "password",
    ),
    "a key beside its kind": (
        exchange(
            JSON_TYPE
            | {"json": {"authentication": {"type": "api_key", "key": "4f6b2c9d8e1a7350Xq7Z"}}},
            {},
        ),
        "request.json.authentication.key",
        "key",
    ),
    "an application's id": (
        exchange({"url": "https://h/x?appid=4f6b2c9d8e1a73504f6b2c9d"}, {}),
        "request.url",
        "appid",
    ),
    "a bot's token in a path": (
        exchange({"url": "https://h/bot123456789:AAbCdEfGhIjKlMnOpQrStUvWxYz0123456/getMe"}, {}),
        "request.url",
        "telegram-token",
    ),
    "letters only": (
        exchange({}, {"text": "it is 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."}),
        "response.text",
        "provider-key",
    ),
    "an assignment in code": (
        exchange({}, {"text": 'api_key = "4f6b2c9d8e1a7350Xq7Z"'}),
        "response.text",
        "api_key",
    ),
    "a text in UTF-16": (
        exchange({}, {"body_b64": base64.b64encode(f"it is {KEY}.".encode("utf-16")).decode()}),
        "response.body_b64",
        "openai-key",
    ),
    "a form": (
        exchange(
            {
                "headers": {"content-type": "application/x-www-form-urlencoded"},
                "form": {"client_secret": "0123456789abcdef"},
            },
            {},
        ),
        "request.form.client_secret",
        "client_secret",
    ),
    "a shape in text": (exchange({}, {"text": f"it is {KEY}."}), "response.text", "openai-key"),
    "a value of the environment": (exchange({}, {"text": f"<{ENV}>"}), "response.text", "my-key"),
    "that in base64": (
        exchange({}, {"text": base64.b64encode(f"user:{ENV}".encode()).decode()}),
        "response.text",
        "my-key",
    ),
    "a body that is no text": (
        exchange({}, {"body_b64": base64.b64encode(b"\xff" + KEY.encode()).decode()}),
        "response.body_b64",
        "openai-key",
    ),
    "JSON inside text": (
        exchange({}, {"text": json.dumps(json.dumps({"access_token": "issued-4f6b2c9d8e1a"}))}),
        "response.text",
        "access_token",
    ),
    "events that tell it bit by bit": (
        exchange(
            {},
            {"headers": {"content-type": "text/event-stream"}, "text": split_over_events(KEY)},
        ),
        "response.text",
        "openai-key",
    ),
    "tool calls that take turns": (
        exchange(
            {},
            {"headers": {"content-type": "text/event-stream"}, "text": tool_calls_in_turns(KEY)},
        ),
        "response.text",
        "openai-key",
    ),
    "gzip": (exchange({}, coded("gzip", TOKEN)), "response.json.access_token", "access_token"),
    "brotli in a request": (
        exchange(coded("br", b'{"password": "correct-horse"}'), {}),
        "request.json.password",
        "password",
    ),
    "another kind of call": (
        {"kind": "llm", "request": {"headers": {"x-api-key": "0123456789abcdef"}}, "response": 1},
        "request.headers.x-api-key",
        "x-api-key",
    ),
    "what is known of it": (
        exchange({}, {}) | {"metadata": {"note": ENV}},
        "metadata.note",
        "my-key",
    ),
    "a tag": (exchange({}, {}) | {"tags": ["ok", KEY]}, "tags[1]", "openai-key"),
}


@pytest.mark.parametrize(("document", "place", "kind"), CASES.values(), ids=CASES)
def test_a_secret_is_found_anywhere_and_redacted(
    document: dict[str, Json], place: str, kind: str
) -> None:
    found = inspect(document)

    assert places(found.findings) == {place: kind}
    assert found.left == ()
    secrets = {"key": KEY, "environment": ENV, "token": "issued-4f6b2c9d8e1a"}
    assert sightings(secrets, {"document": dump(found.document)}) == []
    again = inspect(found.document)
    assert (again.document, again.findings) == (found.document, ())


@pytest.mark.parametrize("text", GIVEN)
def test_what_a_text_gives_to_a_name_is_found_there_and_in_later_interactions(text: str) -> None:
    value = "Zq7TnV4mXc9LpR2sWk8HdY3b"
    scanner = SecretScanner("run-1", KNOWN)
    for said, place in (
        (text.replace("VALUE", value), "request.json.text"),
        (f"so {value}.", "request.json.text"),
    ):
        document = exchange(JSON_TYPE | {"json": {"text": said}}, {"text": "ok"})
        found = scanner.interaction(decode(document, 0), document)
        assert set(places(found.findings)) == {place}
        assert value not in str(found.document)


@pytest.mark.parametrize(("document", "place", "kind"), CASES.values(), ids=CASES)
def test_a_finding_shows_no_more_than_the_beginning(
    document: dict[str, Json], place: str, kind: str
) -> None:
    for finding in inspect(document).findings:
        assert len(finding.prefix) <= 4


@pytest.mark.parametrize(
    "document",
    [
        encode(interaction()),
        exchange({}, coded("gzip", b'{"n": 1}')),
        exchange({}, {"json": {"usage": {"total_tokens": 3}, "token": "a"}}),
        exchange(JSON_TYPE | {"json": {"properties": {"password": {"type": "string"}}}}, {}),
        exchange({"headers": {"x-api-key": "REDACTED.x-api-key.0123abcd"}}, {}),
        exchange({}, {"json": {"n": -123456789012}}),
    ],
)
def test_a_document_without_secrets_is_left_unchanged(document: dict[str, Json]) -> None:
    found = inspect(document)

    assert found == ScanResult(document)
    assert found.document is document


def test_a_secret_in_a_raw_copy_of_an_edited_body_is_found_and_removed() -> None:
    stale = base64.b64encode(json.dumps({"note": KEY}).encode()).decode()
    document = exchange({}, {**JSON_TYPE, "json": {"note": "mine"}, "raw_b64": stale})

    found = inspect(document)

    assert places(found.findings) == {"response.raw_b64": "openai-key"}
    assert found.left == ()
    assert "raw_b64" not in json.dumps(found.document)
    assert inspect(found.document).findings == ()


def broken(text: str) -> dict[str, Json]:
    packed = b"".join(flushed(b"gzip", [b"text ", text.encode(), b" text"]))[:-8]
    return {
        "headers": {"content-encoding": "gzip"},
        "body_b64": base64.b64encode(packed).decode(),
    }


def test_a_broken_response_body_with_a_secret_is_replaced_by_what_it_says() -> None:
    found = inspect(exchange({}, broken(KEY)))

    assert places(found.replaced) == {"response.text": "openai-key"}
    assert found.left == ()
    assert "text REDACTED.openai-key." in json.dumps(found.document)
    assert inspect(found.document).findings == ()


def test_a_broken_request_body_with_a_secret_is_reported_as_left() -> None:
    found = inspect(exchange(broken(KEY), {}))

    assert places(found.left) == {"request.body": "openai-key"}
    assert found.replaced == ()


def test_a_name_that_is_a_secret_is_not_repeated() -> None:
    found = inspect(exchange(JSON_TYPE | {"json": {"a": {KEY: {"b": KEY}}}}, {}))

    assert set(places(found.findings)) == {"request.json.a.…", "request.json.a.….b"}
    assert KEY not in json.dumps(found.document)


@given(
    secret=st.sampled_from([KEY, ENV]),
    before=st.binary(max_size=200),
    after=st.binary(max_size=200),
    coding=st.sampled_from([b"", b"gzip", b"br"]),
    data=st.data(),
)
def test_no_chunking_and_no_coding_hides_a_secret_in_a_large_body(
    secret: str, before: bytes, after: bytes, coding: bytes, data: st.DataObject
) -> None:
    body = pack(coding, before + b" " + secret.encode() + b" " + after)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=6).map(sorted))
    pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
    headers = ((b"content-encoding", coding),)

    found = list(SecretScanner("", KNOWN).body(("x",), headers, pieces))

    assert {finding.kind for finding in found} == {"my-key" if secret == ENV else "openai-key"}
    assert {recording.place for recording in found} == {("x",)}


def test_a_secret_in_a_large_body_is_reported_once() -> None:
    key = KEY.encode()
    pieces = [b"a " * 50_000, key[:10], key[10:30], key[30:], b" and " * 100_000, b"or " * 9, b"x"]

    assert len(list(SecretScanner("", KNOWN).body((), (), pieces))) == 1


@pytest.mark.parametrize("login", ["me:pw", "me:a-long-passw0rd"])
def test_userinfo_in_a_url_is_found_and_removed_however_short_it_is(login: str) -> None:
    seen = inspect(exchange({"url": f"https://{login}@h/x?sig=0123456789abcdef"}, {}))

    assert [(finding.kind, finding.prefix) for finding in seen.findings] == [
        ("userinfo", ""),
        ("sig", "0123"),
    ]
    assert login not in str(seen.document)
    assert inspect(seen.document).findings == ()


def test_a_short_password_in_a_tool_s_request_is_found_and_redacted() -> None:
    document: dict[str, Json] = {
        "kind": "tool",
        "request": {"args": {"password": "hunter2"}},
        "response": {"password": "is short"},
    }
    before = json.dumps(document)
    seen = inspect(document)

    assert places(seen.findings) == {"request.args.password": "password"}
    assert "hunter2" not in json.dumps(seen.document)
    assert json.dumps(document) == before


def test_bytes_written_by_agenttape_are_redacted_as_bytes() -> None:
    def octets(text: bytes) -> dict[str, Json]:
        return {"__agenttape_bytes__": base64.b64encode(text).decode()}

    asked: Json = {"name": "f", "args": {"a": octets(b'{"password": "correct-horse"}')}}
    document: dict[str, Json] = {
        "kind": "tool",
        "request": asked,
        "response": [octets(b"\xff" + ENV.encode()), octets(b"\xff\x00"), "AP8="],
    }

    found = inspect(document)

    assert places(found.replaced) == {
        "request.args.a.__agenttape_bytes__": "password",
        "response[0].__agenttape_bytes__": "my-key",
    }
    assert not found.left
    text = dump(found.document)
    octets_left = [base64.b64decode(word) for word in re.findall(rb'bytes__": ?"([^"]*)"', text)]
    assert [each[:3] for each in octets_left] == [b'{"p', b"\xffRE", b"\xff\x00"]
    assert not sightings({"env": ENV, "password": "correct-horse"}, {"document": text})
    assert inspect(found.document).findings == ()


def changed(document: dict[str, Json], change: dict[str, object]) -> dict[str, Json]:
    item = decode(document, 0)
    assert isinstance(item, Interaction)
    response = replace(item.response, **change)  # type: ignore[arg-type]
    return patched(document, encode(item), encode(replace(item, response=response)))


def test_fields_that_did_not_change_stay_as_written() -> None:
    result = changed(BY_HAND, {"body": b"new"})

    assert result == BY_HAND | {
        "response": {"status_code": 200, "text": "new", "headers": {"b": "2"}}
    }
    assert list(result) == list(BY_HAND)


def test_a_body_that_takes_another_form_takes_the_old_one_s_place() -> None:
    result = changed(BY_HAND, {"body": b"\xff"})

    assert result["response"] == {"status_code": 200, "body_b64": "/w==", "headers": {"b": "2"}}


def test_nothing_changes_where_nothing_differs() -> None:
    assert changed(BY_HAND, {}) == BY_HAND


@given(
    old=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3),
    new=st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3),
)
def test_a_patched_document_says_what_was_changed(old: list[bytes], new: list[bytes]) -> None:
    def recorded(pieces: list[bytes]) -> Interaction:
        chunks = tuple([(piece, float(at)) for at, piece in enumerate(pieces)])
        return interaction(chunks=chunks, framing="chunked")

    before, after = encode(recorded(old)), encode(recorded(new))

    assert decode(patched(before, before, after), 0) == recorded(new)
