"""VCR.py's files in JSON and YAML, as it writes them and as it replays ours."""

import base64
import gzip
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
import vcr as vcrpy  # type: ignore[import-untyped, unused-ignore]
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from vcr.errors import CannotOverwriteExistingCassetteException  # type: ignore[import-untyped, unused-ignore]

from tapeway.core.http.headers import find_header
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.formats import registry
from tapeway.formats.errors import FormatFault
from tapeway.formats.other_tools import vcr
from tapeway.formats.other_tools.reading.http_call import with_match_key
from tests.formats.other_tools.example_files import FRESH, calls, fault, kind, load, losses, text
from tests.support.exchanges import interaction

BASE = "http://api.example"
ALL = ["method", "scheme", "host", "port", "path", "query", "body"]


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


def test_a_json_file_it_wrote_is_read() -> None:
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
    assert losses(loaded) == []
    assert loaded.cassette.head.meta["repeats"] == "miss"


def test_framing_headers_are_left_out() -> None:
    names = {
        name.lower()
        for recorded in calls(load("vcr-json", text("vcr_httpx.json")))
        for name, _ in (*recorded.request.headers, *recorded.response.headers)
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


@pytest.mark.parametrize(
    ("offered", "checksum", "kept"),
    [("gzip, br", None, False), ("br", None, True), ("gzip", "abc", True), (None, "abc", True)],
)
def test_a_coded_body_that_its_client_wanted_as_it_came_stays_coded(
    offered: str | None, checksum: str | None, *, kept: bool
) -> None:
    coded = gzip.compress(b"hello")
    content = {"base64_string": base64.b64encode(coded).decode()}
    headers = {"Content-Encoding": ["gzip"]} | ({"Content-MD5": checksum} if checksum else {})
    written = json.loads(document(body=content, headers=headers))
    if offered:
        written["interactions"][0]["request"]["headers"] = {"Accept-Encoding": [offered]}

    (one,) = calls(load("vcr-json", json.dumps(written).encode()))

    assert one.response.body == (coded if kept else b"hello")


def test_an_answer_as_older_versions_stored_it_is_read() -> None:
    written = json.loads(document())
    written["interactions"][0]["response"] = {
        **{"status_code": 404, "http_version": "HTTP/1.1", "content": "gone"},
        "headers": {},
    }

    (one,) = calls(load("vcr-json", json.dumps(written).encode()))

    assert (one.response.status, one.response.body) == (404, b"gone")


def test_a_status_that_is_no_answer_is_left_out() -> None:
    loaded = load("vcr-json", document(status={"code": 100, "message": ""}))

    assert loaded.cassette.interactions == ()
    assert losses(loaded) == [
        "interactions[0]: has the status 100, which is no answer by itself: left out"
    ]


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"status": {"code": "200"}}, "response.status.code: must be a whole number"),
        ({"headers": {"a": [{}]}}, "response.headers.a: must be text or a list of texts"),
        ({"body": {"string": 1}}, "response.body.string: must be text, not a number"),
        ({"body": {"base64_string": "="}}, "response.body.base64_string: is not valid base64"),
        ({"body": {"text": "x"}}, "response.body: must have one of string, base64_string, state"),
    ],
)
def test_a_broken_file_is_named_with_line_and_place(response: dict[str, Any], said: str) -> None:
    told_place, line = fault("vcr-json", document(**response))

    assert told_place.startswith(f"interactions[0].{said}")
    assert line == 1


def test_fields_without_a_place_in_a_cassette_are_named() -> None:
    written = json.loads(document(body={"string": "x", "encoding": "UTF-8"}, url="http://h/b"))
    written["interactions"][0]["recorded_at"] = "Sun, 22 Nov 2026"
    written["interactions"][0]["request"]["cookies"] = {"a": "1"}
    written["metadata"] = {"a": 1}

    assert losses(load("vcr-json", json.dumps(written).encode())) == [
        "interactions[0].recorded_at: is not kept",
        "interactions[0].request.cookies: is not kept",
        "interactions[0].response.url: is not kept",
        "interactions[0].response.body.encoding: is not kept",
        "metadata: is not kept",
    ]


def test_the_url_that_aiohttp_answers_once_repeated_is_not_named() -> None:
    assert losses(load("vcr-json", document(url="http://h/a?b=1"))) == []


PARSED = """\
version: 1
interactions:
- request:
    headers: {content-type: [application/json]}
    method: POST
    parsed_body:
      messages:
      - {content: "Grüße", role: user}
      temperature: 1.0e-05
    uri: https://api.openai.com/v1/chat/completions
  response:
    headers: {content-type: [application/json]}
    parsed_body: {a: "Grüße\U0001f600", b: [1, 2.0, .nan, null, true], c: 1e5, d: '2'}
    status: {code: 200, message: OK}
"""


def test_a_body_that_a_serializer_parsed_is_the_text_it_hands_to_the_client() -> None:
    loaded = load("vcr", PARSED.encode())
    (one,) = calls(loaded)

    assert one.request.body == (
        b'{"messages": [{"content": "Gr\\u00fc\\u00dfe", "role": "user"}], "temperature": 1e-05}'
    )
    assert one.response.body == (
        b'{"a": "Gr\\u00fc\\u00dfe\\ud83d\\ude00", "b": [1, 2.0, NaN, null, true],'
        b' "c": "1e5", "d": "2"}'
    )
    assert losses(loaded) == []


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_side_without_any_field_for_a_body_is_refused(side: str) -> None:
    written = json.loads(document())
    del written["interactions"][0][side]["body"]

    told, line = fault("vcr-json", json.dumps(written, indent=1).encode())

    assert told.startswith(f"interactions[0].{side}: there is no body: one of body, ")
    assert told.endswith("parsed_body must be there, null for an empty one")
    assert line == {"request": 5, "response": 11}[side]


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_body_that_is_there_twice_is_refused(side: str) -> None:
    written = json.loads(document())
    written["interactions"][0][side] |= {"body": "{}", "parsed_body": {"a": 1}}

    told, _ = fault("vcr-json", json.dumps(written).encode())

    assert told == (
        f"interactions[0].{side}.parsed_body: "
        "the body is there twice, as 'body' and 'parsed_body': keep one"
    )


@pytest.mark.parametrize("body", [None, "", {"string": ""}, {}])
def test_an_empty_body_stays_empty(body: object) -> None:
    (one,) = calls(load("vcr-json", document(body=body)))

    assert one.response.body == b""


@pytest.mark.parametrize("value", [None, "", 0, [], {}])
def test_a_parsed_body_is_never_taken_for_an_empty_one(value: object) -> None:
    written = json.loads(document(body=None, parsed_body=value))
    del written["interactions"][0]["response"]["body"]

    (one,) = calls(load("vcr-json", json.dumps(written).encode()))

    assert one.response.body == json.dumps(value).encode()


def test_another_version_is_refused() -> None:
    assert fault("vcr-json", document().replace(b'"version": 1', b'"version": 2')) == (
        "version: must be 1, the only one that VCR.py reads",
        1,
    )


def test_what_its_json_cannot_hold_is_named() -> None:
    binary = interaction(body=b"\xff")
    homeless = interaction(base="")
    save = kind("vcr-json").save
    assert save is not None

    saved = save(StoredCassette(CassetteHead("", "r"), (binary, homeless)))

    assert losses(saved) == [
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


def test_a_yaml_file_it_wrote_is_read() -> None:
    loaded = load("vcr", text("vcr_requests.yaml"))
    found = {
        (recorded.request.method, recorded.request.target): recorded for recorded in calls(loaded)
    }

    assert losses(loaded) == []
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
    items = (interaction(body=b"\x00\xff"), interaction(request_body=b"\xfe"))
    save = kind("vcr").save
    assert save is not None
    saved = save(StoredCassette(CassetteHead("", "r"), items))

    document = yaml.safe_load(saved.text)

    assert losses(saved) == [vcr.ONCE]
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
            "the tag !!python/object/apply:os.system is not read",
            159,
        ),
        (b"AP8=", b"AP8", "the value of !!binary is not valid base64", 251),
        (b"code: 404", b"code: oops", "interactions[3].response.status.code: must be a whole", 121),
    ],
)
def test_a_broken_file_is_named_with_its_line(old: bytes, new: bytes, said: str, line: int) -> None:
    broken = text("vcr_requests.yaml").replace(old, new)

    found, at = fault("vcr", broken)

    assert said in found
    assert at == line


def test_bytes_are_allowed_in_bodies_and_headers_alone() -> None:
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


def test_the_suffix_decides_whether_json_is_written() -> None:
    assert registry.by_name("vcr", ".json") is registry.VCR_JSON
    assert registry.by_name("vcr", ".yaml") is registry.VCR
    assert registry.detect(text("vcr_requests.yaml"), ".yaml") is registry.VCR
    assert registry.detect(text("vcr_httpx.json"), ".json") is registry.VCR_JSON
    assert registry.detect(b"just: text", ".yaml") is None


def call(
    method: str, target: str, body: bytes, status: int, *chunks: bytes, headers: Headers = ()
) -> Interaction:
    framing = "chunked" if len(chunks) > 1 else "length"
    answer = Response.of_chunks(
        ResponseHead(status, "Fine", headers, framing),  # type: ignore[arg-type]
        [(chunk, 0.0) for chunk in chunks],
    )
    return with_match_key(Interaction(0, Request("", method, target, (), body, BASE), answer))


CALLS = (
    call("GET", "/a?x=1&y=%C3%A9", b"", 200, "été".encode(), headers=((b"Set-Cookie", b"a=1"),)),
    call("GET", "/a?x=1&y=%C3%A9", b"", 200, b"second"),
    call("GET", "/image", b"", 200, bytes(range(256))),
    call("POST", "/p", '{"q":"é"}'.encode(), 201, b'{"ok": 1.0}'),
    call("POST", "/p", b"\xff\xfe", 500, b"no\r\n\x85\t1e5"),
    call("GET", "/events", b"", 200, b"data: 1\n\n", b"data: \xc3", b"\xa9\n\n"),
    call("DELETE", "/gone", b"", 204),
)


def play(file: Path, **more: Any) -> Any:
    return vcrpy.VCR(record_mode="none", match_on=ALL, **more).use_cassette(str(file))


def ask(item: Interaction) -> tuple[int, bytes]:
    request = urllib.request.Request(  # noqa: S310 - nothing is asked
        item.request.url, item.request.body or None, method=item.request.method
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


@pytest.mark.parametrize("name", ["vcr", "vcr-json"])
def test_it_gives_each_recording_once_and_in_order(name: str, tmp_path: Path) -> None:
    save = kind(name).save
    assert save is not None
    items = [item for item in CALLS if name == "vcr" or _is_text(item)]
    saved = save(StoredCassette(CassetteHead("", "r", {"repeats": "miss"}), tuple(items)))
    assert saved.losses == ()
    file = tmp_path / "cassette"
    file.write_bytes(saved.text)

    with play(file, serializer="yaml" if name == "vcr" else "json") as cassette:
        assert [ask(item) for item in items] == [
            (item.response.status, item.response.body) for item in items
        ]
        assert cassette.all_played
        with pytest.raises(CannotOverwriteExistingCassetteException):
            ask(items[0])
    assert (
        load(name, saved.text).cassette.interactions
        == load(name, file.read_bytes()).cassette.interactions
    )


def test_an_empty_body_stays_one(tmp_path: Path) -> None:
    # httpx sends one, and VCR.py tells it from none where it matches bodies.
    text = (
        b"version: 1\ninteractions:\n- request: {method: GET, uri: 'http://api.example/x', "
        b"body: '', headers: {}}\n  response: {status: {code: 200, message: OK}, headers: {}, "
        b"body: {string: fine}}\n"
    )
    save = kind("vcr").save
    assert save is not None
    file = tmp_path / "cassette"
    file.write_bytes(save(kind("vcr").load(text, FRESH).cassette).text)

    with play(file):
        assert httpx.get(BASE + "/x").text == "fine"


def _is_text(item: Interaction) -> bool:
    try:
        return bool((item.request.body + item.response.body).decode()) or True
    except UnicodeDecodeError:
        return False


ISTR = "!!python/object/{}.istr"


@pytest.mark.parametrize(
    "made", ["apply:multidict._multidict", "new:multidict._multidict_py", "apply:multidict._istr"]
)
def test_the_header_names_of_aiohttp_are_read_also_where_they_are_repeated(made: str) -> None:
    yaml_text = f"""interactions:
- request:
    body: null
    headers:
      ? &id001 {ISTR.format(made)}
      - X-First
      : - a
    method: GET
    uri: http://h/a
  response:
    body: {{string: x}}
    headers:
      ? *id001
      : - b
    status: {{code: 200, message: OK}}
version: 1
"""
    (call,) = calls(load("vcr", yaml_text.encode()))

    assert [*call.request.headers] == [(b"X-First", b"a")]
    assert [*call.response.headers] == [(b"X-First", b"b")]


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!x"]
)
def test_any_other_tag_is_refused_by_its_name(tag: str) -> None:
    with pytest.raises(FormatFault, match=f"the tag {re.escape(tag)} is not read") as refused:
        load("vcr", f"interactions:\n- {tag}\n  - echo\n".encode())

    assert refused.value.line == 2


def test_a_body_that_aiohttp_was_given_as_a_value_is_the_json_of_it() -> None:
    written = yaml.safe_load(document())
    written["interactions"][0]["request"]["body"] = {"b": [1, None], "a": "\u00e9"}
    loaded = load("vcr", yaml.safe_dump(written).encode())

    assert json.loads(calls(loaded)[0].request.body) == {"b": [1, None], "a": "\u00e9"}
    assert [str(loss) for loss in loaded.losses] == [
        f"interactions[0].request.body: {vcr.JSON_TAKEN}"
    ]


def test_the_two_lists_of_langchain_are_read_as_pairs() -> None:
    one, other = [json.loads(document())["interactions"][0] for _ in range(2)]
    both = {
        "requests": [one["request"], other["request"]],
        "responses": [one["response"], other["response"]],
    }

    assert calls(load("vcr", yaml.safe_dump(both).encode())) == calls(
        load("vcr-json", json.dumps({"version": 1, "interactions": [one, other]}).encode())
    )
    both["responses"].pop()
    with pytest.raises(FormatFault, match="as many as there are requests: 2"):
        load("vcr", yaml.safe_dump(both).encode())


@pytest.mark.parametrize(
    ("headers", "body", "sent"),
    [
        ({}, [["a", "b c"], ["a", "d"]], b"a=b+c&a=d"),
        ({}, {"grant_type": "password", "x": "1"}, b"grant_type=password&x=1"),
        ({"Content-Type": ["application/x-www-form-urlencoded"]}, {"a": "b"}, b"a=b"),
        ({}, {"a": "b"}, b'{"a": "b"}'),
        ({"Content-Type": ["application/json"]}, {"grant_type": "x"}, b'{"grant_type": "x"}'),
        ({}, [["a", 1]], b'[["a", 1]]'),
    ],
)
def test_a_form_of_aiohttp_is_told_from_json(headers: Any, body: Any, sent: bytes) -> None:
    written = json.loads(document())
    written["interactions"][0]["request"] |= {"headers": headers, "body": body}
    loaded = load("vcr-json", json.dumps(written).encode())

    (call,) = calls(loaded)
    assert call.request.body == sent
    taken = vcr.JSON_TAKEN if sent[:1] in b"{[" else vcr.FORM_TAKEN
    assert losses(loaded) == [f"interactions[0].request.body: {taken}"]
    assert find_header(call.request.headers, b"content-type")


def test_old_python_and_files_that_were_sent_are_read() -> None:
    (first, second) = calls(
        load(
            "vcr",
            b"""interactions:
- request: &sent
    body: !!python/object/new:_io.BytesIO
      state: !!python/tuple
      - !!binary |
        /wA=
      - 0
      - null
    headers: {}
    method: !!python/unicode 'POST'
    uri: http://h/
  response: &got
    body: {string: !!python/str 'ok'}
    headers: {}
    status: {code: 200, message: OK}
- request: *sent
  response: *got
version: 1
""",
        )
    )

    assert (first.request.method, first.request.body) == ("POST", b"\xff\x00")
    assert (second.request.body, second.response.body) == (b"\xff\x00", b"ok")
