"""VCR.py's documents, as it writes them and as people edit them."""

import base64
import gzip
import json
from typing import Any

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import ResponseChunk
from tapeway.formats.other_tools import vcr
from tests.formats.exchanges import interaction
from tests.formats.others import calls, fault, kind, load, text, told


def document(**response: Any) -> bytes:
    request: dict[str, Any] = {
        "method": "GET",
        "uri": "http://h/a?b=1",
        "body": None,
        "headers": {},
    }
    answer: dict[str, Any] = {
        "status": {"code": 200, "message": "OK"},
        "headers": {},
        "body": {"string": "x"},
    }
    one = {"request": request, "response": answer | response}
    return json.dumps({"version": 1, "interactions": [one]}).encode()


def test_a_file_it_wrote_is_read() -> None:
    loaded = load("vcr-json", text("vcr_httpx.json"))
    first, second = calls(loaded)

    assert first.request.url == "http://127.0.0.1:8000/v1/x?b=2&a=1"
    assert first.request.body == '{"q":"héllo"}'.encode()
    assert (b"content-type", b"application/json") in first.request.headers
    assert (first.response.status, first.response.head.reason) == (200, "Fine")
    assert [value for name, value in first.response.headers if name == b"set-cookie"] == [
        b"a=1",
        b"b=2",
    ]
    assert first.response.body == '{"ok": true, "café": 1}'.encode()
    assert (second.request.method, second.response.body) == ("GET", b"plain text")
    assert first.match_key.startswith("sha256:")
    assert told(loaded) == []
    assert loaded.cassette.head.meta["repeats"] == "miss"


def test_what_frames_a_message_is_made_anew() -> None:
    names = {
        name.lower()
        for each in calls(load("vcr-json", text("vcr_httpx.json")))
        for name, _ in (*each.request.headers, *each.response.headers)
    }

    assert not names & {b"host", b"connection", b"content-length"}


@pytest.mark.parametrize("coded", [True, False])
def test_a_coded_body_is_read_plain_whether_or_not_vcr_decoded_it(*, coded: bool) -> None:
    body = gzip.compress(b"hello") if coded else b"hello"
    content = {"base64_string": base64.b64encode(body).decode()}
    headers = {"Content-Encoding": ["gzip"], "X": "1"}

    (one,) = calls(load("vcr-json", document(body=content, headers=headers)))

    assert one.response.body == b"hello"
    assert one.response.headers == ((b"X", b"1"),)


def test_an_answer_as_older_versions_stored_it_is_read() -> None:
    old = {"status_code": 404, "http_version": "HTTP/1.1", "content": "gone", "status": None}

    (one,) = calls(load("vcr-json", document(**old)))

    assert (one.response.status, one.response.body) == (404, b"gone")


def test_what_is_no_answer_is_left_out() -> None:
    loaded = load("vcr-json", document(status={"code": 100, "message": ""}))

    assert loaded.cassette.interactions == ()
    assert told(loaded) == [
        "interactions[0]: has the status 100, which is no answer by itself: left out"
    ]


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"status": {"code": "200"}}, "response.status.code: must be a whole number"),
        ({"headers": {"a": [1]}}, "response.headers.a: must be text or a list of texts"),
        ({"body": {"string": 1}}, "response.body.string: must be text, not a number"),
        ({"body": {"base64_string": "="}}, "response.body.base64_string: is not valid base64"),
    ],
)
def test_a_broken_file_is_named_with_line_and_place(response: dict[str, Any], said: str) -> None:
    told_place, line = fault("vcr-json", document(**response))

    assert told_place.startswith(f"interactions[0].{said}")
    assert line == 1


def test_what_has_no_place_in_a_cassette_is_named() -> None:
    written = json.loads(document())
    written["interactions"][0]["recorded_at"] = "Sun, 22 Nov 2026"
    written["metadata"] = {"a": 1}

    assert told(load("vcr-json", json.dumps(written).encode())) == [
        "interactions[0].recorded_at: is not kept",
        "metadata: is not kept",
    ]


def test_another_version_is_refused() -> None:
    assert fault("vcr-json", document().replace(b'"version": 1', b'"version": 2')) == (
        "version: must be 1, the only one that VCR.py reads",
        1,
    )


def test_what_its_json_cannot_hold_is_named() -> None:
    binary = interaction(chunks=(ResponseChunk(b"\xff"),))
    homeless = interaction(base="")
    save = kind("vcr-json").save
    assert save is not None

    saved = save(StoredCassette(CassetteHead("", "r"), (binary, homeless)))

    assert told(saved) == [
        "interactions[0]: the answer's body is no UTF-8, which VCR.py holds in YAML only: left out",
        "interactions[1].request.url: names no host, and VCR.py matches nothing without one",
        vcr.ONCE,
    ]


def test_an_edit_with_vcr_or_by_hand_wins() -> None:
    save = kind("vcr-json").save
    assert save is not None
    written = json.loads(save(StoredCassette(CassetteHead("", "r"), (interaction(),))).text)
    one = written["interactions"][0]
    one["response"] |= {"status": {"code": 500, "message": "No"}, "body": {"string": "{}"}}
    one["request"]["uri"] = "https://api.openai.com/v1/models"
    one["tapeway"]["response"]["status_code"] = 404

    (found,) = calls(load("vcr-json", json.dumps(written).encode()))

    assert (found.response.status, found.response.head.reason) == (500, "No")
    assert found.response.body == b"{}"
    assert (found.request.route, found.request.target) == ("openai", "/v1/models")
