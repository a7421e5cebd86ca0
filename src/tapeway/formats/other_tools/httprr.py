"""Traces of Go's httprr, read only: `httprr trace v1`, then requests and responses as on the wire."""

import re

from tapeway.core.http.headers import find_header
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats.conversion_loss import ImportedCassette, Loss
from tapeway.formats.errors import FormatFault, without_bom
from tapeway.formats.other_tools.reading.http_call import CallReader, HttpCall
from tapeway.formats.other_tools.reading.http_messages import HttpMessage, read_message

BEGINNING = re.compile(rb"httprr trace v1\r?\n")
_LENGTHS = re.compile(rb"([0-9]+) ([0-9]+)\r?\n")


def load(text: bytes, fresh: CassetteHead) -> ImportedCassette:
    """The cassette. Raises FormatFault with the line."""
    cassette, losses = _read(without_bom(text), fresh)
    return ImportedCassette(cassette, tuple(losses))


def _read(text: bytes, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    calls = CallReader()
    begun = BEGINNING.match(text)
    if begun is None:
        raise FormatFault("does not begin with 'httprr trace v1'", line=1)
    at, position = begun.end(), 0
    while at < len(text):
        lengths = _LENGTHS.match(text, at)
        if lengths is None:
            line = text.count(b"\n", 0, at) + 1
            raise FormatFault("the lengths of a request and its response must be here", line=line)
        middle = lengths.end() + int(lengths[1])
        end = middle + int(lengths[2])
        if end > len(text):
            calls.leave_out(("records", position), "is cut off: the file ends before its response")
            break
        _read_call(text[lengths.end() : middle], text[middle:end], position, calls)
        at, position = end, position + 1
    return calls.cassette(fresh, "last")


def _read_call(asked: bytes, answered: bytes, position: int, calls: CallReader) -> None:
    at = ("records", position)
    request, response = read_message(asked), read_message(answered)
    if request is None or response is None or not response.start[1].isdigit():
        calls.leave_out(at, "is no request with its response")
        return
    call = HttpCall(
        method=request.start[0].decode("latin-1"),
        url=_url(request),
        request_headers=request.headers,
        request_body=request.body,
        status=int(response.start[1]),
        reason=response.start[2].decode("utf-8", "surrogateescape"),
        version=response.start[0].decode("latin-1"),
        headers=response.headers,
        chunks=response.chunks,
    )
    calls.add(at, call)


def _url(request: HttpMessage) -> str:
    target = request.start[1].decode("utf-8", "surrogateescape")
    host = find_header(request.headers, b"host")
    return f"https://{host.decode('latin-1')}{target}" if target[:1] == "/" and host else target
