"""interposition's cassettes, as its JsonFileCassetteStore 0.6.0 writes them.

Its bodies are UTF-8 text, its requests know no host, and equal requests always get the first
recording.

interposition's interactions as items of a cassette, and back without any difference.

One of HTTP is a recording like any other, found by the proxy and edited by hand; what interposition
says besides (empty chunks, metadata, fields that HTTP makes anew) stands in its `metadata`. All
else, other protocols above all, is an item of the kind `tool`, word for word.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tapeway.core.cassette import cursors
from tapeway.core.json_text import Json, NotJson, Pointer, dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import ResponseChunk
from tapeway.core.text import decode_utf8, is_utf8
from tapeway.formats import conversion_loss
from tapeway.formats.conversion_loss import ExtensionField, Loss, dropped, unfit
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import bodies, http_exchange
from tapeway.formats.other_tools.http_call import (
    HttpCall,
    header_bytes,
    header_texts,
    split_url,
    with_match_key,
    without_framing,
)

NOTE = "interposition"
"""What holds the rest in an item's metadata."""

LENGTHS = "lengths"
"""In a note: how long the chunks are, where that is not what the recording's own say."""

KIND = "tool"
"""What an item that is no HTTP call is among the kinds there are."""
Pairs = tuple[tuple[str, str], ...]
_STATUS = "status_code"
HELD = ExtensionField(
    ("method", "url", "headers", "header_order", *bodies.NAMES),
    ("status_code", *bodies.NAMES),
    host=False,
)
EXTENSION = "tapeway"
_INTERACTION = ("request", "fingerprint", "response_chunks", "metadata")
_OWN = ("index", "kind", "boundary", "request", "response")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer and what was said about it."""

    data: bytes
    metadata: Pairs = ()


@dataclass(frozen=True, slots=True)
class InterpositionInteraction:
    """An interaction as interposition 0.6.0 has it; its chunks are numbered by their place."""

    protocol: str
    action: str
    target: str
    headers: Pairs
    body: bytes
    chunks: tuple[Chunk, ...]
    metadata: Pairs = ()

    @property
    def fingerprint(self) -> str:
        """What interposition looks its request up by."""
        return fingerprint(self.protocol, self.action, self.target, self.headers, self.body)


def fingerprint(
    protocol: str, action: str, target: str, headers: Sequence[tuple[str, str]], content: bytes
) -> str:
    """What interposition 0.6.0 looks a request up by, bit for bit."""
    said = [protocol, action, target, [list(pair) for pair in headers], content.hex()]
    text = json.dumps(said, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def from_interposition(interposed: InterpositionInteraction, index: int = 0) -> AnyInteraction:
    """The item that says all of it."""
    if interposed.protocol.lower() in ("http", "https"):
        found = _exchange(interposed, index)
        if found is not None and to_interposition(found) == interposed:
            return found
    return ForeignInteraction(index, _document(interposed))


def to_interposition(item: AnyInteraction) -> InterpositionInteraction | None:
    """What interposition would have of an item, None for what it has no way to tell.

    Raises FormatFault for one that was edited into something else.
    """
    if isinstance(item, ForeignInteraction):
        metadata = item.document.get("metadata")
        is_one = isinstance(metadata, dict) and NOTE in metadata
        return _of_document(item.document) if is_one else None
    if item.failure is not None:
        return None
    return _with_kept(_plain(item), item)


def with_note(
    item: Interaction, interposed: InterpositionInteraction, *, cuts: bool = True
) -> Interaction:
    """The recording with a note of what interposition says otherwise.

    Without `cuts` it stays noted how long the chunks are.
    """
    before = item.metadata.get(NOTE)
    bare = _without_note(item)
    note = _note(_plain(bare), interposed, cuts=cuts)
    if not cuts and isinstance(before, dict) and LENGTHS in before:
        note[LENGTHS] = before[LENGTHS]
    return replace(bare, metadata={**bare.metadata, NOTE: note}) if note else bare


def _without_note(item: Interaction) -> Interaction:
    return replace(item, metadata={k: v for k, v in item.metadata.items() if k != NOTE})


def _exchange(interposed: InterpositionInteraction, index: int) -> Interaction | None:
    first = interposed.chunks[0].metadata if interposed.chunks else ()
    status = dict(first).get(_STATUS, "200")
    if not (status.isascii() and status.isdigit() and len(status) == 3):
        return None
    call = HttpCall(
        method=interposed.action,
        url=interposed.target,
        request_headers=header_bytes(interposed.headers),
        request_body=interposed.body,
        status=int(status),
        chunks=tuple([ResponseChunk(each.data) for each in interposed.chunks]),
    )
    try:
        return with_note(with_match_key(call.interaction(index, ())), interposed)
    except (FormatFault, UnicodeError):
        return None


def _plain(item: Interaction) -> InterpositionInteraction:
    """What the recording says to one who reads no note."""
    request, response = item.request, item.response
    own = http_exchange.encode(item)["request"]
    url = str(own["url"]) if isinstance(own, dict) else request.url
    pieces = [each.data for each in response.chunks if each.data] or [b""]
    status: Pairs = ((_STATUS, str(response.status)),)
    chunks = [Chunk(data, () if at else status) for at, data in enumerate(pieces)]
    return InterpositionInteraction(
        "http",
        request.method,
        url.removeprefix(request.base),
        tuple(header_texts(own)),
        request.body,
        tuple(chunks),
    )


def _note(
    plain: InterpositionInteraction, wanted: InterpositionInteraction, *, cuts: bool
) -> Document:
    note: Document = {}
    for name in ("protocol", "target"):
        if getattr(plain, name) != getattr(wanted, name):
            note[name] = getattr(wanted, name)
    if plain.headers != wanted.headers:
        note["headers"] = _pairs_as_lists(wanted.headers)
    lengths = [len(each.data) for each in wanted.chunks]
    if cuts and lengths != [len(each.data) for each in plain.chunks]:
        note[LENGTHS] = [*lengths]
    said = [each.metadata for each in wanted.chunks]
    if said != [plain.chunks[0].metadata, *[()] * (len(said) - 1)]:
        note["chunk_metadata"] = {
            str(at): _pairs_as_lists(each) for at, each in enumerate(said) if each
        }
    if wanted.metadata:
        note["metadata"] = _pairs_as_lists(wanted.metadata)
    return note


def _with_kept(plain: InterpositionInteraction, item: Interaction) -> InterpositionInteraction:
    note = item.metadata.get(NOTE)
    if not isinstance(note, dict):
        return plain
    fields = Fields(note, ("metadata", NOTE))
    chunks = _cut_chunks(plain.chunks, fields)
    if "chunk_metadata" in fields:
        said = fields.object("chunk_metadata")
        chunks = [
            replace(chunk, metadata=pairs_of(said, str(at))) for at, chunk in enumerate(chunks)
        ]
    status = str(item.response.status)
    first = chunks[0].metadata
    if dict(first).get(_STATUS, "200") != status:
        # It was edited by hand, and that is what counts.
        rest = tuple([pair for pair in first if pair[0] != _STATUS])
        chunks[0] = replace(chunks[0], metadata=((_STATUS, status), *rest))
    return replace(
        plain,
        protocol=fields.text("protocol", plain.protocol),
        target=_target(plain, item, fields),
        headers=_headers(plain, item, fields),
        chunks=tuple(chunks),
        metadata=pairs_of(fields, "metadata"),
    )


def _target(plain: InterpositionInteraction, item: Interaction, note: Fields) -> str:
    said = note.text("target", plain.target)
    # What was edited by hand counts, and not what the note says of what stood there before.
    return said if split_url(said) == (item.request.base, item.request.target) else plain.target


def _headers(plain: InterpositionInteraction, item: Interaction, note: Fields) -> Pairs:
    if "headers" not in note:
        return plain.headers
    said = pairs_of(note, "headers")
    return said if without_framing(header_bytes(said)) == item.request.headers else plain.headers


def _cut_chunks(chunks: tuple[Chunk, ...], note: Fields) -> list[Chunk]:
    lengths = [each for each in note.list(LENGTHS) if isinstance(each, int) and each >= 0]
    body = b"".join([each.data for each in chunks])
    if not lengths or sum(lengths) != len(body):
        return list(chunks)
    found, start = [], 0
    for length in lengths:
        found.append(Chunk(body[start : start + length]))
        start += length
    found[0] = replace(found[0], metadata=chunks[0].metadata)
    return found


def _document(interposed: InterpositionInteraction) -> Document:
    return {
        "kind": KIND,
        "boundary": interposed.protocol,
        "request": {
            "protocol": interposed.protocol,
            "action": interposed.action,
            "target": interposed.target,
            "headers": _pairs_as_lists(interposed.headers),
            **_data("body", interposed.body),
        },
        "response": {
            "chunks": [
                {**_data("body", each.data), "metadata": _pairs_as_lists(each.metadata)}
                for each in interposed.chunks
            ]
        },
        "metadata": {NOTE: {"metadata": _pairs_as_lists(interposed.metadata)}},
    }


def _of_document(document: Mapping[str, Json]) -> InterpositionInteraction:
    root = Fields(document, ())
    request, chunks = root.object("request"), root.object("response")
    request.require("protocol", "action", "target")
    return InterpositionInteraction(
        request.text("protocol"),
        request.text("action"),
        request.text("target"),
        pairs_of(request, "headers"),
        _octets(request, "body"),
        tuple(
            [
                Chunk(_octets(each, "body"), pairs_of(each, "metadata"))
                for each in [
                    Fields.of(value, (*chunks.at, "chunks", at))
                    for at, value in enumerate(chunks.list("chunks"))
                ]
            ]
        ),
        pairs_of(root.object("metadata").object(NOTE), "metadata"),
    )


def _data(name: str, data: bytes) -> Document:
    if (text := decode_utf8(data)) is None:
        return {f"{name}_b64": base64.b64encode(data).decode("ascii")}
    return {name: text}


def _octets(fields: Fields, name: str) -> bytes:
    if f"{name}_b64" in fields:
        return fields.base64(f"{name}_b64")
    return fields.text(name).encode("utf-8")


def _pairs_as_lists(pairs: Pairs) -> Json:
    return [[name, value] for name, value in pairs]


def pairs_of(fields: Fields, name: str) -> Pairs:
    """The pairs a list holds. Raises FormatFault for what is none."""
    return tuple([_pair(each, (*fields.at, name, at)) for at, each in enumerate(fields.list(name))])


def _pair(value: Json, at: Pointer) -> tuple[str, str]:
    match value:
        case [str(key), str(said)]:
            return key, said
        case _:
            raise FormatFault("must be [name, value]", at)


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
    found: list[AnyInteraction] = []
    losses: list[Loss] = []
    for index, each in enumerate(root.list("interactions")):
        fields = Fields.of(each, ("interactions", index))
        item = _read_interaction(index, fields)
        if isinstance(item, ForeignInteraction):
            losses.append(Loss(fields.at, "is no HTTP call: kept, and served to no client"))
        found.append(item)
        losses += dropped(fields, _INTERACTION)
    losses += dropped(root, ("interactions", EXTENSION))
    fresh = replace(fresh, meta=cursors.meta_with_repeats(fresh.meta, "first"))
    head = conversion_loss.head(root.object(EXTENSION), fresh)
    return StoredCassette(head, tuple(found)), losses


def write(cassette: StoredCassette) -> tuple[Document, list[Loss]]:
    """The document, and what interposition could not hold or would never replay."""
    losses: list[Loss] = []
    written: list[Json] = []
    first: dict[str, int] = {}
    always_first = cursors.repeats_of_meta(cassette.head.meta) == "first"
    for index, item in enumerate(cassette.interactions):
        at: Pointer = ("interactions", index)
        said = to_interposition(item)
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
    return {"interactions": written, EXTENSION: conversion_loss.head_fields(cassette.head)}, losses


def _read_interaction(index: int, fields: Fields) -> AnyInteraction:
    said = _interposed(fields)
    plain = replace(said, metadata=tuple([pair for pair in said.metadata if pair[0] != EXTENSION]))
    item, rest = from_interposition(plain, index), dict(said.metadata).get(EXTENSION)
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
    return with_note(HELD.joined(item, more), plain, cuts=False)


def _completed(own: Mapping[str, Json], rest: Mapping[str, Json]) -> Document:
    known, more = own.get("metadata"), rest.get("metadata")
    metadata: Document = dict(more) if isinstance(more, dict) else {}
    metadata |= known if isinstance(known, dict) else {}
    return {**_without(rest, _OWN), **own, "metadata": metadata}


def _interposed(fields: Fields) -> InterpositionInteraction:
    fields.require("request", "fingerprint", "response_chunks")
    request = fields.object("request")
    request.require("protocol", "action", "target")
    found = InterpositionInteraction(
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


def _unfit(item: AnyInteraction, said: InterpositionInteraction | None) -> str:
    if said is None:
        return unfit(item, "interposition")
    answer = b"".join([each.data for each in said.chunks])
    for name, content in (("request", said.body), ("answer", answer)):
        if not is_utf8(content):
            return f"the {name}'s body is no UTF-8, and interposition's files hold only that"
    return unfit(item, "interposition") if isinstance(item, Interaction) else ""


def _rest(item: AnyInteraction) -> Document:
    """What the file has no field for."""
    if isinstance(item, ForeignInteraction):
        rest = _without(item.document, _OWN)
    else:
        rest = HELD.rest(item, http_exchange.encode(item))
    metadata = rest.get("metadata")
    if isinstance(metadata, dict):
        note = metadata.get(NOTE)
        lengths = note.get(LENGTHS) if isinstance(note, dict) else None
        kept: Document = {NOTE: {LENGTHS: lengths}} if lengths else {}
        rest["metadata"] = {**_without(metadata, (NOTE,)), **kept}
    return rest


def _interaction(said: InterpositionInteraction, rest: Document) -> Document:
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
        text = data.decode("utf-8", "ignore").encode() if not is_utf8(data) else data
        before = data[len(text) :]
        if text or chunk.metadata or not chunk.data:
            yield replace(chunk, data=text)
