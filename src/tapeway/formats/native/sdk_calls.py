"""The exchange over HTTP that says the same as AgentTape's record of an SDK's call, or of an error.

A recording of kind `llm` holds the arguments of a method and the object it returned; an error is
told as the exception that the application saw. The document stays what is kept of them.

Objects that AgentTape wrote down as Python shows them, taken back to what they say.

An application that puts a message of the SDK back into the conversation, as tool loops do, leaves
`ChatCompletionMessage(content=None, role='assistant', …)` in a YAML cassette. It is read and never
run: only names, literals and what they are nested in.
"""

import ast
import re
from collections.abc import Mapping
from http import HTTPStatus

from tapeway.core import json_text
from tapeway.core.agenttape import sdk_calls
from tapeway.core.http.headers import OWN, end_to_end
from tapeway.core.json_text import Json, Pointer, dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    Failure,
    FailureKind,
    Headers,
    Request,
    Response,
    ResponseChunk,
    ResponseHead,
)
from tapeway.formats.fields import Fields
from tapeway.formats.native import header_map, http_exchange

_OBJECT = re.compile(r"[A-Z]\w*\(\w+=")
_LONGEST = 1024 * 1024
Document = Mapping[str, Json]
_Answer = tuple[Response, Failure | None]

# What the SDK puts where an argument is not given; AgentTape wrote it down.
_NOT_GIVEN = re.compile(r"NOT_GIVEN|<openai\.\w+ object at 0x[0-9a-fA-F]+>")
_MESSAGES = frozenset({("chat.completions", "messages"), ("responses", "input")})
_TOLD = re.compile(r"Error code: ([2-5]\d\d) - (\{.*\})", re.DOTALL)
_STATUSES: Mapping[str, int] = {
    "BadRequestError": 400,
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "ConflictError": 409,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "InternalServerError": 500,
}
_FAILURES: Mapping[str, FailureKind] = {
    "APITimeoutError": "timeout",
    "ReadTimeout": "timeout",
    "ConnectTimeout": "timeout",
    "WriteTimeout": "timeout",
    "PoolTimeout": "timeout",
    "TimeoutException": "timeout",
    "Timeout": "timeout",
    "TimeoutError": "timeout",
    "RemoteProtocolError": "cut",
    "ChunkedEncodingError": "cut",
    "IncompleteRead": "cut",
    "APIConnectionError": "reset",
    "ConnectError": "reset",
    "ConnectionError": "reset",
    "NetworkError": "reset",
    "ReadError": "reset",
    "WriteError": "reset",
    "SSLError": "reset",
    "ProxyError": "reset",
}
_DROPPED = OWN | {b"content-length", b"content-encoding"}
_DECIDED = (b"x-should-retry", b"false")
_RAW = "http_response"


class _Unread(ValueError):
    """It says something else than an object of literals."""


def read(text: str) -> Json:
    """The object with what was None left out, as the SDK sends it; other text as it is."""
    if not _OBJECT.match(text) or len(text) > _LONGEST:
        return text
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (_Unread, SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def literal(text: str) -> Json:
    """What a dictionary says that Python shows so, None for anything else."""
    if not text.startswith("{") or len(text) > _LONGEST:
        return None
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (_Unread, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Json:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(each) for each in items]
        case ast.Dict(keys=names, values=values):
            return {_name(name): _value(each) for name, each in zip(names, values, strict=True)}
        case ast.Call(func=ast.Name(), args=[], keywords=fields):
            found = {field.arg or "": _value(field.value) for field in fields}
            return {name: value for name, value in found.items() if value is not None}
        case _:
            raise _Unread


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _Unread


def exchange_of(document: Document, index: int, at: Pointer) -> Interaction | None:
    """What answers the same call over HTTP, None for a call that is made in another way.

    Raises FormatFault with the place of what is wrong in it.
    """
    fields = Fields(document, at)
    request = _request(fields) if document.get("kind") == "llm" else None
    answer = None if request is None else _answer(document)
    if request is None or answer is None:
        return None
    return _interaction(fields, index, request, answer)


def failed(document: Document, index: int, at: Pointer) -> Interaction:
    """The exchange that ended in another tool's error. Raises FormatFault with the place."""
    fields = Fields(document, at)
    fields.require("request")
    request = http_exchange.decode_request(fields.object("request"))
    return _interaction(fields, index, request, _error(fields.object("error").values))


def _request(fields: Fields) -> Request | None:
    said = fields.values.get("request")
    asked: Mapping[str, Json] = said if isinstance(said, dict) else {}
    endpoint = asked.get("endpoint")
    if not isinstance(endpoint, str) or endpoint not in sdk_calls.ENDPOINTS:
        return None
    arguments = {
        name: _sent(endpoint, name, value)
        for name, value in asked.items()
        if name != "endpoint" and not (isinstance(value, str) and _NOT_GIVEN.fullmatch(value))
    }
    return sdk_calls.request_of(endpoint, arguments)


def _sent(endpoint: str, name: str, value: Json) -> Json:
    # Texts are no messages, but objects that were written down as text.
    if (endpoint, name) in _MESSAGES and isinstance(value, list):
        return [read(each) if isinstance(each, str) else each for each in value]
    return value


def _answer(document: Document) -> _Answer | None:
    error = document.get("error")
    if isinstance(error, dict):
        return _error(error, wrapped=True)
    result = document.get("response")
    if isinstance(result, dict) and _RAW in result:
        # `with_raw_response` was recorded as what is inside the SDK: the answer is not in it.
        return None
    return _whole(200, (), json_text.write_non_finite(dump(result))), None


def _interaction(fields: Fields, index: int, request: Request, answer: _Answer) -> Interaction:
    response, failure = answer
    key = fields.text("match_key")
    usage = fields.values.get("usage")
    return Interaction(
        index=index,
        request=request,
        response=response,
        match_key=key,
        latency_ms=fields.number("latency_ms"),
        usage=usage if isinstance(usage, dict) else None,
        tags=fields.texts("tags"),
        metadata=fields.object("metadata").values,
        stored_keys=(key,),
        failure=failure,
    )


def _error(error: Mapping[str, Json], *, wrapped: bool = False) -> _Answer:
    kind, message = _string(error, "type"), _string(error, "message")
    attrs, answer = _object(error, "attrs"), _object(error, "response")
    status = _status(attrs.get("status_code")) or _status(answer.get("status_code"))
    if status is None and (failure := _FAILURES.get(kind)) is not None:
        return Response(ResponseHead(0)), Failure(failure, message or kind)
    said = error.get("body")
    if wrapped and isinstance(said, dict) and "error" not in said:
        # The SDK takes the object inside `error` for the body.
        said = {"error": said}
    if said is None and (told := _TOLD.fullmatch(message)):
        # AgentTape 0.1.0 kept of an error what the SDK says, which repeats the body.
        status, said = status or int(told[1]), literal(told[2])
    if said is None:
        said = _shape(attrs, message or kind)
    text = said.encode() if isinstance(said, str) else dump(said)
    shown = header_map.decode(Fields(answer, ("error", "response")))
    headers = end_to_end(shown, drop=_DROPPED)
    return _whole(status or _STATUSES.get(kind, 500), headers, text), None


def _shape(attrs: Mapping[str, Json], message: str) -> Json:
    known: dict[str, Json] = {name: attrs.get(name) for name in ("type", "param", "code")}
    return {"error": {"message": message, **known}}


def _whole(status: int, headers: Headers, text: bytes) -> Response:
    names = {name.lower() for name, _ in headers}
    if b"content-type" not in names:
        headers = (*headers, sdk_calls.JSON_TYPE)
    if status >= 400 and _DECIDED[0] not in names:
        # The recorded call had made its retries: one more would take the next recording.
        headers = (*headers, _DECIDED)
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    head = ResponseHead(status, reason, headers)
    return Response(head, (ResponseChunk(text),) if text else ())


def _status(said: Json) -> int | None:
    return (
        said if isinstance(said, int) and not isinstance(said, bool) and 200 <= said < 600 else None
    )


def _string(values: Mapping[str, Json], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _object(values: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}
