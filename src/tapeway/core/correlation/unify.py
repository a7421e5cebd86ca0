"""Whether a request equals a recorded request but for identifiers.

Identifiers may differ only where they link the parts of a conversation: a call and its result, a
turn and the one before. Such a field is called a reference here. A path, a query or any other field
names an object of the service, such as a file or a user: a new identifier there means a different
object.

A text counts as an identifier if an answer issued the text, or if the text ties two
kinds of parts of a request together, such as a call and its result. A name that only one kind of
part bears, and that no answer issued, names an object.

Each identifier corresponds to exactly one identifier, in both directions. A request in which the results of two
calls have changed places is therefore a different request.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import NamedTuple, Self

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Request

_BLANK = re.compile(r"\s")

_REFERENCES = frozenset(
    {
        *("approval_request_id", "callId", "call_id", "previous_interaction_id"),
        *("previous_response_id", "toolCallId", "toolUseId", "tool_call_id", "tool_use_id"),
    }
)
_REFERENCES_OF_PARTS = frozenset(
    {"encrypted_content", "id", "signature", "thoughtSignature", "thought_signature"}
)
"""Fields that are references in a part of a conversation, and may be anything elsewhere."""

_CONVERSATION_LISTS = frozenset({"contents", "input", "inputs", "messages"})
"""Fields whose lists hold the parts of a conversation."""

_TOOL_DATA = frozenset(
    {
        *("args", "arguments", "input", "json", "metadata", "output", "parameters", "response"),
        *("result", "value", "variables"),
    }
)
"""Fields with the input or output of a tool: nothing in them is a reference."""

_REFERENCE_NAME = re.compile(
    rb'"(?:%b)"\s*:'
    % b"|".join(name.encode() for name in sorted(_REFERENCES | _REFERENCES_OF_PARTS))
)

_NAME, _BACK = b"name ", b"back "
"""Prefixes of the keys of shared bindings, by direction."""


_Kind = tuple[str, str, str | None]
"""A kind of part with an identifier: the part's field, the identifier's field, the type."""


class _Context(Enum):
    """The context of a value in a request."""

    ANYWHERE = "anywhere"
    CONVERSATION = "conversation"
    DATA = "data"


class BodyText(NamedTuple):
    """A text in the body of a request, and the field it is in."""

    field: str
    text: str
    is_reference: bool


def body_texts(document: Mapping[str, Json]) -> Iterator[BodyText]:
    """Every text in the body of a request's document."""
    return _texts(document.get("body"), "body", _Context.ANYWHERE)


def refers(document: Mapping[str, Json]) -> bool:
    """Whether the body of a request's document has any reference."""
    return _refers(document.get("body"), "body", _Context.ANYWHERE)


def may_have_references(request: Request) -> bool:
    """Whether the body of a request may have references; a quick search that is sometimes wrong."""
    body = request.body
    # Names are seen in plain JSON alone, and there only if they are not escaped.
    is_seen = request.fields.is_plain_json and body.find(b"\\u") < 0
    return not is_seen or _REFERENCE_NAME.search(body) is not None


def tying_names(document: Mapping[str, Json]) -> set[str]:
    """The identifiers that tie parts of different kinds in the body of a request's document."""
    kinds: dict[str, set[_Kind]] = {}
    for name, kind in _references(document.get("body"), "body", _Context.ANYWHERE):
        kinds.setdefault(name, set()).add(kind)
    return {name for name, borne_by in kinds.items() if len(borne_by) > 1}


class IdUnifier:
    """Maps the identifiers of a recorded request to the identifiers of a request.

    `issued` are the identifiers that the cassette's answers issued.
    """

    def __init__(self, issued: Container[str]) -> None:
        self._issued = issued
        self._document: Mapping[str, Json] = {}
        self.id_map: dict[str, str] = {}
        """The sent identifier for each recorded one."""
        self._recorded_of: dict[str, str] = {}

    def unify(self, recorded: Mapping[str, Json], sent: Mapping[str, Json]) -> bool:
        """Whether nothing but references differs between two documents; fills `id_map`."""
        self._document = recorded
        return recorded.keys() == sent.keys() and all(
            self._unify(
                value, sent[key], key, _Context.ANYWHERE if key == "body" else _Context.DATA
            )
            for key, value in recorded.items()
        )

    def _unify(self, recorded: Json, sent: Json, field: str, context: _Context) -> bool:
        if type(recorded) is not type(sent):
            return False
        if isinstance(recorded, dict) and isinstance(sent, dict):
            return recorded.keys() == sent.keys() and all(
                self._unify(value, sent[key], key, _context_in(context, key, value))
                for key, value in recorded.items()
            )
        if isinstance(recorded, list) and isinstance(sent, list):
            return len(recorded) == len(sent) and all(
                self._unify(left, right, field, context)
                for left, right in zip(recorded, sent, strict=True)
            )
        if isinstance(recorded, str) and isinstance(sent, str) and _is_reference(context, field):
            return self._unify_references(recorded, sent)
        return recorded == sent

    def _unify_references(self, recorded: str, sent: str) -> bool:
        if recorded != sent and not (self._is_identifier(recorded) and self._may_replace(sent)):
            return False
        known = self.id_map.setdefault(recorded, sent)
        return known == sent and self._recorded_of.setdefault(sent, recorded) == recorded

    def _is_identifier(self, recorded: str) -> bool:
        return recorded in self._issued or recorded in self._tying_names

    @cached_property
    def _tying_names(self) -> set[str]:
        return tying_names(self._document)

    def _may_replace(self, sent: str) -> bool:
        # An identifier of this cassette matches only itself.
        return bool(sent) and sent not in self._issued and not _BLANK.search(sent)


class _OtherReferences(IdUnifier):
    """Takes any two references for a pair."""

    def _unify_references(self, recorded: str, sent: str) -> bool:
        return True


def differ_in_references(recorded: Mapping[str, Json], sent: Mapping[str, Json]) -> bool:
    """Whether nothing but references differs, whoever issued them; `IdUnifier` looks closer."""
    return _OtherReferences(()).unify(recorded, sent)


class IdBindings:
    """The identifiers that a client has used in one take in place of the cassette's."""

    def __init__(self) -> None:
        self._sent_of: dict[str, str] = {}
        self._recorded_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._sent_of or self._recorded_of)

    @classmethod
    def from_states(cls, states: Mapping[bytes, bytes]) -> Self:
        """The bindings in `states`, a part of the shared ones."""
        bindings = cls()
        for key, state in states.items():
            ids = bindings._sent_of if key.startswith(_NAME) else bindings._recorded_of
            ids[key[len(_NAME) :].decode()] = state.decode()
        return bindings

    @staticmethod
    def keys_of(sent: Iterable[str]) -> Iterator[bytes]:
        """The keys of the shared bindings of a client's identifiers."""
        return (_BACK + identifier.encode() for identifier in sent)

    def states(self) -> dict[bytes, bytes]:
        """The bindings to share with other instances, with a key for each identifier."""
        sent = {
            _NAME + recorded.encode(): sent.encode() for recorded, sent in self._sent_of.items()
        }
        back = {
            _BACK + sent.encode(): recorded.encode() for sent, recorded in self._recorded_of.items()
        }
        return sent | back

    def allows(self, id_map: Mapping[str, str]) -> bool:
        """Whether no two used identifiers of the take change places.

        A repeated conversation may use new identifiers, and a different conversation may use
        the identifiers of an earlier one.
        """
        return all(
            self._sent_of.get(recorded, sent) == sent
            or self._recorded_of.get(sent, recorded) == recorded
            for recorded, sent in id_map.items()
        )

    def has(self, recorded: str) -> bool:
        """Whether the client has used a new identifier for a recorded one."""
        return recorded in self._sent_of

    def recorded_of(self, sent: str) -> str | None:
        """The recorded identifier behind a client's identifier."""
        return self._recorded_of.get(sent)

    def bind(self, id_map: Mapping[str, str]) -> None:
        """Note the identifiers of a request that was replayed."""
        for recorded, sent in id_map.items():
            self._sent_of[recorded] = sent
            self._recorded_of[sent] = recorded


def _texts(value: Json, field: str, context: _Context) -> Iterator[BodyText]:
    if isinstance(value, str):
        yield BodyText(field, value, _is_reference(context, field))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, key, _context_in(context, key, inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, field, context)


def _refers(value: Json, field: str, context: _Context) -> bool:
    if isinstance(value, str):
        return _is_reference(context, field)
    if context is _Context.DATA:
        return False
    if isinstance(value, dict):
        for key, inner in value.items():
            if _refers(inner, key, _context_in(context, key, inner)):
                return True
    elif isinstance(value, list):
        for inner in value:
            if _refers(inner, field, context):
                return True
    return False


def _references(value: Json, field: str, context: _Context) -> Iterator[tuple[str, _Kind]]:
    """Every reference, with the kind of the part around the reference."""
    if isinstance(value, dict):
        kind = value.get("type")
        for key, inner in value.items():
            if isinstance(inner, str) and _is_reference(context, key):
                yield inner, (field, key, kind if isinstance(kind, str) else None)
            else:
                yield from _references(inner, key, _context_in(context, key, inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner, field, context)


def _context_in(context: _Context, field: str, value: Json) -> _Context:
    """The context of the content of a field in this context."""
    if context is not _Context.DATA and field in _CONVERSATION_LISTS and isinstance(value, list):
        return _Context.CONVERSATION
    return _Context.DATA if field in _TOOL_DATA and isinstance(value, dict) else context


def _is_reference(context: _Context, field: str) -> bool:
    if context is _Context.DATA:
        return False
    return field in _REFERENCES or (
        context is _Context.CONVERSATION and field in _REFERENCES_OF_PARTS
    )
