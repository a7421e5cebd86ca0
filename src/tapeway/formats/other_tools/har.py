"""HTTP archives, HAR 1.2, as browsers and proxies write them.

An archive holds bodies with their content coding removed. It has no rule for repeated requests:
repeated requests are answered in the order of the archive.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import parse_qsl, urlencode, urlsplit

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.text import decode_utf8, is_utf8
from tapeway.formats import conversion_loss
from tapeway.formats.conversion_loss import ExtensionField, Loss, lost_interaction
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import bodies, http_exchange
from tapeway.formats.other_tools.reading.http_call import (
    CallReader,
    HttpCall,
    header_bytes,
    header_texts,
    with_match_key,
    without_codings,
)

EXTENSION_FIELD = ExtensionField(
    ("method", "url", "headers", "header_order", *bodies.NAMES),
    ("status_code", "reason_phrase", "http_version", "headers", "header_order", *bodies.NAMES),
)
EXTENSION_NAME = "_tapeway"
STARTED = "started_at"
"""In an interaction's metadata: when the call began."""

NOT_KEPT = "pages, comments, addresses and all timings but the total are not kept"
"""The loss for an archive's further fields, which every browser fills."""

ReadBody = Callable[[Fields], tuple[bytes, bool]]
"""The body in a response's fields, and whether its content coding is removed. Raises FormatFault."""

_UNKNOWN = "1970-01-01T00:00:00.000Z"
_ENCODING = "_encoding"
_FORM = "application/x-www-form-urlencoded"


def recognises(value: Json) -> bool:
    """Whether a document looks like an archive."""
    match value:
        case {"log": {"entries": [*_]}}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    return read_archive(value, fresh, _plain_body)


def read_archive(
    value: Json, fresh: CassetteHead, body_of: ReadBody
) -> tuple[StoredCassette, list[Loss]]:
    """The cassette of an archive by a tool with a special form of bodies. Raises FormatFault."""
    log = Fields.of(value, ()).object("log")
    log.require("entries")
    calls = CallReader()
    for fields in log.objects("entries"):
        fields.require("request", "response")
        if EXTENSION_NAME not in fields and (why := _unusable(fields)):
            calls.leave_out(fields.at, why)
            continue
        calls.found.append(_read_entry(len(calls.found), fields, body_of))
    if calls.found and EXTENSION_NAME not in log:
        calls.note((), NOT_KEPT)
    head = conversion_loss.read_head(log.object(EXTENSION_NAME), fresh)
    return StoredCassette(head, tuple(calls.found)), calls.losses


def write(cassette: StoredCassette) -> tuple[Document, list[Loss]]:
    """The archive, and the losses: data without a place, or invisible to other tools."""
    losses: list[Loss] = []
    entries: list[Json] = []
    created = cassette.head.created_at or _UNKNOWN
    for index, item in enumerate(cassette.interactions):
        why = _reason_unfit(item)
        if why or isinstance(item, ForeignInteraction):
            losses.append(lost_interaction(index, why))
            continue
        if not is_utf8(item.request.body):
            what = (
                "is no UTF-8: it is written in base64, which other tools take for the body itself"
            )
            losses.append(Loss(("interactions", index, "request", "body_b64"), what))
        entries.append(_entry(item, created))
    if entries and not all(
        isinstance(interaction, Interaction) and STARTED in interaction.metadata
        for interaction in cassette.interactions
    ):
        what = f"when each call began is unknown, and required in an archive: {created} is written"
        losses.append(Loss((), what))
    creator: Document = {
        "name": "tapeway",
        "version": str(cassette.head.meta.get("tapeway_version", "")),
    }
    head = conversion_loss.head_fields(cassette.head)
    return {
        "log": {"version": "1.2", "creator": creator, "entries": entries, EXTENSION_NAME: head}
    }, losses


def _reason_unfit(item: AnyInteraction) -> str:
    """Why an archive cannot hold an interaction, "" if it can."""
    if isinstance(item, ForeignInteraction):
        kind = item.document.get("kind")
        what = "another tool's error" if kind == "http" else f"a recording of kind '{kind}'"
        return f"is {what}, and an archive holds only requests and their answers"
    if item.request.file is not None or item.response.file is not None:
        return "its large body is in a file beside the cassette, and an archive holds bodies in the text"
    return ""


def _entry(item: Interaction, created: str) -> Document:
    document = http_exchange.encode(item)
    started = item.metadata.get(STARTED)
    took = item.latency_ms
    failed = item.failure is not None
    entry: Document = {
        "startedDateTime": started if isinstance(started, str) else created,
        "time": document["latency_ms"],
        "request": _request(item, document),
        "response": _no_response() if failed else _response(item, document),
        "cache": {},
        "timings": {"send": 0, "wait": document["latency_ms"] if took else 0, "receive": 0},
        EXTENSION_NAME: EXTENSION_FIELD.rest(item, document),
    }
    if item.failure is not None:
        entry["_error"] = item.failure.message
    return entry


def _request(item: Interaction, document: Document) -> Document:
    request = item.request
    own = document["request"]
    url = str(own["url"]) if isinstance(own, dict) else request.url
    written: Document = {
        "method": request.method,
        "url": url,
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _name_value_pairs(header_texts(own)),
        "queryString": _name_value_pairs(parse_qsl(_query(url), keep_blank_values=True)),
        "headersSize": -1,
        "bodySize": len(request.body),
    }
    if request.body:
        posted: Document = {"mimeType": http_exchange.content_type(request.headers)}
        text = decode_utf8(request.body)
        posted["text"] = _base64(request.body) if text is None else text
        if text is None:
            posted[_ENCODING] = "base64"
        written["postData"] = posted
    return written


def _response(item: Interaction, document: Document) -> Document:
    response = item.response
    content: Document = {
        "size": len(response.body),
        "mimeType": http_exchange.content_type(response.headers),
    }
    text = decode_utf8(response.body)
    content["text"] = _base64(response.body) if text is None else text
    if text is None:
        content["encoding"] = "base64"
    own = document["response"]
    return {
        "status": response.status,
        "statusText": own["reason_phrase"] if isinstance(own, dict) else "",
        "httpVersion": response.head.version,
        "cookies": [],
        "headers": _name_value_pairs(header_texts(own)),
        "content": content,
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": len(response.body),
    }


def _no_response() -> Document:
    # As browsers write a call that was never answered.
    return {
        "status": 0,
        "statusText": "",
        "httpVersion": "",
        "cookies": [],
        "headers": [],
        "content": {"size": 0, "mimeType": "x-unknown"},
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": -1,
    }


def _unusable(fields: Fields) -> str:
    request, response = fields.object("request"), fields.object("response")
    content, posted = response.object("content"), request.object("postData")
    status = response.integer("status", low=0, high=999)
    url = request.text("url")
    if not url.lower().startswith(("http://", "https://")):
        return "is no HTTP call"
    if not 200 <= status < 600:
        reason = fields.text("_error") or response.text("_error") or f"status {status}"
        return f"was not answered ({reason})"
    size = content.values.get("size")
    if "text" not in content and isinstance(size, int) and size > 0:
        return "the archive does not hold the answer's body"
    media = posted.text("mimeType").lower()
    if "text" not in posted and posted.list("params") and not media.startswith(_FORM):
        return "the archive does not hold the request's body as it was sent"
    return ""


def _read_entry(index: int, fields: Fields, body_of: ReadBody) -> Interaction:
    request, response = fields.object("request"), fields.object("response")
    body, decoded = body_of(response)
    ours = EXTENSION_NAME in fields
    took = fields.number("time") if fields.values.get("time") != -1 else 0.0
    started = fields.text("startedDateTime")
    failed = ours and response.values.get("status") == 0
    call = HttpCall(
        method=request.text("method"),
        url=request.text("url"),
        request_headers=header_bytes(name_values(request)),
        request_body=_posted(request.object("postData")),
        status=200 if failed else response.integer("status", low=0, high=999),
        reason=response.text("statusText"),
        version=response.text("httpVersion"),
        headers=header_bytes(name_values(response)),
        chunks=(body,),
        at_ms=took,
        latency_ms=took,
        metadata={STARTED: started} if started else {},
    )
    plain = call.interaction(index, fields.at)
    if ours:
        return EXTENSION_FIELD.merge(plain, fields.object(EXTENSION_NAME))
    return with_match_key(without_codings(plain, decoded=decoded))


def _plain_body(response: Fields) -> tuple[bytes, bool]:
    return _content(response.object("content"), "encoding"), True


def _posted(fields: Fields) -> bytes:
    if "text" in fields:
        return _content(fields, _ENCODING)
    pairs = [(pair.text("name"), pair.text("value")) for pair in fields.objects("params")]
    return urlencode(pairs).encode()


def _content(fields: Fields, encoding: str) -> bytes:
    if fields.text(encoding).lower() == "base64":
        return fields.base64("text")
    return fields.text("text").encode()


def name_values(fields: Fields) -> Iterator[tuple[str, str]]:
    """The names and values of a message's headers. Raises FormatFault."""
    for pair in fields.objects("headers"):
        several = isinstance(pair.values.get("value"), list)
        for written in pair.texts("value") if several else (pair.text("value"),):
            # Browsers write several Set-Cookie as one, a line each.
            for value in written.split("\n"):
                yield pair.text("name"), value.rstrip("\r")


def _name_value_pairs(pairs: Iterable[tuple[str, str]]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in pairs]


def _query(url: str) -> str:
    try:
        return urlsplit(url).query
    except ValueError:
        return ""


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
