"""A message of a history, and the interaction that holds the messages of one append."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tapeway.core.agenttape import key
from tapeway.core.json_text import Json, NotJson, check_json
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.errors import RequestError

KIND = "memory_write"
CALL = "append_messages"

# How deep a message is nested in a cassette's file.
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `content` is a text or any JSON, such as tool calls and results.

    The time keeps the given offset, and None stays None.
    """

    role: str
    content: Json
    timestamp: datetime | None = None


def interaction_document(session_id: str, messages: Sequence[Message]) -> dict[str, Json]:
    """The interaction of one append. Raises RequestError for what could not be read again."""
    documents: list[Json] = [_document(message) for message in messages]
    request: dict[str, Json] = {
        "name": CALL,
        "args": {"session_id": session_id, "messages": documents},
    }
    return {
        "kind": KIND,
        "boundary": CALL,
        "request": request,
        "response": None,
        "match_key": key.agenttape_key(request),
        "latency_ms": 0.0,
    }


def messages_of(item: AnyInteraction) -> list[Message]:
    """The messages an interaction holds. Raises ValueError for any other one."""
    match item.document if isinstance(item, ForeignInteraction) else None:
        case {"kind": "memory_write", "request": {"name": "append_messages", "args": dict(args)}}:
            match args:
                case {"messages": list(messages)}:
                    return [_message(message) for message in messages]
    raise ValueError(f"it is no {KIND} of {CALL}")


def _document(message: Message) -> dict[str, Json]:
    try:
        check_json(message.role)
        check_json(message.content, depth=_DEPTH)
    except NotJson as exc:
        raise RequestError(f"a message of role {message.role!r} cannot be kept: {exc}") from exc
    return {
        "role": _role(message.role),
        "content": message.content,
        "timestamp": _time(message.timestamp),
    }


def _role(role: object) -> str:
    if isinstance(role, str) and role:
        return role
    raise RequestError(f"the role of a message is a text such as user or tool, not {role!r}")


def _time(timestamp: object) -> str | None:
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        return timestamp.isoformat()
    raise RequestError(f"the time of a message is a datetime or None, not {timestamp!r}")


def _message(value: Json) -> Message:
    match value:
        case {"role": str(role), "content": content, "timestamp": (str() | None) as at, **rest}:
            if not rest:
                return Message(role, content, None if at is None else datetime.fromisoformat(at))
    raise ValueError("a message has a role, a content and a timestamp, and nothing else")
