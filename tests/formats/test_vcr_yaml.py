"""VCR.py's YAML, which is what it writes unless told otherwise."""

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import ResponseChunk
from tapeway.formats import registry
from tapeway.formats.other_tools import vcr
from tests.formats.exchanges import interaction
from tests.formats.others import calls, fault, kind, load, text, told


def test_a_file_it_wrote_is_read() -> None:
    loaded = load("vcr", text("vcr_requests.yaml"))
    found = {(each.request.method, each.request.target): each for each in calls(loaded)}

    assert told(loaded) == []
    assert len(loaded.cassette.interactions) == 9
    chat = found["POST", "/v1/x?b=2&a=1"]
    assert chat.request.body == b'{"q": "h\\u00e9llo"}'
    assert chat.response.body == '{"ok": true, "café": 1}'.encode()
    odd = found["GET", "/ctl"].response
    assert odd.body == "tab\t esc\x1b nel\x85 \r\nlines\n trailing \n".encode()
    assert (odd.status, odd.head.reason) == (404, "Not There")
    assert found["GET", "/gz"].response.body == b"hello gz"
    assert b"content-encoding" not in {
        name.lower() for name, _ in found["GET", "/gz"].response.headers
    }
    assert found["GET", "/bin"].response.body == b"\x00\xff\x89PNG"
    assert found["POST", "/v1/b"].request.body == b"\x00\xff"
    assert found["GET", "/plain"].request.body == b""


@given(body=st.text() | st.from_regex(r"-?[0-9.]{1,4}([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example(body="1e5")
@example(body="1.5e3")
def test_a_text_that_pyyaml_writes_is_a_text(body: str) -> None:
    request = {"method": "GET", "uri": "http://h/", "body": body, "headers": {}}
    answer = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": body}}
    document = {"version": 1, "interactions": [{"request": request, "response": answer}]}

    (found,) = calls(load("vcr", yaml.dump(document).encode()))

    assert (found.request.body, found.response.body) == (body.encode(), body.encode())


def test_its_own_loader_reads_what_is_written() -> None:
    items = (interaction(chunks=(ResponseChunk(b"\x00\xff"),)), interaction(request_body=b"\xfe"))
    save = kind("vcr").save
    assert save is not None
    saved = save(StoredCassette(CassetteHead("", "r"), items))

    document = yaml.safe_load(saved.text)

    assert told(saved) == [vcr.ONCE]
    first, second = document["interactions"]
    assert document["version"] == 1
    assert first["response"]["body"]["string"] == b"\x00\xff"
    assert first["request"]["uri"] == "https://api.openai.com/v1/chat/completions"
    assert second["request"]["body"] == b"\xfe"
    assert second["response"]["status"] == {"code": 200, "message": "OK"}


@pytest.mark.parametrize(
    ("old", "new", "said", "line"),
    [
        (
            b"    body: abcd\n",
            b"    body: !!python/object/apply:os.system [x]\n",
            "a tag is not read here",
            159,
        ),
        (b"AP8=", b"AP8", "what stands under !!binary is not valid base64", 251),
        (b"code: 404", b"code: oops", "interactions[3].response.status.code: must be a whole", 121),
    ],
)
def test_a_broken_file_is_named_with_its_line(old: bytes, new: bytes, said: str, line: int) -> None:
    broken = text("vcr_requests.yaml").replace(old, new)

    found, at = fault("vcr", broken)

    assert said in found
    assert at == line


def test_octets_stand_in_bodies_and_headers_and_nowhere_else() -> None:
    request = {
        "method": "GET",
        "uri": "http://h/",
        "body": b"\xff",
        "headers": {"a": [b"x", b"\xfe"]},
    }
    answer: dict[str, Any] = {
        "status": {"code": 200, "message": "OK"},
        "headers": {"b": [b"\xe9"]},
        "body": {"string": b"\xff"},
    }

    def document(request: dict[str, Any], answer: dict[str, Any], **more: object) -> bytes:
        each = {"request": request, "response": answer, **more}
        return yaml.dump({"version": 1, "interactions": [each]}).encode()

    loaded = load("vcr", document(request, answer))
    (found,) = calls(loaded)
    again = kind("vcr").save
    assert again is not None

    assert found.request.headers == ((b"a", b"x"), (b"a", b"\xfe"))
    assert found.response.headers == ((b"b", b"\xe9"),)
    assert (found.request.body, found.response.body) == (b"\xff", b"\xff")
    assert calls(load("vcr", again(loaded.cassette).text)) == [found]
    for broken, place in (
        (document(request | {"uri": b"http://h/\xff"}, answer), "request.uri"),
        (
            document(request, answer | {"status": {"code": 200, "message": b"\xff"}}),
            "status.message",
        ),
        (document(request | {"headers": {b"\xff": ["a"]}}, answer), "request.headers"),
        (document(request, answer, tapeway={"tags": [b"\xff"]}), "tapeway.tags[0]"),
    ):
        said, line = fault("vcr", broken)
        assert f"{place}: must be text" in said
        assert line is not None


def test_the_suffix_says_whether_json_is_written() -> None:
    assert registry.named("vcr", ".json") is registry.VCR_JSON
    assert registry.named("vcr", ".yaml") is registry.VCR
    assert registry.of_text(text("vcr_requests.yaml"), ".yaml") is registry.VCR
    assert registry.of_text(text("vcr_httpx.json"), ".json") is registry.VCR_JSON
    assert registry.of_text(b"just: text", ".yaml") is None
