"""Keep-alives of the protocols above WebSocket: no messages of a session.

A client sends keep-alives by a clock. A replay therefore neither compares keep-alives nor waits for
one, and answers a ping itself, in the form of the recorded answer if there is one. Some protocols
count pings and messages with one counter: a ping more or less then shifts the numbers.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import orjson

from tapeway.core.json_members import with_elements, with_member
from tapeway.core.json_text import Json, canonical, json_object
from tapeway.core.websocket.messages import WebSocketMessage

_LONGEST = 1024
"""No keep-alive is longer, in bytes."""
_FIRST_MESSAGES = 8
"""How many messages of a session may tell its protocol."""
_LONGEST_OPENING = 64 * 1024
"""The longest of these messages, in bytes."""

_MOST_DIGITS = 18

Place = str | int
"""A member of a JSON object, or a place in an array."""


_Example = tuple[WebSocketMessage, WebSocketMessage]
"""A ping and its answer."""


def _text(data: bytes) -> WebSocketMessage:
    return WebSocketMessage(data)


def _octets(data: bytes) -> WebSocketMessage:
    return WebSocketMessage(data, binary=True)


@dataclass(frozen=True, slots=True)
class _KeepAliveForm:
    """The keep-alives of one protocol, as patterns of whole messages.

    JSON is matched without blanks and with sorted members. `spoken` matches the beginning of a
    message that only this protocol has; without `spoken` the ping itself is unmistakable.
    """

    source: str
    ping: re.Pattern[bytes]
    example: WebSocketMessage
    answer: WebSocketMessage | None = None
    """The usual answer to `example`; None if nobody answers a ping."""
    answers: re.Pattern[bytes] | None = None
    spoken: re.Pattern[bytes] | None = None


_FORMS = (
    _KeepAliveForm(
        "exchanges such as OKX and Bitget: a text",
        re.compile(rb"\s*(?i:ping)\s*"),
        _text(b"ping"),
        _text(b"pong"),
        re.compile(rb"\s*(?i:pong)\s*"),
    ),
    _KeepAliveForm(
        "SignalR: HubProtocol.md, Ping Message Encoding, in JSON and in MessagePack",
        re.compile(rb'(?:\{\s*"type"\s*:\s*6\s*\}\x1e|\x02\x91\x06)+'),
        _text(b'{"type":6}\x1e'),
        spoken=re.compile(rb'\{[^}]*"protocol"\s*:[^}]*\}\x1e'),
    ),
    _KeepAliveForm(
        "Phoenix channels: Phoenix.Socket.V2.JSONSerializer",
        re.compile(rb'\[(?:null|"\d*"),(?:"\d*"|\d+),"phoenix","heartbeat",\{\}\]'),
        _text(b'[null,"0","phoenix","heartbeat",{}]'),
        _text(b'[null,"0","phoenix","phx_reply",{"status":"ok","response":{}}]'),
        re.compile(rb'\[(?:null|"\d*"),(?:"\d*"|\d+),"phoenix","phx_reply",.*\]'),
    ),
    _KeepAliveForm(
        "Phoenix channels: Phoenix.Socket.V1.JSONSerializer, also Supabase Realtime",
        re.compile(rb'\{"event":"heartbeat",.*"topic":"phoenix"\}'),
        _text(b'{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"0"}'),
        _text(
            b'{"topic":"phoenix","event":"phx_reply",'
            b'"payload":{"status":"ok","response":{}},"ref":"0"}'
        ),
        re.compile(rb'\{"event":"phx_reply",.*"topic":"phoenix"\}'),
    ),
    _KeepAliveForm(
        "STOMP 1.2: Heart-beating",
        re.compile(rb"(?:\r?\n)+"),
        _text(b"\n"),
        _text(b"\n"),
        re.compile(rb"(?:\r?\n)+"),
        spoken=re.compile(rb"(?:CONNECT|STOMP|CONNECTED)\r?\n"),
    ),
    _KeepAliveForm(
        "Engine.IO protocol 3 (the client asks) and 4 (the service asks): packets 2 and 3",
        re.compile(rb"2"),
        _text(b"2"),
        _text(b"3"),
        re.compile(rb"3"),
        spoken=re.compile(rb'0\{.*"sid"|2probe\Z|40(?:\Z|[{/])|4[2-6][\d-]*(?:/[^,]*,)?\d*\['),
    ),
    _KeepAliveForm(
        "Meteor's DDP: Heartbeats, without an identifier",
        re.compile(rb'\{"msg":"ping"\}'),
        _text(b'{"msg":"ping"}'),
        _text(b'{"msg":"pong"}'),
        re.compile(rb'\{"msg":"pong"\}'),
        spoken=re.compile(rb'\{"msg":"connect",'),
    ),
    _KeepAliveForm(
        "Meteor's DDP: Heartbeats, with an identifier",
        re.compile(rb'\{"id":"[^"]*","msg":"ping"\}'),
        _text(b'{"msg":"ping","id":"0"}'),
        _text(b'{"msg":"pong","id":"0"}'),
        re.compile(rb'\{"id":"[^"]*","msg":"pong"\}'),
        spoken=re.compile(rb'\{"msg":"connect",'),
    ),
    _KeepAliveForm(
        "Discord's gateway: opcodes 1 and 11",
        re.compile(rb'\{"d":(?:null|\d+),"op":1\}'),
        _text(b'{"op":1,"d":null}'),
        _text(b'{"op":11}'),
        re.compile(rb'\{.*"op":11[,}].*'),
        spoken=re.compile(rb'\{"d":\{.*\},"op":(?:2|6)\}|.*"heartbeat_interval":.*"op":10'),
    ),
    _KeepAliveForm(
        "MQTT 3.1.1 and 5.0: PINGREQ and PINGRESP",
        re.compile(rb"\xc0\x00"),
        _octets(b"\xc0\x00"),
        _octets(b"\xd0\x00"),
        re.compile(rb"\xd0\x00"),
        spoken=re.compile(rb"\x10[\x00-\xff]{1,4}\x00(?:\x04MQTT|\x06MQIsdp)"),
    ),
)
"""The forms apart from pings in JSON, each with the specification that has it."""

_KINDS = ("type", "event", "op", "action", "method", "cmd", "command", "messageType")
"""Members by which JSON protocols name the kind of a message."""
_PING, _PONG, _ACK = "ping", "pong", "heartbeatack"
_BEATS = frozenset({"keepalive", "heartbeat"})
_WORDS = frozenset({_PING, _PONG, _ACK, *_BEATS})
_SEPARATORS = str.maketrans("", "", "_- ")


class KeepAlives:
    """The keep-alives of one session, known by the session's recording."""

    __slots__ = ("_examples", "_forms", "_unanswered", "counter", "places")

    def __init__(self, recorded: Sequence[tuple[WebSocketMessage, bool]] = ()) -> None:
        """`recorded` are the recorded messages, each with whether it is the client's."""
        texts = [
            _comparable(message)
            for message, _ in recorded[:_FIRST_MESSAGES]
            if len(message.data) <= _LONGEST_OPENING
        ]
        self._forms = [
            form
            for form in _FORMS
            if form.spoken is None or any(form.spoken.match(text) for text in texts)
        ]
        self.counter = SharedCounter()
        self._examples: dict[str, _Example] = {}
        self._unanswered: set[str] = set()
        self.places = frozenset(self._places(recorded))
        """The places of the client's keep-alives and of the service's answers."""

    def _places(self, recorded: Sequence[tuple[WebSocketMessage, bool]]) -> Iterator[int]:
        waiting: dict[str, deque[WebSocketMessage]] = {}
        for place, (message, by_client) in enumerate(recorded):
            if not self.has(message):
                if not by_client:
                    # A ping at the end of a recording tells nothing of the service.
                    self._unanswered.update(kind for kind, pings in waiting.items() if pings)
            elif by_client:
                yield place
                self.counter.see(message)
                if kind := self._ping(message):
                    waiting.setdefault(kind, deque()).append(message)
            else:
                for kind, pings in waiting.items():
                    if pings and self._is_answer(pings[0], message):
                        yield place
                        self._examples.setdefault(kind, (pings.popleft(), message))
                        break
        self._unanswered -= self._examples.keys()

    def has(self, message: WebSocketMessage) -> bool:
        """Whether a message of either side is a keep-alive."""
        if len(message.data) > _LONGEST:
            return False
        if _json_word(message):
            return True
        text = _comparable(message)
        return any(
            form.ping.fullmatch(text) or (form.answers and form.answers.fullmatch(text))
            for form in self._forms
        )

    def answer(self, ping: WebSocketMessage) -> WebSocketMessage | None:
        """The answer to a keep-alive of the client; None if the service answers none."""
        kind = self._ping(ping)
        example = self._examples.get(kind) or self._usual(ping)
        if not kind or kind in self._unanswered or example is None:
            return None
        return _echoing(example, ping)

    def _ping(self, message: WebSocketMessage) -> str:
        """The kind of a keep-alive that may ask for an answer; empty for any other message."""
        form = self._form_of(message)
        word = _json_word(message)
        if form is not None:
            return form.source
        return word if word == _PING or word in _BEATS else ""

    def _form_of(self, ping: WebSocketMessage) -> _KeepAliveForm | None:
        text = _comparable(ping)
        return next((form for form in self._forms if form.ping.fullmatch(text)), None)

    def _is_answer(self, ping: WebSocketMessage, message: WebSocketMessage) -> bool:
        form = self._form_of(ping)
        if form is not None:
            answers = form.answers
            return answers is not None and answers.fullmatch(_comparable(message)) is not None
        word = _json_word(message)
        return word in (_PONG, _ACK) or (word in _BEATS and word == _json_word(ping))

    def _usual(self, ping: WebSocketMessage) -> _Example | None:
        form = self._form_of(ping)
        if form is not None:
            return None if form.answer is None else (form.example, form.answer)
        value = json_object(ping.data)
        if value is None or _json_word(ping) != _PING:
            # A heartbeat in JSON has no usual answer.
            return None
        return ping, WebSocketMessage(orjson.dumps(_as_pong(value)), ping.binary)


class SharedCounter:
    """The numbers of a client's messages, where pings take numbers of the same counter.

    Such a number only tells which answer belongs to which message. As soon as a ping with a number
    is seen, a replay pairs recorded numbers with the numbers of the current connection.
    """

    __slots__ = ("_is_shared", "_is_shifted", "_latest", "_sent_of")

    def __init__(self) -> None:
        self._is_shared = self._is_shifted = False
        self._sent_of: dict[Json, Json] = {}
        self._latest = (-1, -1)
        """The latest number, recorded and sent."""

    def see(self, ping: WebSocketMessage) -> None:
        """Note a keep-alive, recorded or sent."""
        value = _loaded(ping)
        if any(_number(_at(value, place)) is not None for place in _counted(value)):
            self._is_shared = True

    def pairs(self, place: Place, container: object, recorded: Json, sent: Json) -> bool:
        """Whether two values are numbers of a shared counter that belong to one message."""
        if not self._is_shared or place not in _counted(container):
            return False
        one, other = _number(recorded), _number(sent)
        if one is None or other is None or type(recorded) is not type(sent):
            return False
        if recorded in self._sent_of:
            return self._sent_of[recorded] == sent
        if one <= self._latest[0] or other <= self._latest[1]:
            # A counter counts up.
            return False
        self._latest = one, other
        self._sent_of[recorded] = sent
        self._is_shifted = self._is_shifted or one != other
        return True

    def written(self, data: bytes) -> bytes:
        """A recorded message of the service with the numbers of the current connection."""
        if not self._is_shifted:
            return data
        value = _loaded(WebSocketMessage(data))
        changed = {
            place: orjson.dumps(self._sent_of[number])
            for place in _counted(value)
            if _number(number := _at(value, place)) is not None and number in self._sent_of
        }
        if isinstance(value, list):
            at = count()
            return with_elements(data, lambda element: changed.get(next(at), element))
        for place, written in changed.items():
            data = with_member(data, str(place), written)
        return data


def is_plain_keep_alive(message: WebSocketMessage) -> bool:
    """Whether a message is a keep-alive in whatever protocol."""
    return _PLAIN.has(message)


_PLAIN = KeepAlives()


def _counted(value: object) -> tuple[Place, ...]:
    """Where a message has numbers of a counter that its protocol's pings share."""
    if isinstance(value, list):
        # Phoenix: the reference of the join, the reference, topic, event and payload.
        is_phoenix = len(value) == 5 and isinstance(value[2], str) and isinstance(value[3], str)
        return (0, 1) if is_phoenix else ()
    if not isinstance(value, dict):
        return ()
    if {"topic", "event", "payload"} <= value.keys():
        return ("ref", "join_ref")
    # Home Assistant, DDP and others.
    return ("id",)


def _at(value: Json, place: Place) -> Json:
    if isinstance(value, list) and isinstance(place, int):
        return value[place]
    return value.get(str(place)) if isinstance(value, dict) else None


def _number(value: Json) -> int | None:
    if isinstance(value, str):
        is_number = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _loaded(message: WebSocketMessage) -> Json:
    if not message.data[:64].lstrip().startswith((b"{", b"[")):
        return None
    try:
        value: Json = orjson.loads(message.data)
    except orjson.JSONDecodeError:
        return None
    return value


def _comparable(message: WebSocketMessage) -> bytes:
    value = _loaded(message)
    return message.data if value is None else canonical(value)


def _json_word(message: WebSocketMessage) -> str:
    """The word for a keep-alive by which a JSON message names its kind; empty without one."""
    value = json_object(message.data)
    if value is None:
        return ""
    kind = next((value[name] for name in _KINDS if name in value), None)
    if kind is None and len(value) == 1:
        [kind] = value
    word = kind.lower().translate(_SEPARATORS) if isinstance(kind, str) else ""
    return word if word in _WORDS else ""


def _as_pong(ping: Mapping[str, Json]) -> Json:
    def turned(text: str) -> str:
        same = {"ping": "pong", "PING": "PONG", "Ping": "Pong"}
        return same.get(text, text)

    kind = next((name for name in _KINDS if name in ping), None)
    if kind is None:
        return {turned(name): value for name, value in ping.items()}
    return {**ping, kind: turned(str(ping[kind]))}


def _echoing(example: _Example, ping: WebSocketMessage) -> WebSocketMessage:
    """The answer of an example, with the values in which `ping` differs from the example's ping."""
    asked, answer = example
    changed: dict[tuple[type, Json], Json] = {}
    _collect(_loaded(asked), _loaded(ping), changed)
    value = _loaded(answer)
    renamed = _renamed(value, changed)
    return answer if renamed == value else answer._replace(data=orjson.dumps(renamed))


def _collect(asked: Json, sent: Json, changed: dict[tuple[type, Json], Json]) -> None:
    if isinstance(asked, dict) and isinstance(sent, dict):
        for name in asked.keys() & sent.keys():
            _collect(asked[name], sent[name], changed)
    elif isinstance(asked, list) and isinstance(sent, list):
        for one, other in zip(asked, sent, strict=False):
            _collect(one, other, changed)
    elif isinstance(asked, str | int | float) and asked != sent:
        changed[type(asked), asked] = sent


def _renamed(value: Json, changed: Mapping[tuple[type, Json], Json]) -> Json:
    if isinstance(value, dict):
        return {name: _renamed(member, changed) for name, member in value.items()}
    if isinstance(value, list):
        return [_renamed(element, changed) for element in value]
    return changed.get((type(value), value), value)
