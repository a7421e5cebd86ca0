"""The question and the answer of a call, in a few words: in a list all calls of an API read
alike."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import parse_qsl

from tapeway.conversations.model import ContentPart, ConversationTurn
from tapeway.conversations.reader import (
    ParsedCall,
    UnreadableCall,
    parse_call,
    parse_request,
    parse_sdk_call,
    readable_value,
)
from tapeway.core.http import content_codings
from tapeway.core.http.forms import FormPart, parse_multipart
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Request, Response
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.documents import documents
from tapeway.core.text import decode_utf8, readable_json

MOST = 80
"""Characters of each of the two texts."""

_MOST_READ = 1024 * 1024
"""A larger body is told by its type and size: reading it takes longer than a list may."""
_MOST_FIELDS = 4
_FORM = b"application/x-www-form-urlencoded"
_TELLING = ("method", "name", "error", "message", "title", "input", "prompt", "query", "text", "q")
"""Fields of a body that tell the most, in this order; all others follow in theirs."""


class Gist(NamedTuple):
    """The last statement of a request, and the beginning of the answer; each may be empty."""

    asked: str = ""
    answered: str = ""


def gist(item: AnyInteraction) -> Gist:
    """The gist of a recording: words of a model's call, or the first fields."""
    try:
        call = parse_sdk_call(item) if isinstance(item, ForeignInteraction) else _parsed_call(item)
    except UnreadableCall:
        call = None
    if isinstance(item, ForeignInteraction):
        document = item.document
        if call is None:
            answer = document.get("error") or document.get("response")
            return Gist(_short(_value(document.get("request"))), _short(_value(answer)))
        return Gist(_last_words(call.request.turns), _answer_words(call.answer.turn, call.error))
    if call is None:
        return Gist(last_question(item.request), _answered(item))
    failed = _failure(item) or (call.answer.error and f"{item.response.status} {call.answer.error}")
    words = failed or _answer_words(call.answer.turn, call.answer.stop_reason)
    return Gist(_last_words(call.request.turns), _short(words) or _answered(item))


def last_question(request: Request) -> str:
    """The last thing that a request says, at most `MOST` characters."""
    try:
        call = parse_request(request) if len(request.body) <= _MOST_READ else None
    except UnreadableCall:
        call = None
    if call is not None and (words := _last_words(call.turns or call.system)):
        return words
    query = request.target.partition("?")[2]
    texts = [f"{name}={value}" for name, value in parse_qsl(query, keep_blank_values=True)]
    return _short(" ".join([*texts, _body(request)]))


def _parsed_call(item: Interaction) -> ParsedCall | None:
    small = len(item.request.body) + len(item.response.body) <= _MOST_READ
    return parse_call(item) if small else None


def _last_words(turns: Iterable[ConversationTurn]) -> str:
    last = [*turns][-1:]
    return _short(" ".join([_part(part) for turn in last for part in turn.parts]))


def _answer_words(turn: ConversationTurn, stop_reason: str) -> str:
    words = [_part(part) for part in turn.parts if part.kind != "thinking"]
    return _short(" ".join([*words, *([f"({stop_reason})"] if stop_reason else [])]))


def _part(part: ContentPart) -> str:
    match part.kind:
        case "call":
            return call_words(part)
        case "result":
            return f"{part.name or 'result'}: {readable_json(part.text[: 4 * MOST])}"
        case "attachment":
            value = part.value if isinstance(part.value, dict) else {}
            return f"[{value.get('media_type') or value.get('type') or 'attachment'}]"
        case _:
            return part.text


def call_words(call: ContentPart) -> str:
    """A tool's call in a few words, its first argument for all of them."""
    return f"{call.name}({_arguments(call.value)})"


def _arguments(value: Json) -> str:
    if not isinstance(value, dict):
        return "" if value is None else _value(value)
    first = [f"{name}={_value(member)}" for name, member in value.items()][:1]
    return ", ".join([*first, *(["…"] if len(value) > 1 else [])])


def _failure(item: Interaction) -> str:
    return "" if item.failure is None else f"{item.failure.kind}: {item.failure.message}"


def _answered(item: Interaction) -> str:
    if failed := _failure(item):
        return _short(failed)
    texts = [_body(item.response)]
    if item.response.status >= 400:
        texts.insert(0, str(item.response.status))
    return _short(" ".join(texts))


def _body(message: Request | Response) -> str:
    """The beginning of a body: first fields, first words, or else the type."""
    if message.file is None and not message.body:
        return ""
    kind = media_type(find_header(message.headers, b"content-type") or b"")
    body = content_codings.decode(content_codings.content_coding(message.headers), message.body)
    if message.file is not None or body is None or len(body) > _MOST_READ:
        size = len(message.body) if message.file is None else message.file.size
        return _sized(kind, size)
    if kind == _FORM:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        return " ".join([f"{name}={value}" for name, value in pairs[:_MOST_FIELDS]])
    if parts := parse_multipart(find_header(message.headers, b"content-type") or b"", body):
        return " ".join(map(_part_words, parts[:_MOST_FIELDS]))
    texts = [body] if isinstance(message, Request) else documents(message)
    for text in texts:
        if (value := readable_value(text)) is not None:
            return _value(value)
    words = body.decode("utf-8", "replace")
    if "\0" in words or "\ufffd" in words:
        return _sized(kind, len(body))
    return words


def _part_words(part: FormPart) -> str:
    """A part of a form: its value, or the file that it is."""
    name = f"{part.name}=" if part.name else ""
    if part.filename or (text := decode_utf8(part.body[: 4 * MOST])) is None:
        return f"{name}[{part.filename or part.content_type or 'part'}]"
    return name + text


def _sized(kind: bytes, size: int) -> str:
    return f"[{kind.decode('latin-1') or 'body'}, {size} byte{'' if size == 1 else 's'}]"


def _value(value: Json) -> str:
    match value:
        case dict():
            return ", ".join(_fields(value))
        case list():
            return f"[{len(value)} items]" if len(value) > 1 else " ".join(map(_value, value))
        case str():
            return readable_json(value)
        case _:
            return dump(value).decode()


def _fields(value: dict[str, Json]) -> Iterator[str]:
    """The most telling fields; a nested object is represented by its first field."""
    telling = [name for name in _TELLING if value.get(name) not in (None, "")]
    others = [name for name in value if name not in telling]
    for name in [*telling, *others][:_MOST_FIELDS]:
        inner = value[name]
        if isinstance(inner, dict):
            inner = next(_fields(inner), "{}") if name in _TELLING else next(iter(inner), "{}")
        yield f"{name}: {_value(inner)}"


def _short(text: str) -> str:
    words = " ".join(text[: 4 * MOST].split())
    return words if len(words) <= MOST else words[: MOST - 1].rstrip() + "…"
