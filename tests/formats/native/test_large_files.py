"""A large file is parsed in parts, so that other threads run in between; it means the same."""

from contextlib import suppress
from dataclasses import replace

import pytest

from tapeway.core import json_text
from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native import document

HEAD = CassetteHead("2026-01-01", "run", {"note": ',\n  "interactions": ['})
LARGEST = 2 * 64 * 1024


def cassette(count: int, body: bytes = b'{"x": [{"y": 1}]}') -> StoredCassette:
    request = Request(
        "r", "POST", "/v1/x", ((b"Content-Type", b"application/json"),), base="http://h"
    )
    response = Response(ResponseHead(200), body)
    items = [
        Interaction(number, replace(request, body=b'{"n": %d}' % number), response)
        for number in range(count)
    ]
    return StoredCassette(HEAD, tuple(items))


def parts(text: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[StoredCassette, list[int]]:
    sizes: list[int] = []

    def parse_as_dumped(part: bytes, *, levels: int = 0) -> Json:
        sizes.append(len(part))
        return json_text.parse_as_dumped(part, levels=levels)

    monkeypatch.setattr(document, "parse_as_dumped", parse_as_dumped)
    return document.load(text), sizes


def read_slowly(text: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many texts are read otherwise than by orjson when a file is loaded."""
    texts: list[bytes] = []

    def parse(part: bytes, **rest: object) -> Json:
        texts.append(part)
        return json_text.parse(part, **rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(document, "parse", parse)
        document.load(text)
    return len(texts)


def test_no_part_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    text = document.save(cassette(1000))
    found, sizes = parts(text, monkeypatch)

    assert len(text) > 3 * LARGEST
    assert max(sizes) <= LARGEST
    assert document.save(found) == text
    assert [interaction.index for interaction in found.interactions] == list(range(1000))


def test_what_tapeway_wrote_is_read_by_orjson_but_for_the_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = document.save(cassette(1000))

    assert read_slowly(text, monkeypatch) == 1
    # One part has a number that orjson cannot read exactly.
    assert read_slowly(text.replace(b'"n": 500', b'"n": %d' % 10**30), monkeypatch) == 2


def test_recordings_share_what_they_have_in_common() -> None:
    found = document.load(document.save(cassette(3))).interactions
    first, *others = [interaction for interaction in found if isinstance(interaction, Interaction)]

    assert len(others) == 2
    for other in others:
        assert other.request.headers is first.request.headers
        assert other.request.base is first.request.base
        assert other.response.head is first.response.head
        assert other.response.chunk_times is first.response.chunk_times
        assert other.metadata is first.metadata


def test_a_part_that_orjson_would_read_otherwise_is_refused_or_exact() -> None:
    text = document.save(cassette(1000))

    exact = document.load(text.replace(b'"n": 500', b'"n": %d' % 10**30))
    assert [
        interaction.request.body
        for interaction in exact.interactions
        if isinstance(interaction, Interaction) and interaction.index == 500
    ] == [b'{"n": %d}' % 10**30]
    with pytest.raises(FormatFault, match="a key occurs twice"):
        document.load(text.replace(b'"n": 500', b'"n": 500, "n": 501'))
    with pytest.raises(FormatFault, match="is no number that JSON can hold"):
        document.load(text.replace(b'"n": 500', b'"n": NaN'))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'  "interactions"', b'   "interactions"'),
        (b"\n    {\n", b"\n     {\n"),
        (b"\n  ]\n}\n", b"\n  ]}"),
        (b"\n  ]\n}\n", b'\n  ],\n  "version": "1"\n}\n'),
        (b",\n    {\n", b",{\n"),
    ],
)
def test_another_layout_means_the_same(old: bytes, new: bytes) -> None:
    text = document.save(cassette(300))
    if b'"version"' in new:
        text = text.replace(b'  "version": "1",\n', b"", 1)
    other = text.replace(old, new)

    assert other != text
    assert (
        document.load(other).interactions
        == document.load(document.save(cassette(300))).interactions
    )


@pytest.mark.parametrize("place", [10, 2_000, 90_000, -400, -8, -1])
@pytest.mark.parametrize("change", [b"\0", b"}", b"{", b'"', b",", b"]", b"x"])
def test_a_fault_is_found_on_the_line_where_parsing_at_once_finds_it(
    place: int, change: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = document.save(cassette(150))
    place %= len(text)
    text = text[:place] + change + text[place:]

    def outcome() -> object:
        try:
            return document.load(text)
        except FormatFault as fault:
            return fault.line, str(fault)

    in_parts = outcome()
    monkeypatch.setattr(document, "parse_in_parts", lambda _: None)
    assert in_parts == outcome()


def test_depth_is_counted_from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    text = document.save(cassette(2))
    for depth in range(json_text.MAX_DEPTH - 8, json_text.MAX_DEPTH + 2):
        deep = b"[" * depth + b"]" * depth
        changed = text.replace(b'"latency_ms": 0.0', b'"latency_ms": 0.0, "tags": ' + deep, 1)
        kept: list[object] = []
        for parse in (document.parse_in_parts, lambda _: None):
            monkeypatch.setattr(document, "parse_in_parts", parse)
            try:
                kept.append(document.JSON.parse(changed)[0])
            except FormatFault as fault:
                kept.append(str(fault))
        assert kept[0] == kept[1]
        monkeypatch.undo()


@pytest.mark.parametrize("at", [65_530, 65_536 * 3 - 4, 262_140, 300_000])
def test_a_number_that_is_none_is_seen_wherever_it_stands(at: int) -> None:
    text = b" " * at + b"-Infinity" + b" " * 70_000

    assert document.may_be_non_finite(text)
    assert not document.may_be_non_finite(text.replace(b"I", b"i"))


def at_once(text: bytes) -> StoredCassette:
    """The cassette, all of its text parsed before any of it is decoded."""
    return replace(document.JSON, divide=lambda *_, **__: None).load(text)


def in_parts(text: bytes) -> StoredCassette | None:
    if (parts := document.divide(text)) is not None:
        with suppress(FormatFault, json_text.NotJson):
            return replace(parts, keeps=True).load(None)
    return None


def test_each_part_is_decoded_before_the_next_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = document.save(cassette(1000))
    steps: list[str] = []

    def parse_as_dumped(part: bytes, *, levels: int) -> Json:
        steps.append("parsed")
        return json_text.parse_as_dumped(part, levels=levels)

    def decode(found: Document, index: int, at: Pointer) -> AnyInteraction:
        steps.append("decoded")
        return decoded(found, index, at)

    decoded = document.decode
    monkeypatch.setattr(document, "parse_as_dumped", parse_as_dumped)
    monkeypatch.setattr(document, "decode", decode)
    found = document.load(text)

    assert len(found.interactions) == 1000
    after_parsed = [steps[at + 1] for at, step in enumerate(steps) if step == "parsed"]
    assert len(after_parsed) > 3
    assert set(after_parsed) == {"decoded"}


def test_requests_that_share_values_are_whole_in_parts_too() -> None:
    prompt = ", ".join(f'"{number} {"word " * 40}"' for number in range(20))
    body = b'{"prompt": [%b], "n": %d}'
    plain = cassette(300)
    items = [
        replace(exchange, request=replace(exchange.request, body=body % (prompt.encode(), number)))
        for number, exchange in enumerate(map(exchange_of, plain.interactions))
        if exchange is not None
    ]
    text = document.save(replace(plain, interactions=tuple(items)))

    assert b"as in #0" in text
    assert in_parts(text) == at_once(text)


@pytest.mark.parametrize(
    ("written", "edited"),
    [
        (b'"latency_ms": 0.0', b'"latency_ms": 1.50'),
        (b'"status_code": 200', b'"status_code": 404'),
        (b'"index": 7,', b'"index": 7, "tags": ["a"],'),
    ],
)
def test_an_edited_file_is_read_in_parts(written: bytes, edited: bytes) -> None:
    text = document.save(cassette(20)).replace(written, edited, 1)

    assert edited in text
    assert in_parts(text) == at_once(text)


@pytest.mark.parametrize(
    ("written", "edited"),
    [
        (b'"index": 7,', b'"index": 3,'),
        (b'"index": 7,', b""),
        (b'"index": 7,', b'"index": true,'),
        (b'"index": 7,', b'"index": -1,'),
        (b'"version": "1"', b'"version": "2"'),
        (b'"status_code": 200', b'"status_code": 99'),
        (b'"latency_ms": 0.0', b'"latency_ms": NaN'),
        (b'"latency_ms": 0.0', b'"latency_ms": 0.0, "usage": {"\\u005f_agenttape_float__": "NaN"}'),
        (b'"latency_ms": 0.0', b'"latency_ms": 0.0, "latency_ms": 0.0'),
        (b'{"n": 7}', b'{"n": {"__agenttape_asset__": "sha256:0"}}'),
    ],
)
def test_what_has_to_be_seen_as_a_whole_is_left_to_that(written: bytes, edited: bytes) -> None:
    text = document.save(cassette(20)).replace(written, edited, 1)

    assert edited in text
    assert in_parts(text) is None
