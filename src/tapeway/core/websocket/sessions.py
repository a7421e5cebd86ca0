"""Replays one recorded session: a connection on which client and service speak at any time.

Before a message of the service goes out, the client must have sent as much as in the recording: as
many control messages, and as many bytes of audio. The replay compares the client's control messages
in order. Audio is compared by length and format at each end of audio, or byte for byte
(`audio = "exact"` in the rules). After a difference the replay sends nothing more.

How to use a replay: look the recordings up by the handshake and by `lookup_content` of the client's
first message, and make a `SessionChoice` from the results. If the service speaks first, make the
choice from all recordings with this handshake, before the client's first message. Call `received`
for each message of the client. Call `due` after the handshake and after each message of the client,
until `due` returns None. `awaited` names the cause of a stall, `close_due` returns the recorded
close, and `unreached` lists the messages not replayed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tapeway.core.json_text import Json, canonical, json_object, same_json
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.differences import Difference
from tapeway.core.websocket.keep_alives import KeepAlives, is_plain_keep_alive
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.core.websocket.session_comparison import OPTIONAL, SessionComparison, adopted
from tapeway.core.websocket.session_dialect import AudioPiece, SentMessage, SessionDialect

EXACT = "exact"
"""The value of the rule `audio` for a comparison byte by byte."""
_VARYING = "<id>"
"""Stands for an identifier in a lookup key."""
_BEGUN_OTHERWISE = "no recorded session begins with the messages already sent to the client"


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """A message of a recorded session; `at_ms` counts milliseconds since the handshake."""

    message: WebSocketMessage
    by_client: bool = False
    at_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionRecording:
    """A recorded session; `close` is None if the recording stopped before the end."""

    messages: tuple[SessionMessage, ...]
    close: Close | None = None

    @property
    def opening(self) -> tuple[SessionMessage, ...]:
        """The service's messages before the client's first message."""
        messages: list[SessionMessage] = []
        for message in self.messages:
            if not message.by_client:
                messages.append(message)
            elif not is_plain_keep_alive(message.message):
                break
        return tuple(messages)

    @property
    def is_closed_by_service(self) -> bool:
        """Whether the service ended the session."""
        return self.close is not None and not self.close.by_client


@dataclass(frozen=True, slots=True)
class SessionDifference:
    """The difference between a message of the client and the recording.

    `number` is the place of the recorded message in the recording. The paths of `differences` begin
    with this place: `messages[4].item.content`.
    """

    number: int
    text: str
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class _Needs:
    """The number of control messages and bytes of audio that the client must have sent."""

    controls: int = 0
    audio: int = 0


@dataclass(frozen=True, slots=True)
class _Audio:
    """The recorded audio between two ends of audio; `data` only for the comparison by bytes."""

    length: int
    formats: frozenset[str]
    data: bytes = b""


def _audio_of(pieces: Sequence[AudioPiece], *, exact: bool) -> _Audio:
    length = sum([len(piece.data) for piece in pieces])
    formats = frozenset([piece.format for piece in pieces])
    return _Audio(length, formats, b"".join([piece.data for piece in pieces]) if exact else b"")


class SessionReplay:
    """Replays a recorded session on one connection."""

    def __init__(
        self,
        recording: SessionRecording,
        dialect: SessionDialect,
        rules: Rules = NO_RULES,
        digests: SecretDigests | None = None,
    ) -> None:
        self.recording = recording
        self._dialect = dialect
        self._keep_alives = KeepAlives(
            [(message.message, message.by_client) for message in recording.messages]
        )
        self._comparison = SessionComparison(
            *(dialect, rules, digests), counter=self._keep_alives.counter
        )
        self._exact = rules.audio == EXACT
        self._controls: list[int] = []
        """The places of the control messages."""
        self._audio: list[_Audio] = []
        self._needs: list[_Needs] = []
        self._read_recording()
        self._next = 0
        """The place of the service's next message in the recording."""
        self._sent = _Needs()
        self._ended = 0
        """How often the client has ended audio."""
        self._length = 0
        """The bytes of audio since the last end of audio."""
        self._has_audio = any(audio.formats for audio in self._audio)
        self.difference: SessionDifference | None = None
        self._skip_unsaid()

    def _read_recording(self) -> None:
        needs, pieces = _Needs(), list[AudioPiece]()
        for place, message in enumerate(self.recording.messages):
            self._needs.append(needs)
            if not message.by_client or place in self._keep_alives.places:
                continue
            sent = self._dialect.read_sent(message.message)
            if sent.kind == "control":
                self._controls.append(place)
                needs = replace(needs, controls=needs.controls + 1)
            pieces += sent.audio
            needs = replace(needs, audio=needs.audio + _length(sent))
            if sent.ends_audio:
                self._audio.append(_audio_of(pieces, exact=self._exact))
                pieces = []
        self._audio.append(_audio_of(pieces, exact=self._exact))
        self._needs.append(needs)

    def received(self, message: WebSocketMessage) -> SessionDifference | None:
        """Take a message of the client; return the difference from the recording, or None."""
        if self.difference is not None:
            return self.difference
        if self._keep_alives.has(message):
            self._keep_alives.counter.see(message)
            return None
        sent = self._dialect.read_sent(message)
        self.difference = self._audio_difference(sent)
        if self.difference is None and sent.kind == "control":
            self.difference = self._control_difference(message, sent)
        return self.difference

    def answer(self, message: WebSocketMessage) -> WebSocketMessage | None:
        """The answer to a keep-alive of the client, if the service answers this keep-alive."""
        keep_alives = self._keep_alives
        return keep_alives.answer(message) if keep_alives.has(message) else None

    def due(self) -> SessionMessage | None:
        """Return the next message for the client, with the identifiers of this connection.

        Return each message once, and None while the client must send first, and at the end.
        """
        if self.difference is not None or not self._is_open(self._next):
            return None
        if self._next == len(self.recording.messages):
            return None
        message = self.recording.messages[self._next]
        self._comparison.issue(message.message)
        self._next += 1
        self._skip_unsaid()
        written = self._comparison.written(message.message)
        return message if written is message.message else replace(message, message=written)

    def close_due(self) -> Close | None:
        """The recorded close, after all messages have come; None if the recorded client closed."""
        close = self.recording.close
        if close is None or close.by_client or self.difference is not None:
            return None
        at_end = self._next == len(self.recording.messages)
        return close if at_end and self._is_open(self._next) else None

    @property
    def gap_ms(self) -> float:
        """The recorded milliseconds between the previous message and the next message."""
        messages = self.recording.messages
        if self._next >= len(messages):
            return 0.0
        before = messages[self._next - 1].at_ms if self._next else 0.0
        return max(0.0, messages[self._next].at_ms - before)

    def awaited(self) -> str | None:
        """What the next message for the client waits for; None if nothing is missing."""
        needs = self._needs[self._next]
        if self._sent.controls < needs.controls:
            place = self._controls[self._sent.controls]
            return f"message {place} of the recording, {self._title(place)} of the client"
        if self._sent.audio < needs.audio:
            return f"{needs.audio - self._sent.audio} more bytes of audio of the client"
        return None

    def unreached(self) -> tuple[int, ...]:
        """The places of the messages that client and service have not reached."""
        left = self._controls[self._sent.controls :]
        return tuple(sorted({*left, *self._service_places(self._next)}))

    def adopt(self, sent: WebSocketMessage) -> bool:
        """Count a message already sent from a different recording as this recording's next message.

        The message may have come later in this recording: a service that speaks of its own accord
        is now faster than its client, now slower. Return whether the messages are alike. The
        identifiers of `sent` replace the identifiers of this recording.
        """
        if self._keep_alives.has(sent):
            return True
        place = next(
            (
                place
                for place in self._service_places(self._next)
                if not self._keep_alives.has(self.recording.messages[place].message)
            ),
            None,
        )
        if place is None:
            return False
        own = self.recording.messages[place].message
        ids = adopted(self._comparison.written(own), sent)
        if ids is None:
            return False
        self._comparison.issue(own)
        for recorded, given in ids.items():
            self._comparison.bindings.bind(recorded, given)
        self._next = place + 1
        self._skip_unsaid()
        return True

    def _service_places(self, start: int) -> Iterator[int]:
        return (at for at in range(start, len(self.recording.messages)) if not self._is_unsaid(at))

    def _is_open(self, place: int) -> bool:
        needs = self._needs[place]
        return self._sent.controls >= needs.controls and self._sent.audio >= needs.audio

    def _is_unsaid(self, place: int) -> bool:
        """Whether a recorded message is the client's, or answers a keep-alive of the recording."""
        return self.recording.messages[place].by_client or place in self._keep_alives.places

    def _skip_unsaid(self) -> None:
        while self._next < len(self.recording.messages) and self._is_unsaid(self._next):
            self._next += 1

    def _title(self, place: int) -> str:
        return title_of(self.recording.messages[place].message)

    def _control_difference(
        self, message: WebSocketMessage, sent: SentMessage
    ) -> SessionDifference | None:
        number = self._sent.controls
        if number >= len(self._controls):
            text = f"the client sends {title_of(message)} after the recording's last client message"
            return SessionDifference(len(self.recording.messages), text)
        place = self._controls[number]
        differences = self._comparison.differences(self.recording.messages[place].message, message)
        if differences:
            located = [_located(difference, place) for difference in differences]
            text = f"{title_of(message)} differs from message {place} at {located[0].path}"
            return SessionDifference(place, text, tuple(located))
        self._sent = replace(self._sent, controls=number + 1)
        return self._end_of_audio(place) if sent.ends_audio else None

    def _audio_difference(self, sent: SentMessage) -> SessionDifference | None:
        if sent.audio and not self._has_audio:
            text = "the client sends audio where the recording has none"
            return SessionDifference(len(self.recording.messages), text)
        recorded = self._audio[min(self._ended, len(self._audio) - 1)]
        for piece in sent.audio:
            if recorded.formats and piece.format not in recorded.formats:
                return self._other_audio("format", min(recorded.formats), piece.format)
            if self._exact and not self._is_recorded(recorded, piece.data):
                return self._other_audio("bytes", "other bytes", f"from byte {self._length} on")
            self._length += len(piece.data)
        self._sent = replace(self._sent, audio=self._sent.audio + _length(sent))
        return None

    def _is_recorded(self, recorded: _Audio, data: bytes) -> bool:
        expected = recorded.data[self._length : self._length + len(data)]
        # After the end of the last recorded audio a microphone may go on.
        is_last = self._ended >= len(self._audio) - 1
        return data.startswith(expected) if is_last else data == expected

    def _end_of_audio(self, place: int) -> SessionDifference | None:
        recorded, length = self._audio[min(self._ended, len(self._audio) - 1)].length, self._length
        self._ended, self._length = self._ended + 1, 0
        if recorded == length:
            return None
        text = f"{length} bytes of audio before message {place}, where the recording has {recorded}"
        steps = ("messages", place, "audio", "length")
        return SessionDifference(place, text, (Difference(steps, recorded, length),))

    def _other_audio(self, what: str, recorded: str, sent: str) -> SessionDifference:
        text = (
            f"the {what} of the audio differ: recorded {recorded or 'none'}, sent {sent or 'none'}"
        )
        difference = Difference(("audio", what), recorded, sent)
        return SessionDifference(min(self._next, len(self._needs) - 1), text, (difference,))


class SessionChoice:
    """Chooses among several recordings while the client sends messages on one connection.

    All recordings have the same handshake and first message. The choice falls on the first
    recording that agrees with all messages of the client and with all messages sent to the client.
    Two sessions side by side thus each get the right recording, in whatever order the clients
    connect. `replay` is the current choice, and `place` the place of its recording.
    """

    def __init__(
        self,
        recordings: Sequence[SessionRecording],
        dialect: SessionDialect,
        rules: Rules = NO_RULES,
        digests: SecretDigests | None = None,
        given: Sequence[WebSocketMessage] = (),
    ) -> None:
        """`given` has gone out already, from any recording: the service has spoken first."""
        self._recordings = recordings
        self._make = partial(SessionReplay, dialect=dialect, rules=rules, digests=digests)
        self._so_far = [(message, False) for message in given]
        """All messages so far, each with whether it is the client's."""
        self.place = -1
        self.replay = self._next() or self._none_begins_so()

    def _none_begins_so(self) -> SessionReplay:
        self.place = 0
        replay = self._make(self._recordings[0])
        replay.difference = SessionDifference(0, _BEGUN_OTHERWISE)
        return replay

    def received(self, message: WebSocketMessage) -> SessionDifference | None:
        """Take a message of the client; return the difference if no recording has this message."""
        self._note(message, by_client=True)
        difference = self.replay.received(message)
        if difference is None:
            return None
        place = self.place
        replay = self._next()
        if replay is None:
            self.place = place
            return difference
        self.replay = replay
        return None

    def _next(self) -> SessionReplay | None:
        """The replay of the next recording in agreement with all messages so far."""
        for place in range(self.place + 1, len(self._recordings)):
            other = self._make(self._recordings[place])
            if self._agrees(other):
                self.place = place
                return other
        self.place = len(self._recordings)
        return None

    def due(self) -> SessionMessage | None:
        """The next message for the client; see `SessionReplay.due`."""
        due = self.replay.due()
        if due is not None:
            self._note(due.message, by_client=False)
        return due

    def _note(self, message: WebSocketMessage, *, by_client: bool) -> None:
        if self.place + 1 < len(self._recordings):
            self._so_far.append((message, by_client))

    def _agrees(self, other: SessionReplay) -> bool:
        return all(
            other.received(message) is None if by_client else other.adopt(message)
            for message, by_client in self._so_far
        )


def title_of(message: WebSocketMessage) -> str:
    """A short title for error texts: the type, the first member's name, or the kind of message."""
    value = json_object(message.data)
    if value is None:
        return f"{len(message.data)} bytes" if message.binary else "a text"
    kind = value.get("type")
    return kind if isinstance(kind, str) and kind else next(iter(value), "an empty object")


def lookup_content(first: WebSocketMessage | None, dialect: SessionDialect) -> bytes:
    """The lookup key of a session: the client's first message as JSON, without varying members.

    Empty for a session in which the client says nothing.
    """
    if first is None:
        return b""
    # orjson allocates 4 KiB for each result; the copy, held as long as the session, is small.
    return bytes(memoryview(canonical(_looked_up(first, dialect))))


def recorded_content(
    first: WebSocketMessage, dialect: SessionDialect, recorded: Iterable[bytes]
) -> bytes:
    """The lookup key as a recording has it, given the keys of recordings.

    An earlier version took fewer members for identifiers, and kept their values in the key.
    """
    content = lookup_content(first, dialect)
    if _VARYING.encode() not in content:
        return content
    others = [key for key in recorded if key != content and _without_ids(key, dialect) == content]
    value = json_object(first.data)
    return next((key for key in others if _has(value, json_object(key))), (others or [content])[0])


def _without_ids(key: bytes, dialect: SessionDialect) -> bytes:
    return lookup_content(WebSocketMessage(key), dialect) if key else b""


def _has(value: Json, key: Json) -> bool:
    """Whether a message has all values of a key."""
    if isinstance(key, dict) and isinstance(value, dict):
        return all(_has(value.get(name), member) for name, member in key.items())
    if isinstance(key, list) and isinstance(value, list):
        return len(key) == len(value) and all(map(_has, value, key))
    return key == _VARYING or same_json(key, value)


def _looked_up(first: WebSocketMessage, dialect: SessionDialect) -> Json:
    sent = dialect.read_sent(first)
    if sent.audio:
        return {"audio": [audio.format for audio in sent.audio]}
    value = json_object(first.data)
    if value is None:
        text = first.data.decode("latin-1" if first.binary else "utf-8", "replace")
        return {"binary" if first.binary else "text": text}
    return _without_varying((), dict(value), dialect)


def _without_varying(steps: tuple[str | int, ...], value: Json, dialect: SessionDialect) -> Json:
    if isinstance(value, dict):
        kept: dict[str, Json] = {}
        for name, member in value.items():
            at = (*steps, name)
            if not isinstance(member, str) or not dialect.is_identifier(at, value):
                if name not in dialect.ignored:
                    kept[name] = _without_varying(at, member, dialect)
            elif name not in OPTIONAL:
                kept[name] = _VARYING
        return kept
    if isinstance(value, list):
        return [_without_varying((*steps, at), item, dialect) for at, item in enumerate(value)]
    return value


def _located(difference: Difference, place: int) -> Difference:
    return replace(difference, steps=("messages", place, *difference.steps))


def _length(sent: SentMessage) -> int:
    return sum([len(audio.data) for audio in sent.audio])
