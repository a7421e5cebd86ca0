"""interposition's cassettes, as its JsonFileCassetteStore 0.6.0 writes them.

Its bodies are UTF-8 text, its requests have no host, and equal requests always get the first
recording. An HTTP interaction becomes a recording like any other, found by the proxy and edited by
hand. Everything else in interposition's file (empty chunks, metadata, headers that HTTP adds anew)
is kept in a note in the recording's `metadata`: converting back gives an equal interaction. Other
protocols are kept unchanged as kind `tool`.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tapeway.core.digests import sha256
from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.text import decode_utf8
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import http_exchange
from tapeway.formats.other_tools.reading.http_call import (
    CallReader,
    HttpCall,
    header_bytes,
    header_texts,
    split_url,
    with_match_key,
    without_framing,
)

NOTE = "interposition"
"""The name of the note in a recording's metadata."""

_LENGTHS = "lengths"
"""In a note: the lengths of the chunks, where they differ from those of the recording."""

KIND = "tool"
"""The kind of an interaction that is no HTTP call."""
Pairs = tuple[tuple[str, str], ...]
_STATUS = "status_code"
_INTERACTION = ("request", "fingerprint", "response_chunks", "metadata")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a response and its metadata."""

    data: bytes
    metadata: Pairs = ()


@dataclass(frozen=True, slots=True)
class InterpositionInteraction:
    """An interaction of interposition 0.6.0; its chunks are numbered by their position."""

    protocol: str
    action: str
    target: str
    headers: Pairs
    body: bytes
    chunks: tuple[Chunk, ...]
    metadata: Pairs = ()

    @property
    def fingerprint(self) -> str:
        """The key by which interposition finds the request."""
        return fingerprint(self.protocol, self.action, self.target, self.headers, self.body)


def fingerprint(
    protocol: str, action: str, target: str, headers: Sequence[tuple[str, str]], content: bytes
) -> str:
    """The fingerprint that interposition 0.6.0 computes for a request, bit for bit."""
    fields = [protocol, action, target, [list(pair) for pair in headers], content.hex()]
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode("utf-8")).hexdigest()


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
    calls = CallReader()
    for index, fields in enumerate(root.objects("interactions")):
        item = from_interposition(_parse_interaction(fields), index)
        if isinstance(item, ForeignInteraction):
            calls.note(fields.at, "is no HTTP call: kept, and served to no client")
        calls.found.append(item)
        calls.note_unknown(fields, _INTERACTION)
    calls.note_unknown(root, ("interactions",))
    return calls.cassette(fresh, "first")


def from_interposition(interposed: InterpositionInteraction, index: int = 0) -> AnyInteraction:
    """The interaction that holds all of it."""
    if interposed.protocol.lower() in ("http", "https"):
        http_recording = _http_recording(interposed, index)
        if http_recording is not None and to_interposition(http_recording) == interposed:
            return http_recording
    return ForeignInteraction(index, _encode_document(interposed))


def to_interposition(item: AnyInteraction) -> InterpositionInteraction | None:
    """The interaction for interposition, None if interposition cannot express it.

    Raises FormatFault for a note or document that was edited into something invalid.
    """
    if isinstance(item, ForeignInteraction):
        metadata = item.document.get("metadata")
        is_one = isinstance(metadata, dict) and NOTE in metadata
        return _decode_document(item.document) if is_one else None
    if item.failure is not None:
        return None
    return _apply_note(_without_notes(item), item)


def pairs_of(fields: Fields, name: str) -> Pairs:
    """The pairs in a list field. Raises FormatFault for what is no pair."""
    return tuple([_pair(pair, (*fields.at, name, at)) for at, pair in enumerate(fields.list(name))])


def _http_recording(interposed: InterpositionInteraction, index: int) -> Interaction | None:
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
        chunks=tuple([chunk.data for chunk in interposed.chunks]),
    )
    try:
        return _with_note(with_match_key(call.interaction(index, ())), interposed)
    except (FormatFault, UnicodeError):
        return None


def _with_note(item: Interaction, interposed: InterpositionInteraction) -> Interaction:
    """The recording with a note of what differs in interposition's interaction."""
    note = _note(_without_notes(item), interposed)
    return replace(item, metadata={**item.metadata, NOTE: note}) if note else item


def _without_notes(item: Interaction) -> InterpositionInteraction:
    """The recording as interposition's interaction, its note aside."""
    request, response = item.request, item.response
    own = http_exchange.encode(item)["request"]
    url = str(own["url"]) if isinstance(own, dict) else request.url
    pieces = response.pieces() or [b""]
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


def _note(plain: InterpositionInteraction, wanted: InterpositionInteraction) -> Document:
    note: Document = {}
    for name in ("protocol", "target"):
        if getattr(plain, name) != getattr(wanted, name):
            note[name] = getattr(wanted, name)
    if plain.headers != wanted.headers:
        note["headers"] = _pairs_as_lists(wanted.headers)
    lengths = [len(chunk.data) for chunk in wanted.chunks]
    if lengths != [len(chunk.data) for chunk in plain.chunks]:
        note[_LENGTHS] = [*lengths]
    metadata = [chunk.metadata for chunk in wanted.chunks]
    if metadata != [plain.chunks[0].metadata, *[()] * (len(metadata) - 1)]:
        note["chunk_metadata"] = {
            str(at): _pairs_as_lists(pairs) for at, pairs in enumerate(metadata) if pairs
        }
    if wanted.metadata:
        note["metadata"] = _pairs_as_lists(wanted.metadata)
    return note


def _apply_note(plain: InterpositionInteraction, item: Interaction) -> InterpositionInteraction:
    note = item.metadata.get(NOTE)
    if not isinstance(note, dict):
        return plain
    fields = Fields(note, ("metadata", NOTE))
    chunks = _divide_chunks(plain.chunks, fields)
    if "chunk_metadata" in fields:
        metadata = fields.object("chunk_metadata")
        chunks = [
            replace(chunk, metadata=pairs_of(metadata, str(at))) for at, chunk in enumerate(chunks)
        ]
    status = str(item.response.status)
    first = chunks[0].metadata
    if dict(first).get(_STATUS, "200") != status:
        # The status was edited by hand: the edit wins over the note.
        rest = tuple([pair for pair in first if pair[0] != _STATUS])
        chunks[0] = replace(chunks[0], metadata=((_STATUS, status), *rest))
    return replace(
        plain,
        protocol=fields.text("protocol", plain.protocol),
        target=_noted_target(plain, item, fields),
        headers=_noted_headers(plain, item, fields),
        chunks=tuple(chunks),
        metadata=pairs_of(fields, "metadata"),
    )


def _noted_target(plain: InterpositionInteraction, item: Interaction, note: Fields) -> str:
    target = note.text("target", plain.target)
    # An edit by hand wins over the note.
    return target if split_url(target) == (item.request.base, item.request.target) else plain.target


def _noted_headers(plain: InterpositionInteraction, item: Interaction, note: Fields) -> Pairs:
    if "headers" not in note:
        return plain.headers
    headers = pairs_of(note, "headers")
    return (
        headers if without_framing(header_bytes(headers)) == item.request.headers else plain.headers
    )


def _divide_chunks(chunks: tuple[Chunk, ...], note: Fields) -> list[Chunk]:
    lengths = [size for size in note.list(_LENGTHS) if isinstance(size, int) and size >= 0]
    body = b"".join([chunk.data for chunk in chunks])
    if not lengths or sum(lengths) != len(body):
        return list(chunks)
    chunks_of_body, start = [], 0
    for length in lengths:
        chunks_of_body.append(Chunk(body[start : start + length]))
        start += length
    chunks_of_body[0] = replace(chunks_of_body[0], metadata=chunks[0].metadata)
    return chunks_of_body


def _encode_document(interposed: InterpositionInteraction) -> Document:
    return {
        "kind": KIND,
        "boundary": interposed.protocol,
        "request": {
            "protocol": interposed.protocol,
            "action": interposed.action,
            "target": interposed.target,
            "headers": _pairs_as_lists(interposed.headers),
            **_encode_body(interposed.body),
        },
        "response": {
            "chunks": [
                {**_encode_body(chunk.data), "metadata": _pairs_as_lists(chunk.metadata)}
                for chunk in interposed.chunks
            ]
        },
        "metadata": {NOTE: {"metadata": _pairs_as_lists(interposed.metadata)}},
    }


def _decode_document(document: Mapping[str, Json]) -> InterpositionInteraction:
    root = Fields(document, ())
    request, chunks = root.object("request"), root.object("response")
    request.require("protocol", "action", "target")
    return InterpositionInteraction(
        request.text("protocol"),
        request.text("action"),
        request.text("target"),
        pairs_of(request, "headers"),
        _decode_body(request),
        tuple(
            [
                Chunk(_decode_body(chunk), pairs_of(chunk, "metadata"))
                for chunk in chunks.objects("chunks")
            ]
        ),
        pairs_of(root.object("metadata").object(NOTE), "metadata"),
    )


def _encode_body(body: bytes) -> Document:
    if (text := decode_utf8(body)) is None:
        return {"body_b64": base64.b64encode(body).decode("ascii")}
    return {"body": text}


def _decode_body(fields: Fields) -> bytes:
    return fields.base64("body_b64") if "body_b64" in fields else fields.text("body").encode()


def _pairs_as_lists(pairs: Iterable[tuple[str, str]]) -> Json:
    return [[name, value] for name, value in pairs]


def _pair(value: Json, at: Pointer) -> tuple[str, str]:
    match value:
        case [str(name), str(value_text)]:
            return name, value_text
        case _:
            raise FormatFault("must be [name, value]", at)


def _parse_interaction(fields: Fields) -> InterpositionInteraction:
    fields.require("request", "fingerprint", "response_chunks")
    request = fields.object("request")
    request.require("protocol", "action", "target")
    interaction = InterpositionInteraction(
        request.text("protocol"),
        request.text("action"),
        request.text("target"),
        pairs_of(request, "headers"),
        request.text("body").encode(),
        tuple(_chunks(fields)),
        pairs_of(fields, "metadata"),
    )
    if fields.object("fingerprint").text("value") != interaction.fingerprint:
        reason = f"is not that of the request beside it, which is {interaction.fingerprint}"
        raise FormatFault(reason, (*fields.at, "fingerprint", "value"))
    return interaction


def _chunks(fields: Fields) -> Iterator[Chunk]:
    if not fields.list("response_chunks"):
        raise fields.fault("response_chunks", "must hold one chunk at least")
    for position, chunk in enumerate(fields.objects("response_chunks")):
        if chunk.integer("sequence", low=0, high=2**53) != position:
            raise chunk.fault("sequence", f"must be {position}: chunks are numbered without a gap")
        yield Chunk(chunk.text("data").encode(), pairs_of(chunk, "metadata"))
