"""What is tried with arbitrary bytes: each target takes some and raises where a promise is broken."""

import re
from collections.abc import Callable
from dataclasses import replace

from tapeway.core import json_text
from tapeway.core.http import content_codings
from tapeway.core.http.forms import parse_multipart
from tapeway.core.json_text import json_object
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.streams.aws_frames import parse_frames
from tapeway.core.streams.end_marks import EndMarks, Ends, EndScanner, LastFrame, LastLine
from tapeway.core.streams.events import SSE
from tapeway.core.streams.framings import FRAMINGS, events_of
from tapeway.core.websocket.graphql import GRAPHQL_TRANSPORT_WS, GRAPHQL_WS
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.plain_session import PLAIN, VOICE
from tapeway.core.websocket.request_protocol import RequestProtocol, TurnRequest
from tapeway.core.websocket.session_lines import read_session, session_line
from tapeway.core.websocket.sessions import SessionMessage, SessionReplay
from tapeway.core.websocket.turns import LiveTurns, ReplayLanes
from tapeway.formats.cassette_file import JSON, YAML, Serializer
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document
from tapeway.providers.websocket.choice import GEMINI_LIVE, JSON_RPC, OPENAI_RESPONSES, REALTIME
from tests.server.front_without_socket import read

Target = Callable[[bytes], object]

CODINGS = (b"gzip", b"deflate", b"br", b"zstd", b"gzip, br", b"zstd, gzip")
LIMIT = 1 << 20
PROTOCOLS: list[RequestProtocol] = [OPENAI_RESPONSES, JSON_RPC, GRAPHQL_TRANSPORT_WS, GRAPHQL_WS]
_OLD_LINE = re.compile(rb"^[^ :\r\n]+ [^ \r\n]*\r?$", re.MULTILINE)
MARKS = EndMarks(
    texts=frozenset({b"[DONE]"}), names=frozenset({"message_stop"}), errors=frozenset({"error"})
)


def pieces(data: bytes) -> list[bytes]:
    """The data cut where it says itself: its bytes are the sizes of the pieces, one after another."""
    cut: list[bytes] = []
    at = 0
    while at < len(data):
        size = data[(at * 7) % len(data)] % 61 + 1
        cut.append(data[at : at + size])
        at += size
    return cut


def http_requests(data: bytes) -> None:
    """Requests and the fault after them are the same however the bytes are cut.

    Only a line of HTTP/0.9, which has no version, is refused by the front or by aiohttp.
    """
    if not _OLD_LINE.search(data):
        assert read(data) == read(*pieces(data))


def json_cassette(data: bytes) -> None:
    """A file is refused with its line, or is read as it will be read again; in parts as at once."""
    in_parts = document.parse_in_parts(data)
    if in_parts is not None:
        assert in_parts[0] == json_text.parse(data, constant=json_text.non_finite_object)
    if (parts := document.divide(data)) is not None:
        try:
            quick = replace(parts, keeps=True).load(None)
        except (FormatFault, json_text.NotJson):
            pass
        else:
            assert quick == replace(JSON, divide=lambda *_, **__: None).load(data)
    _cassette(JSON, data)


def yaml_cassette(data: bytes) -> None:
    """The same for YAML."""
    _cassette(YAML, data)


def _cassette(syntax: Serializer, data: bytes) -> None:
    try:
        found = syntax.load(data)
    except FormatFault:
        return
    text = syntax.save(found)
    again = syntax.load(text)
    assert again.head == found.head
    assert syntax.save(again) == text
    assert len(again.interactions) == len(found.interactions)
    assert isinstance(again, StoredCassette)


def multipart(data: bytes) -> None:
    """Parts are pieces of the body, in their order."""
    content_type, _, body = data.partition(b"\n")
    at = 0
    for part in parse_multipart(content_type, body) or ():
        at = (b"\r\n\r\n" + body).index(part.body, at)


def content_coding(data: bytes) -> None:
    """What is decoded does not depend on how it was cut, and keeps to its limit."""
    coding, body = CODINGS[(data or b"\0")[0] % len(CODINGS)], data[1:]
    whole, cut = content_codings.decoder(coding, limit=LIMIT), content_codings.decoder(coding)
    assert whole is not None
    assert cut is not None
    plain = whole.feed(body)
    assert len(plain) <= LIMIT
    in_pieces = b"".join([cut.feed(piece) for piece in pieces(body)])
    if (end := whole.finish()) in ("complete", "cut"):
        assert (in_pieces, cut.finish()) == (plain, end)
    content_codings.decode_leniently(coding, body)


def sse(data: bytes) -> None:
    """The end of a stream, and what may be passed on before it, do not depend on the cuts."""
    _scanned(MARKS, data)
    _scanned(LastLine("done", True), data)
    assert sum(len(event.data) for event in events_of(FRAMINGS[SSE], data)) <= len(data)


def aws_frames(data: bytes) -> None:
    """Frames are the bytes they were found in; the rest is as with events."""
    _scanned(LastFrame(None), data)
    frames = parse_frames(data)
    assert [frame.start for frame in frames[1:]] == [frame.end for frame in frames[:-1]]
    assert not frames or (frames[0].start, frames[-1].end) == (0, len(data))
    for frame in frames:
        again = parse_frames(frame.with_text(frame.text))
        assert [found.text for found in again] == [frame.text]


def _scanned(ends: Ends, data: bytes) -> None:
    whole, cut = EndScanner(ends), EndScanner(ends)
    whole.feed(data)
    before = 0
    for piece in pieces(data):
        cut.feed(piece)
        assert before <= cut.releasable <= len(data)
        before = cut.releasable
    whole.finish()
    cut.finish()
    assert (whole.mark, whole.releasable) == (cut.mark, cut.releasable)


def websocket_turns(data: bytes) -> None:
    """Whatever comes has at most one turn, and only its lane is changed for another request."""
    for protocol in PROTOCOLS:
        turns, lanes, asked = LiveTurns(), ReplayLanes(), 0
        for by_client, message in _messages(data):
            if not by_client:
                answer = protocol.read_answer(message)
                arrival = turns.came(answer) if answer is not None else None
                assert arrival is None or arrival.turn < asked
                _only_the_lane_changes(protocol, message)
            elif isinstance(request := protocol.read_sent(message), TurnRequest):
                assert turns.asked(request) == asked
                asked += 1
                again = protocol.read_sent(WebSocketMessage(request.content))
                assert again is None or getattr(again, "content", None) == request.content
                place = lanes.enter(request)
                assert lanes.may_send(place) or len(turns.open) > 1
                protocol.error_message(place.lane, "replay_miss", "x")
                lanes.left(place)
        assert len(turns.open) <= asked


def _only_the_lane_changes(protocol: RequestProtocol, message: WebSocketMessage) -> None:
    before = json_object(message.data)
    after = json_object(protocol.echoed(message, b"1", b'"q"').data)
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        names = (before.keys() | after.keys()) - {"id", "stream_id"}
        assert all(before.get(name) == after.get(name) for name in names)


def websocket_sessions(data: bytes) -> None:
    """A session is read as it was written, and replayed to the client that it was recorded from."""
    messages = [SessionMessage(message, by_client) for by_client, message in _messages(data)]
    lines = [session_line(message.message, by_client=message.by_client) for message in messages]
    recording = read_session([(0.0, line) for line in lines])
    assert [(message.message, message.by_client) for message in recording.messages] == [
        (message.message, message.by_client) for message in messages
    ]
    for dialect in (PLAIN, VOICE, REALTIME, GEMINI_LIVE):
        replay = SessionReplay(recording, dialect)
        told: list[WebSocketMessage] = []
        for message in [*messages, None]:
            while (due := replay.due()) is not None:
                told.append(due.message)
            if message is not None and message.by_client:
                assert replay.received(message.message) is None
        assert told == [message.message for message in messages if not message.by_client]
        assert replay.unreached() == ()


def _messages(data: bytes) -> list[tuple[bool, WebSocketMessage]]:
    """Messages between NULs, those of the client first and then in turns where they say so."""
    found = []
    for number, piece in enumerate(data.split(b"\0")):
        try:
            piece.decode()
            binary = piece.startswith(b"\x01")
        except UnicodeDecodeError:
            binary = True
        found.append(
            (not piece.startswith(b" ") and number % 3 != 2, WebSocketMessage(piece, binary))
        )
    return found


TARGETS: dict[str, Target] = {
    target.__name__: target
    for target in (
        *(http_requests, json_cassette, yaml_cassette, multipart),
        *(content_coding, sse, aws_frames),
        *(websocket_turns, websocket_sessions),
    )
}
