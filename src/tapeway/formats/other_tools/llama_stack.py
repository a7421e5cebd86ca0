"""Recordings of llama-stack's tests, read only: a JSON file with one call of a client library.

The file holds arguments and objects of the library, and nothing from the wire. tapeway rebuilds the call of the API.
"""

from collections.abc import Iterator

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.messages import Headers
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    EVENTS_TYPE,
    JSON_TYPE,
    CallReader,
    HttpCall,
    event,
    headers_in,
    text_bytes,
)

_ROOT = ("test_id", "request", "response", "id_normalization_mapping")
_REQUEST = (
    *("method", "url", "headers", "body", "payload", "endpoint", "model", "test_id"),
    "provider_metadata",
)
_RESPONSE = (
    *("body", "is_streaming", "status", "is_exception", "exception_data", "exception_message"),
    "headers",
)
_NOT_SENT = ("extra_headers", "extra_query", "extra_body", "timeout")
_LINES_TYPE: Headers = ((b"Content-Type", b"application/x-ndjson"),)
_GET = ("/v1/models", "/v1/openai/v1/models", "/api/tags", "/api/ps")
REBUILT = "is made of the objects that a client library returned: headers, order and spacing are tapeway's"
NO_CALL = "is a call of a tool or of a library, and no HTTP call"
NO_ERROR = "holds an exception that no response of a service caused"


def recognises(value: Json) -> bool:
    """Whether a document looks like a recording of llama-stack."""
    match value:
        case {"request": {}, "response": {"body": _, "is_streaming": _}, **rest}:
            return "kind" not in rest
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    calls = CallReader()
    request, response = root.object("request"), root.object("response")
    if not request.text("url").lower().startswith(("http://", "https://")):
        calls.leave_out((), NO_CALL)
    elif (answer := _answer(request, response)) is None:
        calls.leave_out((), NO_ERROR)
    else:
        _add(root, request, answer, calls)
    return calls.cassette(fresh, "last")


_Answer = tuple[int, Headers, tuple[bytes, ...]]


def _add(root: Fields, request: Fields, answer: _Answer, calls: CallReader) -> None:
    calls.note_unknown(root, _ROOT)
    calls.note_unknown(request, _REQUEST)
    calls.note_unknown(root.object("response"), _RESPONSE)
    if mapping := root.object("id_normalization_mapping").values:
        calls.note(("id_normalization_mapping",), f"{len(mapping)} ids are left as recorded")
    status, headers, chunks = answer
    body = _request_body(request)
    test = root.text("test_id") or request.text("test_id")
    call = HttpCall(
        method="POST" if body else "GET",
        url=_url(request),
        request_headers=headers_in(request) + (JSON_TYPE if body else ()),
        request_body=body,
        status=status,
        headers=headers,
        chunks=chunks,
        metadata={"test_id": test} if test else {},
    )
    calls.add((), call)
    calls.note((), REBUILT)


def _url(request: Fields) -> str:
    """The URL of the call: the file repeats `/v1`, the end of the base and the beginning of the path."""
    return request.text("url").replace("/v1/v1/", "/v1/", 1)


def _request_body(request: Fields) -> bytes:
    """The JSON of the arguments; none for a list of models."""
    if request.text("endpoint") in _GET:
        return b""
    given = request.object("payload" if "payload" in request else "body").values
    sent = {name: value for name, value in given.items() if name not in _NOT_SENT}
    extra = given.get("extra_body")
    return dump({**sent, **(extra if isinstance(extra, dict) else {})})


def _answer(request: Fields, response: Fields) -> _Answer | None:
    if response.values.get("is_exception") is True:
        return _error(response.object("exception_data"))
    status = response.integer("status", low=0, high=999) if "status" in response else 200
    body = response.values.get("body")
    if response.values.get("is_streaming") is True and isinstance(body, list):
        return _stream(request, body, status)
    if isinstance(body, list):
        return status, JSON_TYPE, (dump({"object": "list", "data": [*map(_data, body)]}),)
    if isinstance(body, str):
        return status, ((b"Content-Type", b"text/plain; charset=utf-8"),), (text_bytes(body),)
    return status, JSON_TYPE, (dump(_data(body)),)


def _error(data: Fields) -> _Answer | None:
    status = data.values.get("status_code")
    if not isinstance(status, int):
        return None
    body = data.values.get("body")
    given: Json = body if body is not None else {"message": data.text("message")}
    whole = given if isinstance(given, dict) and "error" in given else {"error": given}
    return status, JSON_TYPE, (dump(whole),)


def _stream(request: Fields, chunks: list[Json], status: int) -> _Answer:
    if any(isinstance(chunk, str) for chunk in chunks):
        return status, EVENTS_TYPE, tuple(_events_of_lines(chunks))
    endpoint = request.text("endpoint") or request.text("url")
    if "/api/" in endpoint:
        return status, _LINES_TYPE, tuple([dump(_data(chunk)) + b"\n" for chunk in chunks])
    if "completions" in endpoint:
        done = [event(_data(chunk)) for chunk in chunks]
        return status, EVENTS_TYPE, (*done, b"data: [DONE]\n\n")
    return status, EVENTS_TYPE, tuple([_typed_event(_data(chunk)) for chunk in chunks])


def _typed_event(data: Json) -> bytes:
    kind = data.get("type") if isinstance(data, dict) else None
    return (f"event: {kind}\n".encode() if isinstance(kind, str) else b"") + event(data)


def _events_of_lines(lines: list[Json]) -> Iterator[bytes]:
    """The events with these lines."""
    event_lines: list[str] = []
    for line in lines:
        event_lines.append(str(line).rstrip("\n"))
        if not event_lines[-1]:
            yield text_bytes("\n".join([*event_lines, ""]))
            event_lines = []
    if event_lines:
        yield text_bytes("\n".join([*event_lines, "", ""]))


def _data(value: Json) -> Json:
    """The value of an object, without its type."""
    match value:
        case {"__type__": _, "__data__": data}:
            return data
        case _:
            return value
