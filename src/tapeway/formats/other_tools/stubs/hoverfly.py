"""Hoverfly's simulations, read only: versions 1 to 5, `{"data": {"pairs": […]}, "meta": {…}}`.

A pair describes a set of requests, a recording has one. Pairs that do not determine the request are
left out and reported. Hoverfly answers a request with the first pair that fits.
"""

from collections.abc import Iterator
from urllib.parse import quote, quote_plus, urlencode

from tapeway.core.http.headers import find_header
from tapeway.core.http.location import origin_at
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.matching.key import request_key
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    JSON_TYPE,
    CallReader,
    HttpCall,
    header_bytes,
    headers_in,
    text_bytes,
)

_EXACT = ("exact", "exactMatch")
_JSON_MATCHERS = ("json", "jsonMatch")
_XML_MATCHERS = ("xml", "xmlMatch")
_FORM_TYPE: Headers = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
_XML_TYPE: Headers = ((b"Content-Type", b"application/xml"),)
_PAIR = ("request", "response", "labels")
_RESPONSE = (
    *("status", "body", "encodedBody", "headers", "templated", "fixedDelay"),
    *("bodyFile", "transitionsState"),
)
_REQUEST = (
    *("path", "method", "destination", "scheme", "query", "deprecatedQuery", "body", "headers"),
    *("headersWithMatchers", "queriesWithMatchers", "requestType", "formData", "requiresState"),
)
STATES = "has states: equal requests are answered in the file's order, whatever else is requested"
NARROWED = "is not compared by Hoverfly; here {} is taken"


class _UnusablePair(Exception):
    """A pair that no recording can express; the message says why."""


def recognises(value: Json) -> bool:
    """Whether a document looks like a simulation."""
    match value:
        case {"data": {"pairs": [*_]}, "meta": {}}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    data = Fields.of(value, ()).object("data")
    calls = CallReader()
    stateless: dict[bytes, int] = {}
    for position, fields in enumerate(data.objects("pairs")):
        fields.require("request", "response")
        try:
            call = _call(fields, calls)
        except _UnusablePair as why:
            calls.leave_out(fields.at, str(why))
            continue
        before = len(calls.found)
        calls.add(fields.at, call)
        if len(calls.found) > before:
            _leave_out_unreachable(fields, position, calls, stateless)
    calls.note_unknown(data, ("pairs", "globalActions"))
    actions = data.object("globalActions")
    calls.note_unknown(actions, ())
    return calls.cassette(fresh, "last")


def _leave_out_unreachable(
    fields: Fields, position: int, calls: CallReader, stateless: dict[bytes, int]
) -> None:
    recording = calls.found[-1]
    if fields.object("request").object("requiresState").values or not isinstance(
        recording, Interaction
    ):
        return
    first = stateless.setdefault(request_key(recording.request), position)
    if first != position:
        calls.found.pop()
        calls.leave_out(fields.at, f"data.pairs[{first}] always matches first")


def _call(fields: Fields, calls: CallReader) -> HttpCall:
    request, response = fields.object("request"), fields.object("response")
    if response.values.get("templated") is True:
        raise _UnusablePair("its answer is a template, which Hoverfly fills for each request")
    if "bodyFile" in response and not response.text("body"):
        raise _UnusablePair(f"its answer is in the file '{response.text('bodyFile')}'")
    calls.note_unknown(fields, _PAIR)
    calls.note_unknown(request, _REQUEST)
    calls.note_unknown(response, _RESPONSE)
    if request.object("requiresState").values:
        calls.note((*request.at, "requiresState"), STATES)
    method = _exact(request, "method")
    if method is None:
        raise _UnusablePair("takes any method")
    added, body = _request_body(request, method, calls)
    asked = header_bytes(_request_headers(request, calls))
    if find_header(asked, b"content-type"):
        added = ()
    delay = response.number("fixedDelay")
    return HttpCall(
        method=method.upper(),
        url=_url(request, calls),
        request_headers=asked + added,
        request_body=body,
        status=response.integer("status", low=0, high=999) if "status" in response else 200,
        headers=headers_in(response),
        chunks=(_response_body(response),),
        at_ms=delay,
        latency_ms=delay,
    )


def _response_body(response: Fields) -> bytes:
    if response.values.get("encodedBody") is True:
        return response.base64("body")
    return text_bytes(response.text("body"))


def _url(request: Fields, calls: CallReader) -> str:
    path = _exact(request, "path")
    if path is None:
        raise _UnusablePair("takes any path")
    target = quote(path, safe="/?&=%:@!$'()*+,;~-._[]")
    if query := _query(request, calls):
        target += f"?{query}"
    host, scheme = _exact(request, "destination"), _exact(request, "scheme")
    if not host:
        return target
    if not scheme:
        calls.note((*request.at, "scheme"), NARROWED.format("https"))
    return origin_at(scheme or "https", host) + target


def _query(request: Fields, calls: CallReader) -> str:
    written = request.values.get("query")
    if isinstance(written, str):
        return written
    for name in ("deprecatedQuery", "query"):
        if (query := _exact(request, name, of_parameters=True)) is not None:
            return query
    pairs = []
    for name in ("query", "queriesWithMatchers"):
        parameters = request.object(name) if isinstance(request.values.get(name), dict) else None
        for parameter in parameters.values if parameters else ():
            if parameter not in _EXACT:
                values = _exact_values(parameters, parameter)
                pairs += [f"{quote_plus(parameter)}={quote_plus(value)}" for value in values]
    if "query" not in request and not pairs:
        calls.note((*request.at, "query"), NARROWED.format("a request without one"))
    return "&".join(pairs)


def _exact_values(parameters: Fields | None, name: str) -> list[str]:
    """The values of a parameter; Hoverfly joins several with `;`."""
    value = parameters and _matched(parameters, name, (*_EXACT, "array"))
    if value is None:
        raise _UnusablePair(f"matches the parameter '{name}' by a pattern")
    return [str(item) for item in value] if isinstance(value, list) else str(value).split(";")


def _exact(request: Fields, name: str, *, of_parameters: bool = False) -> str | None:
    """The text that a field must be, None for any."""
    value = request.values.get(name)
    if value is None or value == [] or value == {}:
        return None
    if (
        isinstance(value, dict)
        and of_parameters
        and not any(matcher in value for matcher in _EXACT)
    ):
        return None
    matched = _matched(request, name, _EXACT)
    if not isinstance(matched, str):
        raise _UnusablePair(f"matches '{name}' by a pattern")
    return matched


def _matched(request: Fields, name: str, accepted: tuple[str, ...]) -> Json:
    """The value of a field's only matcher if accepted, else None."""
    match request.values.get(name):
        case str(text):  # of version 1, and headers of versions 2 to 4
            return text if accepted[:1] == _EXACT[:1] else None
        case [{"matcher": str(matcher), "value": value}]:
            return value if matcher in accepted else None
        case [str(text)]:
            return text if accepted[:1] == _EXACT[:1] else None
        case dict(matchers):
            present = [matched for matched in matchers.values() if matched is not None]
            values = [matchers[kind] for kind in accepted if matchers.get(kind) is not None]
            return values[0] if len(present) == len(values) == 1 else None
        case _:
            return None


def _request_headers(request: Fields, calls: CallReader) -> Iterator[tuple[str, str]]:
    for name in ("headers", "headersWithMatchers"):
        headers = request.object(name)
        for header, written in headers.values.items():
            if isinstance(written, list) and all(isinstance(value, str) for value in written):
                yield from [(header, str(value)) for value in written]
            elif isinstance(value := _matched(headers, header, _EXACT), str):
                yield header, value
            else:
                calls.note((*headers.at, header), "is a pattern, and not compared")


def _request_body(request: Fields, method: str, calls: CallReader) -> tuple[Headers, bytes]:
    """The headers for the body's type, and the body."""
    if request.values.get("body") in (None, [], {}, ""):
        if method.upper() in ("POST", "PUT", "PATCH") and "body" not in request:
            calls.note((*request.at, "body"), NARROWED.format("a request without one"))
        return (), b""
    if isinstance(text := _matched(request, "body", _EXACT), str):
        return (), text_bytes(text)
    if (value := _matched(request, "body", _JSON_MATCHERS)) is not None:
        return JSON_TYPE, _json(value)
    if isinstance(text := _matched(request, "body", _XML_MATCHERS), str):
        return _XML_TYPE, text_bytes(text)
    if isinstance(form := _matched(request, "body", ("form",)), dict):
        fields = Fields(form, (*request.at, "body"))
        pairs = [(name, value) for name in form for value in _exact_values(fields, name)]
        return _FORM_TYPE, urlencode(pairs).encode()
    raise _UnusablePair("matches bodies by a pattern")


def _json(value: Json) -> bytes:
    if not isinstance(value, str):
        return dump(value)
    try:
        return dump(parse(value))
    except NotJson as exc:
        raise _UnusablePair(f"wants a body in JSON and names none: {exc}") from None
