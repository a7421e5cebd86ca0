"""Secrets in AWS's event stream: the frames stay frames."""

import base64
import json
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.redaction.spans import PLACEHOLDER
from tapeway.core.redaction.streamed_secrets import written
from tapeway.core.streams.aws_frames import read
from tests.core.redacting import make_response, redactor
from tests.frames import frame, model_frame

KEY = 'K3y/0123456789+abc"ü='
HEADERS = ((b"content-type", b"application/vnd.amazon.eventstream"),)


def stored(*pieces: bytes) -> list[bytes]:
    answer = redactor(KEY).response(make_response(*pieces, headers=HEADERS))
    assert answer.headers == HEADERS
    return [chunk.data for chunk in answer.chunks]


def payloads(body: bytes) -> list[dict[str, Json]]:
    """What a client reads that checks every frame."""
    found = []
    while body:
        size, headers = int.from_bytes(body[:4]), int.from_bytes(body[4:8])
        assert zlib.crc32(body[:8]) == int.from_bytes(body[8:12])
        assert zlib.crc32(body[: size - 4]) == int.from_bytes(body[size - 4 : size])
        payload = json.loads(body[12 + headers : size - 4])
        inner = payload.get("bytes")
        found.append(payload if inner is None else json.loads(base64.b64decode(inner)))
        body = body[size:]
    return found


def delta(text: str) -> bytes:
    return frame("contentBlockDelta", json.dumps({"delta": {"text": text}, "p": "abc"}).encode())


def model_delta(text: str) -> bytes:
    return model_frame({"type": "content_block_delta", "delta": {"text": text}})


@pytest.mark.parametrize("make", [delta, model_delta])
def test_a_frame_with_a_secret_is_a_frame_without_it(make: Callable[[str], bytes]) -> None:
    kept = make("It is")
    first, second = stored(kept, make(f"{KEY}, is it not?"))

    assert first == kept
    [document] = payloads(second)
    assert PLACEHOLDER.search(json.dumps(document["delta"]).encode())
    assert str(document).count("is it not?") == 1


@pytest.mark.parametrize("make", [delta, model_delta])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_what_is_told_bit_by_bit_over_frames_is_found(
    make: Callable[[str], bytes], step: int
) -> None:
    said = f"It is {KEY}, is it not?"
    pieces = stored(*[make(said[at : at + step]) for at in range(0, len(said), step)])
    told = [document["delta"] for document in payloads(b"".join(pieces))]

    mended = "".join([str(each["text"]) for each in told if isinstance(each, dict)])
    assert PLACEHOLDER.sub(b"*", mended.encode()) == b"It is *, is it not?"


def test_a_name_counts_inside_base64_too() -> None:
    [piece] = stored(model_frame({"access_token": "tok_5f2b7c9d1e3a4860"}))

    assert "tok_5f2b" not in str(payloads(piece))


def test_what_is_no_whole_frame_is_redacted_as_it_stands() -> None:
    whole = delta(f"{KEY}")
    kept, cut = delta("a"), whole[: whole.index(b"}")]
    pieces = stored(kept, cut)

    assert pieces[0] == kept
    assert PLACEHOLDER.search(pieces[1])
    assert b"K3y" not in pieces[1]


@given(st.lists(st.text(max_size=8), max_size=4), st.binary(max_size=40), st.data())
def test_what_shows_nothing_comes_back_byte_for_byte(
    texts: list[str], tail: bytes, data: st.DataObject
) -> None:
    body = b"".join([model_delta(each) + delta(each) for each in texts]) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
    frames = read(body)

    assert written(body, frames, [each.text for each in frames], [len(body)]) == [body]
    assert stored(*pieces) == pieces
