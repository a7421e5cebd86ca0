"""Whether one request is another with its identifiers called by other names, all consistently.

Another name is another name only for what ties the parts of a conversation together: a call and its
result, a turn and the one before. What a path, a query or any other field names is a thing of the
service's, such as a file or a user, and another name there asks for another one.
"""

import re
from collections.abc import Container, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Self

from tapeway.core.json_text import Json

_BLANK = re.compile(r"\s")

_LINKS = frozenset(
    {
        *("approval_request_id", "callId", "call_id", "previous_interaction_id"),
        *("previous_response_id", "toolCallId", "toolUseId", "tool_call_id", "tool_use_id"),
    }
)
_LINKS_OF_PARTS = frozenset(
    {"encrypted_content", "id", "signature", "thoughtSignature", "thought_signature"}
)
"""Fields that are links in a part of a conversation, and may be anything elsewhere."""

_CONVERSATIONS = frozenset({"contents", "input", "inputs", "messages"})
"""What the lists are called that hold the parts of a conversation."""

_DATA = frozenset(
    {
        *("args", "arguments", "input", "json", "metadata", "output", "parameters", "response"),
        *("result", "value", "variables"),
    }
)
"""Where objects stand that a tool was given or gave: they are said, whatever their fields are called."""


class _LinkPlace(Enum):
    ANYWHERE = "anywhere"
    CONVERSATION = "conversation"
    DATA = "data"


class BodyText(NamedTuple):
    """A text in the body of a request, the name it stands under, and whether that makes it a link."""

    name: str
    text: str
    is_link: bool


def body_texts(document: Mapping[str, Json]) -> Iterator[BodyText]:
    """Every text in the body of a request's document."""
    return _leaves(document.get("body"), "body", _LinkPlace.ANYWHERE)


class IdUnifier:
    """The names that one document has for the identifiers of another."""

    def __init__(self, issued: Container[str]) -> None:
        self._issued = issued
        self.names: dict[str, str] = {}
        self._back: dict[str, str] = {}

    def explains(self, recorded: Mapping[str, Json], sent: Mapping[str, Json]) -> bool:
        """Whether nothing but names of identifiers differs; the names are learnt on the way.

        One identifier has one name and one name means one identifier, so that results given to
        each other's calls are no renaming.
        """
        return recorded.keys() == sent.keys() and all(
            self._same(
                value, sent[key], key, _LinkPlace.ANYWHERE if key == "body" else _LinkPlace.DATA
            )
            for key, value in recorded.items()
        )

    def _same(self, recorded: Json, sent: Json, name: str, place: _LinkPlace) -> bool:
        if type(recorded) is not type(sent):
            return False
        if isinstance(recorded, dict) and isinstance(sent, dict):
            return recorded.keys() == sent.keys() and all(
                self._same(value, sent[key], key, _within(place, key, value))
                for key, value in recorded.items()
            )
        if isinstance(recorded, list) and isinstance(sent, list):
            return len(recorded) == len(sent) and all(
                self._same(left, right, name, place)
                for left, right in zip(recorded, sent, strict=True)
            )
        if isinstance(recorded, str) and isinstance(sent, str):
            return self._link(recorded, sent) if _is_link(place, name) else recorded == sent
        return recorded == sent

    def _link(self, recorded: str, sent: str) -> bool:
        if recorded != sent and not (recorded in self._issued and self._may_be_named(sent)):
            return False
        known = self.names.setdefault(recorded, sent)
        return known == sent and self._back.setdefault(sent, recorded) == recorded

    def _may_be_named(self, sent: str) -> bool:
        # An identifier of this cassette stands for itself alone.
        return bool(sent) and sent not in self._issued and not _BLANK.search(sent)


def _leaves(value: Json, name: str, place: _LinkPlace) -> Iterator[BodyText]:
    if isinstance(value, str):
        yield BodyText(name, value, _is_link(place, name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, key, _within(place, key, inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, name, place)


def _within(place: _LinkPlace, key: str, value: Json) -> _LinkPlace:
    if place is not _LinkPlace.DATA and key in _CONVERSATIONS and isinstance(value, list):
        return _LinkPlace.CONVERSATION
    return _LinkPlace.DATA if key in _DATA and isinstance(value, dict) else place


def _is_link(place: _LinkPlace, name: str) -> bool:
    if place is _LinkPlace.DATA:
        return False
    return name in _LINKS or (place is _LinkPlace.CONVERSATION and name in _LINKS_OF_PARTS)


_NAME, _BACK = b"name ", b"back "


class IdBindings:
    """What the identifiers of a cassette are called by its client in one take."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._back: dict[str, str] = {}

    @classmethod
    def of(cls, states: Mapping[bytes, bytes]) -> Self:
        """What `states` said, or a part of it."""
        found = cls()
        for key, state in states.items():
            names = found._names if key.startswith(_NAME) else found._back
            names[key[len(_NAME) :].decode()] = state.decode()
        return found

    def states(self) -> dict[bytes, bytes]:
        """The same for others, each name under a key of its own."""
        names = {_NAME + recorded.encode(): sent.encode() for recorded, sent in self._names.items()}
        back = {_BACK + sent.encode(): recorded.encode() for sent, recorded in self._back.items()}
        return names | back

    def allow(self, names: Mapping[str, str]) -> bool:
        """Whether these names do not swap two that are in use.

        A conversation that is held again may have new names, and another one the same names anew.
        """
        return all(
            self._names.get(recorded, sent) == sent or self._back.get(sent, recorded) == recorded
            for recorded, sent in names.items()
        )

    def learn(self, names: Mapping[str, str]) -> None:
        for recorded, sent in names.items():
            self._names[recorded] = sent
            self._back[sent] = recorded
