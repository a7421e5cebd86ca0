"""aimock's fixtures, read only: `{"fixtures": [{"match": {…}, "response": {…}}]}`.

A fixture says what the last message of any provider's request must contain, and what the model
answers. The nearest recording is a call of OpenAI's with the message alone, with rules that ignore
the fields that aimock ignores. aimock always answers with the first fixture that matches; one with
a `sequenceIndex` matches once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tapeway.core.json_text import Json, dump
from tapeway.core.matching.key import request_key
from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    JSON_TYPE,
    CallReader,
    HttpCall,
    with_match_key,
)

RULES = Rules(
    ignore=tuple(
        [
            f"body.{name}"
            for name in (
                *("model", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed"),
                *("user", "tools", "tool_choice", "parallel_tool_calls", "response_format"),
            )
        ]
    )
)
"""The fields that aimock ignores in a request."""

NARROWED = (
    "in aimock it is enough that the last user message contains this; here it is the only message, "
    "and all of it, of a call of OpenAI's that is not streamed"
)

LAST_REPEATS = (
    "aimock answers no more once its sequence is used up; here its last answer is repeated"
)

_URL = "https://api.openai.com/v1"
_SUPPORTED_MATCHERS = ("userMessage", "inputText", "sequenceIndex")
_RESPONSE_FIELDS = ("content", "toolCalls", "error", "status", "embedding", "model", "usage", "id")


class _UnusableFixture(Exception):
    """A fixture that no recording can express; the message says why."""


def recognises(value: Json) -> bool:
    """Whether a document looks like fixtures."""
    match value:
        case {"fixtures": [{"match": {}, "response": {}}, *_]}:
            return True
        case {"fixtures": [], **rest}:
            return not rest
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    calls = CallReader()
    alike: dict[bytes, list[_Fixture]] = {}
    for position, fields in enumerate(Fields.of(value, ()).objects("fixtures")):
        fields.require("match", "response")
        try:
            call = _call(fields, position).interaction(0, fields.at)
        except _UnusableFixture as why:
            calls.leave_out(fields.at, str(why))
            continue
        fixture = _Fixture(position, fields, _turn(fields.object("match")), call)
        alike.setdefault(request_key(call.request, RULES), []).append(fixture)
    ending: list[_Fixture] = []
    for group in alike.values():
        answering = list(_answering(group, calls))
        for fixture in answering:
            calls.note((*fixture.fields.at, "match"), NARROWED)
            calls.note_unknown(fixture.fields, ("match", "response"))
            calls.note_unknown(fixture.fields.object("response"), _RESPONSE_FIELDS)
            item = replace(fixture.call, index=len(calls.found))
            calls.found.append(with_match_key(item))
        ending += [fixture for fixture in answering[-1:] if fixture.turn is not None]
    once = bool(ending) and len(ending) == len(alike)
    for last in ending if not once else ():
        calls.note((*last.fields.at, "match", "sequenceIndex"), LAST_REPEATS)
    if not calls.found:
        return StoredCassette(fresh), calls.losses
    ruled = replace(fresh, meta=meta_with_rules(fresh.meta, RULES))
    return calls.cassette(ruled, "miss" if once else "last")


@dataclass(frozen=True, slots=True)
class _Fixture:
    position: int
    fields: Fields
    turn: int | None
    call: Interaction


def _turn(match: Fields) -> int | None:
    if "sequenceIndex" not in match:
        return None
    return match.integer("sequenceIndex", low=0, high=2**31)


def _answering(group: list[_Fixture], calls: CallReader) -> Iterator[_Fixture]:
    """The fixtures of a request that aimock ever answers with, in the order of the answers."""
    always = next((fixture for fixture in group if fixture.turn is None), None)
    turns: dict[int | None, _Fixture] = {}
    for fixture in group:
        if always is None or fixture.position < always.position:
            turns.setdefault(fixture.turn, fixture)
    answering: list[_Fixture] = []
    # A fixture after a missing turn is never reached.
    while (following := turns.get(len(answering))) is not None:
        answering.append(following)
    if always is not None:
        answering.append(always)
    for fixture in group:
        if fixture not in answering:
            ahead = turns.get(fixture.turn)
            ahead = always if ahead is None or ahead is fixture else ahead
            what = f"fixtures[{ahead.position}] always matches first" if ahead else "has no turn"
            calls.leave_out(fixture.fields.at, what)
    yield from answering


def _call(fields: Fields, position: int) -> HttpCall:
    match, response = fields.object("match"), fields.object("response")
    for name in match.values:
        if name not in _SUPPORTED_MATCHERS:
            raise _UnusableFixture(f"matches requests by '{name}'")
    model = response.text("model", "aimock")
    if "inputText" in match:
        path = "/embeddings"
        request: Json = {"model": model, "input": match.text("inputText")}
    elif "userMessage" in match:
        message: Json = {"role": "user", "content": match.text("userMessage")}
        path, request = "/chat/completions", {"model": model, "messages": [message]}
    else:
        raise _UnusableFixture("takes any request")
    status, answer = _answer(response, model, position)
    return HttpCall(
        method="POST",
        url=_URL + path,
        request_headers=JSON_TYPE,
        request_body=dump(request),
        status=status,
        headers=JSON_TYPE,
        chunks=(dump(answer),),
    )


def _answer(response: Fields, model: str, position: int) -> tuple[int, Json]:
    if "error" in response:
        status = response.integer("status", low=400, high=599) if "status" in response else 500
        return status, {"error": dict(response.object("error").values)}
    usage = dict(response.object("usage").values)
    if "embedding" in response:
        one: Json = {"object": "embedding", "index": 0, "embedding": response.list("embedding")}
        return 200, {"object": "list", "data": [one], "model": model, "usage": usage}
    if "content" not in response and "toolCalls" not in response:
        raise _UnusableFixture("its answer is none of content, toolCalls, error and embedding")
    calls = list(_tool_calls(response, position))
    message: dict[str, Json] = {"role": "assistant", "content": response.text("content") or None}
    if calls:
        message["tool_calls"] = calls
    else:
        message["content"] = response.text("content")
    reason = "tool_calls" if calls else "stop"
    return 200, {
        "id": response.text("id", f"chatcmpl-aimock-{position}"),
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage or {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _tool_calls(response: Fields, position: int) -> Iterator[Json]:
    for number, call in enumerate(response.objects("toolCalls")):
        call.require("name")
        arguments = call.values.get("arguments", "{}")
        yield {
            "id": call.text("id", f"call_aimock_{position}_{number}"),
            "type": "function",
            "function": {
                "name": call.text("name"),
                "arguments": arguments if isinstance(arguments, str) else dump(arguments).decode(),
            },
        }
