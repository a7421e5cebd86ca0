"""Secrets that are spread over events, lines and AWS frames."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.redaction import streamed_secrets
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER, Span
from tapeway.core.redaction.streamed_secrets import ReadStream, frames_with_texts
from tapeway.core.streams.aws_frames import parse_frames
from tests.core.redaction.example_messages import make_response, redactor
from tests.support.event_stream_frames import frame, model_frame

KEY = 'K3y/0123456789+abc"ü='
SENTENCE = f"It is {KEY}, is it not?"
HIDDEN = Redactor("run").placeholder("x", KEY.encode()).decode()
SECRET = Secret("x", b"A")
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
    pieces = stored(*events(*[{"type": "delta", "delta": each} for each in deltas]))
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

    assert "".join(each["choices"][0]["delta"]["content"] for each in read_) == HIDDEN
    assert "".join(each["choices"][1]["delta"]["content"] for each in read_) == KEY[::-1]


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
    lines = [form.format(json.dumps({"response": each})).encode() for each in KEY]
    pieces = stored(*lines, content_type=content_type)

    assert HIDDEN.encode() in pieces[0]
    assert len(pieces) == len(KEY)


def test_the_elements_of_one_array_are_events_too() -> None:
    elements = [{"candidates": [{"content": {"parts": [{"text": each}]}}]} for each in KEY]
    body = "[" + ",\r\n".join(map(json.dumps, elements)) + "]"
    [piece] = stored(body.encode(), content_type=b"application/json")
    stored_texts = [
        each["candidates"][0]["content"]["parts"][0]["text"] for each in json.loads(piece)
    ]

    assert stored_texts == [HIDDEN, *[""] * (len(KEY) - 1)]


def test_arguments_of_a_tool_are_read_as_the_json_they_are() -> None:
    arguments = json.dumps({"access_token": "T0ken/0123456789", "x": KEY})
    pieces = stored(*events(*[{"arguments": each} for each in arguments]))
    redacted = json.loads("".join(document["arguments"] for document in events_of(pieces)))

    assert redacted["x"] == HIDDEN
    assert redacted["access_token"].startswith("REDACTED.access_token.")


def test_a_pattern_is_found_too() -> None:
    pieces = stored(*events(*[{"d": each} for each in "the sk-ant-api03-0123456789abcdefgh"]))

    assert b"REDACTED.anthropic-key." in b"".join(pieces)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: {broken\n\n", b"data: {}\n\n", b"data: [DONE]\n\n"],
        [b'data: "' + each.encode() + b'"\n\n' for each in "K3y"],
        events(*[{"id": KEY[:9]}] * 20),
        [b'data: {"a":1}\n\n', b"data: 5\n\n"],
        [b"data: " + b"[" * 1000 + b'"a"' + b"]" * 1000 + b"\n\n"] * 2,
    ],
)
def test_what_tells_nothing_stays_as_it_was(pieces: list[bytes]) -> None:
    assert stored(*pieces) == pieces
    assert stored(*pieces, content_type=b"application/x-ndjson") == pieces


def test_empty_strings_between_its_characters_change_nothing() -> None:
    deltas = [*"abc", *[each for one in KEY for each in (one, "")], *"abc"]
    pieces = stored(*events(*[{"delta": each} for each in deltas]))

    assert "".join(each["delta"] for each in events_of(pieces)) == f"abc{HIDDEN}abc"


def test_a_line_with_another_name_of_that_length_is_no_part_of_it() -> None:
    documents = [{"d": each} for each in f"abc{KEY}"]
    documents[10:10] = [{"e": "x"}, {"e": "y"}]
    read_ = events_of(stored(*events(*documents)))

    assert "".join(each.get("d", "") for each in read_) == f"abc{HIDDEN}"
    assert [each["e"] for each in read_ if "e" in each] == ["x", "y"]


def test_what_every_event_repeats_is_no_secret_spread_over_events() -> None:
    pieces = events(*[{"id": "ab", "d": str(number)} for number in range(20)])

    assert stored(*pieces, secret="ab" * 10) == pieces


@pytest.mark.slow
def test_very_many_events_take_time_linear_in_their_number() -> None:
    pieces = stored(*events(*[{"d": each} for each in f"{KEY} " * 1500]))

    assert b"".join(pieces).count(HIDDEN.encode()) == 1500


def test_a_very_long_array_takes_time_linear_in_its_length() -> None:
    body = json.dumps([{"d": each} for each in f"{KEY} " * 1500]).encode()

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

    redacted = "".join([str(each["text"]) for each in stored_texts if isinstance(each, dict)])
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


LINES = [
    '{"id":"c","delta":{"content":"%s"},"n":1}',
    '{"id":"c","delta":{"content":"%s"},"pad":"%s"}',
    '{"id":"%s","delta":{"content":"A"}}',
    '{"id":"c","delta":{"content":","n":1}',
    '{"delta":{"content":"%s"},"delta":{"content":"A"}}',
    '{"delta":{"content":"%s"},"delta":{"text":"A"}}',
    '{"delta":"A","delta":{"content":"%s"}}',
    '{"content":"","content":"%s"}',
    '["%s",{"content": "%s"}]',
    '{"n":%s}',
    "no JSON",
]
TEXTS = [
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
    '","x":"A',
    "\\",
    ",",
]
FRAMES = [
    ("", "\n"),
    ("data: ", "\n\n"),
    ("event: x\ndata:", " \r\n\r\n"),
    (": {}\n\ndata: ", "\n\n"),
]


def search(text: bytes) -> list[Span]:
    return [Span(each.start(), each.end(), SECRET) for each in re.finditer(rb"A+|B", text)]


def are_read_as_if_parsed(lines: list[tuple[str, str, str]], around: tuple[str, str]) -> None:
    written = [line.replace("%s", one, 1).replace("%s", two) for line, one, two in lines]
    body = "".join([each.join(around) for each in written]).encode("utf-8", "surrogateescape")
    found = list(streamed_secrets.find(ReadStream(body, SSE), search))
    with mock.patch.object(streamed_secrets, "_TRIES", 0):
        parsed = list(streamed_secrets.find(ReadStream(body, SSE), search))

    assert found == parsed
    assert columns(streamed_secrets._add_lines_by_form, body) == columns(
        streamed_secrets._add_lines, body
    )


@given(
    st.lists(st.tuples(st.sampled_from(LINES), *[st.sampled_from(TEXTS)] * 2), max_size=12),
    st.sampled_from(FRAMES),
)
def test_lines_that_need_not_be_parsed_are_read_as_those_that_are(
    lines: list[tuple[str, str, str]], around: tuple[str, str]
) -> None:
    # Each of these lines comes three times, so that the last ones are known by their form.
    are_read_as_if_parsed(lines * 3, around)


@given(
    st.sampled_from(LINES[:3]),
    st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), max_size=12),
    st.tuples(st.sampled_from(LINES), *[st.sampled_from(TEXTS)] * 2),
    st.sampled_from(FRAMES),
    st.integers(0, 60),
)
def test_lines_of_one_form_with_another_among_them_are_read_as_if_parsed(
    line: str,
    texts: list[tuple[str, str]],
    odd: tuple[str, str, str],
    around: tuple[str, str],
    run: int,
) -> None:
    lines = [(line, "A", "B"), (line, "1", "2"), *[(line, *each) for each in texts]]
    with mock.patch.object(streamed_secrets, "_LEAST_RUN", run):
        are_read_as_if_parsed([*lines, odd, *lines], around)


@pytest.mark.parametrize(
    ("line", "odd"),
    [
        ('{"b":"%s","d":"%s","n":1}', '{"b":"A","d":","n":1}'),
        ('{"d":"%s","b":"A","p":"%s"}', '{"d":"A"}'),
        ('{"d":"%s","b":"A","p":"%s"}', '{"d":"A\\","b":"A","p":"B"}'),
    ],
)
def test_a_line_that_begins_and_ends_as_others_do_may_be_none_of_them(line: str, odd: str) -> None:
    first = [('{"b":"%s"}', each, "") for each in "ABA"]
    lines = [(line.replace("%s", "A", line.count("%s") - 1), each, each) for each in "ABA"]
    both = [(line, one, two) for one, two in ("AB", "BA", "1A")]

    for known in (lines, both):
        are_read_as_if_parsed([*first, *known, (odd, "", "")], FRAMES[0])
        are_read_as_if_parsed([*first, *known, (odd, "", ""), *known], FRAMES[0])


@pytest.mark.parametrize("text", ["AB", "\\u0041B"])
@pytest.mark.parametrize("line", ['{"%s":1,"d":"%s"}', '{"a":"%s","d":"%s"}'])
def test_a_string_that_stands_in_two_places_is_not_taken_for_the_one_that_differs(
    line: str, text: str
) -> None:
    lines = [(line, "1", "2"), (line, "AB", text), (line, text, text)]
    for names in ("CA", "DA", "1A"):
        are_read_as_if_parsed([*lines, (line, names, text), (line, text, names)], FRAMES[0])


def test_two_lines_that_are_no_json_are_not_two_strings_together() -> None:
    lines = [('{"d":"%s"}', each, "") for each in ("A", "B", "A", "A\\", ',"B', "A", "B")]

    are_read_as_if_parsed(lines, FRAMES[0])


@pytest.mark.parametrize(
    "halves", [("A\\", "nB"), ("\\u00", "41"), ("\\ud83d", "\\ude00"), ("\udcc3", "\udca9")]
)
def test_half_a_character_in_each_of_two_lines_is_none(halves: tuple[str, str]) -> None:
    for texts in (("A", "B", *halves, "B"), ("A", "B", "A", *halves, "A", "B")):
        are_read_as_if_parsed([('{"d":"%s"}', each, "") for each in texts], FRAMES[0])


def columns(
    add: Callable[[bytes, streamed_secrets._Column], object], body: bytes
) -> list[tuple[tuple[str | int, ...], bytes]]:
    """The strings of each place, joined, as these are read."""
    top = streamed_secrets._Column()
    add(body, top)
    return [(path, each.joined()) for path, each in streamed_secrets._changing_columns(top)]


def test_most_lines_of_a_stream_need_not_be_parsed() -> None:
    body = b"".join(
        events(*[{"type": "delta", "delta": f"word {n}", "id": "c"} for n in range(99)])
    )

    add_strings = streamed_secrets._add_strings
    with mock.patch.object(streamed_secrets, "_add_strings", wraps=add_strings) as parsed:
        assert not list(streamed_secrets.find(ReadStream(body, SSE), lambda text: []))

    assert parsed.call_count < 5


@pytest.mark.parametrize("pad", [(), ("pad",)])
@pytest.mark.parametrize("escaped", ["", r"\u0063afe\/"])
def test_lines_of_one_form_are_added_at_once(pad: tuple[str, ...], escaped: str) -> None:
    texts = [f'{escaped and "cafe/"}say "{n}"\n' if n % 5 else "" for n in range(99)]
    body = b"".join(
        events(*[{"on": {"delta": each}} | dict.fromkeys(pad, f"p{each}") for each in texts])
    ).replace(b"cafe/", escaped.encode() or b"cafe/")
    searched: list[bytes] = []

    def search(text: bytes) -> list[Span]:
        searched.append(text)
        return []

    add = streamed_secrets._Form.add
    with (
        mock.patch.object(streamed_secrets._Form, "add", autospec=True) as added,
        mock.patch.object(streamed_secrets, "_add_line", wraps=streamed_secrets._add_line) as line,
    ):
        added.side_effect = add
        assert not list(streamed_secrets.find(ReadStream(body, SSE), search))

    assert added.call_count < 5
    assert line.call_count < 15
    assert "".join(texts).encode() in searched
    assert len(searched) == 1 + len(pad)


def test_lines_up_to_one_of_another_form_are_added_at_once() -> None:
    documents = [{"delta": f"word {n}"} if n % 40 else {"n": n} for n in range(400)]

    add = streamed_secrets._Form.add
    with mock.patch.object(streamed_secrets._Form, "add", autospec=True) as added:
        added.side_effect = add
        streamed_secrets._add_lines_by_form(
            b"".join(events(*documents)), streamed_secrets._Column()
        )

    assert added.call_count < 100


def test_a_line_that_is_cut_off_does_not_have_those_before_it_added_one_by_one() -> None:
    body = b"".join(events(*[{"delta": f"word {n}"} for n in range(800)]))
    added: list[int] = []

    def add_and_note(form: streamed_secrets._Form, body: bytes, start: int, end: int) -> int:
        added.append(add(form, body, start, end))
        return added[-1]

    add = streamed_secrets._Form.add
    with mock.patch.object(streamed_secrets._Form, "add", add_and_note):
        streamed_secrets._add_lines_by_form(body, streamed_secrets._Column())

    assert added[0] > streamed_secrets._LEAST_RUN * 0.9


@pytest.mark.parametrize("last", [rb"a\\b", b"a\x01b", b"\xc3"])
def test_a_line_that_has_to_be_parsed_does_not_have_all_before_it_read_again(last: bytes) -> None:
    def read(count: int) -> int:
        texts = [b"word %d" % number for number in range(count)] + [last]
        body = b"\n".join(b'{"delta":"%b"}' % each for each in texts * 3)
        with mock.patch.object(streamed_secrets, "_joined", wraps=streamed_secrets._joined) as of:
            streamed_secrets._add_lines_by_form(body, streamed_secrets._Column())
        return sum(len(call.args[0]) for call in of.call_args_list)

    assert read(2000) <= 2.5 * read(1000) + 10


@given(st.lists(st.text(max_size=8), max_size=4), st.binary(max_size=40), st.data())
def test_what_shows_nothing_comes_back_byte_for_byte(
    texts: list[str], tail: bytes, data: st.DataObject
) -> None:
    body = b"".join([model_delta(each) + delta(each) for each in texts]) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    pieces = [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]
    frames = parse_frames(body)

    assert frames_with_texts(frames, [each.text for each in frames]) == []
    assert stored_frames(*pieces) == [each for each in pieces if each]
