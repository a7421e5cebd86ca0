"""HTTP archives written by browsers and by tapeway."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import Failure
from tapeway.formats.other_tools import har
from tests.formats.other_tools.example_files import calls, fault, kind, load, losses, text
from tests.support.exchanges import interaction


def save(*items: Any) -> Any:
    write = kind("har").save
    assert write is not None
    return write(StoredCassette(CassetteHead("2026-11-21T20:35:14Z", "r"), items))


def test_what_a_browser_saved_is_read() -> None:
    chat, logo, login = calls(load("har", text("browser.har")))

    assert chat.request.url == "https://api.example.com/v1/chat?stream=1"
    assert chat.request.headers == (
        (b"accept-encoding", b"gzip, deflate, br"),
        (b"content-type", b"application/json"),
    )
    assert chat.request.body == b'{"model": "m-1"}\n'
    assert chat.response.head.version == "HTTP/2"
    assert chat.response.headers == (
        (b"content-type", b"application/json"),
        (b"set-cookie", b"a=1; Path=/"),
        (b"set-cookie", b"b=2; Path=/"),
    )
    assert chat.response.body == '{"ok": "né"}\n'.encode()
    assert chat.latency_ms == 123.456
    assert chat.metadata == {"started_at": "2026-11-20T10:11:12.345Z"}
    assert logo.response.body == b"\x89PNG"
    assert logo.response.headers == ((b"Content-Type", b"image/png"),)
    assert (login.request.body, login.response.status) == (b"user=a+b&x=%C3%A9", 302)


def test_headers_that_decide_are_kept_and_a_coded_request_is_plain() -> None:
    archive = json.loads(text("browser.har"))
    asked = archive["log"]["entries"][0]["request"]
    fields = {"Content-Encoding": "gzip", "Depth": "1", "x-ms-continuation": "page2"}
    asked["headers"] += [{"name": name, "value": value} for name, value in fields.items()]

    chat, *_ = calls(load("har", json.dumps(archive).encode()))

    assert chat.request.coding == b"gzip"
    assert chat.request.body == b'{"model": "m-1"}\n'
    assert chat.request.headers[-2:] == ((b"Depth", b"1"), (b"x-ms-continuation", b"page2"))


def test_what_was_not_answered_or_is_not_in_the_archive_is_left_out() -> None:
    assert losses(load("har", text("browser.har"))) == [
        "log.entries[3]: was not answered (net::ERR_BLOCKED_BY_CLIENT): left out",
        "log.entries[4]: the archive does not hold the answer's body: left out",
        "log.entries[5]: is no HTTP call: left out",
        har.NOT_KEPT,
    ]


def test_a_broken_archive_is_named_with_line_and_place() -> None:
    broken = text("browser.har").replace(b'"status": 302', b'"status": "302"')

    assert fault("har", broken) == (
        "log.entries[2].response.status: must be a whole number between 0 and 999, not text",
        broken[: broken.index(b'"status": "302"')].count(b"\n") + 1,
    )


def test_an_archive_has_the_fields_other_tools_need() -> None:
    recorded = replace(
        interaction(target="/v1/x?a=1&b="), metadata={"started_at": "2026-11-20T10:11:12.345Z"}
    )
    saved = save(recorded)
    log = json.loads(saved.text)["log"]
    (entry,) = log["entries"]

    assert losses(saved) == []
    assert (log["version"], log["creator"]["name"]) == ("1.2", "tapeway")
    assert entry["startedDateTime"] == "2026-11-20T10:11:12.345Z"
    assert entry["time"] == 12.345
    assert entry["request"]["url"] == "https://api.openai.com/v1/x?a=1&b="
    assert entry["request"]["queryString"] == [
        {"name": "a", "value": "1"},
        {"name": "b", "value": ""},
    ]
    assert entry["request"]["postData"] == {
        "mimeType": "application/json",
        "text": '{"model":"m"}',
    }
    assert entry["response"]["content"] == {
        "size": 12,
        "mimeType": "application/json",
        "text": '{"ok": true}',
    }
    for name in ("cache", "timings"):
        assert isinstance(entry[name], dict)
    for side in ("request", "response"):
        assert {"cookies", "headers", "headersSize", "bodySize", "httpVersion"} <= set(entry[side])


def test_content_other_tools_ignore_is_named() -> None:
    saved = save(interaction(request_body=b"\xff", body=b"\xfe"))
    (entry,) = json.loads(saved.text)["log"]["entries"]

    assert losses(saved) == [
        "interactions[0].request.body_b64: is no UTF-8: it is written in base64, which other tools "
        "take for the body itself",
        "when each call began is unknown, and required in an archive: 2026-11-21T20:35:14Z is written",
    ]
    assert base64.b64decode(entry["response"]["content"]["text"]) == b"\xfe"
    assert entry["response"]["content"]["encoding"] == "base64"


def test_a_recorded_failure_is_a_call_without_an_answer() -> None:
    cut = replace(interaction(), failure=Failure("cut", "it broke off"))
    saved = save(cut)
    (entry,) = json.loads(saved.text)["log"]["entries"]

    assert (entry["response"]["status"], entry["_error"]) == (0, "it broke off")
    (found,) = calls(load("har", saved.text))
    assert found.failure == cut.failure
    assert found.response.body == cut.response.body


@pytest.mark.parametrize("said", ["http/1.1", "HTTP/1.1", "", "unknown", "h3"])
def test_http_versions_are_read_in_any_spelling(said: str) -> None:
    archive = text("browser.har").replace(b"http/2.0", said.encode())

    version = calls(load("har", archive))[0].response.head.version

    assert version == ("HTTP/3" if said == "h3" else "HTTP/1.1")
