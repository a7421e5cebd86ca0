"""The document of a request: everything that counts stands in it once, in a form rules can reach."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, same_json
from tapeway.core.matching.document import request_document
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import BodyFile, Headers, Request
from tests.core.keys import FORM, JSON, TEXT, key

MULTIPART: Headers = ((b"Content-Type", b"multipart/form-data; boundary=b"),)


def asked(
    body: bytes = b"", headers: Headers = JSON, target: str = "/v1/x", method: str = "POST"
) -> Request:
    return Request("openai", method, target, headers, body)


def hashed(data: bytes) -> Json:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def test_a_document_holds_all_of_a_request_but_its_headers() -> None:
    request = asked(b'{"b": 1.0, "a": ["x"]}', target="/v1/m%3A1/x?b=2&a=1&b=%33&c")

    assert request_document(request, NO_RULES) == {
        "method": "POST",
        "path": "/v1/m:1/x",
        "query": {"a": "1", "b": ["2", "3"], "c": ""},
        "headers": {},
        "content": "json",
        "body": {"a": ["x"], "b": 1},
    }


@pytest.mark.parametrize(
    ("body", "headers", "content", "value"),
    [
        (b"", JSON, "empty", None),
        (b"null", JSON, "json", None),
        (b'{"big":18446744073709551617}', JSON, "json", {"big": 18446744073709551617}),
        (b'{"a":1,"a":2}', JSON, "text", '{"a":1,"a":2}'),
        (b"\xff{}", JSON, "bytes", hashed(b"\xff{}")),
        ("a=é&b=1".encode(), FORM, "text", "a=é&b=1"),
        (b"a=1&b=%C3%A9+x&a=%ff", FORM, "form", {"a": ["1", {"hex": "ff"}], "b": "é x"}),
        ("words é".encode(), TEXT, "text", "words é"),
        (b"\x89PNG", TEXT, "bytes", hashed(b"\x89PNG")),
        (b"\x01", (*JSON, (b"content-encoding", b"gzip")), "coded", hashed(b"\x01")),
    ],
)
def test_a_body_is_read_by_its_content_type(
    body: bytes, headers: Headers, content: str, value: Json
) -> None:
    found = request_document(asked(body, headers), NO_RULES)

    assert (found["content"], found["body"]) == (content, value)


def part(head: bytes, content: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data" + head + b"\r\n\r\n" + content + b"\r\n"


def test_fields_of_a_form_are_text_and_its_files_are_hashes() -> None:
    sent = (
        part(b'; name="model"', b"whisper-1")
        + part(b'; name="file"; filename="a.wav"\r\nContent-Type: audio/wav', b"\x00\x01")
        + part(b'; name="meta"\r\nContent-Type: application/json', b'{"b": 1.0, "a": 2}')
        + part(b'; name="tag"', b"1")
        + part(b'; name="tag"', b"2")
        + b"--b--\r\n"
    )

    assert request_document(asked(sent, MULTIPART), NO_RULES)["body"] == {
        "model": "whisper-1",
        "file": {"filename": "a.wav", "type": "audio/wav", "content": hashed(b"\x00\x01")},
        "meta": {
            "filename": None,
            "type": "application/json",
            "content": {"json": {"a": 2, "b": 1}},
        },
        "tag": ["1", "2"],
    }


def test_parts_without_a_name_are_a_list() -> None:
    sent = b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--"

    assert request_document(
        asked(sent, ((b"content-type", b"multipart/related; boundary=b"),)), NO_RULES
    )["body"] == [{"name": None, "part": {"filename": None, "type": "text/plain", "content": "x"}}]


def test_a_large_body_is_its_hash() -> None:
    request = Request("openai", "POST", "/", JSON, file=BodyFile("spool/1", 7, "ab" * 32))

    assert request_document(request, NO_RULES)["body"] == {"sha256": "ab" * 32, "size": 7}
    assert request_key(request) != request_key(asked(target="/"))


def test_placeholders_are_texts_like_any_other() -> None:
    one, two = "REDACTED.key.0a1b2c3d", "REDACTED.other.ffffffff"

    documents = [
        request_document(
            asked(f'{{"m": "{mark}"}}'.encode(), target=f"/bot{mark}/x?via={mark}&key={mark}"),
            NO_RULES,
        )
        for mark in (one, two)
    ]

    assert documents[0]["path"] == f"/bot{one}/x"
    assert documents[0]["query"] == {"via": one, "key": one}
    assert all(documents[0][part] != documents[1][part] for part in ("path", "query", "body"))


@pytest.mark.parametrize(
    ("written", "other"),
    [
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1,"a":2}', b'{"a":1}'),
        (b'{"a":2,"a":2}', b'{"a":2}'),
        (b'{"x":{"a":1,"b":3,"a":1}}', b'{"x":{"a":1,"b":3}}'),
        (b'{"a":1,"\\u0061":2}', b'{"a":2}'),
        (b'{"a":0,"a":"\\u003a"}', b'{"a":":"}'),
        (b'{"a":0,"a":"\\u003A"}', b'{"a":":"}'),
    ],
)
def test_a_duplicate_key_is_not_dropped(written: bytes, other: bytes) -> None:
    assert key(written) != key(other)
    assert key(written) == key(written)


octets = st.binary(max_size=3)
little = st.sampled_from(["a", "b", "/", "%2F", "%25", "%FF", "é", "%C3%A9", "1", "+", ""])
targets = st.builds(
    lambda path, query: "/" + "".join(path) + ("?" + "&".join(query) if query else ""),
    st.lists(little, max_size=3),
    st.lists(st.builds("{}={}".format, little, little), max_size=3),
)
bodies = st.sampled_from(
    [b"", b"null", b"1", b"1.0", b"{}", b'{"a":1}', b'{"a": 1e0}', b'{"a":1,"a":1}', b'"a"', b"a=1"]
)
kinds = st.sampled_from([JSON, FORM, TEXT, MULTIPART])
requests = st.builds(asked, bodies | octets, kinds, targets, st.sampled_from(["POST", "PUT"]))


@given(requests, requests)
def test_two_requests_have_one_key_only_where_their_documents_are_equal(
    left: Request, right: Request
) -> None:
    documents = same_json(request_document(left, NO_RULES), request_document(right, NO_RULES))

    assert (request_key(left) == request_key(right)) is documents


@given(requests, requests)
def test_a_rule_that_leads_nowhere_changes_nothing(left: Request, right: Request) -> None:
    rules = Rules(ignore=("body.nothing.like.it",))

    assert (request_key(left) == request_key(right)) is (
        request_key(left, rules) == request_key(right, rules)
    )
