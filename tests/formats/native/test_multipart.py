"""A multipart body as its parts, and back to the same bytes."""

import random
from typing import Any

import pytest

from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields
from tapeway.formats.native import multipart

KIND = "multipart/form-data; boundary=cut"


def _body(*parts: bytes, end: bytes = b"\r\n") -> bytes:
    return b"".join([b"--cut\r\n" + part + b"\r\n" for part in parts]) + b"--cut--" + end


def _field(name: str) -> bytes:
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n'.encode()


def test_each_part_is_shown_with_its_headers_and_its_content() -> None:
    picture = b"Content-Disposition: form-data; name=p\r\nContent-Type: image/png\r\n\r\n\x89PNG"

    shown = multipart.encode(_body(_field("model") + b"whisper-1", picture), KIND)

    assert shown == {
        "multipart": {
            "parts": [
                {
                    "headers": {"Content-Disposition": 'form-data; name="model"'},
                    "text": "whisper-1",
                },
                {
                    "headers": {
                        "Content-Disposition": "form-data; name=p",
                        "Content-Type": "image/png",
                    },
                    "body_b64": "iVBORw==",
                },
            ]
        }
    }


def test_an_edit_of_a_part_is_sent_as_that_part() -> None:
    shown: Any = multipart.encode(_body(_field("a") + b"1", _field("b") + b"2"), KIND)
    shown["multipart"]["parts"][1]["text"] = "three"

    assert _read(shown) == _body(_field("a") + b"1", _field("b") + b"three")


@pytest.mark.parametrize(
    "body",
    [
        _body(_field("a") + b"1"),
        _body(_field("a") + b"1", end=b""),
        _body(_field("a") + b"1", end=b"\r\nepilogue"),
        _body(_field("a")),
        _body(b"\r\nno headers"),
        _body(_field("a") + b"--cuttings\r\n--cut-off"),
        _body(_field("a") + b"\r\n\r\n\r\n"),
        b"--cut--\r\n",
    ],
)
def test_a_body_in_parts_comes_back_byte_for_byte(body: bytes) -> None:
    shown = multipart.encode(body, KIND)

    assert shown
    assert _read(shown) == body


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", KIND),
        (b"no part", KIND),
        (b"preamble\r\n" + _body(_field("a") + b"1"), KIND),
        (b"--cut \r\n" + _field("a") + b"1\r\n--cut--\r\n", KIND),
        (_body(b"A:1\r\n\r\nx"), KIND),
        (_body(b"A: 1\r\nA: 2\r\n\r\nx"), KIND),
        (_body(b"A: \xff\r\n\r\nx"), KIND),
        (_body(b"no end of the head"), KIND),
        (_body(_field("a") + b"1", end=b"\xff"), KIND),
        (b"--cut\r\n" + _field("a") + b"1\r\n--cut", KIND),
        (_body(_field("a") + b"1"), "multipart/form-data"),
        (_body(_field("a") + b"1"), "text/plain; boundary=cut"),
    ],
)
def test_a_body_whose_parts_would_not_give_it_back_is_not_divided(body: bytes, kind: str) -> None:
    assert multipart.encode(body, kind) == {}


def test_random_bodies_are_divided_only_where_they_come_back() -> None:
    draw = random.Random(14)
    pieces = [b"--cut", b"\r\n", b"--", b"A: b", b":", b" ", b"\xff", b"x", _field("n")]
    divided = 0
    for _ in range(3000):
        middle = b"".join(draw.choices(pieces, k=draw.randrange(8)))
        body = draw.choice([middle, _body(middle), _body(_field("a") + middle, middle)])
        if shown := multipart.encode(body, KIND):
            divided += 1
            assert _read(shown) == body
    assert divided > 500


@pytest.mark.parametrize(
    ("field", "kind", "at"),
    [
        ({"parts": []}, "text/plain", "multipart"),
        ({"parts": [{"headers": {"A": "b\r\nC: d"}}]}, KIND, "A"),
        ({"parts": [{"headers": {"A": 1}}]}, KIND, "A"),
        ({"parts": [{"text": "a", "body_b64": ""}]}, KIND, "body_b64"),
        ({"parts": [{"content-type": "a"}]}, KIND, "content-type"),
        ({"part": []}, KIND, "part"),
        ({"parts": ["a"]}, KIND, 0),
    ],
)
def test_a_wrong_part_is_named(field: Any, kind: str, at: str | int) -> None:
    with pytest.raises(FormatFault) as caught:
        multipart.decode(Fields({"multipart": field}, ()), kind)

    assert caught.value.pointer[-1] == at


def _read(shown: dict[str, Any]) -> bytes:
    return multipart.decode(Fields(shown, ()), KIND)
