"""AgentTape's record of an SDK's call, or of an error, as the HTTP exchange behind it.

A recording of kind `llm` holds the arguments of a method and the returned object; an error is the
exception that the application saw. The document is kept unchanged.

An application that puts a message object of the SDK back into the conversation, as tool loops do,
leaves its `repr` in the cassette: `ChatCompletionMessage(content=None, role='assistant', …)`. The
`repr` is parsed and never run: only names, literals and nesting are accepted.
"""

import ast
import re
from collections.abc import Mapping
from http import HTTPStatus

from tapeway.core import json_text, loose_json
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
    ResponseHead,
)
from tapeway.formats.fields import Fields
from tapeway.formats.native import header_map, http_exchange

_OBJECT_REPR = re.compile(r"[A-Z]\w*\(\w+=")
_MAX_REPR_LENGTH = 1024 * 1024
Document = Mapping[str, Json]
_ResponseOrFailure = tuple[Response, Failure | None]

# How AgentTape writes the SDK's default for an argument that was not given.
_NOT_GIVEN = re.compile(r"NOT_GIVEN|<openai\.\w+ object at 0x[0-9a-fA-F]+>")
_MESSAGES = frozenset({("chat.completions", "messages"), ("responses", "input")})
_ERROR_MESSAGE = re.compile(r"Error code: ([2-5]\d\d) - (\{.*\})", re.DOTALL)
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
_NO_RETRY = (b"x-should-retry", b"false")
_RAW_RESPONSE = "http_response"


def exchange_of(document: Document, index: int, at: Pointer) -> Interaction | None:
    """The exchange of an `llm` document, None for a call that HTTP clients do not make.

    Raises FormatFault with the place of the fault.
    """
    fields = Fields(document, at)
    request = _request(fields) if document.get("kind") == "llm" else None
    answer = None if request is None else _answer(document)
    if request is None or answer is None:
        return None
    return _interaction(fields, index, request, answer)


def exchange_of_error(document: Document, index: int, at: Pointer) -> Interaction:
    """The exchange of a request with a foreign tool's error. Raises FormatFault with the place."""
    fields = Fields(document, at)
    fields.require("request")
    request = http_exchange.decode_request(fields.object("request"))
    return _interaction(fields, index, request, _error(fields.object("error").values))


def _request(fields: Fields) -> Request | None:
    call = loose_json.fields(fields.values.get("request"))
    endpoint = call.get("endpoint")
    if not isinstance(endpoint, str) or endpoint not in sdk_calls.ENDPOINTS:
        return None
    arguments = {
        name: _argument(endpoint, name, value)
        for name, value in call.items()
        if name != "endpoint" and not (isinstance(value, str) and _NOT_GIVEN.fullmatch(value))
    }
    return sdk_calls.request_of(endpoint, arguments)


def _argument(endpoint: str, name: str, value: Json) -> Json:
    # A text in this list is the `repr` of a message object.
    if (endpoint, name) in _MESSAGES and isinstance(value, list):
        return [_parse_object_repr(item) if isinstance(item, str) else item for item in value]
    return value


def _answer(document: Document) -> _ResponseOrFailure | None:
    error = document.get("error")
    if isinstance(error, dict):
        return _error(error, wrapped=True)
    result = document.get("response")
    if isinstance(result, dict) and _RAW_RESPONSE in result:
        # A call through `with_raw_response` was recorded without the answer's content.
        return None
    return _response(200, (), json_text.write_non_finite(dump(result))), None


def _interaction(
    fields: Fields, index: int, request: Request, answer: _ResponseOrFailure
) -> Interaction:
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


def _error(error: Mapping[str, Json], *, wrapped: bool = False) -> _ResponseOrFailure:
    kind, message = loose_json.string(error.get("type")), loose_json.string(error.get("message"))
    attrs, response = map(loose_json.fields, (error.get("attrs"), error.get("response")))
    status = _status(attrs.get("status_code")) or _status(response.get("status_code"))
    if status is None and (failure := _FAILURES.get(kind)) is not None:
        return Response(ResponseHead(0)), Failure(failure, message or kind)
    body = error.get("body")
    if wrapped and isinstance(body, dict) and "error" not in body:
        # The SDK calls the object inside `error` the body.
        body = {"error": body}
    if body is None and (match := _ERROR_MESSAGE.fullmatch(message)):
        # AgentTape 0.1.0 kept only the SDK's message, which repeats the body.
        status, body = status or int(match[1]), _parse_dict_repr(match[2])
    if body is None:
        body = _error_body(attrs, message or kind)
    text = body.encode() if isinstance(body, str) else dump(body)
    headers = header_map.decode(Fields(response, ("error", "response")))
    stored = end_to_end(headers, drop=_DROPPED)
    return _response(status or _STATUSES.get(kind, 500), stored, text), None


def _error_body(attrs: Mapping[str, Json], message: str) -> Json:
    known: dict[str, Json] = {name: attrs.get(name) for name in ("type", "param", "code")}
    return {"error": {"message": message, **known}}


def _response(status: int, headers: Headers, text: bytes) -> Response:
    names = {name.lower() for name, _ in headers}
    if b"content-type" not in names:
        headers = (*headers, sdk_calls.JSON_TYPE)
    if status >= 400 and _NO_RETRY[0] not in names:
        # The recorded call included the retries; a further retry would take the next recording.
        headers = (*headers, _NO_RETRY)
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    head = ResponseHead(status, reason, headers)
    return Response(head, text)


def _status(value: Json) -> int | None:
    return value if type(value) is int and 200 <= value < 600 else None


class _NotLiteral(ValueError):
    """The text is not made of literals alone."""


def _parse_object_repr(text: str) -> Json:
    """The object as the SDK sends it, without the fields that are None; other text unchanged."""
    return _parse_repr(text, text) if _OBJECT_REPR.match(text) else text


def _parse_dict_repr(text: str) -> Json:
    return _parse_repr(text, None) if text.startswith("{") else None


def _parse_repr(text: str, default: Json) -> Json:
    if len(text) > _MAX_REPR_LENGTH:
        return default
    try:
        return _literal(ast.parse(text, mode="eval").body)
    except (_NotLiteral, SyntaxError, ValueError, RecursionError, MemoryError):
        return default


def _literal(node: ast.expr) -> Json:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=names, values=values):
            return {
                _literal_name(name): _literal(element)
                for name, element in zip(names, values, strict=True)
            }
        case ast.Call(func=ast.Name(), args=[], keywords=fields):
            arguments = {field.arg or "": _literal(field.value) for field in fields}
            return {name: value for name, value in arguments.items() if value is not None}
        case _:
            raise _NotLiteral


def _literal_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _NotLiteral
