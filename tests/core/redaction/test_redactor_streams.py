"""Secrets that are spread over events, lines and AWS frames."""

import base64
import json
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER
from tests.core.redaction.example_messages import make_response, redactor
from tests.support.event_stream_frames import frame, model_frame

KEY = 'K3y/0123456789+abc"ü='
SENTENCE = f"It is {KEY}, is it not?"
HIDDEN = Redactor("run").placeholder("x", KEY.encode()).decode()
SSE = b"text/event-stream"
HEADERS = ((b"content-type", b"application/vnd.amazon.eventstream"),)


def stored(*pieces: bytes, content_type: bytes = SSE, secret: str = KEY) -> list[bytes]:
    redactor = Redactor("run", [Secret("x", secret.encode())])
    response = make_response(*pieces, headers=((b"content-type", content_type),))
    return redactor.response(response).pieces()


def events(*documents: object) -> list[bytes]:
    return [f"data: {json.dumps(document)}\n\n".encode() for document in documents]


def events_of(pieces: list[bytes]) -> list[dict[str, str]]:
    lines = b"".join(pieces).decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_the_placeholder_stands_in_the_first_piece_and_the_rest_is_empty(step: int) -> None:
    deltas = [SENTENCE[at : at + step] for at in range(0, len(SENTENCE), step)]
    pieces = stored(*events(*[{"type": "delta", "delta": part} for part in deltas]))
    stored_texts = [document["delta"] for document in events_of(pieces)]

    assert len(stored_texts) == len(deltas)
    assert "".join(stored_texts) == SENTENCE.replace(KEY, HIDDEN)
    assert stored_texts.count("") >= len(KEY) // step - 2
    assert all(document["type"] == "delta" for document in events_of(pieces))


def test_two_that_take_turns_are_each_read_by_themselves() -> None:
    documents = [
        {"choices": [{"delta": {"content": mine}}, {"delta": {"content": other}}]}
        for mine, other in zip(KEY, reversed(KEY), strict=True)
    ]
    body = b"".join(stored(*events(*documents))).decode()
    read_ = [json.loads(line[6:]) for line in body.splitlines() if line]

    assert "".join(event["choices"][0]["delta"]["content"] for event in read_) == HIDDEN
    assert "".join(event["choices"][1]["delta"]["content"] for event in read_) == KEY[::-1]


def test_every_byte_around_it_stays_as_it_was_written() -> None:
    before = b'event: x\r\ndata: { "d" :"a\\/\\u00e9 K3y\\/01234" , "k":1.0}\r\n\r\n: ping\r\n\r\n'
    behind = b'data: {"d":"56789012 b\\/"}\r\n\r\n'
    pieces = stored(before, behind, secret="K3y/0123456789012")
    placeholder = Redactor("run").placeholder("x", b"K3y/0123456789012")

    assert pieces == [
        before.replace(b"K3y\\/01234", placeholder),
        behind.replace(b"56789012", b""),
    ]


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        (b"application/x-ndjson", "{}\n"),
        (b"application/jsonl", "{}\r\n"),
        (b"", "data:{}\n\n"),
        (b"application/stream+json; charset=utf-8", "{}\n"),
    ],
)
def test_lines_are_read_as_events_are(content_type: bytes, form: str) -> None:
    lines = [form.format(json.dumps({"response": character})).encode() for character in KEY]
    pieces = stored(*lines, content_type=content_type)

    assert HIDDEN.encode() in pieces[0]
    assert len(pieces) == len(KEY)


def test_the_elements_of_one_array_are_events_too() -> None:
    elements = [
        {"candidates": [{"content": {"parts": [{"text": character}]}}]} for character in KEY
    ]
    body = "[" + ",\r\n".join(map(json.dumps, elements)) + "]"
    [piece] = stored(body.encode(), content_type=b"application/json")
    stored_texts = [
        item["candidates"][0]["content"]["parts"][0]["text"] for item in json.loads(piece)
    ]

    assert stored_texts == [HIDDEN, *[""] * (len(KEY) - 1)]


def test_arguments_of_a_tool_are_read_as_the_json_they_are() -> None:
    arguments = json.dumps({"access_token": "T0ken/0123456789", "x": KEY})
    pieces = stored(*events(*[{"arguments": argument} for argument in arguments]))
    redacted = json.loads("".join(document["arguments"] for document in events_of(pieces)))

    assert redacted["x"] == HIDDEN
    assert redacted["access_token"].startswith("REDACTED.access_token.")


def test_a_pattern_is_found_too() -> None:
    pieces = stored(
        *events(*[{"d": character} for character in "the sk-ant-api03-0123456789abcdefgh"])
    )

    assert b"REDACTED.anthropic-key." in b"".join(pieces)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: {broken\n\n", b"data: {}\n\n", b"data: [DONE]\n\n"],
        [b'data: "' + character.encode() + b'"\n\n' for character in "K3y"],
        events(*[{"id": KEY[:9]}] * 20),
        [b'data: {"a":1}\n\n', b"data: 5\n\n"],
        [b"data: " + b"[" * 1000 + b'"a"' + b"]" * 1000 + b"\n\n"] * 2,
    ],
)
def test_what_tells_nothing_stays_as_it_was(pieces: list[bytes]) -> None:
    assert stored(*pieces) == pieces
    assert stored(*pieces, content_type=b"application/x-ndjson") == pieces


def test_empty_strings_between_its_characters_change_nothing() -> None:
    deltas = [*"abc", *[piece for one in KEY for piece in (one, "")], *"abc"]
    pieces = stored(*events(*[{"delta": part} for part in deltas]))

    assert "".join(event["delta"] for event in events_of(pieces)) == f"abc{HIDDEN}abc"


def test_a_line_with_another_name_of_that_length_is_no_part_of_it() -> None:
    documents = [{"d": character} for character in f"abc{KEY}"]
    documents[10:10] = [{"e": "x"}, {"e": "y"}]
    read_ = events_of(stored(*events(*documents)))

    assert "".join(event.get("d", "") for event in read_) == f"abc{HIDDEN}"
    assert [event["e"] for event in read_ if "e" in event] == ["x", "y"]


def test_what_every_event_repeats_is_no_secret_spread_over_events() -> None:
    pieces = events(*[{"id": "ab", "d": str(number)} for number in range(20)])

    assert stored(*pieces, secret="ab" * 10) == pieces


@pytest.mark.slow
def test_very_many_events_take_time_linear_in_their_number() -> None:
    pieces = stored(*events(*[{"d": character} for character in f"{KEY} " * 1500]))

    assert b"".join(pieces).count(HIDDEN.encode()) == 1500


def test_very_many_halves_of_characters_take_time_linear_in_their_number() -> None:
    pieces = events({"d": "a"}, {"d": "b"}, *[{"d": "\ud83d"} for _ in range(10_000)])

    assert stored(*pieces) == pieces


def test_a_very_long_array_takes_time_linear_in_its_length() -> None:
    body = json.dumps([{"d": character} for character in f"{KEY} " * 1500]).encode()

    assert stored(body, content_type=b"application/json")[0].count(HIDDEN.encode()) == 1500


def stored_frames(*pieces: bytes) -> list[bytes]:
    response = redactor(KEY).response(make_response(*pieces, headers=HEADERS))
    assert response.headers == HEADERS
    return response.pieces()


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
    first, second = stored_frames(kept, make(f"{KEY}, is it not?"))

    assert first == kept
    [document] = payloads(second)
    assert PLACEHOLDER.search(json.dumps(document["delta"]).encode())
    assert str(document).count("is it not?") == 1


@pytest.mark.parametrize("make", [delta, model_delta])
@pytest.mark.parametrize("step", [1, 3, 7])
def test_what_is_spread_over_frames_is_found(make: Callable[[str], bytes], step: int) -> None:
    sentence = f"It is {KEY}, is it not?"
    pieces = stored_frames(
        *[make(sentence[at : at + step]) for at in range(0, len(sentence), step)]
    )
    stored_texts = [document["delta"] for document in payloads(b"".join(pieces))]

    redacted = "".join([str(text["text"]) for text in stored_texts if isinstance(text, dict)])
    assert PLACEHOLDER.sub(b"*", redacted.encode()) == b"It is *, is it not?"


def test_a_name_counts_inside_base64_too() -> None:
    [piece] = stored_frames(model_frame({"access_token": "tok_5f2b7c9d1e3a4860"}))

    assert "tok_5f2b" not in str(payloads(piece))


def test_what_is_no_whole_frame_is_redacted_as_it_stands() -> None:
    whole = delta(f"{KEY}")
    kept, cut = delta("a"), whole[: whole.index(b"}")]
    pieces = stored_frames(kept, cut)

    assert pieces[0] == kept
    assert PLACEHOLDER.search(pieces[1])
    assert b"K3y" not in pieces[1]


@given(st.lists(st.text(max_size=8), max_size=4), st.binary(max_size=40), st.data())
def test_what_shows_nothing_comes_back_byte_for_byte(
    texts: list[str], tail: bytes, data: st.DataObject
) -> None:
    body = b"".join([model_delta(text) + delta(text) for text in texts]) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]

    assert stored_frames(*pieces) == [piece for piece in pieces if piece]
