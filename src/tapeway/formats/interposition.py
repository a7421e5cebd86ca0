"""interposition's cassettes, as its JsonFileCassetteStore 0.6.0 writes them.

Its bodies are UTF-8 text, its requests know no host, and equal requests always get the first
recording: later ones are never replayed.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.matching import request_key
from tapeway.core.model import (
    CassetteHead,
    ForeignInteraction,
    Interaction,
    ResponseChunk,
    StoredCassette,
)
from tapeway.formats import body, exchange, extension
from tapeway.formats.call import Call, keyed, octets, texts
from tapeway.formats.extension import Document, Held
from tapeway.formats.fault import FormatFault, Pointer
from tapeway.formats.fields import Fields
from tapeway.formats.loss import Loss, dropped
from tapeway.formats.skipping import unfit

HELD = Held(
    ("method", "url", "headers", "header_order", *body.NAMES),
    ("status_code", *body.NAMES),
    host=False,
)
EXTENSION = "tapeway"

Pairs = Sequence[tuple[str, str]]


def fingerprint(protocol: str, action: str, target: str, headers: Pairs, content: bytes) -> str:
    """What interposition 0.6.0 looks a request up by, bit for bit."""
    said = [protocol, action, target, [list(pair) for pair in headers], content.hex()]
    text = json.dumps(said, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def recognises(value: Json) -> bool:
    """Whether a document looks like one of its files."""
    match value:
        case {"interactions": [{"response_chunks": _, "fingerprint": _}, *_]}:
            return True
        case {"interactions": [], **others}:
            return "version" not in others
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault for what interposition would refuse, with the place."""
    root = Fields.of(value, ())
    root.require("interactions")
    ours = EXTENSION in root
    found: list[Interaction | ForeignInteraction] = []
    losses: list[Loss] = []
    first: dict[str, int] = {}
    keys: dict[bytes, int] = {}
    for index, each in enumerate(root.list("interactions")):
        fields = Fields.of(each, ("interactions", index))
        said = _checked_fingerprint(fields)
        request = fields.object("request")
        earlier = first.setdefault(said, index)
        if not request.text("protocol").lower().startswith("http"):
            what = f"is of the protocol '{request.text('protocol')}', not HTTP: left out"
            losses.append(Loss(fields.at, what, left_out=True))
        elif earlier != index and not ours:
            what = f"is never replayed, since interactions[{earlier}] has its fingerprint: left out"
            losses.append(Loss(fields.at, what, left_out=True))
        else:
            item = _read_interaction(len(found), fields)
            like = keys.setdefault(request_key(item.request), index)
            if like != index and earlier == index and not ours:
                what = f"equals the request of interactions[{like}] but for how it is written"
                losses.append(Loss((*fields.at, "request"), f"{what}: answers come in turn"))
            found.append(item)
            losses += _unkept(fields)
    losses += dropped(root, ("interactions", EXTENSION))
    head = extension.head(root.object(EXTENSION), fresh)
    return StoredCassette(head, tuple(found)), losses


def write(cassette: StoredCassette) -> tuple[Document, list[Loss]]:
    """The document, and what interposition could not hold or would never replay."""
    losses: list[Loss] = []
    written: list[Json] = []
    first: dict[str, int] = {}
    for index, item in enumerate(cassette.interactions):
        at: Pointer = ("interactions", index)
        why = unfit(item, "interposition") or _unfit(item)
        if why or isinstance(item, ForeignInteraction):
            losses.append(Loss(at, f"{why}: left out", left_out=True))
            continue
        document, moved = _interaction(item)
        if moved:
            losses.append(
                Loss((*at, "response"), "chunks that ended inside a character end behind it")
            )
        said = str(_value(document["fingerprint"]))
        if (earlier := first.setdefault(said, index)) != index:
            what = f"interposition always replays interactions[{earlier}], of an equal request, instead"
            losses.append(Loss(at, what))
        written.append(document)
    return {"interactions": written, EXTENSION: extension.of_head(cassette.head)}, losses


def _value(value: Json) -> Json:
    return value["value"] if isinstance(value, dict) else value


def _checked_fingerprint(fields: Fields) -> str:
    fields.require("request", "fingerprint", "response_chunks")
    request = fields.object("request")
    request.require("protocol", "action", "target")
    said = fields.object("fingerprint").text("value")
    taken = fingerprint(
        request.text("protocol"),
        request.text("action"),
        request.text("target"),
        list(_pairs(request, "headers")),
        request.text("body").encode(),
    )
    if said != taken:
        reason = f"is not that of the request beside it, which is {taken}"
        raise FormatFault(reason, (*fields.at, "fingerprint", "value"))
    return said


def _pairs(fields: Fields, name: str) -> Iterator[tuple[str, str]]:
    for position, pair in enumerate(fields.list(name)):
        match pair:
            case [str(key), str(value)]:
                yield key, value
            case _:
                raise FormatFault("must be [name, value]", (*fields.at, name, position))


def _read_interaction(index: int, fields: Fields) -> Interaction:
    request = fields.object("request")
    chunks = list(_chunks(fields))
    call = Call(
        method=request.text("action"),
        url=request.text("target"),
        request_headers=octets(_pairs(request, "headers")),
        request_body=request.text("body").encode(),
        status=_status(fields),
        chunks=tuple([ResponseChunk(each) for each in chunks]),
    )
    plain = call.interaction(index, fields.at)
    rest = dict(_pairs(fields, "metadata")).get(EXTENSION)
    if rest is None:
        return keyed(plain)
    place = (*fields.at, "metadata")
    try:
        return HELD.joined(plain, Fields.of(parse(rest), place))
    except NotJson as exc:
        raise FormatFault(f"what stands under '{EXTENSION}' is no JSON: {exc}", place) from None


def _chunks(fields: Fields) -> Iterator[bytes]:
    chunks = fields.list("response_chunks")
    if not chunks:
        raise fields.fault("response_chunks", "must hold one chunk at least")
    for position, each in enumerate(chunks):
        chunk = Fields.of(each, (*fields.at, "response_chunks", position))
        if chunk.integer("sequence", low=0, high=2**53) != position:
            raise chunk.fault("sequence", f"must be {position}: chunks are numbered without a gap")
        yield chunk.text("data").encode()


def _unkept(fields: Fields) -> Iterator[Loss]:
    for name, _ in _pairs(fields, "metadata"):
        if name != EXTENSION:
            yield Loss((*fields.at, "metadata"), f"'{name}' is not kept")
    for position, each in enumerate(fields.list("response_chunks")):
        at = (*fields.at, "response_chunks", position)
        for name, _ in _pairs(Fields.of(each, at), "metadata"):
            if position or name != "status_code":
                yield Loss((*at, "metadata"), f"'{name}' is not kept")


def _status(fields: Fields) -> int:
    chunk = Fields.of(fields.list("response_chunks")[0], (*fields.at, "response_chunks", 0))
    said = dict(_pairs(chunk, "metadata")).get("status_code", "200")
    if not (said.isascii() and said.isdigit() and 200 <= int(said) < 600):
        raise chunk.fault("metadata", f"the status_code must be between 200 and 599, not '{said}'")
    return int(said)


def _unfit(item: Interaction | ForeignInteraction) -> str:
    if isinstance(item, Interaction):
        for name, content in (("request", item.request.body), ("answer", item.response.body)):
            try:
                content.decode("utf-8")
            except UnicodeDecodeError:
                return f"the {name}'s body is no UTF-8, and interposition's files hold only that"
    return ""


def _interaction(item: Interaction) -> tuple[Document, bool]:
    request, document = item.request, exchange.encode(item)
    own = document["request"]
    url = str(own["url"]) if isinstance(own, dict) else request.url
    target = url.removeprefix(request.base)
    headers = list(texts(own))
    pieces, moved = _characters([chunk.data for chunk in item.response.chunks if chunk.data])
    rest = HELD.rest(item, document)
    status: list[Json] = [["status_code", str(item.response.status)]]
    return {
        "request": {
            "protocol": "http",
            "action": request.method,
            "target": target,
            "headers": [[name, value] for name, value in headers],
            "body": request.body.decode(),
        },
        "fingerprint": {
            "value": fingerprint("http", request.method, target, headers, request.body)
        },
        "response_chunks": [
            {"data": piece, "sequence": number, "metadata": [] if number else [*status]}
            for number, piece in enumerate(pieces or [""])
        ],
        "metadata": [[EXTENSION, dump(rest).decode()]],
    }, moved


def _characters(pieces: list[bytes]) -> tuple[list[str], bool]:
    """The pieces as text; one that ends inside a character takes the rest of it along."""
    found: list[str] = []
    before, moved = b"", False
    for piece in pieces:
        data = before + piece
        text = data.decode("utf-8", "ignore") if _cut(data) else data.decode("utf-8")
        before = data[len(text.encode()) :]
        moved = moved or bool(before)
        if text:
            found.append(text)
    return found, moved


def _cut(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
