"""Bodies for reading: as text, as octets, cut to a head, and the media in them."""

import base64
import gzip
import json
from typing import Any

import pytest

from tapeway.core.model.messages import Headers, Request
from tapeway.inspection.reading import HEAD, HeldBody, body_part, embedded_media, held_body

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
WAV = b"RIFF\x24\0\0\0WAVEfmt " + bytes(100)
JSON: Headers = ((b"Content-Type", b"application/json; charset=utf-8"),)


def text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def part(octets: bytes, headers: Headers = JSON) -> dict[str, object]:
    return body_part(HeldBody(octets, len(octets)), headers)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("octets", "headers", "kind"),
    [
        (b"", JSON, "empty"),
        (b'{"a":1}', JSON, "json"),
        (b'{"a":1}', ((b"content-type", b"text/json"),), "json"),
        (b"a=1&b=2", ((b"content-type", b"application/x-www-form-urlencoded"),), "form"),
        (b"data: 1\n\n", ((b"content-type", b"text/event-stream"),), "text"),
        (b"{", JSON, "text"),
        (b"\xff\0\xfe", JSON, "bytes"),
    ],
)
def test_a_body_is_read_as_what_it_is(octets: bytes, headers: Headers, kind: str) -> None:
    assert part(octets, headers)["kind"] == kind


def test_a_multipart_body_lists_its_parts_with_previews() -> None:
    headers: Headers = ((b"Content-Type", b"multipart/form-data; boundary=x"),)
    contents = [
        (b'name="prompt"', b"", "Grün".encode()),
        (b'name="image"; filename="a.svg"', b"\r\nContent-Type: image/svg+xml", PNG),
        (b'name="file"; filename="a.wav"', b"", WAV),
        (b'name="drawing"', b"\r\nContent-Type: image/svg+xml", b"<svg/>\xff"),
    ]
    body = b"".join(
        b"--x\r\nContent-Disposition: form-data; %b%b\r\n\r\n%b\r\n" % content
        for content in contents
    )

    parts: Any = part(body + b"--x--\r\n", headers)["parts"]

    assert [(each["name"], each["filename"], each["media_type"]) for each in parts] == [
        ("prompt", None, None),
        ("image", "a.svg", "image/png"),
        ("file", "a.wav", "audio/wav"),
        ("drawing", None, "image/svg+xml"),
    ]
    assert [each["text"] for each in parts] == ["Grün", None, None, None]
    assert [each["base64"] for each in parts] == [None, text(PNG), text(WAV), None]
    assert [each["size"] for each in parts] == [5, len(PNG), len(WAV), 7]


def test_a_coded_body_is_read_decoded() -> None:
    coded = gzip.compress(b'{"a":1}')
    request = Request("r", "POST", "/", (*JSON, (b"content-encoding", b"gzip")), coded)

    assert held_body(request) == HeldBody(b'{"a":1}', 7)


def test_a_long_body_is_cut_to_its_head_within_no_character() -> None:
    octets = b'"' + "ü".encode() * HEAD + b'"'

    found = part(octets)

    assert (found["kind"], found["cut"], found["size"]) == ("json", True, len(octets))
    assert found["text"] == '"' + "ü" * ((HEAD - 1) // 2)


def test_octets_that_are_no_text_are_given_as_base64() -> None:
    found = part(PNG, ((b"content-type", b"application/octet-stream"),))

    assert (found["text"], found["base64"]) == (None, text(PNG))
    assert found["media"] == [
        {"path": "", "steps": [], "media_type": "image/png", "size": len(PNG), "encoding": "raw"}
    ]


def test_the_head_of_a_body_in_a_file_names_the_file() -> None:
    found = body_part(HeldBody("aü".encode()[:2], 9_000_000, "ab" * 32), JSON)

    assert (found["text"], found["sha256"], found["cut"]) == ("a", "ab" * 32, True)


def test_media_inside_json_are_found_by_place_type_and_size() -> None:
    value = {
        "data": [{"b64_json": text(PNG)}],
        "content": [{"image_url": {"url": f"data:image/webp;base64,{text(b'x' * 99)}"}}],
        "audio": {"data": text(WAV), "format": "wav"},
        "text": "iVBORw0KGgo is how base64 of a PNG begins, but this is a sentence about it.",
    }

    found = part(json.dumps(value).encode())["media"]

    assert found == [
        {
            "path": "data[0].b64_json",
            "steps": ["data", 0, "b64_json"],
            "media_type": "image/png",
            "size": len(PNG),
            "encoding": "base64",
        },
        {
            "path": "content[0].image_url.url",
            "steps": ["content", 0, "image_url", "url"],
            "media_type": "image/webp",
            "size": 99,
            "encoding": "data_url",
        },
        {
            "path": "audio.data",
            "steps": ["audio", "data"],
            "media_type": "audio/wav",
            "size": len(WAV),
            "encoding": "base64",
        },
    ]


@pytest.mark.parametrize(
    ("octets", "media"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"ID3\x04", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"....ftypisom", "video/mp4"),
        (b"%PDF-1.7", "application/pdf"),
        (b"nothing known", None),
    ],
)
def test_base64_is_known_by_what_it_begins_with(octets: bytes, media: str | None) -> None:
    found = embedded_media(text(octets + bytes(90)))

    assert (None if found is None else found[0]) == media


def test_a_data_url_that_is_not_base64_is_a_text() -> None:
    assert embedded_media("data:text/html," + "x" * 100) is None
