"""The document of an HTTP exchange: URL, head, body files, failures and verdicts."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.agenttape import key
from tapeway.core.cassette.credential_index import credential_places, may_hold_credentials
from tapeway.core.json_text import Json
from tapeway.core.matching.key import key_of_read, request_key
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import (
    BodyFile,
    ChunkTimes,
    Failure,
    FailureKind,
    Framing,
    Headers,
    PartDigest,
    Request,
    Response,
    ResponseHead,
    Verdict,
)
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import document, http_exchange
from tapeway.formats.native.document import decode, save
from tests.stores.recordings import HEAD
from tests.support.exchanges import interaction, times

FRAMING: Headers = (
    (b"Content-Length", b"5"),
    (b"Transfer-Encoding", b"chunked"),
    (b"Connection", b"x-hop"),
    (b"X-Hop", b"1"),
)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
maybe_text = st.none() | st.text(st.characters(codec="utf-8"), max_size=5)
parts = st.builds(PartDigest, maybe_text, maybe_text, maybe_text, digests)
placeholders = st.sampled_from(["REDACTED.hf_token.abcdefgh", "REDACTED.short-pin.ponmlkji"])
files = st.builds(
    BodyFile,
    path=st.just(""),
    size=st.integers(1, 2**40),
    digest=digests,
    parts=st.none() | st.lists(parts, max_size=3).map(tuple),
    placeholders=st.lists(placeholders, max_size=3).map(tuple),
)
pieces = st.lists(st.tuples(times, st.integers(1, 2**20)), min_size=2, max_size=20)
FAILED_HEAD = CassetteHead("2026-01-01T00:00:00", "run")
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)


def test_framing_is_neither_written_nor_read() -> None:
    framed = _with_head(interaction(), headers=((b"A", b"1"), *FRAMING))
    document: Any = http_exchange.encode(framed)

    assert document["response"]["headers"] == {"A": "1"}

    document["response"]["headers"] |= {"content-length": "99", "transfer-encoding": "chunked"}
    assert http_exchange.decode(document, 0, ()).response.headers == ((b"A", b"1"),)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_the_length_of_a_body_that_is_not_sent_is_kept(method: str, status: int) -> None:
    bodyless = _with_head(interaction(body=b""), headers=FRAMING, status=status)
    bodyless = replace(bodyless, request=replace(bodyless.request, method=method))

    found = http_exchange.decode(http_exchange.encode(bodyless), 0, ())

    assert found.response.headers == ((b"Content-Length", b"5"),)


@pytest.mark.parametrize(
    ("base", "target", "url", "boundary"),
    [
        ("https://h", "/v1?a=1", "https://h/v1?a=1", "https://h"),
        ("https://H:443/base", "/v1", "https://H:443/base/v1", "https://h"),
        ("http://h:443", "/v1", "http://h:443/v1", "http://h:443"),
        ("http://u:p@[::1]:8080/a/b", "/", "http://u:p@[::1]:8080/a/b/", "http://[::1]:8080"),
        ("", "/v1#x", "/v1#x", None),
    ],
)
def test_a_url_is_split_into_the_same_base_and_target(
    base: str, target: str, url: str, boundary: str | None
) -> None:
    document: Any = http_exchange.encode(interaction(base=base, target=target))

    assert document["request"]["url"] == url
    assert document.get("boundary") == boundary
    found = http_exchange.decode(document, 0, ()).request
    assert (found.base, found.target) == (base, target)


@pytest.mark.parametrize(
    ("url", "target"),
    [("https://h", "/"), ("https://h?a=1", "/?a=1"), ("https://h/x#part", "/x")],
)
def test_a_url_of_another_tool_becomes_the_target_that_was_sent(url: str, target: str) -> None:
    document: Any = http_exchange.encode(interaction())
    document["request"] = {"method": "GET", "url": url}

    assert http_exchange.decode(document, 0, ()).request == Request(
        "", "GET", target, base="https://h"
    )


def test_a_reason_as_the_requests_library_stores_it_is_read() -> None:
    document: Any = http_exchange.encode(interaction())
    document["response"]["reason"] = "Fine"
    del document["response"]["reason_phrase"]

    assert http_exchange.decode(document, 0, ()).response.head.reason == "Fine"


@pytest.mark.parametrize(
    "broken",
    [
        {"status": 101},
        {"status": 600},
        {"reason": "a\r\nb"},
        {"version": "HTP"},
        {"headers": ((b"A B", b"1"),)},
    ],
)
def test_what_could_not_be_read_again_is_not_written(broken: dict[str, Any]) -> None:
    with pytest.raises(FormatFault):
        http_exchange.encode(_with_head(interaction(), **broken))


def test_durations_are_written_to_the_microsecond() -> None:
    document = http_exchange.encode(replace(interaction(), latency_ms=1.23456))

    assert document["latency_ms"] == 1.235


def _with_head(recorded: Interaction, **changes: Any) -> Interaction:
    head: ResponseHead = replace(recorded.response.head, **changes)
    return replace(recorded, response=replace(recorded.response, head=head))


def interaction_of(request: BodyFile | None, response: Response) -> Interaction:
    headers = ((b"content-type", b"application/octet-stream"),)
    asked = Request("openai", "POST", "/v1/files", headers, b"", "https://h", request)
    return Interaction(0, asked, response, match_key=key.http_key(asked))


def through_the_file(recorded: Interaction) -> Interaction:
    (found,) = document.load(document.save(StoredCassette(HEAD, (recorded,)))).interactions
    assert isinstance(found, Interaction)
    return found


def answer(cuts: ChunkTimes, framing: Any = "chunked", digest: str = "0" * 64) -> Response:
    file = BodyFile("", cuts.total, digest)
    return Response(ResponseHead(200, "OK", (), framing), file=file).with_arrivals(cuts)


@given(files)
def test_the_reference_to_a_request_comes_back_as_it_was(file: BodyFile) -> None:
    recorded = interaction_of(file, answer(ChunkTimes([(0.0, 3)]), "length"))

    assert through_the_file(recorded) == recorded


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_empty_file_is_no_body(framing: str) -> None:
    recorded = interaction_of(BodyFile("", 0, "1" * 64), answer(ChunkTimes(), framing))

    found = through_the_file(recorded)

    assert (found.request.file, found.request.body) == (None, b"")
    assert (found.response.file, found.response.body) == (None, b"")


@given(pieces, st.sampled_from(["chunked", "close"]))
def test_the_chunks_of_a_response_come_back_as_they_were(
    pairs: list[tuple[float, int]], framing: str
) -> None:
    recorded = interaction_of(None, answer(ChunkTimes(pairs), framing))

    assert through_the_file(recorded) == recorded


def test_very_many_chunks_are_written_as_one_text() -> None:
    recorded = interaction_of(
        None, answer(ChunkTimes((at / 8, at % 7 + 1) for at in range(20_000)))
    )

    written = document.save(StoredCassette(HEAD, (recorded,)))

    packed = json.loads(written)["interactions"][0]["response"]["chunks"]
    assert packed.startswith("0.0+1 0.125+2 0.25+3 ")
    assert through_the_file(recorded) == recorded


def test_a_body_under_content_length_has_the_time_of_its_last_chunk() -> None:
    recorded = interaction_of(None, answer(ChunkTimes([(1.0, 3), (2.5, 4)]), "length"))

    assert through_the_file(recorded).response.arrivals() == ChunkTimes([(2.5, 7)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"body_file": {"sha256": "x" * 64, "size": 4}}, "sha256: must be 64 hexadecimal digits"),
        ({"body_file": {"sha256": "../" + "a" * 61, "size": 4}}, "must be 64 hexadecimal digits"),
        ({"body_file": {"sha256": "a" * 64}}, "the field 'size' is missing"),
        ({"body_file": {"sha256": "a" * 64, "size": -1}}, "size: must be a whole number"),
        ({"body_file": {"sha256": "a" * 64, "size": 4, "path": "x"}}, "there is no such field"),
        ({"body_file": "a" * 64}, "body_file: must be an object"),
        (
            {"body_file": {"sha256": "a" * 64, "size": 4, "placeholders": ["REDACTED.a"]}},
            "placeholders: must be placeholders such as REDACTED.key.abcdefgh",
        ),
        (
            {"body_file": {"sha256": "a" * 64, "size": 4, "placeholders": "REDACTED.a.abcdefgh"}},
            "placeholders: must be a list, not text",
        ),
        ({"text": "four"}, "is there twice, as 'text' and 'body_file'"),
        ({"chunks": [[1, 2], [1, 3]]}, "they are 5 bytes together, the file has 4"),
        ({"chunks": "1+2 1+2x"}, "must be milliseconds[+]bytes at '1[+]2x'"),
        ({"chunks": "1+2 1+2", "framing": "length"}, "needs a 'framing' of chunked or close"),
    ],
)
def test_a_mistake_in_a_body_file_is_named(change: dict[str, Any], said: str) -> None:
    recorded = interaction_of(None, answer(ChunkTimes([(1.0, 2), (2.0, 2)])))
    cassette = json.loads(document.save(StoredCassette(HEAD, (recorded,))))
    cassette["interactions"][0]["response"] |= change

    with pytest.raises(FormatFault, match=said):
        document.load(json.dumps(cassette).encode())


def failed(kind: FailureKind = "cut", response: Response | None = None) -> Interaction:
    response = response or Response(ResponseHead(0))
    return replace(interaction(), response=response, failure=Failure(kind, f"it was {kind}"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_without_any_answer_comes_back(kind: FailureKind) -> None:
    assert through_the_file(failed(kind)) == failed(kind)


@given(
    pieces=st.lists(st.tuples(st.binary(min_size=1), times)),
    framing=st.sampled_from(["length", "chunked", "close"]),
    length=st.none() | st.integers(0, 10**9),
)
def test_a_partial_response_comes_back_with_its_chunks_and_content_length(
    pieces: list[tuple[bytes, float]], framing: Framing, length: int | None
) -> None:
    chunks = sorted(pieces, key=at)
    head = ResponseHead(200, "OK", ((b"content-type", b"text/plain"),), framing, length=length)
    if framing == "length":
        chunks = chunks[:1]
    recorded = failed("cut", Response.of_chunks(head, chunks, verdict="truncated"))

    assert through_the_file(recorded) == recorded


def at(piece: tuple[bytes, float]) -> float:
    return piece[1]


def test_a_failure_is_an_error_in_agenttape_s_terms() -> None:
    document: Any = http_exchange.encode(failed("timeout"))

    assert document["error"] == {
        "type": "ReadTimeout",
        "module": "httpx",
        "message": "it was timeout",
        "failure": "timeout",
    }
    assert not {"response", "partial"} & set(document)


def test_the_error_of_another_tool_stays_its_own() -> None:
    document: Any = http_exchange.encode(failed())
    del document["error"]["failure"]

    assert isinstance(decode(document, 0), ForeignInteraction)


def test_an_error_written_by_hand_needs_only_its_kind() -> None:
    document: Any = http_exchange.encode(failed())
    document["error"] = {"failure": "reset"}
    found = decode(document, 0)

    assert isinstance(found, Interaction)
    assert found.failure == Failure(
        "reset", "the upstream broke the connection off before it answered"
    )


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_a_verdict_comes_back_and_none_is_none(verdict: Verdict) -> None:
    recorded = interaction()
    recorded = replace(recorded, response=replace(recorded.response, verdict=verdict))
    document: Any = http_exchange.encode(recorded)

    assert ("verdict" in document["response"]) is (verdict != "")
    assert through_the_file(recorded) == recorded


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"error": {"failure": "odd"}}, ("error", "failure")),
        ({"error": {"failure": "cut", "mesage": "x"}}, ("error", "mesage")),
        ({"response": {"status_code": 200}}, ("response",)),
        ({"partial": {"status_code": 99}}, ("partial", "status_code")),
        ({"partial": {"status_code": 200, "length": -1}}, ("partial", "length")),
        ({"partial": {"status_code": 200, "verdict": "good"}}, ("partial", "verdict")),
        ({"error": None, "response": {"status_code": 200}}, ("partial",)),
    ],
)
def test_what_is_no_failure_is_named_with_its_place(
    changes: dict[str, Any], place: tuple[str, ...]
) -> None:
    whole = Response(ResponseHead(200), b"x")
    document = {**http_exchange.encode(failed("cut", whole)), **changes}

    with pytest.raises(FormatFault) as caught:
        http_exchange.decode(document, 0, ())
    assert caught.value.pointer == place


def test_the_chunks_of_a_partial_response_share_a_line() -> None:
    chunks = ((b"one", 1.0), (b"two", 2.0))
    part = Response.of_chunks(ResponseHead(200, framing="chunked"), chunks)
    text = save(StoredCassette(FAILED_HEAD, (failed("cut", part),)))

    assert b'\n        "chunks": [[1.0, 3], [2.0, 3]]\n      },\n      "match_key": ' in text
    assert json.loads(text)["interactions"][0]["partial"]["chunks"] == [[1.0, 3], [2.0, 3]]


def test_recordings_share_what_their_requests_have_in_common() -> None:
    def decoded(path: str) -> Request:
        # As in a file, each text is another object.
        shown = (
            f'{{"method": "POST", "route": "my-route", "base": "/v1", "url": "http://h/v1{path}"}}'
        )
        return http_exchange.decode_request(Fields(json.loads(shown), ()))

    one, other = decoded("/a"), decoded("/b")

    assert (one.method is other.method, one.route is other.route) == (True, True)
    assert one.base is other.base


WRONG: tuple[Json, ...] = (
    None,
    1,
    -1,
    1.5,
    True,
    "",
    "x\n",
    [],
    ["a", 1],
    [[1, 2]],
    {},
    {"a": 1},
    {"X-A": "a\nb"},
    {"X A": "b"},
    {"X-A": 1},
    {"x-a": "", "X-A": ""},
)


def outcomes(fields: dict[str, Json]) -> tuple[object, object]:
    """What checking an exchange says, and what decoding it says."""

    def outcome(run: Callable[[], Request]) -> object:
        try:
            return run()
        except FormatFault:
            return "a fault"

    return (
        outcome(lambda: http_exchange.check(fields, (), as_sent=True)[0]),
        outcome(lambda: http_exchange.decode(fields, 0, ()).request),
    )


@pytest.mark.parametrize("answer", ["json", "layout", "text", "chunks", "raw"])
def test_checking_says_what_decoding_says(answer: str) -> None:
    messages: dict[str, dict[str, Json]] = {
        "json": {"json": {"a": [1]}, "at_ms": 1.5},
        "layout": {"json": {"a": [1]}, "json_layout": {"compact": True}, "verdict": "complete"},
        "text": {"text": "words", "reason_phrase": "OK", "http_version": "HTTP/1.1"},
        "chunks": {"text": "words", "framing": "chunked", "chunks": [[0.5, 2], [1, 3]]},
        "raw": {"json": 1, "raw_b64": "MS4w", "latin1": ["X-A"], "header_order": ["X-A"]},
    }
    response: dict[str, Json] = {"status_code": 200, "headers": {"X-A": "b", "X-C": ["d", "e"]}}
    plain: dict[str, Json] = {
        "kind": "http",
        "request": {"method": "POST", "url": "/v1", "headers": {}, "json": {}, "route": "r"},
        "response": {**response, **messages[answer]},
        "match_key": "k",
        "latency_ms": 2,
        "usage": {},
        "tags": ["a"],
        "metadata": {},
    }
    assert http_exchange.is_all_in(plain)
    assert outcomes(plain)[0] == outcomes(plain)[1]

    for message in ("request", "response", ""):
        fields = dict(Fields.of(plain[message] if message else plain, ()).values)
        for name in [*fields, *http_exchange.REQUEST, *http_exchange.RESPONSE, "unknown"]:
            for wrong in WRONG:
                changed: Document = {**fields, name: wrong}
                whole: Document = {**plain} if message else changed
                if message:
                    whole[message] = changed
                if http_exchange.is_all_in(whole):
                    checked, decoded = outcomes(whole)
                    assert checked == decoded, (message, name, wrong)


NAMES = st.text(max_size=4) | st.sampled_from(["max_tokens", "api_key", "token", "headers"])
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["sk-abcdefghijklmnopqrstuvwx", "REDACTED.0123456789abcdef"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(
    JSON_VALUES,
    st.sampled_from([{}, {"compact": True}]),
    st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain"]),
    st.sampled_from(["/v1", "/v1?a=1", "/v1?key=sk-abcdefghijklmnopqrstuvwx"]),
)
@example({"a": [{"api_key": "sk-abcdefghijklmnopqrstuvwx"}]}, {}, "application/json", "/v1")
@example({"max_tokens": 5, "token": "a"}, {"compact": True}, "application/json", "/v1")
def test_a_body_that_was_read_has_the_match_key_of_the_one_that_was_sent(
    value: Json, layout: dict[str, Json], media_type: str, url: str
) -> None:
    fields: Document = {
        "request": {
            "method": "POST",
            "url": url,
            "headers": {"Content-Type": media_type},
            "json": value,
            "route": "r",
            **({"json_layout": layout} if layout else {}),
        },
        "response": {"status_code": 200},
    }
    request, read = http_exchange.check(fields, ())
    sent = http_exchange.decode(fields, 0, ()).request

    key = request_key(request) if read is None else key_of_read(request, read)
    assert key == request_key(sent)
    held, exactly = (
        may_hold_credentials(request, NO_RULES, read),
        credential_places(RecordedRequest(sent, NO_RULES), key),
    )
    assert held or exactly is None
    if "?" not in url:
        assert held == may_hold_credentials(sent, NO_RULES, None)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"json": {"a": 1}}, b"application/json"),
        ({"json": {"a": 1}, "headers": {"X-A": "b"}}, b"application/json"),
        ({"json": [], "headers": {"content-type": "text/plain"}}, b"text/plain"),
        ({"text": "{}"}, None),
        ({}, None),
    ],
)
def test_an_answer_in_json_that_somebody_wrote_gets_its_type(
    response: dict[str, Json], kind: bytes | None
) -> None:
    written: Document = {
        "kind": "http",
        "request": {"method": "GET", "url": "https://h/"},
        "response": {"status_code": 200, **response},
    }

    found = http_exchange.decode(written, 0, ())

    types = [value for name, value in found.response.headers if name.lower() == b"content-type"]
    assert types == ([] if kind is None else [kind])
