"""What a recorded call of an LLM said: the history it sent, and the answer it got."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import orjson

from tapeway.conversations.dialects import (
    anthropic,
    bedrock,
    chat_completions,
    cohere,
    gemini,
    ollama,
    responses,
)
from tapeway.conversations.dialects.loose_json import error_of, fields, objects, string
from tapeway.conversations.model import Answered, Asked, merged
from tapeway.core.http import content_codings
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, NotJson, parse
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.streams.documents import documents
from tapeway.providers.api_call import ApiCall, describe_call


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to read a request's fields, and an answer's documents in their order."""

    asked: Callable[[dict[str, Json]], Asked]
    answered: Callable[[Iterable[dict[str, Json]]], Answered]


_CHAT = Dialect(chat_completions.asked, chat_completions.answered)
_ANTHROPIC = Dialect(anthropic.asked, anthropic.answered)
_CONVERSE = Dialect(bedrock.asked, bedrock.answered)
_GEMINI = Dialect(gemini.asked, gemini.answered)
_OLLAMA = Dialect(ollama.asked, ollama.answered)

DIALECTS: Mapping[str, Dialect] = {
    "api.chat": _OLLAMA,
    "api.generate": _OLLAMA,
    "chat": Dialect(cohere.asked, cohere.answered),
    "chat.completions": _CHAT,
    "completions": _CHAT,
    "converse": _CONVERSE,
    "converse-stream": _CONVERSE,
    "generateContent": _GEMINI,
    "messages": _ANTHROPIC,
    "rawPredict": _ANTHROPIC,
    "responses": Dialect(responses.asked, responses.answered),
    "streamGenerateContent": _GEMINI,
    "streamRawPredict": _ANTHROPIC,
}
"""By endpoint and not by provider: one provider may speak several dialects."""

_OF_MODEL = frozenset({"invoke", "invoke-with-response-stream"})
"""Endpoints of Bedrock where each model has its own dialect; Anthropic's is read."""

_UNREAD = frozenset({"fim.completions"})
"""Endpoints that hold conversations in dialects that are not read."""

_CUT = "the answer broke off here"


class Unread(Exception):
    """A call that holds a conversation and cannot be read; says why."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One call: what was asked and answered, when, by which model, and what is to be said of it."""

    index: int
    asked: Asked
    answered: Answered
    at: str | None
    model: str | None
    notes: tuple[str, ...] = ()
    error: str = ""


def may_hold_a_conversation(request: Request) -> bool:
    """Whether its address is one at which conversations are held."""
    call = describe_call(request.route, request)
    return call is not None and (call.endpoint in DIALECTS or call.endpoint in _OF_MODEL)


def spoken(interaction: Interaction) -> Spoken | None:
    """The call, or None for one that holds no conversation. Raises Unread."""
    request, response = interaction.request, interaction.response
    call = describe_call(request.route, request)
    if call is None or request.method.upper() != "POST":
        return None
    if call.endpoint not in DIALECTS and call.endpoint not in _UNREAD | _OF_MODEL:
        return None
    if request.file is not None:
        raise Unread(f"its request has {request.file.size} bytes, too many to be read here")
    body = _fields(request)
    if body is None:
        raise Unread("its request is no JSON object that can be read")
    dialect = _dialect(call, body)
    asked = dialect.asked(body)
    if not (asked.system or merged(asked.turns) or asked.previous):
        raise Unread("its request holds no message that is known")
    answered = dialect.answered(_values(response))
    asked = Asked(asked.system, merged(asked.turns), asked.previous)
    return Spoken(
        index=interaction.index,
        asked=asked,
        answered=answered,
        at=_moment(answered.created, response),
        model=call.model,
        notes=tuple(_notes(interaction, answered)),
        error=_error(interaction, call, answered),
    )


def recorded(interaction: ForeignInteraction) -> Spoken | None:
    """The same for AgentTape's own record of an SDK's call, which has neither head nor time."""
    document = interaction.document
    request = fields(document.get("request"))
    endpoint = string(request.get("endpoint"))
    if document.get("kind") != "llm" or endpoint == "embeddings":
        return None
    dialect = DIALECTS.get(endpoint)
    if dialect is None:
        raise Unread(f"the conversations of {endpoint or 'an unnamed endpoint'} are not read")
    asked = dialect.asked(request)
    answer = document.get("response")
    answered = dialect.answered(objects(answer if isinstance(answer, list) else [answer]))
    error = error_of(dict(document))
    return Spoken(
        index=interaction.index,
        asked=Asked(asked.system, merged(asked.turns), asked.previous),
        answered=answered,
        at=_moment(answered.created, Response(ResponseHead(0))),
        model=string(request.get("model")) or None,
        notes=(*answered.notes, *_ending(answered)),
        error=f"the call raised an error: {error}" if error else "",
    )


def _dialect(call: ApiCall, body: dict[str, Json]) -> Dialect:
    if call.endpoint in _OF_MODEL and "anthropic_version" in body:
        return _ANTHROPIC
    if call.endpoint not in DIALECTS:
        raise Unread(f"the conversations of {call.provider}'s {call.endpoint} are not read")
    return DIALECTS[call.endpoint]


def _fields(request: Request) -> dict[str, Json] | None:
    body = content_codings.decode(content_codings.content_coding(request.headers), request.body)
    value = None if body is None else _value(body)
    return value if isinstance(value, dict) else None


def _values(response: Response) -> Iterator[dict[str, Json]]:
    for document in documents(response):
        value = _value(document)
        # Without alt=sse, Gemini streams one JSON array.
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                # What a model says on Bedrock comes wrapped once more.
                inner = each.get("bytes")
                yield inner if isinstance(inner, dict) else each


def _value(text: bytes) -> Json:
    """What a text says, None where that is nothing: `[DONE]`, an event that was cut."""
    try:
        return parse(text)
    except NotJson:
        pass
    try:
        loose: Json = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return loose


def _notes(interaction: Interaction, answered: Answered) -> Iterator[str]:
    yield from answered.notes
    if interaction.failure is not None:
        yield f"{_CUT}: {interaction.failure.message}"
    elif interaction.response.verdict == "truncated":
        yield _CUT
    yield from _ending(answered)


def _ending(answered: Answered) -> Iterator[str]:
    if answered.ended:
        yield f"the answer did not come to its end: {answered.ended}"


def _error(interaction: Interaction, call: ApiCall, answered: Answered) -> str:
    """Why there is no answer, or not all of one; empty where there is."""
    response, failure = interaction.response, interaction.failure
    if failure is not None and response.status == 0:
        return f"no answer came: {failure.message}"
    if response.file is not None:
        return f"the answer has {response.file.size} bytes, too many to be read here"
    said = f": {answered.error}" if answered.error else ""
    if not 200 <= response.status < 300:
        return f"the answer was an error, {response.status}{said}"
    if answered.error:
        return f"the answer reported an error{said}"
    if not merged([answered.turn]) and failure is None and not answered.ended:
        return f"the answer says nothing in the way of {call.provider}'s {call.endpoint}"
    return ""


def _moment(created: Json, response: Response) -> str | None:
    """When the service answered, as it says itself or by its clock (RFC 9110 section 6.6.1)."""
    try:
        if isinstance(created, int | float) and not isinstance(created, bool) and created > 0:
            return _iso(datetime.fromtimestamp(created, UTC))
        if isinstance(created, str):
            return _iso(datetime.fromisoformat(created))
    except (ValueError, OverflowError, OSError):
        pass
    date = find_header(response.headers, b"date")
    try:
        return None if date is None else _iso(parsedate_to_datetime(date.decode("latin-1")))
    except (ValueError, OverflowError):
        return None


def _iso(moment: datetime) -> str:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat()
