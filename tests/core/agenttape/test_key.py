"""AgentTape's own vectors, and the keys it wrote into real cassettes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agenttape.canonical import compute_match_key
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.agenttape import key
from tapeway.core.json_text import Json
from tapeway.core.matching.document import read_json
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.formats.native import document

DATA = Path(__file__).parents[2] / "formats" / "data"
VECTORS: list[dict[str, Any]] = json.loads((DATA / "match_key_vectors.json").read_text())["vectors"]
# HTTP requests are hashed with the blanks they have.
VECTORS = [vector for vector in VECTORS if not vector["normalize_whitespace"]]


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{v['name']}-{v['profile']}" for v in VECTORS])
def test_every_vector_of_agenttape_gives_its_key(vector: dict[str, Any]) -> None:
    request, ignore = vector["request"], vector["ignore_fields"]

    assert key.canonical_json(request, ignore) == vector["canonical_json"]
    assert key.agenttape_key(request, ignore) == vector["match_key"]


@pytest.mark.parametrize("name", ["agenttape_http.json", "agenttape_async.json"])
def test_the_key_of_a_loaded_request_is_the_one_agenttape_wrote(name: str) -> None:
    cassette = document.load((DATA / name).read_bytes())

    for interaction in cassette.interactions:
        assert isinstance(interaction, Interaction)
        assert key.http_key(interaction.request) == interaction.match_key


def test_headers_count_in_lower_case_without_the_dropped_ones() -> None:
    plain = _request((b"accept", b"*/*"))
    wordy = _request((b"Accept", b"*/*"), (b"User-Agent", b"curl/8"), (b"Host", b"h"))

    assert key.http_key(wordy) == key.http_key(plain)


def test_a_request_of_requests_has_the_key_that_agenttape_gives_that() -> None:
    accept, coded = (b"Accept", b"*/*"), (b"Accept-Encoding", b"gzip")
    of_requests = _request(coded, accept, (b"Content-Type", b"a/b"))
    of_httpx = _request(accept, coded, (b"Content-Type", b"a/b"))
    headers: dict[str, Json] = {"Accept": "*/*", "Content-Type": "a/b"}
    said: dict[str, Json] = {"method": "POST", "url": "https://h/v1/x", "headers": headers}

    assert key.http_key(of_requests) == key.agenttape_key(said)
    lower: dict[str, Json] = {name.lower(): value for name, value in headers.items()}
    assert key.http_key(of_httpx) == key.agenttape_key({**said, "headers": lower})


def test_repeated_headers_count_joined_as_httpx_shows_them() -> None:
    twice = _request((b"accept", b"a/b"), (b"accept", b"c/d"))

    assert key.http_key(twice) == key.http_key(_request((b"accept", b"a/b, c/d")))


def test_the_boundary_of_an_upload_does_not_count() -> None:
    def upload(boundary: bytes) -> Request:
        body = b"--%b\r\n\r\nx\r\n--%b--\r\n" % (boundary, boundary)
        content_type = b"multipart/form-data; boundary=" + boundary
        return _request((b"content-type", content_type), body=body)

    assert key.http_key(upload(b"one")) == key.http_key(upload(b"two"))


def test_the_raw_copy_of_a_body_does_not_count() -> None:
    content_type = (b"content-type", b"application/json")
    compact = _request(content_type, body=b'{"a":1,"b":2}')
    spaced = _request(content_type, body=b'{"b" : 2, "a": 1}')

    assert key.http_key(compact) == key.http_key(spaced)


def test_a_body_agenttape_cannot_hash_has_no_key() -> None:
    content_type = (b"content-type", b"application/json")

    assert key.http_key(_request(content_type, body=b'"\\ud800"')) == ""


NAMES = [
    *key.DEFAULT_IGNORED,
    "raw_b64",
    "RAW_B64",
    "Date",
    "DATE",
    "url",
    "URL",
    "a",
    "update",
    "\u212aey",
]
URLS = st.lists(
    st.sampled_from(
        ["?", "&", "=", "date", "nonce=", "Date=1", "d%61te=1", "a=b%20c", "#f", ";", "+"]
    ),
    max_size=6,
).map(lambda parts: "http://h/p" + "".join(parts))
VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.sampled_from(NAMES) | st.text(st.characters(codec="utf-8"), max_size=5) | URLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
LISTS: list[tuple[str, ...]] = [key.DEFAULT_IGNORED, key.INIT_IGNORED, (), ('say "a"', "A")]


@given(VALUES)
@example({"url": "http://h/p?date"})
@example({"a": [{"URL": "http://h/p?a=b%20c&d%61te=1"}]})
@example({"a": {"RAW_B64": 1, "raw_b64": 2}})
def test_any_request_has_the_key_that_agenttape_gives_it(request: Any) -> None:
    wanted = [compute_match_key(request, ignored) for ignored in LISTS]

    assert [key.agenttape_key(request, ignored) for ignored in LISTS] == wanted
    # Those that are the same are there once, and in order.
    assert key.possible_keys(request, LISTS) == tuple(dict.fromkeys(wanted))


@given(VALUES, st.sampled_from([(",", ":"), (", ", ": ")]), st.sampled_from(["POST", "p\u00fct"]))
@example({"Date": 1}, (",", ":"), "POST")
@example([1e16, 1e-5, 0.00001], (",", ":"), "POST")
@example({"\u212aey": 1, "idempotency-\u212aey": 2}, (",", ":"), "POST")
@example({"a": "?date"}, (",", ":"), "POST")
@example([[[]]] * 100, (",", ":"), "POST")
def test_the_key_is_the_same_where_the_body_was_read_before(
    value: Any, separators: tuple[str, str], method: str
) -> None:
    body = json.dumps(value, separators=separators, ensure_ascii=False).encode()
    asked = replace(_request((b"Content-Type", b"application/json"), body=body), method=method)
    read = read_json(body)
    known = read if read is not None and read.exact else None

    assert key.http_key(asked, {"json": json.loads(body)}, known) == key.http_key(asked)


def test_the_body_of_a_plain_request_is_not_written_again_for_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = _request((b"Content-Type", b"application/json"), body=b'{"b": 1, "a": [0.5]}')
    wanted, read = key.http_key(asked), read_json(asked.body)
    assert read is not None
    monkeypatch.setattr(key, "canonical_json", None)

    assert key.http_key(asked, {"json": read.value}, read) == wanted


def _request(*headers: tuple[bytes, bytes], body: bytes = b"") -> Request:
    return Request("default", "POST", "/v1/x", headers, body, "https://h")
