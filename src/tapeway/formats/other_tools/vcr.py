"""VCR.py's cassettes, version 1, in JSON and in YAML, with equal documents.

A body that is not UTF-8 is `!!binary` in YAML, and a string with lone surrogates in the document.
VCR.py replays each recording once.

Some projects give VCR.py a serializer that writes the value of a JSON body, in `parsed_body`, and
hands the client the text that `json.dumps` makes of the value (pydantic-ai,
tests/json_body_serializer.py). VCR.py itself writes what aiohttp was given as `json=` or `data=`,
before that became a body. LangChain's tests have the requests and the responses in two lists.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from tapeway.core import json_text, loose_json
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers
from tapeway.core.text import is_utf8
from tapeway.formats.conversion_loss import Loss, unknown_fields
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    JSON_TYPE,
    CallReader,
    HttpCall,
    headers_in,
    text_bytes,
    with_match_key,
    without_codings,
)

VERSION = 1
_ROOT = ("version", "interactions")
_LANGCHAIN = ("requests", "responses")
_INTERACTION = ("request", "response")
_PARSED_BODY = "parsed_body"
_REQUEST = ("method", "uri", "headers", "body", _PARSED_BODY)
# `content`, `status_code` and `http_version` are how VCR.py once stored what httpx had got.
_RESPONSE_BODY = ("body", "content", _PARSED_BODY)
_RESPONSE = ("status", "status_code", "http_version", "headers", *_RESPONSE_BODY)
_FILE = "state"
"""The field with the bytes of a file that was sent (`_io.BytesIO`)."""
_CONTENT = ("string", "base64_string", _FILE)
_FORM_TYPE = b"application/x-www-form-urlencoded"
_TO_CHANGE = "give the request a Content-Type to change that"
JSON_TAKEN = f"is a value and no text: taken for the JSON that was sent; {_TO_CHANGE}"
FORM_TAKEN = f"is a value and no text: taken for the form that was sent; {_TO_CHANGE}"
_MAY_BE_BYTES = frozenset(
    {
        *(("request", "body"), ("request", "headers")),
        *(("response", "body"), ("response", "content"), ("response", "headers")),
    }
)


def recognises(value: Json) -> bool:
    """Whether a document looks like one of its files."""
    match value:
        case {"interactions": [{"request": {"uri": _}}, *_]}:
            return True
        case {"requests": [{"uri": _}, *_], "responses": [*_]}:
            return True
        case {"version": 1, "interactions": []}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    value = _in_pairs(value)
    root = Fields.of(value, ())
    root.require("interactions")
    _refuse_bytes(value, ())
    if root.values.get("version", VERSION) != VERSION:
        raise root.fault("version", f"must be {VERSION}, the only one that VCR.py reads")
    calls = CallReader()
    for fields in root.objects("interactions"):
        fields.require("request", "response")
        status, _ = _status(fields.object("response"))
        if not 200 <= status < 600:
            calls.leave_out(fields.at, f"has the status {status}, which is no answer by itself")
            continue
        calls.losses += _unread_fields(fields)
        calls.found.append(_read_interaction(len(calls.found), fields, status))
    calls.note_unknown(root, _ROOT)
    return calls.cassette(fresh, "miss")


def _in_pairs(value: Json) -> Json:
    """LangChain's two lists as one; any other document as it is."""
    match value:
        case {"requests": [*requests], "responses": [*responses]}:
            if len(requests) != len(responses):
                reason = f"must be as many as there are requests: {len(requests)}"
                raise FormatFault(reason, ("responses",))
            pairs = zip(requests, responses, strict=True)
            interactions: list[Json] = [{"request": one, "response": other} for one, other in pairs]
            others = {
                name: member
                for name, member in loose_json.fields(value).items()
                if name not in _LANGCHAIN
            }
            return {**others, "interactions": interactions}
        case _:
            return value


def _read_interaction(index: int, fields: Fields, status: int) -> Interaction:
    request, response = fields.object("request"), fields.object("response")
    request.require("method", "uri")
    if not request.text("uri").startswith(("http://", "https://", "/")):
        raise request.fault("uri", "must be an absolute URL")
    call = HttpCall(
        method=request.text("method"),
        url=request.text("uri"),
        request_headers=_request_headers(request),
        request_body=_body(request, ("body", _PARSED_BODY)),
        status=status,
        reason=_status(response)[1],
        version=response.text("http_version"),
        headers=headers_in(response),
        chunks=(_body(response, _RESPONSE_BODY),),
    )
    return with_match_key(without_codings(call.interaction(index, fields.at), decoded=False))


def _refuse_bytes(value: Json, at: Pointer) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_if_bytes(name, at)
            _refuse_bytes(inner, (*at, name))
    elif at[2:4] in _MAY_BE_BYTES:
        return
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_bytes(inner, (*at, index))
    elif isinstance(value, str):
        _refuse_if_bytes(value, at)


def _refuse_if_bytes(text: str, at: Pointer) -> None:
    if not is_utf8(text):
        raise FormatFault("must be text: only bodies and header values may be bytes", at)


def _status(response: Fields) -> tuple[int, str]:
    if "status_code" in response:  # as VCR.py once stored what httpx had got
        return response.integer("status_code", low=0, high=999), ""
    response.require("status")
    status = response.object("status")
    return status.integer("code", low=0, high=999), status.text("message")


def _unread_fields(fields: Fields) -> Iterator[Loss]:
    """A loss for each field of an interaction that is not understood or repeats another field."""
    yield from unknown_fields(fields, _INTERACTION)
    request, response = fields.object("request"), fields.object("response")
    # aiohttp's answers once had their URL, which differs from the request's after a redirection.
    own_url = ("url",) if response.values.get("url") == request.values.get("uri") else ()
    yield from unknown_fields(request, _REQUEST)
    yield from unknown_fields(response, (*_RESPONSE, *own_url))
    for side in (request, response):
        for name in ("body", "content"):
            if isinstance(side.values.get(name), dict) and not _is_value(side):
                yield from unknown_fields(side.object(name), _CONTENT)
    if _is_value(request):
        what = FORM_TAKEN if _is_form(request) else JSON_TAKEN
        yield Loss((*request.at, "body"), what)


def _is_value(side: Fields) -> bool:
    """Whether the body is what aiohttp was given for a request, and no text."""
    match side.values:
        case {"uri": _, "body": dict() as given}:
            return bool(given) and not any(name in given for name in _CONTENT)
        case {"uri": _, "body": list()}:
            return True
        case _:
            return False


def _request_headers(request: Fields) -> Headers:
    """The headers, with the Content-Type that aiohttp added for a value."""
    headers = headers_in(request)
    if not _is_value(request) or find_header(headers, b"content-type"):
        return headers
    return headers + (((b"Content-Type", _FORM_TYPE),) if _is_form(request) else JSON_TYPE)


def _is_form(request: Fields) -> bool:
    """Whether the value was sent as a form: the header says so, or only a form is written so."""
    headers = headers_in(request)
    if kind := find_header(headers, b"content-type"):
        return kind.lower().startswith(_FORM_TYPE)
    match request.values.get("body"):
        case [*pairs]:
            return bool(pairs) and all(_is_pair(pair) for pair in pairs)
        # RFC 6749 section 4: a token is asked for with a form.
        case {"grant_type": str(), **rest}:
            return all(isinstance(item, str) for item in rest.values())
        case _:
            return False


def _is_pair(value: Json) -> bool:
    return isinstance(value, list) and [*map(type, value)] == [str, str]


def _value_bytes(fields: Fields, value: Json) -> bytes:
    """The body that aiohttp made of `json=` or `data=`."""
    if not _is_form(fields):
        # As the serializers write the text for the client.
        return json.dumps(json_text.restore_non_finite(value)).encode()
    pairs: list[tuple[str, str]] = []
    for item in (
        value.items() if isinstance(value, dict) else (value if isinstance(value, list) else [])
    ):
        match item:
            case (str(name), str(text)) | [str(name), str(text)]:
                pairs.append((name, text))
            case _:
                raise fields.fault("body", "must be names and texts: the request is a form")
    return urlencode(pairs).encode()


def _body(fields: Fields, names: Sequence[str]) -> bytes:
    """The body from the first of these fields. Raises FormatFault if no field exists.

    VCR.py always writes the field, null for no body: a missing field was not understood.
    """
    present = [name for name in names if name in fields.values]
    if not present:
        reason = f"there is no body: one of {', '.join(names)} must be there, null for an empty one"
        raise FormatFault(reason, fields.at)
    filled = [name for name in present if fields.values[name] not in (None, "", {"string": ""})]
    if len(filled) > 1:
        reason = f"the body is there twice, as '{filled[0]}' and '{filled[1]}': keep one"
        raise fields.fault(filled[1], reason)
    name = (filled or present)[0]
    if name == _PARSED_BODY:
        return json.dumps(json_text.restore_non_finite(fields.values[name])).encode()
    if name == "body" and _is_value(fields):
        return _value_bytes(fields, fields.values[name])
    return _content(fields, name)


def _content(fields: Fields, name: str) -> bytes:
    value = fields.values.get(name)
    if not isinstance(value, dict):
        return text_bytes(fields.text(name))
    inner = fields.object(name)
    if value and not any(member_name in value for member_name in _CONTENT):
        raise fields.fault(name, f"must have one of {', '.join(_CONTENT)}")
    if _FILE in inner:
        return text_bytes(Fields({_FILE: [*inner.list(_FILE), None][0]}, inner.at).text(_FILE))
    return _base64(inner) if "base64_string" in inner else _content(inner, "string")


def _base64(fields: Fields) -> bytes:
    try:
        return base64.b64decode("".join(fields.text("base64_string").split()), validate=True)
    except (binascii.Error, ValueError):
        raise FormatFault("is not valid base64", (*fields.at, "base64_string")) from None
