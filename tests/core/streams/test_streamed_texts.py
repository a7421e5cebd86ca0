"""Texts that take turns in a stream are put together as clients do it, in every dialect."""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER
from tapeway.core.streams import streamed_texts
from tapeway.core.streams.aws_frames import MEDIA_TYPE as FRAMES
from tapeway.core.streams.streamed_texts import StreamedTexts
from tests.support.event_stream_frames import frame, model_frame

KEY = "Qz7hT2kP9xL4vT8wR1sY6nB3cH5jD0gA7eU2iO9p"
REDACTOR = Redactor("run", [Secret("x", KEY.encode())])
HIDDEN = REDACTOR.placeholder("x", KEY.encode()).decode()
OTHERS = ("Lorem ipsum dolor sit amet, consectetur", "wörds\n“quoted” and \\ 0123", "third text")
MARK = "<piece>"
Event = dict[str, Any] | list[Any]
Make = Callable[[str], Event]


def choice(index: int, delta: Callable[[str], Json]) -> Make:
    return lambda text: {"id": "c", "choices": [{"index": index, "delta": delta(text)}]}


def tool(index: int, **more: str) -> Callable[[str], Json]:
    return lambda text: {"tool_calls": [{"index": index, **more, "function": {"arguments": text}}]}


def content(text: str) -> Json:
    return {"content": text}


def reasoning(text: str) -> Json:
    return {"reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}


def responses(kind: str, **around: int | str) -> Make:
    return lambda text: {"type": f"response.{kind}.delta", **around, "delta": text}


def block(index: int, kind: str, name: str) -> Make:
    return lambda text: {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": kind, name: text},
    }


def candidate(*, index: int | None, **part: Json) -> Make:
    indexed = {} if index is None else {"index": index}
    return lambda text: {
        "candidates": [{"content": {"parts": [{"text": text, **part}]}, **indexed}]
    }


def argument(path: str) -> Make:
    return lambda text: {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"functionCall": {"partialArgs": [{"jsonPath": path, "stringValue": text}]}}
                    ]
                }
            }
        ]
    }


def cohere(kind: str, index: int, *names: str) -> Make:
    def make(text: str) -> Event:
        value: Any = text
        for name in reversed(names):
            value = {name: value}
        return {"type": kind, "index": index, "delta": {"message": value}}

    return make


def bedrock(index: int, delta: Callable[[str], Json]) -> Make:
    return lambda text: {"contentBlockIndex": index, "delta": delta(text), "p": "abcdefgh"}


def assistant(message: str, index: int) -> Make:
    return lambda text: {
        "id": message,
        "object": "thread.message.delta",
        "delta": {"content": [{"index": index, "type": "text", "text": {"value": text}}]},
    }


DIALECTS: dict[str, Sequence[Make]] = {
    "choices of a chat": [choice(0, content), choice(1, content), choice(2, content)],
    "tool calls of a chat": [choice(0, tool(0)), choice(0, tool(1)), choice(0, tool(2))],
    "tool calls of two choices": [choice(1, tool(1)), choice(0, tool(1)), choice(1, tool(0))],
    "what a chat says, thinks and calls": [
        choice(0, content),
        choice(0, reasoning),
        choice(0, tool(0)),
    ],
    "tool calls with an id and no index": [
        lambda text: {"choices": [{"delta": {"tool_calls": [{"id": "a", "arguments": text}]}}]},
        lambda text: {"choices": [{"delta": {"tool_calls": [{"id": "b", "arguments": text}]}}]},
    ],
    "choices of a completion": [
        lambda text: {"choices": [{"text": text, "index": 0}]},
        lambda text: {"choices": [{"text": text, "index": 1}]},
    ],
    "output items": [
        responses("output_text", item_id="m1", output_index=0, content_index=0),
        responses("output_text", item_id="m2", output_index=1, content_index=0),
    ],
    "parts of an output item": [
        responses("output_text", output_index=0, content_index=1),
        responses("output_text", output_index=0, content_index=0),
        responses("refusal", output_index=0, content_index=1),
    ],
    "output items that are named alone": [
        responses("output_text", item_id="m1"),
        responses("output_text", item_id="m2"),
    ],
    "arguments of parallel functions": [
        responses("function_call_arguments", item_id="f1", output_index=1),
        responses("function_call_arguments", item_id="f2", output_index=2),
        responses("mcp_call_arguments", item_id="f3", output_index=2),
    ],
    "speech and its transcript": [
        responses("audio_transcript", item_id="m", output_index=0, content_index=0),
        responses("audio", item_id="m", output_index=0, content_index=0),
    ],
    "summaries of what a model thought": [
        responses("reasoning_summary_text", output_index=0, summary_index=1),
        responses("reasoning_summary_text", output_index=0, summary_index=0),
    ],
    "content blocks": [
        block(0, "text_delta", "text"),
        block(1, "text_delta", "text"),
        block(1, "thinking_delta", "thinking"),
    ],
    "inputs of parallel tools": [
        block(2, "input_json_delta", "partial_json"),
        block(1, "input_json_delta", "partial_json"),
        block(0, "text_delta", "text"),
    ],
    "candidates": [candidate(index=0), candidate(index=1)],
    "candidates, the first without an index": [candidate(index=None), candidate(index=1)],
    "a candidate's thoughts and its text": [
        candidate(index=0, thought=True),
        candidate(index=0),
    ],
    "arguments by their path": [argument("$.a"), argument("$.b")],
    "Ollama": [
        lambda text: {"message": {"content": text}, "done": False},
        lambda text: {"message": {"thinking": text}, "done": False},
    ],
    "Cohere's content": [
        cohere("content-delta", 0, "content", "text"),
        cohere("content-delta", 1, "content", "text"),
        cohere("content-delta", 1, "content", "thinking"),
    ],
    "Cohere's tool calls": [
        cohere("tool-call-delta", 0, "tool_calls", "function", "arguments"),
        cohere("tool-call-delta", 1, "tool_calls", "function", "arguments"),
    ],
    "Bedrock's blocks": [
        bedrock(0, lambda text: {"text": text}),
        bedrock(1, lambda text: {"text": text}),
        bedrock(1, lambda text: {"toolUse": {"input": text}}),
    ],
    "messages of a thread": [assistant("m1", 0), assistant("m2", 0), assistant("m1", 1)],
    "parts with an id": [
        lambda text: {"type": "text-delta", "id": "0", "delta": text},
        lambda text: {"type": "text-delta", "id": "1", "delta": text},
        lambda text: {"type": "reasoning-delta", "id": "0", "delta": text},
    ],
    "inputs with the id of a tool call": [
        lambda text: {"type": "tool-input-delta", "toolCallId": "a", "inputTextDelta": text},
        lambda text: {"type": "tool-input-delta", "toolCallId": "b", "inputTextDelta": text},
    ],
    "messages of several agents": [
        lambda text: {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": text},
        lambda text: {"type": "TEXT_MESSAGE_CONTENT", "messageId": "b", "delta": text},
    ],
    "messages beside what tells of them": [
        lambda text: [{"type": "AIMessageChunk", "id": "a", "content": text}, {"node": "n"}],
        lambda text: [{"type": "AIMessageChunk", "id": "b", "content": text}, {"node": "m"}],
    ],
    "blocks with an index as a name": [
        lambda text: {"content": [{"type": "text", "index": "lc_txt_0", "text": text}]},
        lambda text: {"content": [{"type": "text", "index": "lc_txt_1", "text": text}]},
    ],
}
DELIVERIES = ("events", "named events", "lines", "array", "frames", "model frames")


def cut(text: str, draw: random.Random) -> list[str]:
    pieces = []
    while text:
        size = draw.randint(1, 7)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def turns(pieces: Sequence[list[str]], draw: random.Random) -> Iterator[tuple[int, str]]:
    """The pieces of all texts, those of each in order."""
    waiting = [list(piece) for piece in pieces]
    while left := [number for number, turns_left in enumerate(waiting) if turns_left]:
        number = draw.choice(left)
        yield number, waiting[number].pop(0)


def place_of(value: Json, text: str, at: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """Where a string is in an event."""
    if value == text:
        return at
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value or ())
        if isinstance(value, list)
        else ()
    )
    found = [place_of(member, text, (*at, name)) for name, member in inner]
    return next((position for position in found if position is not None), None)


def at(event: Any, place: Sequence[Any]) -> Any:
    for name in place:
        event = event[name]
    return event


def body_of(events: Sequence[Event], delivery: str) -> tuple[bytes, bytes]:
    """A body with these events, and its media type."""
    texts = [json.dumps(event, ensure_ascii=len(event) % 2 == 0) for event in events]
    match delivery:
        case "events":
            return "".join([f"data: {text}\n\n" for text in texts]).encode(), b"text/event-stream"
        case "named events":
            lines = [f"event: e\r\ndata:{text}\r\n\r\n" for text in texts]
            return "".join(lines).encode(), b"text/event-stream"
        case "lines":
            return "\n".join(texts).encode(), b"application/x-ndjson"
        case "array":
            return ("[" + ",\n".join(texts) + "\n]").encode(), b"application/json"
        case "frames":
            return b"".join([frame("e", text.encode()) for text in texts]), FRAMES
    return b"".join([model_frame(event) for event in events]), FRAMES


def events_of(body: bytes, delivery: str) -> list[Any]:
    if delivery == "array":
        read: list[Any] = json.loads(body)
        return read
    if "frames" in delivery:
        from tests.core.redaction.test_redactor_streams import payloads

        return list(payloads(body))
    lines = [line.removeprefix("data:").strip() for line in body.decode("utf-8-sig").splitlines()]
    return [json.loads(line) for line in lines if line.startswith(("{", "["))]


def stored(body: bytes, media: bytes) -> bytes:
    response = Response(ResponseHead(200, headers=((b"content-type", media),)), body)
    return REDACTOR.response(response).body


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_is_found_in_one_text_and_the_others_stay(dialect: str, delivery: str) -> None:
    makes = DIALECTS[dialect]
    if "frames" in delivery and not isinstance(makes[0](""), dict):
        pytest.skip("the event of a frame is an object")
    draw = random.Random(f"{dialect} {delivery}")
    for _ in range(5):
        with_key = draw.randrange(len(makes))
        texts = [OTHERS[number] for number in range(len(makes))]
        texts[with_key] = f"It is {KEY}, is it not?"
        order = list(turns([cut(text, draw) for text in texts], draw))
        body, media = body_of([makes[number](piece) for number, piece in order], delivery)
        read = ["" for _ in makes]
        for (number, _), event in zip(order, events_of(stored(body, media), delivery), strict=True):
            place = place_of(makes[number](MARK), MARK)
            assert place is not None
            read[number] += at(event, place)
        expected = [text.replace(KEY, HIDDEN) for text in texts]
        assert read == expected
        # What has no key comes back byte for byte.
        plain, _ = body_of(
            [makes[number](piece) for number, piece in order if number != with_key], delivery
        )
        assert stored(plain, media) == plain


def joined(body: bytes, place: Sequence[Any], media: bytes = b"text/event-stream") -> str:
    """The text at a place of the stored events, in which some may have nothing."""
    texts = []
    for event in events_of(stored(body, media), "events"):
        try:
            texts.append(at(event, place))
        except (KeyError, IndexError):
            continue
    return "".join(texts)


def events(*documents: Event) -> bytes:
    return body_of(documents, "events")[0]


HALVES = (KEY[:15], KEY[15:])


@pytest.mark.parametrize(
    ("first", "others", "places"),
    [
        (
            {"type": "content_block_start", "index": 1, "content_block": {"text": HALVES[0]}},
            block(1, "text_delta", "text"),
            (("content_block", "text"), ("delta", "text")),
        ),
        (
            {
                "type": "response.content_part.added",
                "output_index": 1,
                "content_index": 0,
                "part": {"type": "output_text", "text": HALVES[0]},
            },
            responses("output_text", output_index=1, content_index=0),
            (("part", "text"), ("delta",)),
        ),
        (
            {
                "type": "response.output_item.added",
                "output_index": 1,
                "item": {"type": "function_call", "arguments": HALVES[0]},
            },
            responses("function_call_arguments", output_index=1),
            (("item", "arguments"), ("delta",)),
        ),
        (
            cohere("content-start", 1, "content", "text")(HALVES[0]),
            cohere("content-delta", 1, "content", "text"),
            (("delta", "message", "content", "text"),) * 2,
        ),
    ],
)
def test_a_text_may_begin_in_another_kind_of_event(
    first: Event, others: Make, places: tuple[Sequence[str], Sequence[str]]
) -> None:
    body = stored(events(first, *map(others, HALVES[1])), b"text/event-stream")
    begun, *rest = events_of(body, "events")

    assert at(begun, places[0]) == HIDDEN
    assert {at(piece_of_text, places[1]) for piece_of_text in rest} == {""}


def test_the_whole_text_in_a_last_event_does_not_go_on_with_the_pieces() -> None:
    pieces = ["the key is sk-proj-0123456789", "abcdef"]
    done = {"type": "response.output_text.done", "output_index": 0, "text": "".join(pieces)}
    *_, last = events_of(
        stored(
            events(*map(responses("output_text", output_index=0), pieces), done),
            b"text/event-stream",
        ),
        "events",
    )

    assert last["text"].startswith("the key is REDACTED.openai-key.")
    assert PLACEHOLDER.sub(b"", last["text"].encode()) == b"the key is "


@pytest.mark.parametrize("name", ["parts", "tokens", "logprobs"])
def test_elements_of_a_list_of_pieces_are_one_text(name: str) -> None:
    parts = [
        {name: [{"text": one}, {"text": two}]} for one, two in zip(KEY[::2], KEY[1::2], strict=True)
    ]
    body = events_of(stored(events(*parts), b"text/event-stream"), "events")

    assert "".join(part["text"] for event in body for part in event[name]) == HIDDEN


@pytest.mark.parametrize("counter", ["id", "index", "event_id", "chunk_index"])
@pytest.mark.parametrize("value", [str, int])
def test_what_counts_the_events_tells_no_texts_apart(
    counter: str, value: Callable[[int], int | str]
) -> None:
    documents: list[Event] = [
        {counter: value(number), "token": {"text": text}} for number, text in enumerate(KEY)
    ]

    assert joined(events(*documents), ("token", "text")) == HIDDEN


def test_a_piece_without_an_id_belongs_to_the_text_before() -> None:
    def call(text: str, **more: str) -> Event:
        return {"tool_calls": [{"function": {"arguments": text}, **more}]}

    documents: list[Event] = []
    for number in range(0, 40, 4):
        for name, text in (("a", KEY), ("b", "0123456789" * 4)):
            piece = text[number : number + 4]
            documents += [call(piece[:1], id=name), *map(call, piece[1:])]
    place = ("tool_calls", 0, "function", "arguments")
    read = joined(events(*documents), place)

    assert read.replace(HIDDEN, "") == "0123456789" * 4


def test_an_id_of_the_first_piece_alone_tells_nothing() -> None:
    documents = [
        choice(0, tool(0, id="call_1"))(KEY[0]),
        *[choice(0, tool(0))(character) for character in KEY[1:]],
    ]
    place = ("choices", 0, "delta", "tool_calls", 0, "function", "arguments")

    assert joined(events(*documents), place) == HIDDEN


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("beginning", ["", "\ufeff"])
def test_events_end_their_lines_in_all_ways(line_end: str, beginning: str) -> None:
    texts = [json.dumps({"d": character}) for character in KEY]
    body = beginning + "".join([f"data: {text}{line_end * 2}" for text in texts])

    assert joined(body.encode(), ("d",)) == HIDDEN


def test_an_event_may_have_its_data_on_several_lines() -> None:
    written = [json.dumps({"n": 1, "d": character}, indent=1).splitlines() for character in KEY]
    body = "".join(["".join([f"data: {line}\n" for line in lines]) + "\n" for lines in written])
    redacted = stored(body.encode(), b"text/event-stream").decode()
    read = [part.replace("data: ", "") for part in redacted.split("\n\n") if part]

    assert "".join([json.loads(event)["d"] for event in read]) == HIDDEN
    assert redacted.count("\n") == body.count("\n")


def test_data_that_is_no_json_is_a_text_of_its_own_in_events_of_a_name() -> None:
    body = "".join(
        [
            f"event: output\ndata: {one}\n\nevent: logs\ndata: 1{two}\n\n"
            for one, two in zip(KEY, KEY[::-1], strict=True)
        ]
    )
    redacted = stored(
        f"{body}event: done\ndata: [DONE]\n\n".encode(), b"text/event-stream"
    ).decode()
    lines = redacted.splitlines()

    assert "".join([line[6:] for line in lines[1::6]]).removesuffix("[DONE]") == HIDDEN
    assert "".join([line[7:] for line in lines[4::6]]) == KEY[::-1]


def test_data_may_be_strings() -> None:
    body = "".join([f"data: {json.dumps(character)}\n\n" for character in KEY]).encode()

    assert (
        "".join(
            json.loads(part[6:])
            for part in stored(body, b"text/event-stream").decode().split("\n\n")
            if part
        )
        == HIDDEN
    )


def test_lines_of_json_by_another_name_are_lines() -> None:
    body = "\n".join([json.dumps({"response": character}) for character in KEY]).encode()

    assert joined(body, ("response",), b"application/json") == HIDDEN


def test_where_each_event_repeats_the_text_no_part_of_a_key_is_left() -> None:
    text = f"It is {KEY}, is it not?"
    documents: list[Event] = [{"output": {"text": text[:end]}} for end in range(1, len(text) + 1)]
    read = [
        event["output"]["text"]
        for event in events_of(stored(events(*documents), b"text/event-stream"), "events")
    ]

    assert read[-1] == text.replace(KEY, HIDDEN)
    assert all(after.startswith(before) for before, after in itertools.pairwise(read))
    assert not any(KEY[:4] in piece for piece in read)


@pytest.mark.parametrize(
    "document",
    [
        {"candidates": [{"content": {"parts": [{"text": character} for character in KEY]}}]},
        {"choices": [{"logprobs": {"content": [{"token": character} for character in KEY]}}]},
        {"choices": [{"logprobs": {"tokens": [*KEY]}}]},
    ],
)
def test_pieces_in_one_object_are_put_together(document: Json) -> None:
    body = stored(json.dumps(document, indent=1).encode(), b"application/json")
    strings = re.findall('"([^"]*)"[ ,}\\]\n]', body.decode())

    assert "".join(strings) == HIDDEN


def _stomp(text: str, to: str = "/said") -> str:
    return f"MESSAGE\nmessage-id:1\ndestination:{to}\n\n{text}\0"


HELD: dict[str, Callable[[str], str]] = {
    "JSON": lambda text: json.dumps({"message": json.dumps({"content": text})}),
    "an event": lambda text: f"data: {json.dumps({'content': text})}\n\n",
    "Socket.IO": lambda text: f"42{json.dumps(['said', text])}",
    "Socket.IO with a namespace": lambda text: f"42/chat,7{json.dumps(['said', {'text': text}])}",
    "SockJS": lambda text: f"a{json.dumps([json.dumps({'content': text})])}",
    "SockJS and STOMP": lambda text: f"a{json.dumps([_stomp(text)])}",
    "SignalR": lambda text: json.dumps({"type": 1, "target": "said", "arguments": [text]}) + "\x1e",
    "two messages of SignalR": lambda text: (
        f"{json.dumps({'type': 6})}\x1e{json.dumps({'type': 2, 'item': text})}\x1e"
    ),
    "STOMP": _stomp,
    "STOMP with JSON": lambda text: _stomp(json.dumps({"content": text})),
}
BESIDE = [
    "2",
    "3",
    '42["typing","ada"]',
    '{"type":1,"target":"typing"}\x1e',
    _stomp("ada", "/typing"),
]
"""Messages that stand between those of a text."""


@pytest.mark.parametrize("size", [1, 3, 11, 50])
@pytest.mark.parametrize("form", HELD)
def test_a_text_in_messages_that_strings_hold_is_put_together(form: str, size: int) -> None:
    def body(pieces: Sequence[str]) -> bytes:
        lines = [json.dumps({"service_text": HELD[form](piece)}) for piece in pieces]
        between = [json.dumps({"service_text": text}) for text in BESIDE]
        # Pings come first, so that lines are known by their form.
        return "\n".join(
            [*between, *(each for line in lines for each in (line, *between))]
        ).encode()

    pieces = [KEY[at : at + size] for at in range(0, len(KEY), size)]
    written = ["It is „", *pieces, '" \\ now']
    expected = [written[0], HIDDEN, *("" for _ in pieces[1:]), written[-1]]

    assert stored(body(written), b"application/x-ndjson") == body(expected)
    assert stored(body(expected), b"application/x-ndjson") == body(expected)


@pytest.mark.parametrize("form", ["Socket.IO", "SignalR"])
def test_messages_in_the_answer_to_a_poll_are_read_as_in_strings(form: str) -> None:
    def body(pieces: Sequence[str]) -> bytes:
        ends = "\x1e" if form == "Socket.IO" else ""
        return ends.join([HELD[form](piece) for piece in ("It is ", *pieces)]).encode()

    assert stored(body(HALVES), b"text/plain") == body([HIDDEN, ""])


def test_a_string_that_holds_very_many_strings_takes_time_linear_in_its_length() -> None:
    held = json.dumps([{"token": f"token-{number:05}-{KEY}"} for number in range(3000)])
    body = b"\n".join([json.dumps({"data": held}).encode()] * 2)

    assert KEY.encode() not in stored(body, b"application/x-ndjson")


LINES = [
    '{"id":"c","delta":{"content":"%s"},"n":1}',
    '{"id":"c","delta":{"content":"%s"},"pad":"%s"}',
    '{"id":"%s","delta":{"content":"A"}}',
    '{"type":"%s","delta":"B"}',
    '{"choices":[{"index":0,"delta":{"content":"%s"}}]}',
    '{"choices":[{"index":1,"delta":{"content":"%s"}}]}',
    '{"id":"c","delta":{"content":","n":1}',
    '{"delta":{"content":"%s"},"delta":{"content":"A"}}',
    '{"delta":{"content":"%s"},"delta":{"text":"A"}}',
    '{"delta":"A","delta":{"content":"%s"}}',
    '{"content":"","content":"%s"}',
    '["%s",{"content": "%s"}]',
    r'{"delta":"[\"%s\"]"}',
    '{"delta":"[%s]"}',
    '{"n":%s}',
    '{"type":"t","delta":"%s","sequence_number":%s}',
    '{"sequence_number":%s,"delta":"%s","sequence_number":1}',
    "no JSON",
]
WORDS = [
    "A",
    "AA",
    "",
    "B",
    "ü",
    "\\\\",
    "\\u0041",
    '\\"',
    "\t",
    "\x85",
    "1",
    "27",
    "07",
    '","x":"A',
    "\\",
    ",",
]


@given(
    st.lists(st.tuples(st.sampled_from(LINES), *[st.sampled_from(WORDS)] * 2), max_size=12),
    st.sampled_from([("", "\n"), ("data: ", "\n\n"), ("event: x\ndata:", " \r\n\r\n")]),
)
def test_lines_that_need_not_be_parsed_are_read_as_those_that_are(
    lines: list[tuple[str, str, str]], around: tuple[str, str]
) -> None:
    # Each of these lines comes three times, so that the last ones are known by their form.
    written = [line.replace("%s", one, 1).replace("%s", two) for line, one, two in lines * 3]
    body = "".join([document.join(around) for document in written]).encode()
    read = list(StreamedTexts(body, b"text/event-stream"))
    # Without forms, each line is parsed: the result to compare with.
    with mock.patch.object(streamed_texts, "_form_of", return_value=None):
        parsed = list(StreamedTexts(body, b"text/event-stream"))

    assert read == parsed


@pytest.mark.parametrize("counter", [{}, {"sequence_number": 0}], ids=["plain", "numbered"])
def test_most_lines_of_a_stream_need_not_be_parsed(counter: Event) -> None:
    documents: list[Event] = []
    for number in range(200):
        said = choice(number % 2, content)(f"word {number}" + "\n" * (number % 5 == 4))
        assert isinstance(said, dict)
        documents.append(said | dict.fromkeys(counter, number))
    body = events(*documents)

    # Only parsed lines get there; how many lines are parsed shows nowhere else.
    with mock.patch.object(
        StreamedTexts, "_add", autospec=True, side_effect=StreamedTexts._add
    ) as parsed:
        assert len(list(StreamedTexts(body, b"text/event-stream"))) == 2

    assert parsed.call_count < 10
