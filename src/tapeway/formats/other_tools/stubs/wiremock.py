"""WireMock's stub mappings, read only: one mapping, a list of them, or `{"mappings": […]}`.

A mapping describes a set of requests, a recording has one. Mappings that do not determine the
request are left out and reported. WireMock answers a request with the mapping of the highest
priority, among equal ones with the last; only the states of a scenario answer in turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, quote_plus

from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, NotJson, Pointer, dump, parse
from tapeway.core.matching.key import request_key
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Failure, Headers
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.fields import Fields
from tapeway.formats.other_tools.reading.http_call import (
    JSON_TYPE,
    CallReader,
    HttpCall,
    header_bytes,
    headers_in,
    with_match_key,
)

_PRIORITY = 5
"""The default of a mapping; 1 is the highest."""

STARTED = "Started"
"""The first state of every scenario."""

LAST_STATE_REPEATS = (
    "starts over after its last state, and another does not: here its last answer is repeated"
)

_RESET_FAULTS = ("EMPTY_RESPONSE", "CONNECTION_RESET_BY_PEER")
_URLS = ("url", "urlPath")
_URL_PATTERNS = ("urlPattern", "urlPathPattern", "urlPathTemplate")
_UNSUPPORTED_MATCHERS = ("formParameters", "multipartPatterns", "customMatcher", "pathParameters")
_IGNORED_MATCHERS = (
    "headers",
    "cookies",
    "basicAuthCredentials",
    "host",
    "port",
    "scheme",
    "clientIp",
)
_METHODS_WITH_BODY = ("POST", "PUT", "PATCH")
_IGNORED_BEHAVIOURS = (
    "delayDistribution",
    "chunkedDribbleDelay",
    "transformers",
    "transformerParameters",
)


class _UnusableStub(Exception):
    """A mapping that no recording can express; the message says why."""


@dataclass(frozen=True, slots=True)
class _Stub:
    at: Pointer
    priority: int
    scenario: str
    state: str
    following: str
    call: Interaction


def recognises(value: Json) -> bool:
    """Whether a document looks like mappings."""
    match value:
        case {"mappings": [{"request": {}}, *_]} | [{"request": {}, "response": {}}, *_]:
            return True
        case {"request": {}, "response": {}, **rest}:
            return "kind" not in rest
        case {"mappings": [], **rest}:
            return rest.keys() <= {"meta"}
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    calls = CallReader()
    stubs: list[_Stub] = []
    for fields in _mappings(value):
        try:
            stubs.append(_stub(fields))
        except _UnusableStub as why:
            calls.leave_out(fields.at, str(why))
            continue
        calls.losses += _losses(fields)
    served = _ever_served(stubs)
    answering = {id(stub) for stub in served}
    for stub in stubs:
        if id(stub) not in answering:
            calls.leave_out(stub.at, "another mapping of the same request always matches first")
    depths = {name: _depths(name, stubs) for name in {stub.scenario for stub in served}}
    served = _in_state_order(served, depths)
    calls.found += [
        with_match_key(replace(stub.call, index=index)) for index, stub in enumerate(served)
    ]
    starting_over = [name for name in depths if name and _starts_over(name, served, depths[name])]
    cycles = bool(starting_over) and len(starting_over) == len([name for name in depths if name])
    for name in sorted(starting_over) if not cycles else ():
        calls.note((), f"scenario '{name}' {LAST_STATE_REPEATS}")
    return calls.cassette(fresh, "cycle" if cycles else "last")


def _in_state_order(served: list[_Stub], depths: Mapping[str, Mapping[str, int]]) -> list[_Stub]:
    """The states of a scenario in the order they follow each other, all else as in the file."""
    first = {stub.scenario: at for at, stub in reversed(list(enumerate(served)))}
    positions = [
        (first[stub.scenario], depths[stub.scenario].get(stub.state, len(served)))
        if stub.scenario
        else (at, 0)
        for at, stub in enumerate(served)
    ]
    return [served[at] for at in sorted(range(len(served)), key=positions.__getitem__)]


def _depths(scenario: str, stubs: Sequence[_Stub]) -> dict[str, int]:
    """The number of steps from the first state of a scenario to each of its states."""
    steps, level = {STARTED: 0}, [STARTED]
    while level:
        level = [
            stub.following
            for stub in stubs
            if stub.scenario == scenario and stub.state in level and stub.following not in steps
        ]
        steps |= dict.fromkeys(level, max(steps.values()) + 1)
    return steps


def _starts_over(scenario: str, served: Sequence[_Stub], depths: Mapping[str, int]) -> bool:
    """Whether its last state leads back to its first."""
    own = [stub for stub in served if stub.scenario == scenario]
    last = max(own, key=lambda stub: depths.get(stub.state, -1))
    return last.following == STARTED and len(own) > 1


def _mappings(value: Json) -> Iterator[Fields]:
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield Fields.of(item, (position,))
    elif isinstance(value, dict) and "mappings" in value:
        yield from Fields(value, ()).objects("mappings")
    else:
        yield Fields.of(value, ())


def _ever_served(stubs: list[_Stub]) -> list[_Stub]:
    """The mappings that WireMock ever answers with, in their order."""
    best: dict[tuple[bytes, str, str], _Stub] = {}
    for stub in stubs:
        key = (request_key(stub.call.request), stub.scenario, stub.state)
        if key not in best or stub.priority <= best[key].priority:
            best[key] = stub
    served = {id(stub) for stub in best.values()}
    return [stub for stub in stubs if id(stub) in served]


def _stub(fields: Fields) -> _Stub:
    fields.require("request", "response")
    priority = _PRIORITY
    if "priority" in fields:
        priority = fields.integer("priority", low=-(2**31), high=2**31)
    return _Stub(
        fields.at,
        priority,
        fields.text("scenarioName"),
        fields.text("requiredScenarioState") or STARTED,
        fields.text("newScenarioState"),
        _call(fields),
    )


def _call(fields: Fields) -> Interaction:
    request, response = fields.object("request"), fields.object("response")
    headers, body = _request_body(request)
    if "proxyBaseUrl" in response:
        raise _UnusableStub("is answered by another server")
    if "bodyFileName" in response:
        raise _UnusableStub(f"its answer is in the file '{response.text('bodyFileName')}'")
    fault = response.text("fault")
    if fault and fault not in _RESET_FAULTS:
        raise _UnusableStub(f"answers with the fault '{fault}'")
    status = response.integer("status", low=0, high=999) if "status" in response else 200
    if not 200 <= status < 600:
        raise _UnusableStub(f"has the status {status}, which is no answer by itself")
    content, added = _content(response)
    named = headers_in(response)
    delay = response.number("fixedDelayMilliseconds")
    interaction = HttpCall(
        method=_method(request),
        url=_url(request),
        request_headers=headers,
        request_body=body,
        status=status,
        reason=response.text("statusMessage"),
        headers=named if find_header(named, b"content-type") else (*added, *named),
        chunks=(content,),
        at_ms=delay,
        latency_ms=delay,
    ).interaction(0, fields.at)
    return replace(interaction, failure=Failure("reset", fault)) if fault else interaction


def _method(request: Fields) -> str:
    method = request.text("method", "ANY")
    if method == "ANY":
        raise _UnusableStub("takes any method")
    return method


def _url(request: Fields) -> str:
    for name in (*_URL_PATTERNS, *_UNSUPPORTED_MATCHERS):
        if name in request:
            raise _UnusableStub(f"matches requests by '{name}'")
    given = [name for name in _URLS if name in request]
    if not given:
        raise _UnusableStub("takes any path")
    url = request.text(given[0])
    pairs = [
        f"{quote_plus(name)}={quote_plus(value)}"
        for name, value in _equal_to(request.object("queryParameters"))
    ]
    mark = "&" if "?" in url else "?"
    return quote(url, safe="/?&=%:@!$'()*+,;~-._#[]") + (mark + "&".join(pairs) if pairs else "")


def _equal_to(matchers: Fields) -> Iterator[tuple[str, str]]:
    for name in matchers.values:
        matcher = matchers.object(name)
        if set(matcher.values) - {"caseInsensitive"} != {"equalTo"}:
            raise _UnusableStub(f"matches '{name}' by something else than 'equalTo'")
        yield name, matcher.text("equalTo")


def _request_body(request: Fields) -> tuple[Headers, bytes]:
    """The headers and the body that a request must have."""
    bodies: list[tuple[Headers, bytes]] = []
    for pattern in request.objects("bodyPatterns"):
        match [name for name in pattern.values if name not in _LENIENT_MATCHING]:
            case ["equalTo"]:
                bodies.append(((), pattern.text("equalTo").encode()))
            case ["equalToJson"]:
                bodies.append((JSON_TYPE, _json(pattern)))
            case ["binaryEqualTo"]:
                bodies.append(((), pattern.base64("binaryEqualTo")))
            case names:
                raise _UnusableStub(
                    f"matches bodies by {' and '.join(map(repr, names)) or 'nothing'}"
                )
        if any(pattern.flag(name) for name in _LENIENT_MATCHING if name in pattern):
            raise _UnusableStub("matches bodies that are not quite equal")
    if len(bodies) > 1:
        raise _UnusableStub("matches bodies by several patterns")
    headers, body = bodies[0] if bodies else ((), b"")
    content_type = find_header(header_bytes(_required_headers(request)), b"content-type")
    return (((b"Content-Type", content_type),) if content_type else headers), body


_LENIENT_MATCHING = ("ignoreArrayOrder", "ignoreExtraElements", "caseInsensitive")


def _required_headers(request: Fields) -> Iterator[tuple[str, str]]:
    headers = request.object("headers")
    for name in headers.values:
        matcher = headers.object(name)
        if isinstance(value := matcher.values.get("equalTo"), str):
            yield name, value


def _json(pattern: Fields) -> bytes:
    value = pattern.values["equalToJson"]
    if isinstance(value, str):
        try:
            value = parse(value)
        except NotJson as exc:
            raise pattern.fault("equalToJson", f"is no JSON: {exc}") from None
    if "${json-unit." in dump(value).decode():
        raise _UnusableStub("matches bodies by placeholders")
    return dump(value)


def _content(response: Fields) -> tuple[bytes, Headers]:
    if "jsonBody" in response:
        return dump(response.values["jsonBody"]), JSON_TYPE
    if "base64Body" in response:
        return response.base64("base64Body"), ()
    return response.text("body").encode(), ()


def _losses(fields: Fields) -> Iterator[Loss]:
    """The losses of a mapping that becomes a recording."""
    request, response = fields.object("request"), fields.object("response")
    for name in _IGNORED_MATCHERS:
        wanted = request.values.get(name)
        rest = (
            set(wanted) - {"Content-Type", "content-type"}
            if name == "headers" and isinstance(wanted, Mapping)
            else wanted
        )
        if rest:
            what = "is not asked for: every request that is otherwise equal is answered"
            yield Loss((*request.at, name), what)
    if request.text("method") in _METHODS_WITH_BODY and not request.list("bodyPatterns"):
        yield Loss(request.at, "takes any body: only requests without one are answered")
    if "urlPath" in request and "queryParameters" not in request:
        yield Loss(request.at, "takes any query: only requests without one are answered")
    for name in _IGNORED_BEHAVIOURS:
        if response.values.get(name):
            yield Loss(
                (*response.at, name), "is not kept: the answer is always the one in the mapping"
            )
    for name in ("postServeActions", "serveEventListeners", "metadata"):
        if fields.values.get(name):
            yield Loss((*fields.at, name), "is not kept")
    if "scenarioName" in fields:
        what = "has states: equal requests are answered in their order, whatever else is asked"
        yield Loss((*fields.at, "scenarioName"), what)
