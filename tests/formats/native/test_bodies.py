"""The fields of a body, as recorded and as edited by people."""

import base64
import json
from collections import Counter
from types import ModuleType
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeway.core.agenttape import key
from tapeway.core.json_text import Json
from tapeway.core.matching.key import key_and_body
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.cassette import ReadBodies
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.streams.documents import json_value
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields
from tapeway.formats.native import bodies, http_exchange
from tests.support.thoroughness import examples

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


SHOWN: list[tuple[str, bytes, dict[str, Any]]] = [
    (JSON, b"", {}),
    (JSON, b'{"a": 1}', {"json": {"a": 1}}),
    (JSON, b"null", {"json": None}),
    (JSON, b'{"a":1}', {"json": {"a": 1}, "json_layout": {"compact": True}}),
    (JSON, b'{\n  "a": 1\n}\n', {"json": {"a": 1}, "json_layout": {"indent": 2, "after": "\n"}}),
    (JSON, b'{\n\t"a": 1\n}', {"json": {"a": 1}, "json_layout": {"indent": "\t"}}),
    (JSON, b'{"a":"\\u00e9"}', {"json": {"a": "é"}, "json_layout": {"compact": True, "ascii": True}}),
    ("application/problem+json; charset=utf-8", b"[]", {"json": []}),
    ("Application/JSON ; charset=utf-8", b"[]", {"json": []}),
    (JSON, b'{"a":1e5}', {"json": {"a": 100000.0}, "raw_b64": "eyJhIjoxZTV9"}),
    (JSON, b'{"a":1e16}', {"json": {"a": 1e16}, "raw_b64": "eyJhIjoxZTE2fQ=="}),
    (JSON, b'{"a": 0.00001}', {"json": {"a": 1e-05}, "raw_b64": "eyJhIjogMC4wMDAwMX0="}),
    (JSON, b'{"a": 1, "a": 2}', {"text": '{"a": 1, "a": 2}'}),
    (JSON, b"NaN", {"text": "NaN"}),
    (JSON, b'{"a": ', {"text": '{"a": '}),
    (JSON, b'"\xff"', {"body_b64": "Iv8i"}),
    (JSON, b"9" * 5000, {"text": "9" * 5000}),
    (FORM, b"a=1&b=x+y&a=2", {"form": {"a": ["1", "2"], "b": "x y"}, "raw_b64": "YT0xJmI9eCt5JmE9Mg=="}),
    (FORM, b"a=1&a=2&b=", {"form": {"a": ["1", "2"], "b": ""}}),
    (FORM, b"a=%20", {"form": {"a": " "}, "raw_b64": "YT0lMjA="}),
    (FORM, b"\xff", {"body_b64": "/w=="}),
    ("text/event-stream", b"data: h\xc3\xa9\n\n", {"text": "data: hé\n\n"}),
    ("image/png", b"\x89PNG", {"body_b64": "iVBORw=="}),
    ("", b'{"a":1}', {"text": '{"a":1}'}),
]  # fmt: skip


@pytest.mark.parametrize(("content_type", "octets", "shown"), SHOWN)
def test_a_body_is_shown_as_readably_as_its_bytes_allow(
    content_type: str, octets: bytes, shown: dict[str, Any]
) -> None:
    assert bodies.encode(octets, content_type) == shown
    assert _read(shown) == octets


def test_an_edit_of_the_parsed_value_keeps_the_layout() -> None:
    shown = bodies.encode(b'{"a":1,"b":"\\u00e9"}\n', JSON)

    assert _read(shown | {"json": {"a": 2, "b": "è"}}) == b'{"a":2,"b":"\\u00e8"}\n'


def test_an_edit_wins_over_the_raw_copy() -> None:
    shown = bodies.encode(b'{"a":1e5}', JSON)

    assert _read(shown | {"json": {"a": 3}}) == b'{"a": 3}'


def test_an_edit_from_1_to_1_point_0_is_an_edit() -> None:
    raw = base64.b64encode(b'{"a" :1}').decode()

    assert _read({"json": {"a": 1}, "raw_b64": raw}) == b'{"a" :1}'
    assert _read({"json": {"a": 1.0}, "raw_b64": raw}) == b'{"a": 1.0}'
    assert _read({"json": {"a": True}, "raw_b64": raw}) == b'{"a": true}'


def test_a_raw_copy_of_unusual_json_counts() -> None:
    """AgentTape parsed leniently: the last of two equal keys won."""
    odd = b'{"a": 1, "a": 2}'

    assert _read({"json": {"a": 2}, "raw_b64": base64.b64encode(odd).decode()}) == odd


def test_an_edited_form_wins_over_its_raw_copy() -> None:
    shown = bodies.encode(b"a=%20&b=1", FORM)

    assert _read(shown | {"form": {"a": "x", "b": ["1", "2"]}}) == b"a=x&b=1&b=2"


def test_a_raw_copy_that_is_no_json_loses() -> None:
    assert _read({"json": 1, "raw_b64": "/w=="}) == b"1"


def test_a_raw_copy_alone_is_the_body() -> None:
    assert _read({"raw_b64": "/w=="}) == b"\xff"


def test_the_content_field_of_old_cassettes_is_text() -> None:
    assert _read({"content": "hé"}) == "hé".encode()


def _read(shown: dict[str, Any]) -> bytes:
    return bodies.decode(Fields(shown, ()))


def test_a_layout_that_is_wrong_is_told_from_one_that_is_equal_to_it() -> None:
    right: dict[str, Json] = {"json": {"a": 1}, "json_layout": {"compact": True}}
    wrong: dict[str, Json] = {"json": {"a": 1}, "json_layout": {"compact": 1}}

    for _ in range(2):
        assert bodies.decode(Fields(right, ())) == b'{"a":1}'
        with pytest.raises(FormatFault, match="must be true or false") as caught:
            bodies.decode(Fields(wrong, ("request",)))
        assert caught.value.pointer == ("request", "json_layout", "compact")


@pytest.mark.parametrize(
    ("layout", "body"),
    [
        ({"compact": True}, b'{"t":1e-05,"n":[0.5,1e+22]}'),
        ({"indent": 2}, b'{\n  "t": 1e-05,\n  "n": [\n    0.5,\n    1e+22\n  ]\n}'),
        ({"compact": True, "after": "\n"}, b'{"t":1e-05,"n":[0.5,1e+22]}\n'),
    ],
)
def test_numbers_are_written_as_python_writes_them(layout: dict[str, Json], body: bytes) -> None:
    fields: dict[str, Json] = {"json": {"t": 1e-05, "n": [0.5, 1e22]}, "json_layout": layout}

    assert bodies.decode(Fields(fields, ())) == body
    assert bodies.encode(body, "application/json") == fields


_TEXTS = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 2**53, 2**64, -(2**70), 1.0, -0.0, 1e-5, 1e16, 0.1, 1e300])
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@given(
    _TEXTS,
    st.booleans(),
    st.sampled_from([None, 1, 2, "\t"]),
    st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")]),
    st.sampled_from(["", "\n", " "]),
    st.sampled_from([("", ""), ("1", "1.0"), ('"', '"a":1,"'), ("e", "E"), ("0", "-0")]),
)
def test_a_body_has_the_same_fields_whether_orjson_reads_it_or_the_standard_library(
    value: Json,
    ascii_only: bool,
    indent: int | str | None,
    separators: tuple[str, str],
    around: str,
    edit: tuple[str, str],
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    body = (around + text.replace(*edit) + around).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        # Without orjson, the standard library reads the body: the result to compare with.
        patch.setattr(bodies, "_read_at_once", lambda *_: (None, None))
        strictly = bodies.encode(body, JSON)
    found = bodies.encode(body, JSON)
    assert repr(found) == repr(strictly)
    assert _read(found) == body


@settings(max_examples=examples(300))
@given(
    _TEXTS,
    st.booleans(),
    st.sampled_from([None, 2]),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from([("", ""), ("1", "1.0"), ('"', '"a":1,"'), ("e", "E"), ("0", "-0")]),
)
def test_a_recording_has_the_same_fields_whether_its_bodies_were_read_before(
    value: Json,
    ascii_only: bool,
    indent: int | None,
    separators: tuple[str, str],
    edit: tuple[str, str],
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    body = text.replace(*edit).encode("utf-8", "surrogatepass")
    fields = ((b"content-type", b"application/json"),)
    asked = Request("default", "POST", "/x", fields, body)
    made = Interaction(0, asked, Response(ResponseHead(200, headers=fields), body))
    read = key_and_body(asked, NO_RULES).read
    known = ReadBodies(read if read is not None and read.exact else None, json_value(made.response))

    assert repr(http_exchange.encode(made, known)) == repr(http_exchange.encode(made))


@pytest.mark.parametrize("body", [b'{"a": [1, 0.5]}', b'{"a":[1,0.5]}', b'{\n  "a": "\xc3\xa9"\n}'])
def test_the_body_of_a_request_is_read_once_for_the_file_and_for_agenttapes_key(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()

    def count(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            reads[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    asked = Request("default", "POST", "/x", ((b"Content-Type", b"application/json"),), body)
    made = Interaction(0, asked, Response(ResponseHead(200)))
    wanted = key.http_key(asked)
    count(orjson, "loads")
    count(bodies, "parse")
    count(key, "python_value")
    assert http_exchange.encode(made)["match_key"] == wanted
    assert reads == {"loads": 1}
