"""The meaning of a recorded answer, without the parts that differ each time: identifiers, times and
padding.

A stream is compared by the assembled answer, since services cut an equal text in new places each
time: the text, the tool calls, the stop reason, the model, the tokens.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tapeway.conversations.model import ParsedAnswer, merge_assistant_turns
from tapeway.conversations.reader import answer_values, parse_answers
from tapeway.core.correlation.ids import is_id_field, looks_random
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, NotJson, canonical, parse
from tapeway.core.misses.differences import Difference
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Response
from tapeway.core.model.request_fields import media_type
from tapeway.core.streams.framings import FRAMINGS
from tapeway.providers.api_call import describe_call
from tapeway.providers.usage import token_usage

# From the references of OpenAI, Anthropic, Gemini, Bedrock, Groq and Ollama.
_TIME_FIELD = re.compile(
    r"created|timestamp|.*_at|(?:create|update|expire|expiration)Time|createdAt|latencyMs"
    r"|(?:queue|prompt|completion|total)_time|(?:total|load|eval|prompt_eval)_duration"
)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")
_OPAQUE_FIELDS = frozenset(
    {"encrypted_content", "obfuscation", "signature", "system_fingerprint", "thoughtSignature"}
)
"""Padding against listeners, and what only the service can read."""

_ARGUMENTS = frozenset({"args", "arguments", "input", "partial_json"})
"""Fields with what a tool is called with: all of it counts, but for the spacing where it is a text."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The compared part, and in order the values that are set aside."""

    said: dict[str, Json]
    aside: tuple[bytes, ...]


def is_stream(response: Response) -> bool:
    """Whether an answer came as events."""
    return media_type(find_header(response.headers, b"content-type") or b"") in FRAMINGS


def meaning(item: Interaction, body: Json, *, assembled: bool) -> Meaning:
    """The meaning of an answer. `body` holds the compared values for APIs without a dialect.

    With `assembled` the answer of an LLM is assembled from its events.
    """
    answers = parse_answers(item) if assembled else None
    aside: list[bytes] = []
    plain = _without_aside(body, aside)
    if not answers or not all(map(_is_readable, answers)):
        return Meaning({"body": plain}, tuple(aside))
    content: dict[str, Json] = {"model": _model(item), "usage": _usage(item)}
    choices = [_answer(answer) for answer in answers]
    content |= choices[0] if len(choices) == 1 else {"choices": [*choices]}
    return Meaning({name: member for name, member in content.items() if member}, tuple(aside))


def is_set_aside(difference: Difference) -> bool:
    """Whether two requests differ here only in an identifier that the client drew."""
    name = next((step for step in reversed(difference.steps) if isinstance(step, str)), "")
    values = (difference.recorded, difference.requested)
    return is_id_field(name) and all(
        isinstance(value, str) and looks_random(value) for value in values
    )


def _without_aside(value: Json, aside: list[bytes]) -> Json:
    if isinstance(value, list):
        return [_without_aside(item, aside) for item in value]
    if not isinstance(value, dict):
        return value
    members: dict[str, Json] = {}
    for name, member in value.items():
        if _differs_each_time(name, member):
            aside.append(canonical([name, member]))
        elif name in _ARGUMENTS:
            members[name] = _parsed(member)
        else:
            members[name] = _without_aside(member, aside)
    return members


def _differs_each_time(name: str, value: Json) -> bool:
    if _TIME_FIELD.fullmatch(name):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number or (isinstance(value, str) and _TIME.fullmatch(value) is not None)
    return isinstance(value, str) and (name in _OPAQUE_FIELDS or is_id_field(name))


def _parsed(value: Json) -> Json:
    if isinstance(value, str):
        with suppress(NotJson):
            return parse(value, by_value=True)
    return value


def _is_readable(answer: ParsedAnswer) -> bool:
    return not answer.error and len(merge_assistant_turns([answer.turn])) > 0


def _answer(answer: ParsedAnswer) -> dict[str, Json]:
    parts = answer.turn.parts
    calls: list[Json] = [
        {"name": part.name, "arguments": part.value} for part in parts if part.kind == "call"
    ]
    members: dict[str, Json] = {
        "text": "".join([part.text for part in parts if part.kind == "text"]),
        "thinking": "".join([part.text for part in parts if part.kind == "thinking"]),
        "tool_calls": calls,
        "attachments": [part.value for part in parts if part.kind == "attachment"],
        "stop_reason": answer.stop_reason,
    }
    return {name: member for name, member in members.items() if member}


def _usage(item: Interaction) -> Json:
    call = describe_call(item.request.route, item.request)
    usage = None if call is None else token_usage(call, item.response)
    return None if usage is None else usage.fields()


def _model(item: Interaction) -> Json:
    return next(_models(item), None)


def _models(item: Interaction) -> Iterator[Json]:
    for value in answer_values(item.response):
        # Anthropic and OpenAI's Responses wrap the model in the first event.
        for holder in (value, value.get("message"), value.get("response")):
            if isinstance(holder, dict) and (
                model := holder.get("model") or holder.get("modelVersion")
            ):
                yield model
