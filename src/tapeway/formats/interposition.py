"""interposition's cassettes, as its JsonFileCassetteStore 0.6.0 writes them.

Its bodies are UTF-8 text, its requests know no host, and equal requests always get the first
recording.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tapeway.core.cassette import cursors
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.cassette import Held as Item
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats import body, exchange, extension
from tapeway.formats.extension import Document, Held
from tapeway.formats.fault import FormatFault, Pointer
from tapeway.formats.fields import Fields
from tapeway.formats.interposed import (
    LENGTHS,
    NOTE,
    Chunk,
    Interposed,
    interposed_of,
    item_of,
    noted,
    pairs_of,
)
from tapeway.formats.loss import Loss, dropped
from tapeway.formats.skipping import unfit

HELD = Held(
    ("method", "url", "headers", "header_order", *body.NAMES),
    ("status_code", *body.NAMES),
    host=False,
)
EXTENSION = "tapeway"
_INTERACTION = ("request", "fingerprint", "response_chunks", "metadata")
_OWN = ("index", "kind", "boundary", "request", "response")


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
    found: list[Item] = []
    losses: list[Loss] = []
    for index, each in enumerate(root.list("interactions")):
        fields = Fields.of(each, ("interactions", index))
        item = _read_interaction(index, fields)
        if isinstance(item, ForeignInteraction):
            losses.append(Loss(fields.at, "is no HTTP call: kept, and served to no client"))
        found.append(item)
        losses += dropped(fields, _INTERACTION)
    losses += dropped(root, ("interactions", EXTENSION))
    fresh = replace(fresh, meta=cursors.in_meta(fresh.meta, "first"))
    head = extension.head(root.object(EXTENSION), fresh)
    return StoredCassette(head, tuple(found)), losses


def write(cassette: StoredCassette) -> tuple[Document, list[Loss]]:
    """The document, and what interposition could not hold or would never replay."""
    losses: list[Loss] = []
    written: list[Json] = []
    first: dict[str, int] = {}
    always_first = cursors.of_meta(cassette.head.meta) == "first"
    for index, item in enumerate(cassette.interactions):
        at: Pointer = ("interactions", index)
        said = interposed_of(item)
        why = _unfit(item, said)
        if why or said is None:
            losses.append(Loss(at, f"{why}: left out", left_out=True))
            continue
        whole = replace(said, chunks=tuple(_characters(said.chunks)))
        if [each.data for each in whole.chunks] != [each.data for each in said.chunks]:
            losses.append(
                Loss((*at, "response"), "chunks that ended inside a character end behind it")
            )
        earlier = first.setdefault(said.fingerprint, index)
        if earlier != index and not always_first:
            what = f"interposition always replays interactions[{earlier}], of an equal request, instead"
            losses.append(Loss(at, what))
        written.append(_interaction(whole, _rest(item)))
    return {"interactions": written, EXTENSION: extension.of_head(cassette.head)}, losses


def _read_interaction(index: int, fields: Fields) -> Item:
    said = _interposed(fields)
    plain = replace(said, metadata=tuple([pair for pair in said.metadata if pair[0] != EXTENSION]))
    item, rest = item_of(plain, index), dict(said.metadata).get(EXTENSION)
    if rest is None:
        return item
    place = (*fields.at, "metadata")
    try:
        more = Fields.of(parse(rest), place)
    except NotJson as exc:
        raise FormatFault(f"what stands under '{EXTENSION}' is no JSON: {exc}", place) from None
    if isinstance(item, ForeignInteraction):
        return replace(item, document=_completed(item.document, more.values))
    # Where the chunks ended stands there too: in the file some may end behind a character.
    return noted(HELD.joined(item, more), plain, cuts=False)


def _completed(own: Mapping[str, Json], rest: Mapping[str, Json]) -> Document:
    known, more = own.get("metadata"), rest.get("metadata")
    metadata: Document = dict(more) if isinstance(more, dict) else {}
    metadata |= known if isinstance(known, dict) else {}
    return {**_without(rest, _OWN), **own, "metadata": metadata}


def _interposed(fields: Fields) -> Interposed:
    fields.require("request", "fingerprint", "response_chunks")
    request = fields.object("request")
    request.require("protocol", "action", "target")
    found = Interposed(
        request.text("protocol"),
        request.text("action"),
        request.text("target"),
        pairs_of(request, "headers"),
        request.text("body").encode(),
        tuple(_chunks(fields)),
        pairs_of(fields, "metadata"),
    )
    if fields.object("fingerprint").text("value") != found.fingerprint:
        reason = f"is not that of the request beside it, which is {found.fingerprint}"
        raise FormatFault(reason, (*fields.at, "fingerprint", "value"))
    return found


def _chunks(fields: Fields) -> Iterator[Chunk]:
    chunks = fields.list("response_chunks")
    if not chunks:
        raise fields.fault("response_chunks", "must hold one chunk at least")
    for position, each in enumerate(chunks):
        chunk = Fields.of(each, (*fields.at, "response_chunks", position))
        if chunk.integer("sequence", low=0, high=2**53) != position:
            raise chunk.fault("sequence", f"must be {position}: chunks are numbered without a gap")
        yield Chunk(chunk.text("data").encode(), pairs_of(chunk, "metadata"))


def _unfit(item: Item, said: Interposed | None) -> str:
    if said is None:
        return unfit(item, "interposition")
    answer = b"".join([each.data for each in said.chunks])
    for name, content in (("request", said.body), ("answer", answer)):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            return f"the {name}'s body is no UTF-8, and interposition's files hold only that"
    return unfit(item, "interposition") if isinstance(item, Interaction) else ""


def _rest(item: Item) -> Document:
    """What the file has no field for."""
    if isinstance(item, ForeignInteraction):
        rest = _without(item.document, _OWN)
    else:
        rest = HELD.rest(item, exchange.encode(item))
    metadata = rest.get("metadata")
    if isinstance(metadata, dict):
        note = metadata.get(NOTE)
        lengths = note.get(LENGTHS) if isinstance(note, dict) else None
        kept: Document = {NOTE: {LENGTHS: lengths}} if lengths else {}
        rest["metadata"] = {**_without(metadata, (NOTE,)), **kept}
    return rest


def _interaction(said: Interposed, rest: Document) -> Document:
    metadata = [*said.metadata, *([(EXTENSION, dump(rest).decode())] if any(rest.values()) else [])]
    return {
        "request": {
            "protocol": said.protocol,
            "action": said.action,
            "target": said.target,
            "headers": _lists(said.headers),
            "body": said.body.decode(),
        },
        "fingerprint": {"value": said.fingerprint},
        "response_chunks": [
            {"data": each.data.decode(), "sequence": number, "metadata": _lists(each.metadata)}
            for number, each in enumerate(said.chunks)
        ],
        "metadata": _lists(tuple(metadata)),
    }


def _lists(pairs: tuple[tuple[str, str], ...]) -> Json:
    return [[name, value] for name, value in pairs]


def _without(values: Mapping[str, Json], names: tuple[str, ...]) -> Document:
    return {name: value for name, value in values.items() if name not in names}


def _characters(chunks: tuple[Chunk, ...]) -> Iterator[Chunk]:
    """The chunks as text; one that ends inside a character takes the rest of it along."""
    before = b""
    for chunk in chunks:
        data = before + chunk.data
        text = data.decode("utf-8", "ignore").encode() if _cut(data) else data
        before = data[len(text) :]
        if text or chunk.metadata or not chunk.data:
            yield replace(chunk, data=text)


def _cut(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False
