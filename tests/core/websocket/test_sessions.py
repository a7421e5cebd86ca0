"""A recorded session is replayed to a client that sends the same, and to no other."""

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.rules import Rules
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.core.websocket.plain_session import PLAIN, VOICE
from tapeway.core.websocket.sessions import (
    SessionChoice,
    SessionMessage,
    SessionRecording,
    SessionReplay,
    lookup_content,
    title_of,
)
from tapeway.providers.websocket.choice import GEMINI_LIVE, REALTIME

EXACT = Rules(audio="exact")


def message(value: object) -> WebSocketMessage:
    return WebSocketMessage(json.dumps(value).encode())


def said(*values: tuple[str, object], close: Close | None = None) -> SessionRecording:
    """A recording of `("c", value)` and `("s", value)`."""
    found = [
        SessionMessage(message(value), side == "c", at_ms=10.0 * at)
        for at, (side, value) in enumerate(values)
    ]
    return SessionRecording(tuple(found), close)


def audio(data: bytes) -> dict[str, str]:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()}


def drained(replay: SessionReplay | SessionChoice) -> list[Any]:
    found: list[Any] = []
    while (due := replay.due()) is not None:
        found.append(json.loads(due.message.data))
    return found


COMMIT = {"type": "input_audio_buffer.commit"}
HELLO = {"type": "session.created", "session": {"id": "sess_1a2b3c"}}


def test_the_service_speaks_first_and_then_waits() -> None:
    replay = SessionReplay(said(("s", HELLO), ("c", {"type": "a"}), ("s", {"type": "b"})), REALTIME)
    assert drained(replay) == [HELLO]
    assert replay.awaited() == "message 1 of the recording, a of the client"
    assert replay.unreached() == (1, 2)
    assert replay.received(message({"type": "a"})) is None
    assert drained(replay) == [{"type": "b"}]
    assert replay.awaited() is None
    assert replay.unreached() == ()


def test_a_client_may_send_earlier_than_it_did() -> None:
    replay = SessionReplay(said(("c", {"n": 1}), ("s", 1), ("c", {"n": 2}), ("s", 2)), PLAIN)
    assert replay.received(message({"n": 1})) is None
    assert replay.received(message({"n": 2})) is None
    assert drained(replay) == [1, 2]


def test_another_message_is_a_difference_and_nothing_more_goes_out() -> None:
    recording = said(("c", {"type": "say", "text": "yes"}), ("s", 1), close=Close(1000))
    replay = SessionReplay(recording, PLAIN)
    found = replay.received(message({"type": "say", "text": "no"}))
    assert found is not None
    assert found.number == 0
    assert found.text == "say differs from message 0 at messages[0].text"
    assert (found.differences[0].recorded, found.differences[0].requested) == ("yes", "no")
    assert replay.due() is None
    assert replay.close_due() is None
    assert replay.received(message({"type": "say", "text": "yes"})) is found


@pytest.mark.parametrize(
    ("recorded", "sent", "path"),
    [
        ({"a": 1}, {"a": 1.5}, "messages[0].a"),
        ({"a": 1}, {"a": True}, "messages[0].a"),
        ({"a": [1, 2]}, {"a": [1]}, "messages[0].a[1]"),
        ({"a": [1]}, {"a": [1, 2]}, "messages[0].a[1]"),
        ({"a": 1}, {"a": 1, "b": 2}, "messages[0].b"),
        ({"a": 1, "b": 2}, {"a": 1}, "messages[0].b"),
        ({"a": "x"}, {"a": ["x"]}, "messages[0].a"),
        ({"voice_id": "k3J9xQ2mZ7"}, {"voice_id": "p8W4nR6tY1"}, "messages[0].voice_id"),
        (
            {"type": "get", "id": "k3J9xQ2mZ7"},
            {"type": "get", "id": "p8W4nR6tY1"},
            "messages[0].id",
        ),
        ("yes", "no", "messages[0]"),
    ],
)
def test_every_value_counts(recorded: object, sent: object, path: str) -> None:
    found = SessionReplay(said(("c", recorded)), PLAIN).received(message(sent))
    assert found is not None
    assert [difference.path for difference in found.differences] == [path]


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        (b'{"a": 1, "b": "\xc3\xa9"}', b'{"b":"\\u00e9","a":1}'),
        (b'{"a": 1}', b'{"a": 1.0}'),
        (b"hello", b"hello"),
    ],
)
def test_spelling_does_not_count(recorded: bytes, sent: bytes) -> None:
    recording = SessionRecording((SessionMessage(WebSocketMessage(recorded), True),))
    assert SessionReplay(recording, PLAIN).received(WebSocketMessage(sent)) is None


def test_a_text_and_octets_count_as_they_are() -> None:
    for recorded, sent in [
        (WebSocketMessage(b"hello"), WebSocketMessage(b"hallo")),
        (WebSocketMessage(b"\x00\x01", True), WebSocketMessage(b"\x00\x02", True)),
    ]:
        recording = SessionRecording((SessionMessage(recorded, True),))
        assert SessionReplay(recording, PLAIN).received(sent) is not None
        assert SessionReplay(recording, PLAIN).received(recorded) is None


def test_a_message_too_many_is_a_difference() -> None:
    replay = SessionReplay(said(("c", {"type": "a"})), PLAIN)
    assert replay.received(message({"type": "a"})) is None
    found = replay.received(message({"type": "b"}))
    assert found is not None
    assert found.text == "the client sends b after the recording's last client message"


def test_an_identifier_of_the_client_is_bound_both_ways() -> None:
    recording = said(
        ("c", {"type": "conversation.item.create", "item": {"id": "item_a1b2c3", "x": 1}}),
        ("s", {"type": "conversation.item.added", "item": {"id": "item_a1b2c3"}}),
        ("c", {"type": "conversation.item.delete", "item_id": "item_a1b2c3"}),
        ("s", {"type": "conversation.item.deleted", "item_id": "item_a1b2c3"}),
    )
    replay = SessionReplay(recording, REALTIME)
    create = {"type": "conversation.item.create", "item": {"id": "item_z9y8x7", "x": 1}}
    assert replay.received(message(create)) is None
    assert drained(replay) == [{"type": "conversation.item.added", "item": {"id": "item_z9y8x7"}}]
    other = {"type": "conversation.item.delete", "item_id": "item_q0q0q0"}
    assert SessionReplay(recording, REALTIME).received(message(other)) is not None
    delete = {"type": "conversation.item.delete", "item_id": "item_z9y8x7"}
    assert replay.received(message(delete)) is None
    assert drained(replay) == [{"type": "conversation.item.deleted", "item_id": "item_z9y8x7"}]


def test_two_identifiers_do_not_become_one() -> None:
    recording = said(
        ("c", {"type": "x", "event_id": "ev_a1b2c3", "item_id": "it_d4e5f6"}),
    )
    same = {"type": "x", "event_id": "ev_q0q0q0", "item_id": "ev_q0q0q0"}
    assert SessionReplay(recording, REALTIME).received(message(same)) is not None
    other = {"type": "x", "event_id": "ev_q0q0q0", "item_id": "it_q0q0q0"}
    assert SessionReplay(recording, REALTIME).received(message(other)) is None


@pytest.mark.parametrize(("second", "alike"), [("sess_7u8v9w", True), ("sess_4x5y6z", False)])
def test_two_identifiers_of_the_service_do_not_become_one_in_another_session(
    second: str, alike: bool
) -> None:
    ids = {"session_id": "sess_1a2b3c", "item_id": "sess_9q8r7s"}
    replay = SessionReplay(said(("s", ids)), REALTIME)

    assert replay.adopt(message({"session_id": "sess_4x5y6z", "item_id": second})) is alike


def test_an_identifier_that_the_service_issued_is_no_other() -> None:
    recording = said(
        ("s", {"type": "item", "item": {"id": "item_a1b2c3"}}),
        ("c", {"type": "conversation.item.delete", "item_id": "item_a1b2c3"}),
    )
    for sent, agrees in (("item_a1b2c3", True), ("item_z9y8x7", False)):
        replay = SessionReplay(recording, REALTIME)
        drained(replay)
        delete = {"type": "conversation.item.delete", "item_id": sent}
        assert (replay.received(message(delete)) is None) is agrees


def test_an_event_id_may_be_left_out() -> None:
    recording = said(("c", {"type": "response.create", "event_id": "ev_1a2b3c"}))
    assert SessionReplay(recording, REALTIME).received(message({"type": "response.create"})) is None


def test_how_far_a_player_came_does_not_count() -> None:
    truncate = {"type": "conversation.item.truncate", "item_id": "item_1", "audio_end_ms": 120}
    recording = said(("c", truncate))
    other = truncate | {"audio_end_ms": 340}
    assert SessionReplay(recording, REALTIME).received(message(other)) is None


def test_audio_may_be_cut_otherwise() -> None:
    recording = said(
        ("c", audio(b"a" * 40)),
        ("c", audio(b"b" * 40)),
        ("s", {"type": "heard"}),
        ("c", COMMIT),
        ("s", {"type": "committed"}),
    )
    replay = SessionReplay(recording, REALTIME)
    for _ in range(3):
        assert replay.received(message(audio(b"x" * 25))) is None
    assert drained(replay) == []
    assert replay.awaited() == "5 more bytes of audio of the client"
    assert replay.received(message(audio(b"x" * 5))) is None
    assert drained(replay) == [{"type": "heard"}]
    assert replay.received(message(COMMIT)) is None
    assert drained(replay) == [{"type": "committed"}]


@pytest.mark.parametrize("length", [79, 81])
def test_audio_of_another_length_is_a_difference_once_it_is_whole(length: int) -> None:
    recording = said(("c", audio(b"a" * 80)), ("c", COMMIT), ("s", 1))
    replay = SessionReplay(recording, REALTIME)
    assert replay.received(message(audio(b"x" * length))) is None
    found = replay.received(message(COMMIT))
    assert found is not None
    assert found.differences[0].path == "messages[1].audio.length"
    assert (found.differences[0].recorded, found.differences[0].requested) == (80, length)


def test_a_microphone_may_go_on() -> None:
    recording = said(("c", audio(b"a" * 80)), ("s", {"type": "heard"}))
    replay = SessionReplay(recording, REALTIME)
    for _ in range(5):
        assert replay.received(message(audio(b"x" * 80))) is None
    assert drained(replay) == [{"type": "heard"}]


def test_audio_where_none_was_recorded_is_a_difference() -> None:
    replay = SessionReplay(said(("c", {"type": "a"}), ("s", 1)), REALTIME)
    assert replay.received(message(audio(b"x"))) is not None


@pytest.mark.parametrize(
    ("sent", "agrees"),
    [([b"abcd", b"efgh"], True), ([b"abcdefgh"], True), ([b"abcd", b"efgx"], False)],
)
def test_exact_audio_counts_byte_for_byte(sent: Sequence[bytes], agrees: bool) -> None:
    recording = said(("c", audio(b"abc")), ("c", audio(b"defgh")), ("c", COMMIT), ("s", 1))
    replay = SessionReplay(recording, REALTIME, EXACT)
    found = [replay.received(message(audio(sound))) for sound in sent]
    assert (found[-1] is None) is agrees
    if agrees:
        assert replay.received(message(COMMIT)) is None


def test_binary_audio_of_a_voice_service_is_audio_and_other_octets_are_not() -> None:
    recording = SessionRecording((SessionMessage(WebSocketMessage(b"\x01\x02", True), True),))
    other = WebSocketMessage(b"\x03\x04", True)
    assert SessionReplay(recording, VOICE).received(other) is None
    assert SessionReplay(recording, PLAIN).received(other) is not None


def test_another_format_of_audio_is_a_difference() -> None:
    def chunk(kind: str) -> dict[str, Any]:
        data = base64.b64encode(b"12345678").decode()
        return {"realtimeInput": {"audio": {"data": data, "mimeType": kind}}}

    recording = said(("c", chunk("audio/pcm;rate=16000")), ("s", {}))
    assert (
        SessionReplay(recording, GEMINI_LIVE).received(message(chunk("audio/pcm;rate=16000")))
        is None
    )
    found = SessionReplay(recording, GEMINI_LIVE).received(message(chunk("audio/opus")))
    assert found is not None
    assert found.differences[0].path == "audio.format"


def test_signs_of_life_are_not_compared() -> None:
    recording = said(
        ("s", {"type": "ping", "event_id": 1}),
        ("c", {"type": "pong", "event_id": 1}),
        ("c", {"type": "a"}),
        ("s", {"type": "b"}),
    )
    replay = SessionReplay(recording, PLAIN)
    assert drained(replay) == [{"type": "ping", "event_id": 1}]
    assert replay.received(message({"type": "a"})) is None
    assert replay.received(message({"type": "pong", "event_id": 9})) is None
    assert drained(replay) == [{"type": "b"}]


def test_the_recorded_close_comes_behind_everything() -> None:
    closed = Close(1001, "bye")
    replay = SessionReplay(said(("c", {"type": "a"}), ("s", 1), close=closed), PLAIN)
    assert replay.close_due() is None
    replay.received(message({"type": "a"}))
    assert replay.close_due() is None
    drained(replay)
    assert replay.close_due() == closed
    assert SessionReplay(said(close=Close(1000, by_client=True)), PLAIN).close_due() is None
    assert SessionReplay(said(), PLAIN).close_due() is None


def test_the_pace_of_a_recording_is_known() -> None:
    replay = SessionReplay(said(("s", 1), ("c", {"a": 1}), ("s", 2)), PLAIN)
    assert replay.gap_ms == 0.0
    replay.due()
    assert replay.gap_ms == 10.0


def test_rules_hold_for_messages() -> None:
    recording = said(("c", {"type": "a", "time": 1, "text": "at 2026-01-01"}))
    other = message({"type": "a", "time": 2, "text": "at 2026-01-01"})
    assert SessionReplay(recording, PLAIN).received(other) is not None
    assert SessionReplay(recording, PLAIN, Rules(ignore=("body.time",))).received(other) is None


def test_a_placeholder_stands_for_its_value() -> None:
    digests = SecretDigests("salt")
    secret = "tok_9f8e7d6c5b4a3f2e1d0c"
    held = digests.placeholder("token", secret.encode()).decode()
    recording = said(("c", {"type": "a", "say": f"use {held} now"}))
    for sent, agrees in ((secret, True), (held, True), ("tok_000000000000000000", False)):
        replay = SessionReplay(recording, PLAIN, digests=digests)
        found = replay.received(message({"type": "a", "say": f"use {sent} now"}))
        assert (found is None) is agrees


def test_a_credential_does_not_decide() -> None:
    recording = said(("c", {"type": "start", "api_key": "REDACTED.api_key.ghijklmn", "x": 1}))
    start = {"type": "start", "api_key": "another-key-of-somebody", "x": 1}
    assert SessionReplay(recording, PLAIN).received(message(start)) is None
    assert SessionReplay(recording, PLAIN).received(message(start | {"x": 2})) is not None


UPDATE = {"type": "session.update", "session": {}}


def two_sessions() -> list[SessionRecording]:
    return [
        said(
            ("s", {"type": "session.created", "session": {"id": f"sess_{name}1b2c3"}, "at": at}),
            ("c", UPDATE),
            ("s", {"type": "session.updated", "session": {"id": f"sess_{name}1b2c3"}}),
            ("c", {"type": "ask", "text": name}),
            ("s", {"type": "told", "text": f"hello {name}", "session": f"sess_{name}1b2c3"}),
        )
        for at, name in enumerate("ab")
    ]


def test_a_session_is_chosen_by_what_the_client_says() -> None:
    choice = SessionChoice(two_sessions(), REALTIME)
    first = [*drained(choice)]
    assert choice.received(message(UPDATE)) is None
    first += drained(choice)
    assert choice.received(message({"type": "ask", "text": "b"})) is None
    # The client knows the session by the identifier that has gone out.
    assert drained(choice) == [{"type": "told", "text": "hello b", "session": "sess_a1b2c3"}]
    assert choice.replay.recording == two_sessions()[1]
    assert [event["type"] for event in first] == ["session.created", "session.updated"]


def test_a_session_goes_on_from_what_another_one_has_said() -> None:
    one, two = two_sessions()
    opening = SessionChoice([one, two], REALTIME)
    begun = opening.due()
    assert begun is not None
    choice = SessionChoice([two], REALTIME, given=[begun.message])
    assert choice.due() is None
    assert choice.received(message(UPDATE)) is None
    assert drained(choice) == [{"type": "session.updated", "session": {"id": "sess_a1b2c3"}}]


def test_a_session_that_begins_in_another_way_is_not_taken() -> None:
    given = message({"type": "session.created", "session": {"id": "sess_a1b2c3"}, "beta": True})
    choice = SessionChoice(two_sessions(), REALTIME, given=[given])
    found = choice.received(message(UPDATE))
    assert found is not None
    assert found.text == "no recorded session begins with the messages already sent to the client"


def test_what_no_session_has_is_a_difference_from_the_first() -> None:
    choice = SessionChoice(two_sessions(), REALTIME)
    drained(choice)
    choice.received(message(UPDATE))
    found = choice.received(message({"type": "ask", "text": "c"}))
    assert found is not None
    assert found.differences[0].recorded == "a"


def test_a_session_in_which_something_else_was_said_is_not_taken() -> None:
    one = said(("c", {"n": 1}), ("s", "yes"), ("c", {"n": 2}), ("s", 1))
    two = said(("c", {"n": 1}), ("s", "no"), ("c", {"n": 3}), ("s", 2))
    choice = SessionChoice([one, two], PLAIN)
    choice.received(message({"n": 1}))
    assert drained(choice) == ["yes"]
    assert choice.received(message({"n": 3})) is not None


@pytest.mark.parametrize(
    ("first", "same"),
    [
        ({"type": "session.update", "event_id": "ev_1a2b3c"}, {"type": "session.update"}),
        (
            {"type": "x", "item": {"id": "it_1a2b3c", "n": 1}},
            {"type": "x", "item": {"id": "it_9z8y7x", "n": 1}},
        ),
        (audio(b"a" * 40), audio(b"b" * 20)),
    ],
)
def test_a_session_is_looked_up_without_what_varies(first: object, same: object) -> None:
    assert lookup_content(message(first), REALTIME) == lookup_content(message(same), REALTIME)


def test_a_session_is_looked_up_by_what_counts() -> None:
    one, two = message({"type": "a", "n": 1}), message({"type": "a", "n": 2})
    assert lookup_content(one, PLAIN) != lookup_content(two, PLAIN)
    assert lookup_content(None, PLAIN) == b""
    assert json.loads(lookup_content(WebSocketMessage(b"hi"), PLAIN)) == {"text": "hi"}


def test_a_message_has_a_title() -> None:
    assert title_of(message({"type": "a"})) == "a"
    assert title_of(message({"setup": {}})) == "setup"
    assert title_of(message({})) == "an empty object"
    assert title_of(WebSocketMessage(b"hi")) == "a text"
    assert title_of(WebSocketMessage(b"\x00", True)) == "1 bytes"


@pytest.mark.parametrize("seed", range(8))
def test_random_sessions_are_replayed_to_the_client_that_made_them(seed: int) -> None:
    """The client draws new identifiers, cuts its audio otherwise, and sends when it likes."""
    draw = random.Random(seed)
    for _ in range(30):
        script: list[tuple[str, dict[str, Any]]] = []
        names: list[str] = []
        for number in range(draw.randrange(1, 25)):
            kind = draw.choice(["control", "audio", "commit", "service", "service"])
            if kind == "control":
                names.append(f"item_{draw.randrange(10**9):09}x1y")
                item = {"id": names[-1], "n": number}
                script.append(("c", {"type": "conversation.item.create", "item": item}))
            elif kind == "audio":
                script.append(("c", dict(audio(draw.randbytes(draw.randrange(1, 50))))))
            elif kind == "commit":
                script.append(("c", dict(COMMIT)))
            else:
                told = {"type": "told", "n": number, "of": draw.choice([*names, None])}
                script.append(("s", told))
        replay = SessionReplay(said(*script), REALTIME, draw.choice([EXACT, Rules()]))
        renamed = {name: f"item_{draw.randrange(10**9):09}z8w" for name in names}

        def as_sent(value: dict[str, Any], renamed: dict[str, str] = renamed) -> object:
            text = json.dumps(value)
            for old, new in renamed.items():
                text = text.replace(old, new)
            return json.loads(text)

        expected = [as_sent(value) for side, value in script if side == "s"]
        came = drained(replay)
        for value in _recut([value for side, value in script if side == "c"], draw):
            assert replay.received(message(as_sent(value))) is None
            if draw.random() < 0.7:
                came += drained(replay)
        came += drained(replay)
        assert came == expected
        assert replay.unreached() == ()


def _recut(script: list[dict[str, Any]], draw: random.Random) -> list[dict[str, Any]]:
    """The same messages with the audio between two others in other pieces."""
    found: list[dict[str, Any]] = []
    waiting = b""
    for event in [*script, {"type": "end"}]:
        if event["type"] == "input_audio_buffer.append":
            waiting += base64.b64decode(str(event["audio"]))
            continue
        while waiting:
            cut = draw.randrange(1, len(waiting) + 1)
            found.append(dict(audio(waiting[:cut])))
            waiting = waiting[cut:]
        found.append(event)
    return found[:-1]
