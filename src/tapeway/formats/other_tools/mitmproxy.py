"""Flows of mitmproxy since 0.11, read only. mitmproxy is not needed.

Bodies have their content coding. A file of flows has no rule for repeated requests: the order of the
file decides.
"""

import re

from tapeway.core.http.location import origin_at
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.messages import Headers
from tapeway.formats.conversion_loss import ImportedCassette
from tapeway.formats.errors import FormatFault
from tapeway.formats.other_tools.reading.http_call import CallReader, HttpCall
from tapeway.formats.other_tools.reading.tnetstrings import Tnet, read_value

BEGINNING = re.compile(rb"[0-9]{2,12}:[0-9]{1,9}:[a-z_]+[,;]")
NO_TRAILERS = "its trailers are not kept"
_Flow = dict[str, Tnet]


def load(text: bytes, fresh: CassetteHead) -> ImportedCassette:
    """The cassette. Raises FormatFault for a file without a flow that can be read."""
    calls = CallReader()
    at, position = 0, 0
    while at < len(text):
        try:
            flow, at = read_value(text, at)
        except FormatFault as fault:
            if not position:
                raise FormatFault(
                    f"is no file of mitmproxy: the first flow {fault.reason}"
                ) from None
            calls.leave_out(("flows", position), f"{fault.reason}, and so may be all after it")
            break
        if not isinstance(flow, dict):
            raise FormatFault(
                "is no file of mitmproxy: a flow is not an object", ("flows", position)
            )
        _read_flow(flow, position, calls)
        position += 1
    cassette, losses = calls.cassette(fresh, "last")
    return ImportedCassette(cassette, tuple(losses))


def _read_flow(flow: _Flow, position: int, calls: CallReader) -> None:
    at = ("flows", position)
    if why := _unusable(flow):
        calls.leave_out(at, why)
        return
    request, response = _part(flow, "request"), _part(flow, "response")
    if request.get("trailers") or response.get("trailers"):
        calls.note(at, NO_TRAILERS)
    began = _number(request, "timestamp_start")
    answered = _number(response, "timestamp_start")
    ended = _number(response, "timestamp_end") or answered
    call = HttpCall(
        method=_text(request, "method"),
        url=_url(request),
        request_headers=_headers(request),
        request_body=_content(request) or b"",
        status=int(_number(response, "status_code") or _number(response, "code")),
        reason=_text(response, "reason") or _text(response, "msg"),
        version=_text(response, "http_version"),
        headers=_headers(response),
        chunks=(_content(response) or b"",),
        at_ms=max(0.0, (answered - began) * 1000) if began and answered else 0.0,
        latency_ms=max(0.0, (ended - began) * 1000) if began and ended else 0.0,
    )
    calls.add(at, call)


def _unusable(flow: _Flow) -> str:
    kind = _text(flow, "type") or "http"
    if kind != "http":
        return f"is a flow of kind '{kind}', and a cassette holds HTTP calls"
    if flow.get("websocket") or "messages" in flow:
        return "is a WebSocket, whose messages this conversion does not read"
    if not isinstance(flow.get("request"), dict):
        return "has no request"
    if not isinstance(flow.get("response"), dict):
        reason = _text(_part(flow, "error"), "msg")
        return f"was not answered ({reason})" if reason else "was not answered"
    if _content(_part(flow, "response")) is None:
        return "its answer's body is not in the file: mitmproxy streamed it"
    if _content(_part(flow, "request")) is None:
        return "its request's body is not in the file: mitmproxy streamed it"
    return ""


def _url(request: _Flow) -> str:
    scheme, path = _text(request, "scheme") or "http", _text(request, "path")
    host, port = _text(request, "host"), int(_number(request, "port")) or None
    return path if "://" in path else origin_at(scheme, host, port) + path


def _headers(message: _Flow) -> Headers:
    pairs = []
    fields = message.get("headers")
    for pair in fields if isinstance(fields, list) else []:
        match pair:
            case [name, value]:
                pairs.append((_bytes(name), _bytes(value)))
            case _:
                raise FormatFault("has a header that is no pair of name and value")
    return tuple([pair for pair in pairs if pair[0][:1] != b":"])


def _content(message: _Flow) -> bytes | None:
    """The body, None where it is not in the file."""
    content = message.get("content", message.get("body", b""))
    return None if content is None else _bytes(content)


def _part(flow: _Flow, name: str) -> _Flow:
    member = flow.get(name)
    return member if isinstance(member, dict) else {}


def _text(part: _Flow, name: str) -> str:
    member = part.get(name)
    return (
        member.decode("utf-8", "surrogateescape")
        if isinstance(member, bytes)
        else str(member or "")
    )


def _bytes(value: Tnet) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _number(part: _Flow, name: str) -> float:
    member = part.get(name)
    return float(member) if isinstance(member, int | float) else 0.0
