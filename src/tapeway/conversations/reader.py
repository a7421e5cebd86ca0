"""The request and the answer of one recorded LLM call, parsed by the dialect of its endpoint."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from tapeway.conversations.dialects import (
    anthropic,
    bedrock,
    chat_completions,
    cohere,
    gemini,
    ollama,
    responses,
)
from tapeway.conversations.model import (
    ParsedAnswer,
    ParsedRequest,
    merge_assistant_turns,
    named_results,
)
from tapeway.core.http import content_codings
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, NotJson, parse, peek_json
from tapeway.core.loose_json import error_of, fields, objects, position, string
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import WEBSOCKET, Request, Response, ResponseHead
from tapeway.core.streams.documents import documents
from tapeway.providers.api_call import ApiCall, describe_call


@dataclass(frozen=True, slots=True)
class DialectParser:
    """Parses the JSON body of a request, and the JSON documents of an answer in their order."""

    parse_request: Callable[[dict[str, Json]], ParsedRequest]
    parse_answer: Callable[[Iterable[dict[str, Json]]], ParsedAnswer]


_CHAT = DialectParser(chat_completions.parse_request, chat_completions.parse_answer)
_ANTHROPIC = DialectParser(anthropic.parse_request, anthropic.parse_answer)
_CONVERSE = DialectParser(bedrock.parse_request, bedrock.parse_answer)
_GEMINI = DialectParser(gemini.parse_request, gemini.parse_answer)
_OLLAMA = DialectParser(ollama.parse_request, ollama.parse_answer)

DIALECTS: Mapping[str, DialectParser] = {
    "api.chat": _OLLAMA,
    "api.generate": _OLLAMA,
    "chat": DialectParser(chat_completions.parse_request, cohere.parse_answer),
    "chat.completions": _CHAT,
    "completions": _CHAT,
    "converse": _CONVERSE,
    "converse-stream": _CONVERSE,
    "generateContent": _GEMINI,
    "messages": _ANTHROPIC,
    "rawPredict": _ANTHROPIC,
    "responses": DialectParser(responses.parse_request, responses.parse_answer),
    "streamGenerateContent": _GEMINI,
    "streamRawPredict": _ANTHROPIC,
}
"""By endpoint and not by provider: one provider may speak several dialects."""

_BY_MODEL = frozenset({"invoke", "invoke-with-response-stream"})
"""Endpoints of Bedrock where each model has a dialect; only Anthropic's dialect is parsed."""

_UNREADABLE = frozenset({"fim.completions"})
"""Endpoints with conversations in dialects that have no parser."""

_CHOICES = ("choices", "candidates")
"""Fields of an answer, or of an event, with one entry for each answer that was asked for."""

_CUT_OFF = "the answer was cut off here"


class UnreadableCall(Exception):
    """A call with a conversation that cannot be parsed; the message says why."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call: request, answer, time and answering model.

    `notes` are remarks about the answer; `error` explains why it is missing or incomplete.
    """

    index: int
    request: ParsedRequest
    answer: ParsedAnswer
    at: str | None
    model: str | None
    notes: tuple[str, ...] = ()
    error: str = ""


_ASKING = ("POST", WEBSOCKET)
"""Methods of requests that a model answers."""


def may_hold_a_conversation(request: Request) -> bool:
    """Whether the endpoint serves chats or completions."""
    call = describe_call(request.route, request)
    return call is not None and (call.endpoint in DIALECTS or call.endpoint in _BY_MODEL)


def parse_call(interaction: Interaction) -> ParsedCall | None:
    """The call, or None for one without a conversation. Raises UnreadableCall."""
    asked = _request_part(interaction.request)
    if asked is None:
        return None
    response, call = interaction.response, asked.call
    answer = asked.dialect.parse_answer(answer_values(response))
    return ParsedCall(
        index=interaction.index,
        request=asked.request,
        answer=answer,
        at=_answered_at(answer.created, response),
        model=call.model,
        notes=tuple(_notes(interaction, answer)),
        error=_error(interaction, call, answer),
    )


def parse_request(request: Request) -> ParsedRequest | None:
    """What a call asks, or None for one without a conversation. Raises UnreadableCall."""
    asked = _request_part(request)
    return None if asked is None else asked.request


class _Asked(NamedTuple):
    call: ApiCall
    dialect: DialectParser
    request: ParsedRequest


def _request_part(request: Request) -> _Asked | None:
    call = describe_call(request.route, request)
    if call is None or request.method.upper() not in _ASKING:
        return None
    if call.endpoint not in DIALECTS and call.endpoint not in _UNREADABLE | _BY_MODEL:
        return None
    if request.file is not None:
        raise UnreadableCall(f"its request has {request.file.size} bytes, too many to be read here")
    body = _fields(request)
    if body is None:
        raise UnreadableCall("its request is not a readable JSON object")
    dialect = _dialect(call, body)
    parsed = _parse_request(dialect, body)
    if not (parsed.system or parsed.turns or parsed.previous):
        raise UnreadableCall("its request holds no message that is known")
    return _Asked(call, dialect, parsed)


def parse_sdk_call(interaction: ForeignInteraction) -> ParsedCall | None:
    """A call in AgentTape's record of an SDK, which has no HTTP headers and no time."""
    document = interaction.document
    request = fields(document.get("request"))
    endpoint = string(request.get("endpoint"))
    if document.get("kind") != "llm" or endpoint == "embeddings":
        return None
    dialect = DIALECTS.get(endpoint)
    if dialect is None:
        raise UnreadableCall(
            f"the conversations of {endpoint or 'an unnamed endpoint'} are not read"
        )
    response = document.get("response")
    answer = dialect.parse_answer(objects(response if isinstance(response, list) else [response]))
    error = error_of(dict(document))
    return ParsedCall(
        index=interaction.index,
        request=_parse_request(dialect, request),
        answer=answer,
        at=_answered_at(answer.created, Response(ResponseHead(0))),
        model=string(request.get("model")) or None,
        notes=(*answer.notes, *_incomplete(answer)),
        error=f"the call raised an error: {error}" if error else "",
    )


def parse_answers(interaction: Interaction) -> tuple[ParsedAnswer, ...] | None:
    """The answer to a call, one for each of its choices; None for a call that cannot be read."""
    request, response = interaction.request, interaction.response
    call = describe_call(request.route, request)
    if call is None or response.file is not None:
        return None
    try:
        dialect = _dialect(call, _fields(request) or {})
    except UnreadableCall:
        return None
    values = list(answer_values(response))
    numbers = {at for value in values for at in _choices(value)}
    if len(numbers) < 2:
        return (dialect.parse_answer(values),)
    return tuple(
        [
            dialect.parse_answer([_of_choice(value, at) for value in values])
            for at in sorted(numbers)
        ]
    )


def _choices(value: dict[str, Json]) -> Iterator[int]:
    for name in _CHOICES:
        for choice in objects(value.get(name)):
            yield position(choice.get("index"))


def _of_choice(value: dict[str, Json], number: int) -> dict[str, Json]:
    """The value with the chosen choice first, for parsers that read the first choice."""
    chosen: dict[str, Json] = {
        name: [
            choice | {"index": 0}
            for choice in objects(value[name])
            if position(choice.get("index")) == number
        ]
        for name in _CHOICES
        if name in value
    }
    return value | chosen


def _parse_request(dialect: DialectParser, body: dict[str, Json]) -> ParsedRequest:
    parsed = dialect.parse_request(body)
    return replace(parsed, turns=named_results(merge_assistant_turns(parsed.turns)))


def _dialect(call: ApiCall, body: dict[str, Json]) -> DialectParser:
    if call.endpoint in _BY_MODEL and "anthropic_version" in body:
        return _ANTHROPIC
    if call.endpoint not in DIALECTS:
        raise UnreadableCall(f"the conversations of {call.provider}'s {call.endpoint} are not read")
    return DIALECTS[call.endpoint]


def _fields(request: Request) -> dict[str, Json] | None:
    body = content_codings.decode(content_codings.content_coding(request.headers), request.body)
    value = None if body is None else readable_value(body)
    return value if isinstance(value, dict) else None


def answer_values(response: Response) -> Iterator[dict[str, Json]]:
    """The JSON objects of an answer: its body, or the events of a stream."""
    for document in documents(response):
        value = readable_value(document)
        # Without alt=sse, Gemini streams one JSON array.
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                # Bedrock wraps the events of a model's own stream once more.
                inner = item.get("bytes")
                yield inner if isinstance(inner, dict) else item


def readable_value(text: bytes) -> Json:
    """The JSON value of a text, None for what is none: `[DONE]`, an event that was cut off."""
    try:
        return parse(text)
    except NotJson:
        # Less strict: a repeated key, for one, is no reason to lose the message.
        return peek_json(text)


def _notes(interaction: Interaction, answer: ParsedAnswer) -> Iterator[str]:
    yield from answer.notes
    if interaction.failure is not None:
        yield f"{_CUT_OFF}: {interaction.failure.message}"
    elif interaction.response.verdict == "truncated":
        yield _CUT_OFF
    yield from _incomplete(answer)


def _incomplete(answer: ParsedAnswer) -> Iterator[str]:
    if answer.stop_reason:
        yield f"the answer is incomplete: {answer.stop_reason}"


def _error(interaction: Interaction, call: ApiCall, answer: ParsedAnswer) -> str:
    """Why the answer is missing or incomplete; empty if it is complete."""
    response, failure = interaction.response, interaction.failure
    if failure is not None and response.status == 0:
        return f"no answer came: {failure.message}"
    if response.file is not None:
        return f"the answer has {response.file.size} bytes, too many to be read here"
    reported = f": {answer.error}" if answer.error else ""
    if not 200 <= response.status < 300:
        return f"the answer was an error, {response.status}{reported}"
    if answer.error:
        return f"the answer reported an error{reported}"
    if not merge_assistant_turns([answer.turn]) and failure is None and not answer.stop_reason:
        return f"the answer holds no message in the format of {call.provider}'s {call.endpoint}"
    return ""


def _answered_at(created: Json, response: Response) -> str | None:
    """The time in the answer itself, else that of its Date header (RFC 9110 section 6.6.1)."""
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
