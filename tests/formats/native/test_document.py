"""The cassette file: round trip, layout, assets, and mistakes of people."""

import difflib
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import MAX_DEPTH, Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import (
    ResponseHead,
)
from tapeway.core.text import is_utf8
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.assets import inline_assets
from tapeway.formats.native.document import JSON, load, save, write
from tests.support.exchanges import interaction, json_like, made_up_interactions

DATA = Path(__file__).parents[1] / "data"
HEAD = CassetteHead("2026-11-21T20:35:14.904097", "run-1", {"agenttape_version": "0.1.8"})
LONG = "é" * 5000
DIGEST = "sha256:" + hashlib.sha256(LONG.encode()).hexdigest()
REFERENCE: dict[str, Any] = {
    "__agenttape_asset__": DIGEST,
    "encoding": "utf-8",
    "size": 10000,
    "preview": "é",
}


@given(given_one=made_up_interactions())
def test_every_body_header_and_chunk_comes_back(given_one: Interaction) -> None:
    (found,) = load(save(StoredCassette(HEAD, (given_one,)))).interactions

    assert isinstance(found, Interaction)
    assert found.request == given_one.request
    assert found.response == given_one.response


@given(value=json_like, indent=st.sampled_from([None, 1, 2, 4, "\t"]), ascii_only=st.booleans())
def test_json_in_any_layout_comes_back_byte_for_byte(
    value: Any, indent: int | str | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    body = text.encode("utf-8", "surrogatepass")
    given_one = interaction(body=body, at_ms=1.0)

    (found,) = load(save(StoredCassette(HEAD, (given_one,)))).interactions

    assert isinstance(found, Interaction)
    assert found.response.body == body


def test_an_interaction_comes_back_whole() -> None:
    cassette = StoredCassette(HEAD, (interaction(), interaction(index=1, base="http://h:8/base/v")))

    assert load(save(cassette)) == cassette


def test_saving_twice_gives_the_same_bytes() -> None:
    once = save(StoredCassette(HEAD, (interaction(), interaction(request_body=b"\xff"))))

    assert save(load(once)) == once


@pytest.mark.parametrize("name", ["agenttape_http.json", "agenttape_chat.json"])
def test_a_cassette_of_agenttape_is_written_back_as_it_was(name: str) -> None:
    text = (DATA / name).read_bytes()
    parsed = JSON.read(text)

    assert write(parsed.head, [document for _, document in parsed.documents]) == text
    assert save(load(text)) == text


def test_calls_of_other_kinds_are_kept_as_they_are() -> None:
    cassette = load((DATA / "agenttape_chat.json").read_bytes())

    assert all(isinstance(item, ForeignInteraction) for item in cassette.interactions)


def test_a_recorded_error_is_kept_as_it_is() -> None:
    text = _file({"index": 0, "kind": "http", "request": {}, "error": {"type": "TimeoutError"}})

    (found,) = load(text).interactions

    assert isinstance(found, ForeignInteraction)
    assert save(load(text)) == save(load(save(load(text))))


def test_another_tools_recording_is_found_by_its_own_key_and_keeps_it() -> None:
    text = (DATA / "agenttape_async.json").read_bytes()
    cassette = load(text)
    first = cassette.interactions[0]
    assert isinstance(first, Interaction)
    # What adopting it does: the key was taken elsewhere and cannot be had again from the request.
    adopted = replace(first, request=replace(first.request, route="openai"))
    adopted = replace(adopted, match_key="", stored_keys=("sha256:theirs",))

    (found,) = load(save(StoredCassette(HEAD, (adopted,)))).interactions

    assert isinstance(found, Interaction)
    assert first.stored_keys == (first.match_key,)
    assert found.stored_keys == ("sha256:theirs",)
    assert found.request.route == ""


def test_the_key_of_an_edited_request_of_ours_is_not_the_old_one() -> None:
    document = json.loads(save(StoredCassette(HEAD, (interaction(),))))
    document["interactions"][0]["request"]["json"]["model"] = "other"

    (found,) = load(json.dumps(document).encode()).interactions

    assert isinstance(found, Interaction)
    assert found.stored_keys == ()


def test_adding_an_interaction_changes_no_line_of_the_others() -> None:
    first, second = interaction(), interaction(index=1, request_body=b'{"big": 1%b}' % (b"0" * 40))

    short = save(StoredCassette(HEAD, (first,)))
    long = save(StoredCassette(HEAD, (first, second)))

    assert long.startswith(short.removesuffix(b"\n  ]\n}\n") + b",\n")


def test_fields_are_in_the_order_people_read_them() -> None:
    chunked = interaction(chunks=((b"a", 1.0), (b"b", 2.5)), framing="chunked")
    document = json.loads(save(StoredCassette(HEAD, (chunked,))))

    assert list(document) == ["version", "created_at", "run_id", "meta", "interactions"]
    written = document["interactions"][0]
    assert list(written) == [
        *("index", "kind", "boundary", "request", "response"),
        *("match_key", "latency_ms", "usage", "tags", "metadata"),
    ]
    assert list(written["request"]) == ["method", "url", "headers", "json", "json_layout", "route"]
    assert list(written["response"]) == [
        *("status_code", "headers", "reason_phrase", "http_version", "text", "framing", "chunks"),
    ]
    assert written["response"]["chunks"] == [[1.0, 1], [2.5, 1]]
    assert written["boundary"] == "https://api.openai.com"


def test_each_measure_of_a_recording_has_a_line_and_a_body_of_that_name_is_left_alone() -> None:
    pieces = tuple((b"x" * size, 0.5 * size) for size in range(1, 4))
    stream = interaction(chunks=pieces, framing="chunked")
    body = json.dumps({"chunks": [[1, 2]] * 50 + [0] * 5000 + ["a, b"]}).encode()
    cassette = StoredCassette(HEAD, (stream, interaction(index=1, body=body)))

    text = save(cassette)

    chunks = rb"""\n        "chunks": \[\[0\.5, 1\], \[1\.0, 2\], \[1\.5, 3\]\]\n      },\n"""
    measures = rb"""      "match_key": "sha256:\w+",\n      "latency_ms": [\d.]+,\n"""
    assert re.search(chunks + measures, text)
    assert load(text) == cassette


REPLY = b'{"id": "chatcmpl-%s", "object": "chat.completion", "created": %d, "text": "%s"}'


def taken(word: str, at: int) -> Interaction:
    """A short call to a model, taken at another second: ids and times differ too."""
    number = f"{at:032x}".encode()
    varied = (
        (b"Date", b"Thu, 26 Nov 2026 21:43:%02d GMT" % at),
        (b"Server", b"cloudflare"),
        (b"x-request-id", b"req_" + number),
        (b"x-ratelimit-remaining-tokens", b"%d" % (900 + at)),
        (b"Set-Cookie", b"a=%d" % at),
        (b"Set-Cookie", b"b=%d" % at),
        (b"CF-RAY", number[:16] + b"-FRA"),
    )
    given_one = interaction(
        request_body=json.dumps(
            {"messages": [{"role": "user", "content": f"Say {word}"}]}
        ).encode(),
        body=REPLY % (number, at, word.encode()),
        at_ms=400.0 + at,
    )
    head = replace(given_one.response.head, headers=(*given_one.response.head.headers, *varied))
    response = replace(given_one.response, head=head)
    return replace(given_one, response=response, latency_ms=401.0 + at)


def test_an_equal_text_changes_only_the_lines_whose_values_changed() -> None:
    before, after = (
        save(StoredCassette(HEAD, (taken("yes", at),))).decode().splitlines() for at in (1, 2)
    )

    changed = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]

    assert [line[1:].partition(":")[0].strip() for line in changed] == [
        *('"Date"', '"x-request-id"', '"x-ratelimit-remaining-tokens"', '"Set-Cookie"', '"id"'),
        *('"created"', '"at_ms"', '"latency_ms"'),
    ]


def test_a_file_in_the_layout_of_earlier_releases_is_read() -> None:
    cassette = StoredCassette(HEAD, (taken("yes", 1), taken("no", 2)))
    text = save(cassette)

    joined = re.sub(rb'\n +("(?:x-request-id|Set-Cookie|CF-RAY|latency_ms)": )', rb" \1", text)
    joined = re.sub(rb'\n +},\n +("match_key")', rb"}, \1", joined)

    assert len(joined.splitlines()) == len(text.splitlines()) - 12
    assert load(joined) == load(text)


RULES: dict[str, Json] = {
    "ignore": ["body.user", "body.seed"],
    "ignore_in": {"body.messages[*].content": ["Today is .*, sir", "\\d+"], "query.q": ["a"]},
    "patterns": {"order": "order-[0-9]+"},
    "rewrite": ["body.next", {"body.url": "openai"}],
    "ignore_vary": True,
    "agenttape_ignore": [],
}


def test_each_rule_has_a_line() -> None:
    cassette = StoredCassette(CassetteHead("2026-11-28", "run", {"rules": RULES}), (taken("a", 1),))

    text = save(cassette)

    assert text.startswith(
        rb"""{
  "version": "1",
  "created_at": "2026-11-28",
  "run_id": "run",
  "meta": {
    "rules": {
      "ignore": [
        "body.user",
        "body.seed"
      ],
      "ignore_in": {
        "body.messages[*].content": ["Today is .*, sir", "\\d+"],
        "query.q": ["a"]
      },
      "patterns": {
        "order": "order-[0-9]+"
      },
      "rewrite": [
        "body.next",
        {"body.url":"openai"}
      ],
      "ignore_vary": true,
      "agenttape_ignore": []
    }
  },
  "interactions": [
"""
    )
    assert load(text) == cassette


def test_an_empty_cassette_can_be_written_and_read() -> None:
    assert load(save(StoredCassette(HEAD))) == StoredCassette(HEAD)


def test_positions_number_the_interactions_on_writing() -> None:
    cassette = StoredCassette(HEAD, (interaction(index=7), interaction(index=3)))

    found = load(save(cassette))

    assert [item.index for item in found.interactions] == [0, 1]


def test_an_interaction_copied_by_hand_gets_the_next_free_number() -> None:
    document = json.loads(save(StoredCassette(HEAD, (interaction(), interaction()))))
    copied = [document["interactions"][1], dict(document["interactions"][1])]
    del copied[1]["index"]
    document["interactions"][0]["index"] = 4
    document["interactions"] += [*copied, document["interactions"][0]]

    found = load(json.dumps(document).encode())

    assert [item.index for item in found.interactions] == [4, 1, 5, 6, 7]


def test_a_body_as_deep_as_json_may_be_is_still_readable_in_its_cassette() -> None:
    for depth in (MAX_DEPTH, MAX_DEPTH - 8, MAX_DEPTH - 9):
        body = b"[" * depth + b"]" * depth
        cassette = StoredCassette(HEAD, (interaction(body=body, at_ms=1.0),))

        assert load(save(cassette)) == cassette


def test_bytes_that_json_cannot_hold_come_back_or_are_percent_encoded() -> None:
    odd = interaction(target="/caf\udce9\x01?q=\udcff")
    odd = replace(odd, response=replace(odd.response, head=ResponseHead(200, "d\udce9j\udce0 vu")))

    (found,) = load(save(StoredCassette(HEAD, (odd,)))).interactions

    assert isinstance(found, Interaction)
    assert found.request.target == "/caf%E9%01?q=%FF"
    assert found.response.head.reason == "d\udce9j\udce0 vu"


def test_a_body_that_looks_like_a_reference_of_agenttape_is_kept_as_text() -> None:
    body = b'{"__agenttape_asset__": "sha256:0"}'
    cassette = StoredCassette(HEAD, (interaction(body=body, at_ms=1.0),))

    assert load(save(cassette)) == cassette


def _file(*documents: dict[str, Any]) -> bytes:
    root = {"version": "1", "created_at": "", "run_id": "", "meta": {}, "interactions": documents}
    return json.dumps(root, indent=2).encode()


def _edited(edit: str) -> bytes:
    """The file of one interaction after a person ran `edit` on it."""
    document = json.loads(save(StoredCassette(HEAD, (interaction(),))))
    exec(edit, {"i": document["interactions"][0], "root": document})  # noqa: S102
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")


MISTAKES = [
    ("root['version'] = '2'", "version", "update tapeway"),
    ("root['version'] = None", "", "'version' is missing"),
    ("root['interaction'] = []", "interaction", "did you mean 'interactions'?"),
    ("root['interactions'] = {}", "interactions", "must be a list, not an object"),
    ("root['interactions'][0] = 7", "interactions[0]", "must be an object, not a number"),
    ("del root['interactions']", "", "'interactions' is missing"),
    ("root['meta'] = []", "meta", "must be an object, not a list"),
    ("root['meta'] = {'rules': []}", "meta.rules", "must be a table"),
    ("root['meta'] = {'rules': {'ignore': ['body..a']}}", "meta.rules.ignore[0]", "body.messages"),
    ("root['meta'] = {'rules': {'ingore': []}}", "meta.rules.ingore", "did you mean 'ignore'?"),
    ("del i['kind']", "interactions[0]", "'kind' is missing"),
    ("i['kind'] = 'htpp'", "interactions[0].kind", "did you mean 'http'?"),
    ("i['index'] = '0'", "interactions[0].index", "whole number"),
    ("i['respnse'] = i.pop('response')", "interactions[0]", "neither a 'response' nor an 'error'"),
    ("i['latency'] = 1", "interactions[0].latency", "did you mean 'latency_ms'?"),
    ("i['latency_ms'] = float('nan')", "interactions[0].latency_ms", "no number that JSON can"),
    ("i['response']['json']['n'] = float('inf')", "interactions[0].response.json.n", "no number"),
    ("i['metadata'] = {'a': [float('nan')]}", "interactions[0].metadata.a[0]", "no number"),
    ("i['latency_ms'] = -1", "interactions[0].latency_ms", "from 0 on"),
    ("i['tags'] = ['a', 1]", "interactions[0].tags[1]", "must be text, not a number"),
    ("i['usage'] = 3", "interactions[0].usage", "must be an object"),
    ("del i['request']", "interactions[0]", "'request' is missing"),
    ("del i['request']['url']", "interactions[0].request", "'url' is missing"),
    ("i['request']['url'] = 'api'", "interactions[0].request.url", "absolute URL"),
    ("i['request']['url'] = 'http://h/a\\r\\nb'", "interactions[0].request.url", "absolute URL"),
    ("i['request']['base'] = '/v9'", "interactions[0].request.url", "'base'"),
    ("i['request']['method'] = 'GE T'", "interactions[0].request.method", "no method name"),
    ("i['request']['Headers'] = {}", "interactions[0].request.Headers", "did you mean 'headers'?"),
    ("i['response']['status'] = 200", "interactions[0].response.status", "'status_code'"),
    ("i['response']['status_code'] = 99", "interactions[0].response.status_code", "not 99"),
    ("i['response']['status_code'] = 600", "interactions[0].response.status_code", "not 600"),
    ("i['response']['status_code'] = '200'", "interactions[0].response.status_code", "not text"),
    ("i['response']['status_code'] = True", "interactions[0].response.status_code", "whole number"),
    ("del i['response']['status_code']", "interactions[0].response", "'status_code' is missing"),
    ("i['response']['reason_phrase'] = 'a\\nb'", "interactions[0].response.reason_phrase", "control"),
    ("i['response']['http_version'] = '1.1'", "interactions[0].response.http_version", "HTTP/1.1"),
    ("i['response']['headers'] = {'X A': 'b'}", "interactions[0].response.headers.X A", "no header"),
    ("i['response']['headers'] = {'A': 'b\\r\\nC: d'}", "interactions[0].response.headers.A", "line"),
    ("i['response']['headers'] = {'A': 'b\\0'}", "interactions[0].response.headers.A", "NUL"),
    ("i['response']['headers'] = {'A': 1}", "interactions[0].response.headers.A", "must be text"),
    ("i['response'] |= {'headers': {'A': '漢'}, 'latin1': ['A']}", "interactions[0].response.headers.A", "Latin-1"),
    ("i['response']['framing'] = 'gzip'", "interactions[0].response.framing", "must be one of"),
    ("i['response']['chunks'] = [[1, 2]]", "interactions[0].response.chunks", "framing"),
    ("i['response'] |= {'framing': 'close', 'chunks': [[1]]}", "interactions[0].response.chunks[0]", "must be"),
    ("i['response'] |= {'body_b64': 'e30', 'json': 1}", "interactions[0].response.body_b64", "twice"),
    ("i['response'].pop('json'); i['response']['body_b64'] = '@'", "interactions[0].response.body_b64", "base64"),
    ("i['response'].pop('json'); i['response']['form'] = {'a': 1}", "interactions[0].response.form.a", "text"),
    ("i['request']['json_layout'] = {'indent': 'x'}", "interactions[0].request.json_layout.indent", "blanks"),
    ("i['response']['json'] = chr(0xd800)", "", "not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "place", "reason"), MISTAKES, ids=[edit for edit, _, _ in MISTAKES]
)
def test_a_mistake_is_named_with_its_line_place_and_reason(
    edit: str, place: str, reason: str
) -> None:
    text = _edited(edit)

    with pytest.raises(FormatFault) as caught:
        load(text)

    assert str(caught.value).startswith(f"{place}: " if place else "")
    assert reason in str(caught.value).removeprefix(place)
    assert caught.value.line is not None
    if place and not place.endswith("]"):
        shown = text.decode("utf-8", "replace").split("\n")[caught.value.line - 1]
        assert f'"{place.rpartition(".")[2].partition("[")[0]}"' in shown or "chunks[" in place


BROKEN = [
    (b"", 1, "Expecting value"),
    (b'{\n  "version": "1",\n  oops\n}', 3, "double quotes"),
    (b'{\n "version": "1",\n "version": "1"}', 3, "twice"),
    (b'{"meta": {\n"a": "\\ud800"}}', 2, "surrogate"),
    (b'{"meta":\n\n' + b"9" * 5000 + b"}", 3, "digits"),
    (b'{"meta":\n1e999}', 2, "does not fit"),
    (b'{"meta":\n' + b"[" * 300 + b"]" * 300 + b"}", 2, "deeper"),
    (b'{\n"a": "\xff"}', 2, "not UTF-8"),
    (b"\xef\xbb\xbf{}", 1, "begins with a byte order mark: save it as UTF-8 without one"),
    ('{"version": "1"}'.encode("utf-16"), 1, "begins with the byte order mark of UTF-16: save it"),
    (b"[]", 1, "this is no cassette, which has a 'version' and 'interactions'"),
    (b'{"log": {}}', 1, "this is no cassette"),
    (b"[" * 300, 1, r"^(\[0\]){13} … (\[0\]){3}: nested deeper than 200 levels$"),
    (b'{"meta":\n{"n"' + b"{" * 300, 2, "meta.n: nested deeper than 200 levels"),
    (b'{\n,\n  "interactions": [\n    {}\n  ]\n}\n', 2, "double quotes"),
    (b'{"meta": {}}\n}}' + b"[" * 300, 2, "nested deeper than 200 levels"),
    (b"\n]" + b"[" * 300, 2, "nested deeper than 200 levels"),
    (b'{"\\ud800": ' + b"[" * 300, 1, r"^\\ud800\[0\]"),
    (b'{"' + b"n" * 500 + b'": 1e999}', 1, "^n{80}…: 1e999 does not fit a number"),
]


@pytest.mark.parametrize(("text", "line", "reason"), BROKEN)
def test_a_text_that_is_no_cassette_is_named_with_its_line(
    text: bytes, line: int, reason: str
) -> None:
    with pytest.raises(FormatFault, match=reason) as caught:
        load(text)

    assert caught.value.line == line
    assert is_utf8(str(caught.value))


@given(st.binary(max_size=80) | json_like.map(lambda value: json.dumps(value).encode()))
def test_any_text_is_loaded_or_raises_a_fault(text: bytes) -> None:
    with pytest.raises(FormatFault):
        load(text)


def test_a_reference_is_replaced_by_the_text_of_its_asset() -> None:
    (found,) = load(_file_referring_to(REFERENCE), {DIGEST: LONG.encode()}.get).interactions

    assert isinstance(found, Interaction)
    assert found.response.body == json.dumps({"long": LONG}, ensure_ascii=False).encode()


def test_a_missing_or_changed_asset_is_named_with_its_place() -> None:
    for content, reason in ((None, "is missing"), (b"other", "was changed")):
        with pytest.raises(FormatFault, match=reason) as caught:
            load(_file_referring_to(REFERENCE), {DIGEST: content}.get)
        assert str(caught.value).startswith("interactions[0].response.json.long: ")


def test_a_reference_cannot_name_another_path() -> None:
    with pytest.raises(FormatFault, match="digest"):
        load(_file_referring_to(REFERENCE | {"__agenttape_asset__": "sha256:../../etc/passwd"}))


def test_a_call_of_another_kind_has_its_assets_too() -> None:
    document = json.loads(_file_referring_to(REFERENCE))
    document["interactions"][0]["kind"] = "tool"

    (found,) = load(json.dumps(document).encode(), {DIGEST: LONG.encode()}.get).interactions

    assert isinstance(found, ForeignInteraction)
    answer = found.document["response"]
    assert isinstance(answer, dict)
    assert answer["json"] == {"long": LONG}


def test_bytes_in_an_asset_are_held_as_agenttape_writes_small_ones() -> None:
    octets = b"\x00\xff"
    digest = "sha256:" + hashlib.sha256(octets).hexdigest()
    reference: Json = {
        "__agenttape_asset__": digest,
        "encoding": "base64",
        "size": 2,
        "preview": "",
    }

    assert inline_assets({"raw": reference}, {digest: octets}.get, ()) == {
        "raw": {"__agenttape_bytes__": "AP8="}
    }


def test_the_head_of_a_cassette_may_be_in_assets_too() -> None:
    document = json.loads(_file_referring_to(REFERENCE))
    key = f"sha256:{'0' * 64}"
    document["run_id"], document["created_at"] = (
        _reference("run-7"),
        _reference("2026-11-22T05:23:41.494318"),
    )
    document["meta"] = {"tags": [_reference("smoke")]}
    document["interactions"][0] |= {"match_key": _reference(key), "kind": _reference("http")}
    beside = {_digest(text): text.encode() for text in (key, "http")}

    cassette = load(json.dumps(document).encode(), (beside | {DIGEST: LONG.encode()}).get)

    assert cassette.head.run_id == "run-7"
    assert cassette.head.created_at == "2026-11-22T05:23:41.494318"
    assert cassette.head.meta == {"tags": ["smoke"]}
    (interaction,) = cassette.interactions
    assert isinstance(interaction, Interaction)
    assert interaction.stored_keys == (key,)


def _reference(text: str) -> dict[str, Any]:
    size = len(text.encode())
    preview = {"encoding": "utf-8", "size": size, "preview": text[:64]}
    return {"__agenttape_asset__": _digest(text), **preview}


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _file_referring_to(reference: dict[str, Any]) -> bytes:
    interaction = {
        "index": 0,
        "kind": "http",
        "request": {"method": "GET", "url": "http://h/x"},
        "response": {"status_code": 200, "headers": {}, "json": {"long": reference}},
    }
    return json.dumps({"version": "1", "interactions": [interaction]}).encode()


def test_what_fits_a_line_shares_it_but_for_events_and_large_interactions() -> None:
    def saved(value: Json) -> bytes:
        chunk = (json.dumps(value).encode(), 0.0)
        text = save(StoredCassette(HEAD, (interaction(chunks=(chunk,)),)))
        assert load(text).interactions == (interaction(chunks=(chunk,)),)
        return text

    assert b'\n          "a": {"b": [1, 2], "c": " x  {\\n} "},\n' in saved(
        {"a": {"b": [1, 2], "c": " x  {\n} "}, "d": "y" * 90}
    )
    assert b'\n          "a": {\n            "b": "' in saved({"a": {"b": "z" * 100}})
    assert b'\n          "text": [\n            1,\n            2\n          ]\n' in saved(
        {"text": [1, 2]}
    )
    assert b'\n            "a": {\n              "b": 1\n' in saved(
        [{"a": {"b": 1}}, "y" * 300_000]
    )
