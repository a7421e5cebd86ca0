"""An HTTP call of another tool, and the equal interaction of a cassette.

Each format reads its fields into calls (`HttpCall`). A `CallReader` makes the cassette.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tapeway.core import loose_json
from tapeway.core.agenttape.key import http_key
from tapeway.core.cassette import cursors
from tapeway.core.http.content_codings import (
    ACCEPT_ENCODING,
    content_coding,
    decode,
    keeps_coding,
    readable_request,
    readable_response,
    without_coding_fields,
)
from tapeway.core.http.headers import end_to_end, find_header
from tapeway.core.json_text import Json, NotJson, Pointer, dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.text import is_utf8
from tapeway.formats.conversion_loss import Loss, unknown_fields
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Fields
from tapeway.formats.native import http_exchange

JSON_TYPE: Headers = ((b"Content-Type", b"application/json"),)
EVENTS_TYPE: Headers = ((b"Content-Type", b"text/event-stream"),)

_ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_BEGINNINGS = {b"gzip": b"\x1f\x8b", b"x-gzip": b"\x1f\x8b", b"zstd": b"\x28\xb5\x2f\xfd"}
_VERSION = re.compile(r"(?:http/)?h?([0-9])(?:\.([0-9]))?", re.IGNORECASE)
# Each delivery has separate metadata, as for responses.
_FRAMING = frozenset({b"host", b"content-length"})


@dataclass(frozen=True, slots=True)
class HttpCall:
    """What nearly every tool records of a call. The URL is absolute, or a path if the host is unknown."""

    method: str
    url: str
    request_headers: Headers = ()
    request_body: bytes = b""
    status: int = 200
    reason: str = ""
    version: str = ""
    headers: Headers = ()
    chunks: tuple[bytes, ...] = ()
    at_ms: float = 0.0
    latency_ms: float = 0.0
    metadata: Mapping[str, Json] = field(default_factory=dict)

    def interaction(self, index: int, at: Pointer) -> Interaction:
        """The interaction, bodies unchanged. Raises FormatFault for what no cassette could hold."""
        base, target = split_url(self.url)
        interaction = Interaction(
            index=index,
            request=Request(
                route="",
                method=self.method,
                target=target,
                headers=without_framing(self.request_headers),
                body=self.request_body,
                base=base,
            ),
            response=Response.of_chunks(
                ResponseHead(
                    self.status,
                    self.reason,
                    self.headers,
                    "chunked" if len(self.chunks) > 1 else "length",
                    http_version(self.version),
                ),
                [(chunk, self.at_ms) for chunk in self.chunks],
            ),
            latency_ms=self.latency_ms,
            metadata=self.metadata,
        )
        try:
            # Encoding checks all that a cassette could not hold.
            return http_exchange.decode(http_exchange.encode(interaction), index, at)
        except FormatFault as fault:
            raise FormatFault(fault.reason, at) from None


class CallReader:
    """The calls of another tool's file, and the losses."""

    def __init__(self) -> None:
        self.found: list[AnyInteraction] = []
        self.losses: list[Loss] = []

    def add(self, at: Pointer, call: HttpCall, *, decoded: bool = False) -> None:
        """Add a call, or leave out a call that no cassette could hold.

        `decoded` says that the tool itself decoded the response and left its Content-Encoding.
        """
        if not 200 <= call.status < 600:
            self.leave_out(at, f"has the status {call.status}, which is no answer by itself")
            return
        if not call.url.lower().startswith(("http://", "https://", "/")):
            self.leave_out(at, f"'{call.url[:80]}' is no URL of an HTTP call")
            return
        try:
            plain = call.interaction(len(self.found), at)
        except FormatFault as fault:
            self.leave_out(at, fault.reason)
            return
        self.found.append(with_match_key(without_codings(plain, decoded=decoded)))

    def leave_out(self, at: Pointer, why: str) -> None:
        """Report an interaction that is not in the cassette."""
        self.losses.append(Loss(at, f"{why}: left out", left_out=True))

    def note(self, at: Pointer, what: str) -> None:
        """Report a loss, or a difference in the cassette."""
        self.losses.append(Loss(at, what))

    def note_unknown(self, fields: Fields, known: Collection[str]) -> None:
        """Report the fields of an object that are lost."""
        self.losses += unknown_fields(fields, known)

    def cassette(self, fresh: CassetteHead, repeats: Repeats) -> tuple[StoredCassette, list[Loss]]:
        """The cassette with the tool's rule for repeated requests, and all losses."""
        head = replace(fresh, meta=cursors.meta_with_repeats(fresh.meta, repeats))
        return StoredCassette(head, tuple(self.found)), self.losses


def json_or_text(value: Json) -> bytes:
    """The body from a text, or from the value of JSON."""
    if value is None:
        return b""
    return text_bytes(value) if isinstance(value, str) else dump(value)


def text_bytes(text: str) -> bytes:
    """The bytes of a text, in which lone surrogates stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def json_value(text: str | bytes) -> Json:
    """The value of a JSON text, None for any other text."""
    try:
        return parse(text)
    except NotJson:
        return None


def event(data: Json) -> bytes:
    """An event of a stream with this value."""
    return b"data: " + dump(data) + b"\n\n"


def split_url(url: str) -> tuple[str, str]:
    """The origin of a URL, empty if it has none, and the path and query."""
    url = url.partition("#")[0]
    origin = _ORIGIN.match(url)
    base = origin[0] if origin else ""
    target = url[len(base) :]
    return base, target if target.startswith("/") else f"/{target}"


def without_framing(headers: Headers) -> Headers:
    """The headers of a request without those of the connection and of framing."""
    return end_to_end(headers, drop=_FRAMING)


def without_codings(interaction: Interaction, *, decoded: bool) -> Interaction:
    """The interaction with its content codings removed, as a cassette holds it.

    `decoded` says that the tool itself decoded responses and left their Content-Encoding. A body
    that is text, or begins unlike its coding, counts as decoded too.
    """
    request, response = _without_coding(interaction.request), interaction.response
    if not decoded and not _is_kept_coded(interaction):
        response = readable_response(response, request.method)
        coding = content_coding(response.headers)
        decoded = bool(coding) and (is_utf8(response.body) or _begins_plain(coding, response.body))
    if decoded:
        head = replace(response.head, headers=without_coding_fields(response.headers))
        response = replace(response, head=head)
    return replace(interaction, request=request, response=response)


def _begins_plain(coding: bytes, body: bytes) -> bool:
    """Whether a body does not begin as its last coding does, where that has a beginning."""
    beginning = _BEGINNINGS.get(coding.rpartition(b",")[2].strip().lower())
    return beginning is not None and not body.startswith(beginning)


def _is_kept_coded(interaction: Interaction) -> bool:
    """Whether the recorder would have kept the response as it came.

    Many tools leave out request headers: without Accept-Encoding, nobody knows what was offered.
    """
    request, response = interaction.request, interaction.response
    offered = request.headers
    if find_header(offered, ACCEPT_ENCODING) is None:
        offered = ((ACCEPT_ENCODING, b"*"),)
    is_coded = decode(content_coding(response.headers), response.body) is not None
    return is_coded and keeps_coding(offered, response.head)


def _without_coding(request: Request) -> Request:
    """The request with its body decoded, and how it was coded; text is decoded already."""
    coding, plain = content_coding(request.headers), readable_request(request)
    if not coding or not request.body:
        return request
    if plain is request:
        if not is_utf8(request.body):
            return request
        plain = replace(request, headers=without_coding_fields(request.headers))
    return replace(plain, coding=coding)


def with_match_key(interaction: Interaction) -> Interaction:
    """An interaction of another tool with AgentTape's match key for its present content."""
    if interaction.request.route:
        return interaction
    key = http_key(interaction.request)
    return replace(interaction, match_key=key, stored_keys=(key,) if key else ())


def header_texts(side: Json) -> Iterator[tuple[str, str]]:
    """Header names and values of a document's request or response, in the order they were sent."""
    fields = loose_json.fields(side)
    left = {
        name: [str(item) for item in (value if isinstance(value, list) else [value])]
        for name, value in loose_json.fields(fields.get("headers")).items()
    }
    order = fields.get("header_order") or [name for name in left for _ in left[name]]
    by_name = {name.lower(): values for name, values in left.items()}
    for name in loose_json.items(order):
        yield str(name), by_name[str(name).lower()].pop(0)


def header_pairs(headers: Fields) -> Iterator[tuple[str, str]]:
    """The names and values of an object `{name: value or [values]}`. Raises FormatFault."""
    for name, value in headers.values.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int | float):
                yield name, dump(item).decode()
            elif isinstance(item, str):
                yield name, item
            elif item is not None:
                raise headers.fault(name, "must be text or a list of texts")


def headers_in(fields: Fields, name: str = "headers") -> Headers:
    """The headers in a field `{name: value or [values]}`. Raises FormatFault."""
    return header_bytes(header_pairs(fields.object(name)))


def header_bytes(pairs: Iterable[tuple[str, str]]) -> Headers:
    """Headers from texts, in which lone surrogates stand for bytes that are not UTF-8.

    Pseudo-headers of HTTP/2 are left out.
    """
    return tuple(
        [(text_bytes(name), text_bytes(value)) for name, value in pairs if name[:1] != ":"]
    )


def http_version(written: str) -> str:
    """`HTTP/1.1`, `HTTP/2` … for any spelling of it; HTTP/1.1 for an unknown one."""
    match = _VERSION.fullmatch(written.strip())
    if match is None:
        return "HTTP/1.1"
    major, minor = match.groups()
    return f"HTTP/{major}" if major > "1" and minor in (None, "0") else f"HTTP/{major}.{minor or 1}"
