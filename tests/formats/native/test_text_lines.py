"""Texts of several lines in a cassette's file, one a line, and whole everywhere else."""

import json
from typing import Any

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode

HEAD = CassetteHead("2026-11-22T10:00:00Z", "run")
EVENTS = b'event: a\ndata: {"n": 1}\n\ndata: 2\r\n\r\n: note\n\ndata: [DONE]\n\n'
KIND = b"multipart/form-data; boundary=cut"


def _cassette(
    body: bytes, kind: bytes, *, asked: bytes = b"", asked_kind: bytes = b"text/plain"
) -> StoredCassette:
    request = Request(
        "openai", "POST", "/v1/a", ((b"Content-Type", asked_kind),), asked, "https://a.example"
    )
    head = ResponseHead(200, "OK", ((b"Content-Type", kind),), "chunked")
    return StoredCassette(HEAD, (Interaction(0, request, Response(head, body, 2.0)),))


def _interaction(text: bytes) -> Any:
    return json.loads(text)["interactions"][0]


def test_each_event_of_a_stream_has_a_line_of_its_own() -> None:
    text = JSON.save(_cassette(EVENTS, b"text/event-stream; charset=utf-8"))

    assert _interaction(text)["response"]["text_lines"] == [
        'event: a\ndata: {"n": 1}\n\n',
        "data: 2\r\n\r\n",
        ": note\n\n",
        "data: [DONE]\n\n",
    ]
    assert b'\n          ": note\\n\\n",\n' in text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"text/event-stream", EVENTS),
        (b"text/event-stream", b"data: 1\n\ndata: cut of"),
        (b"text/event-stream", b"\n\n\n\n\n"),
        (b"text/event-stream", b"data: one\n\n"),
        (b"text/event-stream", b"data: \xff\n\ndata: 2\n\n"),
        (b"application/x-ndjson", b'{"a": 1}\n{"b": 2}\n\n{"c"'),
        (b"text/plain", b"a\nb\n"),
    ],
)
@pytest.mark.parametrize("serializer", [JSON, YAML], ids=["json", "yaml"])
def test_every_text_comes_back_byte_for_byte(
    serializer: Serializer, kind: bytes, body: bytes
) -> None:
    cassette = _cassette(body, kind)

    assert serializer.load(serializer.save(cassette)).interactions[0] == _keyed(cassette)


def _keyed(cassette: StoredCassette) -> Interaction:
    (found,) = JSON.load(JSON.save(cassette)).interactions
    assert isinstance(found, Interaction)
    (recorded,) = cassette.interactions
    assert isinstance(recorded, Interaction)
    assert found.response.body == recorded.response.body
    return found


def test_a_text_that_is_no_stream_stays_a_text() -> None:
    assert _interaction(JSON.save(_cassette(b"a\nb\n", b"text/plain")))["response"]["text"] == (
        "a\nb\n"
    )


def test_a_stream_in_yaml_is_a_block_that_agenttape_reads_too() -> None:
    text = YAML.save(_cassette(b"data: 1\n\ndata: 2\n\n", b"text/event-stream"))

    assert b"text: |+\n        data: 1\n\n        data: 2\n" in text


def test_the_parts_of_a_form_have_lines_and_binary_ones_lines_of_76_characters() -> None:
    picture = bytes(range(256))
    form = (
        b"--cut\r\nContent-Disposition: form-data; name=a\r\n\r\none\ntwo\n\r\n"
        b"--cut\r\nContent-Disposition: form-data; name=b\r\n\r\n" + picture + b"\r\n--cut--\r\n"
    )
    cassette = _cassette(b"", b"text/plain", asked=form, asked_kind=KIND)

    for serializer in (JSON, YAML):
        found = serializer.load(serializer.save(cassette)).interactions[0]
        assert isinstance(found, Interaction)
        assert found.request.body == form
    text, pictured = _interaction(JSON.save(cassette))["request"]["multipart"]["parts"]
    assert text["text"] == ["one\n", "two\n"]
    assert [len(line) for line in pictured["body_b64"]] == [76, 76, 76, 76, 40]
    # In yaml every line of the file is short too.
    assert max(map(len, YAML.save(cassette).splitlines())) < 100


def test_a_line_that_is_edited_is_what_is_replayed() -> None:
    text = JSON.save(_cassette(EVENTS, b"text/event-stream"))

    edited = JSON.load(text.replace(b'{\\"n\\": 1}', b"one")).interactions[0]

    assert isinstance(edited, Interaction)
    assert edited.response.body == EVENTS.replace(b'{"n": 1}', b"one")


def test_what_is_no_text_among_the_lines_is_named_with_its_line() -> None:
    text = JSON.save(_cassette(EVENTS, b"text/event-stream"))

    with pytest.raises(
        FormatFault, match=r"interactions\[0\]\.response\.text_lines: must be a list of texts$"
    ) as at:
        JSON.load(text.replace(b'": note\\n\\n"', b"7"))

    assert at.value.line == 1 + text[: text.index(b'"text_lines": [')].count(b"\n")


def test_a_list_in_text_is_joined_too_and_a_text_beside_lines_is_refused() -> None:
    text = JSON.save(_cassette(EVENTS, b"text/event-stream"))

    assert JSON.load(text.replace(b'"text_lines"', b'"text"')) == JSON.load(text)
    with pytest.raises(FormatFault, match="the body is there twice, as 'text' and 'text_lines'"):
        JSON.load(text.replace(b'"text_lines"', b'"text": "", "text_lines"'))


def test_another_tools_lists_are_kept_as_they_are() -> None:
    document: Any = {
        "index": 0,
        "kind": "http",
        "request": {"method": "GET", "url": "https://a.example/", "headers": {}},
        "response": {
            "status_code": 200,
            "headers": {"content-type": "text/event-stream"},
            "text": "data: 1\n\ndata: 2\n\n",
        },
    }
    tool: Any = {"index": 1, "kind": "tool", "request": {}, "response": {"text": ["a", "b"]}}
    text = json.dumps({"version": "1", "run_id": "r", "interactions": [document, tool]}).encode()

    written = json.loads(JSON.save(JSON.load(text)))["interactions"]

    assert written[0]["response"]["text"] == "data: 1\n\ndata: 2\n\n"
    assert encode(JSON.load(text).interactions[1]) == written[1] == tool


def test_each_header_has_a_line() -> None:
    headers = ((b"Date", b"v"), (b"Server", b"w"), (b"Set-Cookie", b"a"), (b"Set-Cookie", b"b"))
    head = ResponseHead(200, "OK", headers)
    request = Request("openai", "GET", "/v1/a", headers[:2], b"", "https://a.example")
    text = JSON.save(StoredCassette(HEAD, (Interaction(0, request, Response(head)),)))

    assert (
        b'        "headers": {\n          "Date": "v",\n          "Server": "w",\n'
        b'          "Set-Cookie": ["a", "b"]\n        },\n'
    ) in text
    assert (
        b'        "headers": {\n          "Date": "v",\n          "Server": "w"\n        },\n'
        in text
    )
    found = JSON.load(text).interactions[0]
    assert isinstance(found, Interaction)
    assert found.response.headers == headers
