"""JSON-RPC 2.0 (https://www.jsonrpc.org/specification), and what its clients draw.

A client draws the `id` of each call: a counter or a random text, different in each run. The answer
repeats it. MCP has two further names of a call: the token under which a client hears of progress
(`params._meta.progressToken`), and the `requestId` of a call that the client cancels. Neither
says what is asked. In place of each, requests are compared by the position of the call.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from tapeway.core.json_members import (
    elements,
    member_text,
    with_elements,
    with_member,
)
from tapeway.core.json_text import Json, json_object, peek_json

_VERSION = "2.0"
_CANCELLED, _PROGRESS = "notifications/cancelled", "notifications/progress"
_NULL = b"null"


class CallNames(NamedTuple):
    """The names of one call, each as JSON text, None where the call has none."""

    id: bytes | None
    progress_token: bytes | None


@dataclass(frozen=True, slots=True)
class AskedNames:
    """What a client calls its calls, as JSON text, by the recorded names as `name_key` has them."""

    ids: dict[bytes, bytes] = field(default_factory=dict)
    progress_tokens: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def differ(self) -> bool:
        """Whether any name is not as recorded."""
        pairs = (*self.ids.items(), *self.progress_tokens.items())
        return any(recorded != asked for recorded, asked in pairs)

    def update(self, later: "AskedNames") -> None:
        """Add the names of later calls, which may have been given before."""
        self.ids.update(later.ids)
        self.progress_tokens.update(later.progress_tokens)


def is_message(value: Json) -> bool:
    """Whether a value is a message of JSON-RPC 2.0, or a batch of such messages."""
    if isinstance(value, dict):
        return value.get("jsonrpc") == _VERSION
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(member, dict) and is_message(member) for member in value)


def is_call(value: Mapping[str, Json]) -> bool:
    """Whether a message asks for an answer."""
    return "method" in value and "id" in value


def is_answer(value: Mapping[str, Json]) -> bool:
    """Whether a message answers a call."""
    return "id" in value and "method" not in value


def without_names(value: Json) -> Json:
    """The value of a request with positions in place of the names that its client draws.

    The value itself if it is no request of JSON-RPC.
    """
    if not is_message(value):
        return value
    if isinstance(value, dict):
        return _at_position(value, 0) if "method" in value else value
    assert isinstance(value, list)  # noqa: S101 - a message is an object or a list
    return [
        _at_position(member, position)
        if isinstance(member, dict) and "method" in member
        else member
        for position, member in enumerate(value)
    ]


def _at_position(message: dict[str, Json], position: int) -> dict[str, Json]:
    compared = {**message, "id": position} if "id" in message else message
    params = message.get("params")
    if not isinstance(params, dict):
        return compared
    meta = params.get("_meta")
    if isinstance(meta, dict) and "progressToken" in meta:
        params = {**params, "_meta": {**meta, "progressToken": position}}
    if message["method"] == _CANCELLED and "requestId" in params:
        params = {**params, "requestId": position}
    return {**compared, "params": params}


def names_of(body: bytes) -> Sequence[CallNames]:
    """The names in a request, one for each message with a method; empty where it is no JSON-RPC."""
    if b'"jsonrpc"' not in body or not is_message(peek_json(body)):
        return ()
    texts = elements(body)
    return [_names(text, value) for text, value in _requests([body] if texts is None else texts)]


def _requests(texts: Sequence[bytes]) -> list[tuple[bytes, Mapping[str, Json]]]:
    messages = [(text, json_object(text)) for text in texts]
    return [(text, value) for text, value in messages if value is not None and "method" in value]


def _names(text: bytes, value: Mapping[str, Json]) -> CallNames:
    params = value.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = None
    if isinstance(meta, dict) and "progressToken" in meta:
        meta_text = member_text(member_text(text, "params") or b"", "_meta")
        token = member_text(meta_text or b"", "progressToken")
    return CallNames(member_text(text, "id"), token)


def asked_names(recorded: Iterable[CallNames], asked: Iterable[CallNames]) -> AskedNames:
    """The names in a request, by the names in a recorded request that equals it otherwise."""
    found = AskedNames()
    for before, now in zip(recorded, asked, strict=False):
        _add(found.ids, before.id, now.id)
        _add(found.progress_tokens, before.progress_token, now.progress_token)
    return found


def _add(names: dict[bytes, bytes], recorded: bytes | None, asked: bytes | None) -> None:
    if recorded is not None and asked is not None and recorded != _NULL:
        names[name_key(recorded)] = asked


def renamed(message: bytes, names: AskedNames) -> bytes:
    """A message or batch of the service for the client that asks; all remaining bytes stay."""
    if (value := json_object(message)) is None:
        return with_elements(message, lambda element: renamed(element, names))
    if is_answer(value):
        return _with_name(message, "id", names.ids)
    params = member_text(message, "params") if value.get("method") == _PROGRESS else None
    if params is None:
        return message
    asked = _with_name(params, "progressToken", names.progress_tokens)
    return message if asked == params else with_member(message, "params", asked)


def _with_name(data: bytes, member: str, names: Mapping[bytes, bytes]) -> bytes:
    text = member_text(data, member)
    asked = None if text is None else names.get(name_key(text))
    return data if asked is None else with_member(data, member, asked)


def name_key(text: bytes) -> bytes:
    """A key equal for all spellings of a name."""
    try:
        return orjson.dumps(orjson.loads(text))
    except orjson.JSONDecodeError:
        return text
