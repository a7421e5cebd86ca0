"""Compares the messages of a client with a recording, and binds identifiers in both directions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

import orjson

from tapeway.core.correlation.ids import is_id_field, is_token, looks_random
from tapeway.core.json_text import Json, same_json
from tapeway.core.matching.credential_fields import compared_document
from tapeway.core.matching.placeholders import SecretDigests, fits, has_placeholder
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.differences import ABSENT, Difference
from tapeway.core.model.messages import Request
from tapeway.core.websocket.keep_alives import SharedCounter
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_dialect import SessionDialect

MOST_DIFFERENCES = 3
OPTIONAL = frozenset({"event_id", "eventId", "client_event_id", "id", "message_id", "request_id"})
"""Identifiers that a client may leave out, unless the identifier refers to something."""

_JSON_FIELDS = ((b"content-type", b"application/json"),)
_STRING = re.compile(rb'"([^"\\]{1,512})"')

Steps = tuple[str | int, ...]


class Bindings:
    """Pairs each identifier of a recording with an identifier of the current connection."""

    def __init__(self) -> None:
        self._sent_of: dict[str, str] = {}
        self._recorded_of: dict[str, str] = {}
        self._changed: dict[bytes, bytes] = {}
        """The pairs with different identifiers, as JSON texts."""
        self._search: re.Pattern[bytes] | None = None

    def known(self, recorded: str, sent: str) -> bool | None:
        """Whether the identifiers form a pair; None if both are unknown."""
        if recorded in self._sent_of:
            return self._sent_of[recorded] == sent
        if sent in self._recorded_of:
            return self._recorded_of[sent] == recorded
        return None

    def has(self, text: str) -> bool:
        """Whether a text is an identifier of the recording or of the connection."""
        return text in self._sent_of or text in self._recorded_of

    def bind(self, recorded: str, sent: str) -> None:
        """Pair a recorded identifier with a sent identifier."""
        self._sent_of[recorded], self._recorded_of[sent] = sent, recorded
        if recorded != sent:
            self._changed[orjson.dumps(recorded)] = orjson.dumps(sent)
            self._search = None

    def written(self, data: bytes) -> bytes:
        """A recorded message of the service with the identifiers of this connection."""
        if not self._changed:
            return data
        if self._search is None:
            self._search = re.compile(b"|".join(map(re.escape, self._changed)))
        return self._search.sub(lambda match: self._changed[match[0]], data)


class SessionComparison:
    """Whether messages of a client match the recording.

    A text that the service has sent before (`issue`) is no identifier of the client. With `digests`
    a placeholder matches the masked value alone.
    """

    def __init__(
        self,
        dialect: SessionDialect,
        rules: Rules,
        digests: SecretDigests | None = None,
        counter: SharedCounter | None = None,
    ) -> None:
        self.counter = counter or SharedCounter()
        self.bindings = Bindings()
        self._dialect = dialect
        self._rules = rules
        self._digests = digests
        self._issued: set[str] = set()
        self._new: dict[str, str] = {}

    def issue(self, message: WebSocketMessage) -> None:
        """Note the texts of a recorded message of the service, without the client's identifiers."""
        self._issued.update(text for text in texts_of(message) if not self.bindings.has(text))

    def written(self, message: WebSocketMessage) -> WebSocketMessage:
        """A recorded message of the service with the identifiers of this connection."""
        data = self.counter.written(self.bindings.written(message.data))
        return message if data is message.data else message._replace(data=data)

    def differences(
        self, recorded: WebSocketMessage, sent: WebSocketMessage
    ) -> tuple[Difference, ...]:
        """The differences between two messages; equal messages also bind the new identifiers."""
        left, right = self._value(recorded, recorded=True), self._value(sent)
        self._new = {}
        differences = tuple(islice(self._walk((), left, right, None), MOST_DIFFERENCES))
        if not differences:
            for recorded_id, sent_id in self._new.items():
                self.bindings.bind(recorded_id, sent_id)
        return differences

    def _value(self, message: WebSocketMessage, *, recorded: bool = False) -> Json:
        if not message.data[:64].lstrip().startswith((b"{", b"[")):
            return _octets(message)
        request = Request("", "GET", "/", _JSON_FIELDS, message.data)
        document = compared_document(request, self._rules, recorded=recorded)
        if document.get("content") != "json":
            return _octets(message)
        return document.get("body")

    def _walk(
        self, steps: Steps, recorded: Json, sent: Json, container: object
    ) -> Iterator[Difference]:
        if len(steps) == 1 and self.counter.pairs(steps[0], container, recorded, sent):
            return
        if isinstance(recorded, dict) and isinstance(sent, dict):
            yield from self._members(steps, recorded, sent)
        elif isinstance(recorded, list) and isinstance(sent, list):
            for at, (left, right) in enumerate(zip(recorded, sent, strict=False)):
                yield from self._walk((*steps, at), left, right, recorded)
            yield from _rest(steps, recorded, sent)
        elif isinstance(recorded, str) and isinstance(sent, str):
            if not self._same_text(steps, recorded, sent, container):
                yield Difference(steps, recorded, sent)
        elif not same_json(recorded, sent):
            yield Difference(steps, recorded, sent)

    def _members(
        self, steps: Steps, recorded: Mapping[str, Json], sent: Mapping[str, Json]
    ) -> Iterator[Difference]:
        for name, value in recorded.items():
            at = (*steps, name)
            if name in sent:
                if name not in self._dialect.ignored:
                    yield from self._walk(at, value, sent[name], recorded)
            elif not self._may_lack(at, recorded):
                yield Difference(at, value, ABSENT)
        for name, value in sent.items():
            at = (*steps, name)
            if name not in recorded and not self._may_lack(at, sent):
                yield Difference(at, ABSENT, value)

    def _may_lack(self, steps: Steps, container: Mapping[str, Json]) -> bool:
        name = steps[-1]
        if name in self._dialect.ignored:
            return True
        if name not in OPTIONAL or not self._dialect.is_identifier(steps, container):
            return False
        value = container.get(str(name))
        return isinstance(value, str) and not self._refers(value)

    def _refers(self, text: str) -> bool:
        return text in self._issued or self.bindings.has(text)

    def _same_text(self, steps: Steps, recorded: str, sent: str, container: object) -> bool:
        known = self.bindings.known(recorded, sent)
        if known is None and recorded in self._new:
            known = self._new[recorded] == sent
        if known is not None:
            return known
        if self._dialect.is_identifier(steps, container):
            return self._bound(recorded, sent)
        if recorded == sent:
            return True
        digests = self._digests
        return (
            digests is not None
            and has_placeholder(recorded)
            and fits(recorded, sent, digests.is_of)
        )

    def _bound(self, recorded: str, sent: str) -> bool:
        if recorded != sent and (recorded in self._issued or sent in self._issued):
            return False
        if recorded != sent and sent in self._new.values():
            return False
        self._new[recorded] = sent
        return True


def texts_of(message: WebSocketMessage) -> set[str]:
    """The strings in the JSON text of a message, names of members included."""
    return {string.decode("utf-8", "replace") for string in _STRING.findall(message.data)}


def adopted(recorded: WebSocketMessage, sent: WebSocketMessage) -> dict[str, str] | None:
    """Map each identifier of a recorded message to the identifier in the message sent instead.

    Return None if the messages differ in more than identifiers, numbers and times, or if two
    identifiers became one.
    """
    renamed: dict[str, str] = {}
    try:
        left, right = orjson.loads(recorded.data), orjson.loads(sent.data)
    except orjson.JSONDecodeError:
        return renamed if recorded == sent else None
    are_alike = _adopt("", left, right, renamed) and len({*renamed.values()}) == len(renamed)
    return renamed if are_alike else None


def _adopt(name: str, recorded: Json, sent: Json, renamed: dict[str, str]) -> bool:
    """Whether two values under a name are alike. `renamed` gets the identifiers that differ."""
    if isinstance(recorded, dict) and isinstance(sent, dict):
        return recorded.keys() == sent.keys() and all(
            _adopt(member, value, sent[member], renamed) for member, value in recorded.items()
        )
    if isinstance(recorded, list) and isinstance(sent, list):
        return len(recorded) == len(sent) and all(
            _adopt(name, left, right, renamed) for left, right in zip(recorded, sent, strict=True)
        )
    if isinstance(recorded, str) and isinstance(sent, str):
        if recorded == sent:
            return renamed.get(recorded, sent) == sent
        if _is_time(recorded) and _is_time(sent):
            return True
        are_ids = is_id_field(name) and is_token(recorded) and is_token(sent)
        are_ids = are_ids or (looks_random(recorded) and looks_random(sent))
        return are_ids and renamed.setdefault(recorded, sent) == sent
    return type(recorded) is type(sent) and (recorded == sent or not isinstance(recorded, bool))


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _octets(message: WebSocketMessage) -> Json:
    return (
        message.data.decode("latin-1")
        if message.binary
        else message.data.decode("utf-8", "replace")
    )


def _rest(steps: Steps, recorded: Sequence[Json], sent: Sequence[Json]) -> Iterator[Difference]:
    shared = min(len(recorded), len(sent))
    for at, value in enumerate(recorded[shared:], shared):
        yield Difference((*steps, at), value, ABSENT)
    for at, value in enumerate(sent[shared:], shared):
        yield Difference((*steps, at), ABSENT, value)
