"""The cassette file: AgentTape's schema, version "1", as one indented JSON document.

Reading is in two steps, so that what nobody changed is written back as it was found: `read` gives
the documents of the interactions, `decode` what one of them says. `write` numbers them anew.

Texts and octets that AgentTape keeps beside a cassette, brought back to where they belong.

AgentTape writes all that have more than 4 KiB into `NAME.assets/` and leaves a reference with its digest.

What tells whether a cassette, or one of its interactions, is the same as it was.

It does not depend on how interactions are numbered, but on what they say and on their order.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count

from tapeway.core import json_text
from tapeway.core.cassette import cursors
from tapeway.core.json_text import Json, NotJson, Pointer, dump, parse
from tapeway.core.matching import rules
from tapeway.core.matching.rules import RulesFault
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.text import decode_utf8
from tapeway.formats import errors
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import http_exchange, sdk_calls, versions
from tapeway.formats.native.versions import UPGRADES, Upgrade

FetchAsset = Callable[[str], bytes | None]
"""Gives the content behind a digest `sha256:…`, or None where there is none."""

BYTES_NAME = "__agenttape_bytes__"
"""The only name in an object that stands for octets, in base64: how AgentTape writes small ones."""
_ASSET = "__agenttape_asset__"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
KINDS = ("llm", "tool", "retrieval", "memory_read", "memory_write", "http")
_ROOT = ("version", "created_at", "run_id", "meta", "interactions")


def may_refer_to_assets(text: bytes) -> bool:
    """Whether a cassette's text may hold a reference at all."""
    return _ASSET.encode() in text


def inline_assets(value: Json, fetch: FetchAsset, at: Pointer) -> Json:
    """The value with every reference replaced by its content. Raises FormatFault for a lost one."""
    if isinstance(value, dict):
        if _ASSET in value:
            return _content(value, fetch, at)
        return {name: inline_assets(inner, fetch, (*at, name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [inline_assets(inner, fetch, (*at, index)) for index, inner in enumerate(value)]
    return value


def with_previews(value: Json) -> Json:
    """The value with each reference replaced whose text is short enough to stand in it whole."""
    if isinstance(value, dict):
        preview = value.get("preview")
        if _ASSET in value and isinstance(preview, str) and value.get("encoding") == "utf-8":
            return (
                preview if len(preview.encode("utf-8", "replace")) == value.get("size") else value
            )
        return {name: with_previews(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_previews(inner) for inner in value]
    return value


def _content(reference: dict[str, Json], fetch: FetchAsset, at: Pointer) -> Json:
    digest = reference[_ASSET]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise FormatFault("is a reference without a sha256 digest", at)
    content = fetch(digest)
    if content is None:
        raise FormatFault(f"the file of {digest} beside the cassette is missing: restore it", at)
    if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
        raise FormatFault(f"the file of {digest} beside the cassette was changed: restore it", at)
    if reference.get("encoding") == "base64":
        return {BYTES_NAME: base64.b64encode(content).decode("ascii")}
    if (text := decode_utf8(content)) is None:
        raise FormatFault(f"the file of {digest} beside the cassette is no text", at)
    return text


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A cassette file taken apart: its head and its interactions, each with its index."""

    head: CassetteHead
    documents: tuple[tuple[int, Document], ...]


def no_assets(digest: str) -> bytes | None:
    """Where a cassette stands alone, there is nothing beside it."""
    return None


def load(text: bytes, fetch: FetchAsset = no_assets) -> StoredCassette:
    """The cassette a file holds. Raises FormatFault with line, place and reason."""
    parsed = read(text)
    return StoredCassette(parsed.head, tuple(decode_all(text, parsed, fetch)))


def save(cassette: StoredCassette) -> bytes:
    """The file of a cassette, its interactions numbered by their position."""
    return write(cassette.head, [encode(each) for each in cassette.interactions])


def read(text: bytes, upgrades: Mapping[int, Upgrade] = UPGRADES) -> ParsedFile:
    """The documents a file holds. Raises FormatFault when the frame around them is wrong."""
    try:
        value = parse(text, constant=json_text.non_finite_object)
    except NotJson as exc:
        raise errors.explain(text, exc) from None
    try:
        return parse_root(value, upgrades)
    except FormatFault as exc:
        raise _placed(exc, text) from None


def decode_all(text: bytes, parsed: ParsedFile, fetch: FetchAsset) -> list[AnyInteraction]:
    """What all the documents of a file say. Raises FormatFault with line, place and reason."""
    try:
        return decode_parsed(parsed, fetch if may_refer_to_assets(text) else None)
    except FormatFault as exc:
        raise _placed(exc, text) from None


def decode_parsed(parsed: ParsedFile, fetch: FetchAsset | None) -> list[AnyInteraction]:
    """The same, in whatever way the file writes its values. Raises FormatFault with the place."""
    return [
        decode(document, index, ("interactions", position), fetch)
        for position, (index, document) in enumerate(parsed.documents)
    ]


def decode(
    document: Document, index: int, at: Pointer = (), fetch: FetchAsset | None = None
) -> AnyInteraction:
    """What a document says; kinds that HTTP does not carry, and other tools' errors, stay as they are."""
    if fetch is not None:
        inlined = inline_assets(document, fetch, at)
        document = inlined if isinstance(inlined, dict) else document
    fields = Fields(document, at)
    fields.require("kind")
    kind = fields.text("kind")
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, n=1)
        advice = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(KINDS)}"
        raise fields.fault("kind", f"there is no kind '{kind}'; {advice}")
    if "error" not in fields and "response" not in document:
        raise FormatFault("there is neither a 'response' nor an 'error'", at)
    if kind != "http" or _is_custom(document.get("request")):
        return ForeignInteraction(index, document, sdk_calls.exchange_of(document, index, at))
    if "error" in fields and not http_exchange.is_ours(document.get("error")):
        return ForeignInteraction(index, document, sdk_calls.failed(document, index, at))
    return http_exchange.decode(document, index, at)


def _is_custom(request: Json) -> bool:
    # Who records by hand with AgentTape may call anything `http`.
    return isinstance(request, dict) and "method" not in request and "url" not in request


def encode(interaction: AnyInteraction) -> Document:
    """The document of an interaction. Raises FormatFault for one that could not be read again."""
    if isinstance(interaction, ForeignInteraction):
        return dict(interaction.document)
    return http_exchange.encode(interaction)


def write(head: CassetteHead, documents: Iterable[Document]) -> bytes:
    """The file of a head and documents in this order; the same ones give the same bytes."""
    frame = json_text.write_non_finite(dump(root_fields(head), indent=True)).removesuffix(b"\n}")
    # One by one: what one interaction holds has no influence on how another is written.
    written = [_indented(index, document) for index, document in enumerate(documents)]
    if not written:
        return frame + b',\n  "interactions": []\n}\n'
    return frame + b',\n  "interactions": [\n' + b",\n".join(written) + b"\n  ]\n}\n"


def root_fields(head: CassetteHead) -> Document:
    """The fields of a file that stand before its interactions."""
    return {
        "version": str(versions.CURRENT),
        "created_at": head.created_at,
        "run_id": head.run_id,
        "meta": dict(head.meta),
    }


def numbered(index: int, document: Document) -> Document:
    """The document with its number, in its place or in front."""
    return document | {"index": index} if "index" in document else {"index": index, **document}


def _indented(index: int, document: Document) -> bytes:
    text = dump(numbered(index, document), indent=True)
    match document.get("response", document.get(http_exchange.PARTIAL)):
        case {"chunks": [[int() | float(), int()], *_] as chunks}:
            text = text.replace(*_spread_and_narrow(chunks))
    # A line break inside a string is an escape, so each one here begins a line.
    return b"    " + json_text.write_non_finite(text).replace(b"\n", b"\n    ")


def _spread_and_narrow(chunks: list[Json]) -> tuple[bytes, bytes]:
    # A stream has hundreds of chunks; on four lines each they would bury the answer.
    spread = dump(chunks, indent=True).replace(b"\n", b"\n    ")
    each_a_line = b",\n      ".join([dump(each).replace(b",", b", ") for each in chunks])
    name = b'\n    "chunks": '
    return name + spread, name + b"[\n      " + each_a_line + b"\n    ]"


def parse_root(value: Json, upgrades: Mapping[int, Upgrade] = UPGRADES) -> ParsedFile:
    """The documents in the value of a file of any version. Raises FormatFault with the place."""
    fields = Fields(versions.upgraded(_root(value), upgrades), ())
    fields.only(_ROOT)
    fields.require("interactions")
    found = [
        Fields.of(each, ("interactions", position))
        for position, each in enumerate(fields.list("interactions"))
    ]
    documents = [dict(each.values) for each in found]
    head = CassetteHead(
        created_at=fields.text("created_at"),
        run_id=fields.text("run_id"),
        meta=fields.object("meta").values,
    )
    _check_rules(head)
    return ParsedFile(head, tuple(zip(_indexes(found), documents, strict=True)))


def _root(value: Json) -> Document:
    # AgentTape told to keep nearly everything in files does so with the head's own fields too.
    return {
        name: each if name == "interactions" else with_previews(each)
        for name, each in Fields.of(value, ()).values.items()
    }


def _check_rules(head: CassetteHead) -> None:
    try:
        rules.rules_of_meta(head.meta)
        cursors.repeats_of_meta(head.meta)
    except RulesFault as exc:
        raise FormatFault(f"{exc.what}; {exc.remedy}", ("meta", *exc.pointer)) from exc


def _indexes(documents: Sequence[Fields]) -> list[int]:
    # One that was copied or not numbered by hand gets the next free number.
    own: list[int | None] = []
    taken: set[int | None] = set()
    for document in documents:
        index = document.integer("index", low=0, high=2**53) if "index" in document else None
        own.append(None if index in taken else index)
        taken.add(index)
    fresh = count(max([each for each in own if each is not None], default=-1) + 1)
    return [next(fresh) if each is None else each for each in own]


def _placed(fault: FormatFault, text: bytes) -> FormatFault:
    line = errors.line_of(text.decode("utf-8"), fault.pointer)
    return FormatFault(fault.reason, fault.pointer, line=line)


def document_digest(document: Mapping[str, Json]) -> str:
    """The digest of an interaction's document, its number aside."""
    plain = {name: value for name, value in document.items() if name != "index"}
    return hashlib.sha256(dump(plain)).hexdigest()


def interaction_digest(item: AnyInteraction) -> str:
    """The same for what a document says. Raises FormatFault for what none could say."""
    return document_digest(encode(item))


def head_digest(head: CassetteHead) -> str:
    """The digest of what a cassette says of itself."""
    return hashlib.sha256(dump(root_fields(head))).hexdigest()


class CassetteDigest:
    """The digest of a whole cassette as it grows, from that of its head and of its interactions."""

    def __init__(self, head: str) -> None:
        self._found = hashlib.sha256(head.encode())

    def add(self, digest: str) -> None:
        self._found.update(b"\n" + digest.encode())

    @property
    def digest(self) -> str:
        return self._found.hexdigest()


def cassette_digest(head: str, digests: Iterable[str]) -> str:
    """The same for all of them, in order."""
    whole = CassetteDigest(head)
    for each in digests:
        whole.add(each)
    return whole.digest
