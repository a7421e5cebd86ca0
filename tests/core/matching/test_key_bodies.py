"""Which bodies are equal to a cassette."""

import gzip
import json
import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, dump, parse, same_json
from tapeway.core.matching.key import request_key
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tests.core.keys import FORM, JSON, TEXT, key


def chat(**changed: Json) -> bytes:
    asked: dict[str, Json] = {
        "model": "gpt-4.1",
        "stream": False,
        "n": 1,
        "temperature": 1.0,
        "tools": [{"type": "function", "function": {"name": "weather"}}],
        "messages": [{"role": "user", "content": "Count from 1.0 to 3: one, two"}],
    }
    return dump(asked | changed)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
        (b'{"a":1}', b' {\n\t"a" :\r\n 1 } '),
        (b'{"a":"\\u00e9\\u0041\\/"}', '{"a":"éA/"}'.encode()),
        (b'{"a":"\\ud83d\\ude00"}', '{"a":"😀"}'.encode()),
        (b'{"\\u0061":1}', b'{"a":1}'),
        (b"1", b"1.0"),
        (b"1", b"1e0"),
        (b"1", b"10E-1"),
        (b"1", b"1.000000"),
        (b"100", b"1e2"),
        (b"0", b"-0.0"),
        (b"0", b"-0"),
        (b"0", b"0e99"),
        (b"1.5", b"15e-1"),
        (b"1.50", b"1.5"),
        (b"[0.1]", b"[1e-1]"),
        (b"18446744073709551616", b"18446744073709551616.0"),
        (b"1e22", b"10000000000000000000000"),
        (b'{"a":[{"t":1.0}]}', b'{"a":[{"t":1}]}'),
        (b'{"a":1.0}', b'{"a":1 }'),
        (b'{"big":123456789012345678901234567890,"t":1.0}',) * 2,
    ],
)
def test_json_with_the_same_value_is_equal(left: bytes, right: bytes) -> None:
    assert key(left) == key(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (b"[1,2]", b"[2,1]"),
        (b'{"a":1}', b'{"a":2}'),
        (b'{"a":1}', b'{"b":1}'),
        (b'{"a":1}', b'{"a":1,"b":null}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":1}', b'{"a":true}'),
        (b'{"a":0}', b'{"a":false}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":[]}', b'{"a":{}}'),
        (b'"1.0"', b'"1"'),
        (b'{"v":"1.0"}', b'{"v":"1"}'),
        (b'{"v":": 1.0,"}', b'{"v":": 1,"}'),
        (b'{"1.0":0}', b'{"1":0}'),
        (b"1", b"1.0000000000000002"),
        (b"9007199254740993", b"9007199254740992"),
        (b'{"seed":9007199254740993}', b'{"seed":9007199254740992.0}'),
        (b"18446744073709551616", b"18446744073709551617"),
        (b"-9223372036854775809", b"-9223372036854775810"),
        (b"123456789012345678901234567890", b"123456789012345678901234567891"),
        (b'{"a":"x"}', b'{"a":"x "}'),
        (b'{"a":"X"}', b'{"a":"x"}'),
        ('"é"'.encode(), '"e\u0301"'.encode()),
        (b"1e400", b"1e401"),
        (b'{"a":NaN}', b'{"a":null}'),
        (b"", b"null"),
        (b"", b"{}"),
    ],
)
def test_json_with_another_value_is_not_equal(left: bytes, right: bytes) -> None:
    assert key(left) != key(right)


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "gpt-4.10"},
        {"stream": True},
        {"n": 2},
        {"temperature": 0.9},
        {"tools": []},
        {"messages": [{"role": "user", "content": "Count from 1.0 to 3: one, too"}]},
        {"messages": [{"role": "user", "content": "Count from 1 to 3: one, two"}]},
        {"messages": [{"role": "system", "content": "Count from 1.0 to 3: one, two"}]},
        {"user": "somebody"},
    ],
)
def test_everything_sent_to_a_model_counts(changed: dict[str, Json]) -> None:
    assert key(chat()) != key(chat(**changed))


@pytest.mark.parametrize(
    "body",
    [b"{", b"{'a':1}", b'"\\ud800"', b'"\xff"', b"[1,]", b"nonsense 1.0", b"\xef\xbb\xbf{}"],
)
def test_a_body_with_a_json_type_that_is_no_json_counts_as_its_bytes(body: bytes) -> None:
    assert key(body) == key(body)
    assert key(body) != key(body + b" ")


@pytest.mark.parametrize("depth", [100, 199, 201, 254, 255, 256, 1023, 1024, 1025, 50_000])
def test_any_depth_has_a_key(depth: int) -> None:
    def deep(inner: bytes) -> bytes:
        return b"[" * depth + inner + b"]" * depth

    assert key(deep(b"1")) == key(deep(b"1"))
    assert key(deep(b"1")) != key(deep(b"2"))
    assert key(deep(b"1.0")) != key(deep(b"2.0"))


def respaced(value: Json, chance: random.Random) -> str:
    """The value written anew: keys in another order, more blanks, other escapes and numbers."""
    blank = chance.choice(["", " ", "\n", "\t "])
    if isinstance(value, dict):
        pairs = [
            f"{blank}{respaced(name, chance)}{blank}:{respaced(member, chance)}"
            for name, member in chance.sample(sorted(value.items()), len(value))
        ]
        return f"{{{','.join(pairs)}{blank}}}"
    if isinstance(value, list):
        return f"[{','.join(respaced(item, chance) for item in value)}{blank}]"
    if isinstance(value, str):
        return blank + json.dumps(value, ensure_ascii=chance.choice([True, False]))
    if isinstance(value, int) and not isinstance(value, bool):
        return chance.choice([f"{value}", f"{value}.0", f"{value}e0", f"{value * 100}e-2"])
    return json.dumps(value)


strings = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["gpt-4.1", "1.0", ":1.0,", "[1e5]", '"', "\\", "1e+16", "x: 1.0}", "REDACTED.key.0a1b2c3d"]
)
values: st.SearchStrategy[Json] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**25), 10**25),
        st.floats(allow_nan=False, allow_infinity=False),
        strings,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)
    ),
    max_leaves=15,
)


@given(values, st.randoms(use_true_random=False))
def test_a_body_written_in_another_way_is_equal(value: Json, chance: random.Random) -> None:
    assert key(respaced(value, chance).encode()) == key(dump(value))


alike: st.SearchStrategy[Json] = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        0.0,
        1.0,
        1.5,
        "",
        "1",
        "1.0",
        2**53,
        2**53 + 1,
        2.0**53,
        2**64,
        2.0**64,
    ]
)
nearly_equal: st.SearchStrategy[Json] = st.recursive(
    alike,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=3,
)


@given(nearly_equal, nearly_equal)
def test_two_bodies_are_equal_only_where_their_values_are(left: Json, right: Json) -> None:
    equal = same_json(parse(dump(left), by_value=True), parse(dump(right), by_value=True))

    assert (key(dump(left)) == key(dump(right))) is equal


@pytest.mark.parametrize(
    "content_type",
    [
        b"application/json",
        b"Application/JSON; charset=utf-8",
        b"application/vnd.api+json",
        b"application/problem+JSON",
    ],
)
def test_every_json_type_is_read_as_json(content_type: bytes) -> None:
    headers = ((b"Content-Type", content_type),)

    assert key(b'{"a":1,"b":2}', headers) == key(b'{"b":2, "a":1}', headers)


@pytest.mark.parametrize("headers", [(), FORM, ((b"content-type", b"text/json"),)])
def test_json_is_read_as_json_where_its_type_says_form_or_is_missing(
    headers: Headers,
) -> None:
    left, right = b'{"a": "x & y", "b": 1}', b' {"b":1.0,"a":"x & y"}'

    assert key(left, headers) == key(right, headers) == key(left, JSON)
    assert key(left, headers) != key(right.replace(b"x", b"z"), headers)
    assert key(b"{a=1", headers) != key(b"{a=2", headers)


def test_text_counts_byte_by_byte() -> None:
    assert key(b'{"a": 1}', TEXT) != key(b'{"a":1}', TEXT)
    assert key(b'{"a":1}', TEXT) != key(b'{"a":1}', JSON)
    assert key(b"\x00\xff", ()) != key(b"\x00\xfe", ())


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (b"a=1&b=2", b"b=2&a=1", True),
        (b"a=%41+b", b"a=A%20b", True),
        (b"a=", b"a", True),
        (b"a=1&a=2", b"a=2&a=1", False),
        (b"a=1", b"a=2", False),
        (b"a=1&a=1", b"a=1", False),
        (b"a=%ff", b"a=%fe", False),
        (b"a=1&b=2", b"a=1%26b%3D2", False),
    ],
)
def test_a_form_counts_by_its_pairs(left: bytes, right: bytes, equal: bool) -> None:
    assert (key(left, FORM) == key(right, FORM)) is equal


Part = tuple[bytes, bytes, bytes]
AUDIO: Part = (b'name="file"; filename="a.wav"', b"audio/wav", b"\x00\x01\r\n")
MODEL: Part = (b'name="model"', b"", b"whisper-1")


def multipart(
    *parts: Part, boundary: bytes = b"xx", kind: bytes = b"form-data"
) -> tuple[bytes, Headers]:
    pieces = []
    for disposition, content_type, content in parts:
        head = b"Content-Disposition: form-data; " + disposition + b"\r\n" if disposition else b""
        head += b"Content-Type: " + content_type + b"\r\n" if content_type else b""
        pieces.append(b"--" + boundary + b"\r\n" + head + b"\r\n" + content + b"\r\n")
    body = b"".join(pieces) + b"--" + boundary + b"--\r\n"
    return body, ((b"content-type", b"multipart/" + kind + b"; boundary=" + boundary),)


def test_a_form_with_files_is_equal_whatever_its_boundary_and_the_order_of_its_names() -> None:
    sent = key(*multipart(AUDIO, MODEL))

    assert sent == key(*multipart(MODEL, AUDIO, boundary=b"----other.Boundary"))


@pytest.mark.parametrize(
    "parts",
    [
        [AUDIO],
        [AUDIO, (b'name="model"', b"", b"whisper-2")],
        [AUDIO, (b'name="modell"', b"", b"whisper-1")],
        [(b'name="file"; filename="b.wav"', b"audio/wav", b"\x00\x01\r\n"), MODEL],
        [(b'name="file"; filename="a.wav"', b"audio/mp3", b"\x00\x01\r\n"), MODEL],
        [(b'name="file"; filename="a.wav"', b"audio/wav", b"\x00\x02\r\n"), MODEL],
        [(b'name="file"', b"audio/wav", b"\x00\x01\r\n"), MODEL],
        [AUDIO, MODEL, MODEL],
    ],
)
def test_every_part_of_a_form_counts(parts: list[Part]) -> None:
    assert key(*multipart(*parts)) != key(*multipart(AUDIO, MODEL))


def test_parts_of_one_name_count_in_their_order() -> None:
    one, two = (b'name="f"', b"", b"1"), (b'name="f"', b"", b"2")

    assert key(*multipart(one, two)) != key(*multipart(two, one))


def test_an_upload_in_two_related_parts_is_equal_whatever_its_boundary() -> None:
    about, data = (b"", b"application/json", b"{}"), (b"", b"image/png", b"\x89PNG")
    sent = key(*multipart(about, data, kind=b"related"))

    assert sent == key(*multipart(about, data, kind=b"related", boundary=b"other"))
    assert sent != key(*multipart(data, about, kind=b"related"))


def test_a_malformed_form_counts_as_its_bytes() -> None:
    body, headers = multipart(AUDIO, MODEL)

    assert key(body[:-9], headers) == key(body[:-9], headers)
    assert key(body[:-9], headers) != key(body[:-10], headers)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        (b"gzip", gzip.compress(b'{"a": 1}', mtime=1)),
        (b"gzip", gzip.compress(b'{"a": 1}', 1, mtime=2)),
        (b"deflate", zlib.compress(b'{"a": 1}')),
    ],
)
def test_a_compressed_body_is_another_request_than_the_plain_one(
    coding: bytes, packed: bytes
) -> None:
    coded = key(packed, (*JSON, (b"Content-Encoding", coding)))
    stored = Request("r", "POST", "/", JSON, b'{"a": 1}', coding=coding)
    named = (*JSON, (b"content-encoding", b" " + coding.upper()))

    assert coded != key(b'{"a":1}')
    assert coded == key(packed, named)
    assert request_key(replace(stored, route="openai", target="/v1/x")) == coded


def test_a_body_that_is_coded_in_no_way_is_plain() -> None:
    assert key(b"{}", (*JSON, (b"content-encoding", b"identity"))) == key(b"{}")


def test_a_body_that_cannot_be_decoded_counts_as_its_bytes() -> None:
    headers = (*JSON, (b"content-encoding", b"br"))

    assert key(b"\x01\x02", headers) == key(b"\x01\x02", headers)
    assert key(b"\x01\x02", headers) != key(b"\x01\x03", headers)
    assert key(b"{}", headers) != key(b"{}")


def test_codings_in_two_fields_are_those_of_one_list() -> None:
    kind = (b"content-type", b"application/json")
    coded = gzip.compress(zlib.compress(b'{"a": 1}'))
    in_two = (kind, (b"Content-Encoding", b"deflate"), (b"content-encoding", b"gzip"))
    in_one = (kind, (b"content-encoding", b"deflate, gzip"))

    keys = {
        request_key(Request("r", "POST", "/", headers, body))
        for headers, body in ((in_two, coded), (in_one, coded))
    }

    assert len(keys) == 1


def signed(data: bytes, signature: bytes, size: int = 7) -> bytes:
    """What an AWS client sends of data, chunk by chunk."""
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    mark = b";chunk-signature=" + signature
    framed = [b"%x%b\r\n%b\r\n" % (len(chunk), mark, chunk) for chunk in chunks]
    return b"".join([*framed, b"0", mark, b"\r\nx-amz-checksum-crc32:AAAA==\r\n\r\n"])


@pytest.mark.parametrize(
    "headers",
    [
        ((b"Content-Encoding", b"aws-chunked"),),
        ((b"x-amz-content-sha256", b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),),
        ((b"x-amz-content-sha256", b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"),),
    ],
)
@pytest.mark.parametrize("size", [30, 3 * LARGE_BODY])
def test_signatures_of_chunks_do_not_count(headers: Headers, size: int) -> None:
    data = random.Random(7).randbytes(size)
    one = key(signed(data, b"1f", 70_000), headers)

    assert key(signed(data, b"2e", 90_000), headers) == one
    assert key(signed(data[::-1], b"1f", 70_000), headers) != one


def test_data_in_signed_chunks_may_be_coded_too() -> None:
    listed = [
        ((b"content-encoding", text),) for text in (b"aws-chunked,gzip", b"gzip, aws-chunked")
    ]
    packed = signed(gzip.compress(b"data", mtime=1), b"1f")

    assert key(packed, listed[0]) == key(packed, listed[1])
    assert key(packed, listed[0]) != key(signed(b"data", b"1f"), listed[0])


@pytest.mark.parametrize("cut", [1, 5, 12, 30, 95])
def test_a_body_that_is_said_to_be_in_signed_chunks_and_is_not_counts_as_its_bytes(
    cut: int,
) -> None:
    headers = ((b"content-encoding", b"aws-chunked"),)
    body = signed(b"some data in it", b"1f")[:cut]

    assert key(body, headers) == key(body, headers)
    assert key(body, headers) != key(body + b"x", headers)


def changes(outer: bytes, inner: bytes, value: bytes = b"1", *, in_message: bool = False) -> bytes:
    """A batch with a change set, with these boundaries."""
    change_set = (
        b"--%b\r\nContent-Type: application/http\r\n\r\nPOST Customers HTTP/1.1\r\n\r\n"
        b'{"a": %b}\r\n--%b--\r\n' % (inner, value, inner)
    )
    kind = b"Content-Type: multipart/mixed; boundary=%b; x=1\r\n\r\n" % inner
    if in_message:
        kind = b"Content-Type: application/http\r\n\r\nPOST /x HTTP/1.1\r\n" + kind
    return b"--%b\r\n%b%b\r\n--%b--\r\n" % (outer, kind, change_set, outer)


@pytest.mark.parametrize("in_message", [False, True])
def test_boundaries_inside_a_part_do_not_count(in_message: bool) -> None:
    def asked(outer: bytes, inner: bytes, value: bytes = b"1") -> bytes:
        headers = ((b"content-type", b"multipart/mixed; boundary=" + outer),)
        return key(changes(outer, inner, value, in_message=in_message), headers)

    assert asked(b"batch_1", b"changeset_1") == asked(b"batch_2", b"changeset_2")
    assert asked(b"batch_1", b"changeset_1") != asked(b"batch_1", b"changeset_1", b"2")


def test_boundaries_at_any_depth_of_a_large_body_do_not_count() -> None:
    def asked(name: bytes, value: bytes = b"1") -> bytes:
        body = changes(b"b-" + name, b"c-" + name, value * LARGE_BODY)
        outer = b"--a-%b\r\nContent-Type: multipart/mixed; boundary=b-%b\r\n\r\n" % (name, name)
        headers = ((b"content-type", b"multipart/mixed; boundary=a-" + name),)
        return key(outer + body + b"\r\n--a-%b--\r\n" % name, headers)

    assert asked(b"one") == asked(b"other")
    assert asked(b"one") != asked(b"one", b"2")


@pytest.mark.parametrize(
    "body",
    [
        b"&".join([b"a=%d" % number for number in range(10_001)]),
        b"a=" + b"x" * 70_000,
        b"a=\xff&b=1",
        "a=\u00fc&b=1".encode(),
    ],
)
def test_what_only_is_called_a_form_is_compared_by_its_bytes(body: bytes) -> None:
    turned = b"&".join(reversed(body.split(b"&")))

    assert key(body, FORM) == key(body, FORM)
    assert turned == body or key(turned, FORM) != key(body, FORM)
    assert key(body + b"&c=1", FORM) != key(body, FORM)
