"""VCR.py's files in JSON and YAML, as it writes them."""

import base64
import gzip
import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tapeway.core.http.headers import find_header
from tapeway.formats import registry
from tapeway.formats.errors import FormatFault
from tapeway.formats.other_tools import vcr
from tests.formats.other_tools.example_files import calls, fault, load, losses, text


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
    loaded = load("vcr", text("vcr_httpx.json"))
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
        for recorded in calls(load("vcr", text("vcr_httpx.json")))
        for name, _ in (*recorded.request.headers, *recorded.response.headers)
    }

    assert not names & {b"host", b"connection", b"content-length"}


@pytest.mark.parametrize("coded", [True, False])
def test_a_coded_body_is_read_plain_whether_or_not_vcr_decoded_it(*, coded: bool) -> None:
    body = gzip.compress(b"hello") if coded else b"hello"
    content = {"base64_string": base64.b64encode(body).decode()}
    headers = {"Content-Encoding": ["gzip"], "X": "1"}

    (one,) = calls(load("vcr", document(body=content, headers=headers)))

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

    (one,) = calls(load("vcr", json.dumps(written).encode()))

    assert one.response.body == (coded if kept else b"hello")


def test_an_answer_as_older_versions_stored_it_is_read() -> None:
    written = json.loads(document())
    written["interactions"][0]["response"] = {
        **{"status_code": 404, "http_version": "HTTP/1.1", "content": "gone"},
        "headers": {},
    }

    (one,) = calls(load("vcr", json.dumps(written).encode()))

    assert (one.response.status, one.response.body) == (404, b"gone")


def test_a_status_that_is_no_answer_is_left_out() -> None:
    loaded = load("vcr", document(status={"code": 100, "message": ""}))

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
    told_place, line = fault("vcr", document(**response))

    assert told_place.startswith(f"interactions[0].{said}")
    assert line == 1


def test_fields_without_a_place_in_a_cassette_are_named() -> None:
    written = json.loads(document(body={"string": "x", "encoding": "UTF-8"}, url="http://h/b"))
    written["interactions"][0]["recorded_at"] = "Sun, 22 Nov 2026"
    written["interactions"][0]["request"]["cookies"] = {"a": "1"}
    written["metadata"] = {"a": 1}

    assert losses(load("vcr", json.dumps(written).encode())) == [
        "interactions[0].recorded_at: is not kept",
        "interactions[0].request.cookies: is not kept",
        "interactions[0].response.url: is not kept",
        "interactions[0].response.body.encoding: is not kept",
        "metadata: is not kept",
    ]


def test_the_url_that_aiohttp_answers_once_repeated_is_not_named() -> None:
    assert losses(load("vcr", document(url="http://h/a?b=1"))) == []


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

    told, line = fault("vcr", json.dumps(written, indent=1).encode())

    assert told.startswith(f"interactions[0].{side}: there is no body: one of body, ")
    assert told.endswith("parsed_body must be there, null for an empty one")
    assert line == {"request": 5, "response": 11}[side]


@pytest.mark.parametrize("side", ["request", "response"])
def test_a_body_that_is_there_twice_is_refused(side: str) -> None:
    written = json.loads(document())
    written["interactions"][0][side] |= {"body": "{}", "parsed_body": {"a": 1}}

    told, _ = fault("vcr", json.dumps(written).encode())

    assert told == (
        f"interactions[0].{side}.parsed_body: "
        "the body is there twice, as 'body' and 'parsed_body': keep one"
    )


@pytest.mark.parametrize("body", [None, "", {"string": ""}, {}])
def test_an_empty_body_stays_empty(body: object) -> None:
    (one,) = calls(load("vcr", document(body=body)))

    assert one.response.body == b""


@pytest.mark.parametrize("value", [None, "", 0, [], {}])
def test_a_parsed_body_is_never_taken_for_an_empty_one(value: object) -> None:
    written = json.loads(document(body=None, parsed_body=value))
    del written["interactions"][0]["response"]["body"]

    (one,) = calls(load("vcr", json.dumps(written).encode()))

    assert one.response.body == json.dumps(value).encode()


def test_another_version_is_refused() -> None:
    assert fault("vcr", document().replace(b'"version": 1', b'"version": 2')) == (
        "version: must be 1, the only one that VCR.py reads",
        1,
    )


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

    assert found.request.headers == ((b"a", b"x"), (b"a", b"\xfe"))
    assert found.response.headers == ((b"b", b"\xe9"),)
    assert (found.request.body, found.response.body) == (b"\xff", b"\xff")
    for broken, place in (
        (document(request | {"uri": b"http://h/\xff"}, answer), "request.uri"),
        (
            document(request, answer | {"status": {"code": 200, "message": b"\xff"}}),
            "status.message",
        ),
        (document(request | {"headers": {b"\xff": ["a"]}}, answer), "request.headers"),
        (document(request, answer, recorder={"tags": [b"\xff"]}), "recorder.tags[0]"),
    ):
        said, line = fault("vcr", broken)
        assert f"{place}: must be text" in said
        assert line is not None


def test_its_two_spellings_are_one_format() -> None:
    for content, suffix in (
        (text("vcr_requests.yaml"), ".yaml"),
        (text("vcr_httpx.json"), ".json"),
    ):
        assert registry.detect(content, suffix) is registry.VCR
    assert registry.detect(b"just: text", ".yaml") is None


def test_what_an_older_tapeway_added_to_its_files_is_named() -> None:
    written = json.loads(document())
    written["interactions"][0]["tapeway"] = {"request": {"route": "openai"}}
    loaded = load("vcr", json.dumps(written).encode())

    assert losses(loaded) == ["interactions[0].tapeway: is not kept"]
    assert calls(loaded)[0].response.body == b"x"


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
        load("vcr", json.dumps({"version": 1, "interactions": [one, other]}).encode())
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
    loaded = load("vcr", json.dumps(written).encode())

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
