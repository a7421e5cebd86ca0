"""VCR.py's cassettes, version 1: the document that its JSON and its YAML files hold alike.

A body that is no UTF-8 stands in a document as a string with half surrogate pairs for its odd
octets, which is what becomes `!!binary` in YAML and cannot be written in JSON. VCR.py answers each
recording once.

VCR.py's documents as YAML, where a body that is no UTF-8 stands as `!!binary`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace

from tapeway.core.cassette import cursors
from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.text import is_utf8
from tapeway.formats import conversion_loss
from tapeway.formats.conversion_loss import ExtensionField, Loss, dropped, unfit
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import bodies, http_exchange
from tapeway.formats.other_tools.http_call import (
    HttpCall,
    header_bytes,
    single_chunk,
    with_match_key,
    without_codings,
)
from tapeway.formats.yaml import parser, writer
from tapeway.formats.yaml.parser import Tags
from tapeway.formats.yaml.scalars import resolve

HELD = ExtensionField(
    ("method", "url", "headers", *bodies.NAMES),
    ("status_code", "reason_phrase", "headers", *bodies.NAMES),
)
EXTENSION = "tapeway"
VERSION = 1
_ROOT = ("version", "interactions", EXTENSION)
_INTERACTION = ("request", "response", EXTENSION)

ONCE = "VCR.py answers each recording once, and then fails unless allow_playback_repeats is set"
"""What a conversion says of a cassette that goes on answering."""
_OF_OCTETS = frozenset(
    {
        *(("request", "body"), ("request", "headers")),
        *(("response", "body"), ("response", "content"), ("response", "headers")),
    }
)
_NOTE = "vcr"

_EMPTY = "empty_body"
"""In a recording's metadata: its request had a body without bytes, as httpx sends it, and not none
at all. VCR.py tells them apart where it matches bodies."""
_NO_NUMBER = re.compile(r"-?[0-9]+[eE].*|-?[0-9.]+[eE][0-9]+")


def recognises(value: Json) -> bool:
    """Whether a document looks like one of its files."""
    match value:
        case {"interactions": [{"request": {"uri": _}}, *_]}:
            return True
        case {"version": 1, "interactions": []}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    root.require("interactions")
    _refuse_octets(value, ())
    if root.values.get("version", VERSION) != VERSION:
        raise root.fault("version", f"must be {VERSION}, the only one that VCR.py reads")
    found: list[AnyInteraction] = []
    losses: list[Loss] = []
    for index, each in enumerate(root.list("interactions")):
        fields = Fields.of(each, ("interactions", index))
        fields.require("request", "response")
        status, _ = _status(fields.object("response"))
        if not 200 <= status < 600:
            what = f"has the status {status}, which is no answer by itself: left out"
            losses.append(Loss(fields.at, what, left_out=True))
            continue
        losses += dropped(fields, _INTERACTION)
        found.append(_read_interaction(len(found), fields, status))
    losses += dropped(root, _ROOT)
    fresh = replace(fresh, meta=cursors.meta_with_repeats(fresh.meta, "miss"))
    return StoredCassette(conversion_loss.head(root.object(EXTENSION), fresh), tuple(found)), losses


def write(cassette: StoredCassette, *, binary: bool = False) -> tuple[Document, list[Loss]]:
    """The document, and what it cannot hold; `binary` where bodies may be other than UTF-8."""
    losses: list[Loss] = []
    written: list[Json] = []
    for index, item in enumerate(cassette.interactions):
        why = unfit(item, "VCR.py") or ("" if binary else _not_text(item))
        if why or isinstance(item, ForeignInteraction):
            losses.append(Loss(("interactions", index), f"{why}: left out", left_out=True))
            continue
        if not item.request.base:
            place = ("interactions", index, "request", "url")
            losses.append(Loss(place, "names no host, and VCR.py matches nothing without one"))
        written.append(_interaction(item))
    if written and cursors.repeats_of_meta(cassette.head.meta) != "miss":
        losses.append(Loss((), ONCE))
    head = conversion_loss.head_fields(cassette.head)
    return {"version": VERSION, "interactions": written, EXTENSION: head}, losses


def _not_text(item: AnyInteraction) -> str:
    if isinstance(item, Interaction):
        for name, content in (("request", item.request.body), ("answer", item.response.body)):
            if not is_utf8(content):
                return f"the {name}'s body is no UTF-8, which VCR.py holds in YAML only"
    return ""


def _interaction(item: Interaction) -> Document:
    document = http_exchange.encode(item)
    request, response = _object(document["request"]), _object(document["response"])
    return {
        "request": {
            "method": request["method"],
            "uri": request["url"],
            "body": _text(item.request.body) or ("" if _is_empty(item) else None),
            "headers": _lists(request["headers"]),
        },
        "response": {
            "status": {"code": item.response.status, "message": response["reason_phrase"]},
            "headers": _lists(response["headers"]),
            "body": {"string": _text(item.response.body)},
        },
        EXTENSION: HELD.rest(item, document),
    }


def _is_empty(item: Interaction) -> bool:
    note = item.metadata.get(_NOTE)
    return isinstance(note, dict) and note.get(_EMPTY) is True


def _lists(headers: Json) -> Json:
    return {
        name: value if isinstance(value, list) else [value]
        for name, value in _object(headers).items()
    }


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _read_interaction(index: int, fields: Fields, status: int) -> Interaction:
    request, response = fields.object("request"), fields.object("response")
    request.require("method", "uri")
    if not request.text("uri").startswith(("http://", "https://", "/")):
        raise request.fault("uri", "must be an absolute URL")
    call = HttpCall(
        method=request.text("method"),
        url=request.text("uri"),
        request_headers=header_bytes(_pairs(request)),
        request_body=_content(request, "body"),
        status=status,
        reason=_status(response)[1],
        version=response.text("http_version"),
        headers=header_bytes(_pairs(response)),
        chunks=single_chunk(_content(response, "content" if "content" in response else "body")),
        metadata={_NOTE: {_EMPTY: True}} if request.values.get("body") == "" else {},
    )
    plain = call.interaction(index, fields.at)
    if EXTENSION in fields:
        return HELD.joined(plain, fields.object(EXTENSION))
    return with_match_key(without_codings(plain, decoded=False))


def _refuse_octets(value: Json, at: Pointer) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_octet(name, at)
            _refuse_octets(inner, (*at, name))
    elif at[2:4] in _OF_OCTETS:
        return
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_octets(inner, (*at, index))
    elif isinstance(value, str):
        _refuse_octet(value, at)


def _refuse_octet(text: str, at: Pointer) -> None:
    if not is_utf8(text):
        raise FormatFault("must be text: only bodies and values of headers may be octets", at)


def _status(response: Fields) -> tuple[int, str]:
    if "status_code" in response:  # as VCR.py once stored what httpx had got
        return response.integer("status_code", low=0, high=999), ""
    status = response.object("status")
    return status.integer("code", low=0, high=999), status.text("message")


def _pairs(fields: Fields) -> Iterator[tuple[str, str]]:
    headers = fields.object("headers")
    for name, value in headers.values.items():
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, str):
                raise headers.fault(name, "must be text or a list of texts")
            yield name, each


def _content(fields: Fields, name: str) -> bytes:
    value = fields.values.get(name)
    if isinstance(value, dict):
        inner = fields.object(name)
        return _base64(inner) if "base64_string" in inner else _content(inner, "string")
    return fields.text(name).encode("utf-8", "surrogateescape")


def _base64(fields: Fields) -> bytes:
    try:
        return base64.b64decode("".join(fields.text("base64_string").split()), validate=True)
    except (binascii.Error, ValueError):
        raise FormatFault("is not valid base64", (*fields.at, "base64_string")) from None


def parse(text: bytes) -> Json:
    """The document. Raises FormatFault with line and reason; other tags than `!!binary` are refused."""
    return parser.parse(text, _TAGS, _meaning)


def line_of(text: bytes, pointer: Pointer) -> int:
    """The line a value stands on."""
    return parser.line_of(text, pointer, _TAGS)


def dump(document: Document) -> bytes:
    """The text that VCR.py reads as this document."""
    binary: dict[str, str] = {}
    text = writer.dump(_marked(document, binary))
    for mark, content in binary.items():
        text = text.replace(mark, content)
    return text.encode()


def _marked(value: Json, binary: dict[str, str]) -> Json:
    """The value with a mark, plain in YAML, for each text that holds odd octets."""
    if isinstance(value, dict):
        return {name: _marked(inner, binary) for name, inner in value.items()}
    if isinstance(value, list):
        return [_marked(inner, binary) for inner in value]
    if isinstance(value, str) and not is_utf8(value):
        octets = value.encode("utf-8", "surrogateescape")
        # Nobody can have written a hash of the very bytes that stand in its place.
        mark = f"binary_{hashlib.sha256(octets).hexdigest()}"
        binary[mark] = f'!!binary "{base64.b64encode(octets).decode("ascii")}"'
        return mark
    return value


def _meaning(text: str) -> Json:
    # PyYAML writes the text `1e5` without quotes: its numbers have a dot, and a sign before exponents.
    return text if _NO_NUMBER.fullmatch(text) else resolve(text)


def _binary(text: str) -> str:
    try:
        octets = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what stands under !!binary is not valid base64") from None
    return octets.decode("utf-8", "surrogateescape")


_TAGS: Tags = {"tag:yaml.org,2002:binary": _binary}
