"""interposition's interactions as items of a cassette, and back without any difference.

One of HTTP is a recording like any other, found by the proxy and edited by hand; what interposition
says besides (empty chunks, metadata, fields that HTTP makes anew) stands in its `metadata`. All
else, other protocols above all, is an item of the kind `tool`, word for word.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import ResponseChunk
from tapeway.formats import exchange
from tapeway.formats.call import Call, divided, kept, keyed, octets, texts
from tapeway.formats.extension import Document
from tapeway.formats.fault import FormatFault, Pointer
from tapeway.formats.fields import Fields

NOTE = "interposition"
"""What holds the rest in an item's metadata."""

LENGTHS = "lengths"
"""In a note: how long the chunks are, where that is not what the recording's own say."""

KIND = "tool"
"""What an item that is no HTTP call is among the kinds there are."""

Pairs = tuple[tuple[str, str], ...]
_STATUS = "status_code"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer and what was said about it."""

    data: bytes
    metadata: Pairs = ()


@dataclass(frozen=True, slots=True)
class Interposed:
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


def item_of(interposed: Interposed, index: int = 0) -> Held:
    """The item that says all of it."""
    if interposed.protocol.lower() in ("http", "https"):
        found = _exchange(interposed, index)
        if found is not None and interposed_of(found) == interposed:
            return found
    return ForeignInteraction(index, _document(interposed))


def interposed_of(item: Held) -> Interposed | None:
    """What interposition would have of an item, None for what it has no way to tell.

    Raises FormatFault for one that was edited into something else.
    """
    if isinstance(item, ForeignInteraction):
        metadata = item.document.get("metadata")
        is_one = isinstance(metadata, dict) and NOTE in metadata
        return _of_document(item.document) if is_one else None
    if item.failure is not None:
        return None
    return _completed(_plain(item), item)


def noted(item: Interaction, interposed: Interposed, *, cuts: bool = True) -> Interaction:
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


def _exchange(interposed: Interposed, index: int) -> Interaction | None:
    first = interposed.chunks[0].metadata if interposed.chunks else ()
    status = dict(first).get(_STATUS, "200")
    if not (status.isascii() and status.isdigit() and len(status) == 3):
        return None
    call = Call(
        method=interposed.action,
        url=interposed.target,
        request_headers=octets(interposed.headers),
        request_body=interposed.body,
        status=int(status),
        chunks=tuple([ResponseChunk(each.data) for each in interposed.chunks]),
    )
    try:
        return noted(keyed(call.interaction(index, ())), interposed)
    except (FormatFault, UnicodeError):
        return None


def _plain(item: Interaction) -> Interposed:
    """What the recording says to one who reads no note."""
    request, response = item.request, item.response
    own = exchange.encode(item)["request"]
    url = str(own["url"]) if isinstance(own, dict) else request.url
    pieces = [each.data for each in response.chunks if each.data] or [b""]
    status: Pairs = ((_STATUS, str(response.status)),)
    chunks = [Chunk(data, () if at else status) for at, data in enumerate(pieces)]
    return Interposed(
        "http",
        request.method,
        url.removeprefix(request.base),
        tuple(texts(own)),
        request.body,
        tuple(chunks),
    )


def _note(plain: Interposed, wanted: Interposed, *, cuts: bool) -> Document:
    note: Document = {}
    for name in ("protocol", "target"):
        if getattr(plain, name) != getattr(wanted, name):
            note[name] = getattr(wanted, name)
    if plain.headers != wanted.headers:
        note["headers"] = _lists(wanted.headers)
    lengths = [len(each.data) for each in wanted.chunks]
    if cuts and lengths != [len(each.data) for each in plain.chunks]:
        note[LENGTHS] = [*lengths]
    said = [each.metadata for each in wanted.chunks]
    if said != [plain.chunks[0].metadata, *[()] * (len(said) - 1)]:
        note["chunk_metadata"] = {str(at): _lists(each) for at, each in enumerate(said) if each}
    if wanted.metadata:
        note["metadata"] = _lists(wanted.metadata)
    return note


def _completed(plain: Interposed, item: Interaction) -> Interposed:
    note = item.metadata.get(NOTE)
    if not isinstance(note, dict):
        return plain
    fields = Fields(note, ("metadata", NOTE))
    chunks = _cut(plain.chunks, fields)
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


def _target(plain: Interposed, item: Interaction, note: Fields) -> str:
    said = note.text("target", plain.target)
    # What was edited by hand counts, and not what the note says of what stood there before.
    return said if divided(said) == (item.request.base, item.request.target) else plain.target


def _headers(plain: Interposed, item: Interaction, note: Fields) -> Pairs:
    if "headers" not in note:
        return plain.headers
    said = pairs_of(note, "headers")
    return said if kept(octets(said)) == item.request.headers else plain.headers


def _cut(chunks: tuple[Chunk, ...], note: Fields) -> list[Chunk]:
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


def _document(interposed: Interposed) -> Document:
    return {
        "kind": KIND,
        "boundary": interposed.protocol,
        "request": {
            "protocol": interposed.protocol,
            "action": interposed.action,
            "target": interposed.target,
            "headers": _lists(interposed.headers),
            **_data("body", interposed.body),
        },
        "response": {
            "chunks": [
                {**_data("body", each.data), "metadata": _lists(each.metadata)}
                for each in interposed.chunks
            ]
        },
        "metadata": {NOTE: {"metadata": _lists(interposed.metadata)}},
    }


def _of_document(document: Mapping[str, Json]) -> Interposed:
    root = Fields(document, ())
    request, chunks = root.object("request"), root.object("response")
    request.require("protocol", "action", "target")
    return Interposed(
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
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode("ascii")}


def _octets(fields: Fields, name: str) -> bytes:
    if f"{name}_b64" in fields:
        return fields.base64(f"{name}_b64")
    return fields.text(name).encode("utf-8")


def _lists(pairs: Pairs) -> Json:
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
