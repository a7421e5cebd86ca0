"""A recorded answer in time."""

import json
from dataclasses import replace

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    BodyFile,
    ChunkTimes,
    Request,
    Response,
    ResponseHead,
)
from tapeway.inspection.timeline import MOST_CHUNKS, MOST_EVENTS, timeline

SSE = ((b"content-type", b"text/event-stream"),)


def streamed(
    *chunks: tuple[float, bytes], media: bytes = b"text/event-stream", tokens: Json = None
) -> Interaction:
    head = ResponseHead(200, headers=((b"content-type", media),), framing="chunked")
    usage = None if tokens is None else {"completion_tokens": tokens}
    response = Response.of_chunks(head, [(data, at_ms) for at_ms, data in chunks])
    return Interaction(0, Request("r", "GET", "/"), response, usage=usage)


def found(item: Interaction) -> dict[str, Json]:
    made = timeline(item)
    assert made is not None
    return json.loads(json.dumps(made))  # type: ignore[no-any-return]


def test_chunks_have_their_times_places_and_sizes() -> None:
    made = found(streamed((10.0, b"data: a\n\n"), (30.0, b"data: b\n\n"), (100.0, b"data: c\n\n")))

    assert made["chunks"] == [
        {"at_ms": 10.0, "start": 0, "size": 9},
        {"at_ms": 30.0, "start": 9, "size": 9},
        {"at_ms": 100.0, "start": 18, "size": 9},
    ]
    assert (made["first_byte_ms"], made["last_byte_ms"]) == (10.0, 100.0)
    assert (made["longest_gap_ms"], made["longest_gap_at_ms"]) == (70.0, 30.0)


def test_an_event_has_the_time_of_the_chunk_that_completed_it() -> None:
    item = streamed((1.0, b"data: he"), (2.0, b"llo\n"), (3.0, b"\ndata: b\n\ndata: cut"))

    assert found(item)["events"] == [
        {"at_ms": 3.0, "chunk": 2, "text": "hello"},
        {"at_ms": 3.0, "chunk": 2, "text": "b"},
        {"at_ms": 3.0, "chunk": 2, "text": "cut"},
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_placed_however_their_lines_end(end: bytes) -> None:
    event = b"data: a" + end + end
    item = streamed((1.0, b"\xef\xbb\xbf" + event), (2.0, event), (3.0, event))

    events = found(item)["events"]

    assert [one_event["at_ms"] for one_event in events] == [1.0, 2.0, 3.0]  # type: ignore[union-attr, index, call-overload]


def test_lines_of_json_are_events() -> None:
    item = streamed((1.0, b'{"a":1}\n{"b"'), (2.0, b":2}\n"), media=b"application/x-ndjson")

    assert found(item)["events"] == [
        {"at_ms": 1.0, "chunk": 0, "text": '{"a":1}'},
        {"at_ms": 2.0, "chunk": 1, "text": '{"b":2}'},
    ]


def test_the_pace_is_in_tokens_a_second_after_the_first_byte() -> None:
    item = streamed((100.0, b"data: a\n\n"), (600.0, b"data: b\n\n"), tokens=20)

    assert found(item)["tokens_per_second"] == 40.0


@pytest.mark.parametrize("tokens", [None, 0, True, "7"])
def test_without_a_count_there_is_no_pace(tokens: Json) -> None:
    item = streamed((100.0, b"data: a\n\n"), (600.0, b"data: b\n\n"), tokens=tokens)

    assert found(item)["tokens_per_second"] is None


def test_a_recording_without_times_has_no_figures() -> None:
    made = found(streamed((0.0, b"data: a\n\n"), (0.0, b"data: b\n\n"), tokens=3))

    assert {made[text] for text in ("first_byte_ms", "longest_gap_ms", "tokens_per_second")} == {
        None
    }


def test_an_answer_without_a_body_has_no_timeline() -> None:
    assert timeline(streamed()) is None


def test_a_body_in_a_file_has_its_chunks_and_no_events() -> None:
    times = ChunkTimes([(5.0, 2_000_000), (9.0, 1_000_000)])
    item = streamed()
    file = BodyFile("", 3_000_000, "0" * 64)
    item = replace(item, response=replace(item.response, file=file, chunk_times=times))

    made = found(item)

    assert len(made["chunks"]) == 2  # type: ignore[arg-type]
    assert made["events"] == []


def test_it_is_bounded_and_says_what_is_left_out() -> None:
    item = streamed(*[(float(at + 1), b"data: x\n\n") for at in range(MOST_EVENTS + 7)])

    made = found(item)

    assert (len(made["chunks"]), made["chunks_left_out"]) == (MOST_CHUNKS, 7)  # type: ignore[arg-type]
    assert (len(made["events"]), made["events_left_out"]) == (MOST_EVENTS, 7)  # type: ignore[arg-type]


def test_the_texts_of_all_events_are_bounded_too() -> None:
    event = b"data: " + b"x" * 400_000 + b"\n\n"
    made = found(streamed((1.0, event), (2.0, event), (3.0, event)))

    assert (len(made["events"]), made["events_left_out"]) == (2, 1)  # type: ignore[arg-type]
