"""A database's columns for an interaction: the document, and the keys for look-ups."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tapeway.core.cassette.credential_index import may_hold_credentials
from tapeway.core.correlation.index import alike_key_of, issued_keys
from tapeway.core.json_text import NotJson, ReadJson, check_json, dump, parse
from tapeway.core.matching import rules
from tapeway.core.matching.key import request_key
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import NO_RULES, Rules, RulesFault
from tapeway.core.misses.neighbours import order_keys, weight_of
from tapeway.core.model.cassette import CONDITIONS, CREDENTIALS, CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import CONDITIONAL_STATUSES, Request
from tapeway.core.text import escape_octets
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native import document
from tapeway.stores.support.serialize import serialize_recording

_SMALL = 4096


class FiledKey(NamedTuple):
    """What an index needs of a recording that stays in its store until it is replayed.

    Without a `key` the recording is whole in memory as long as its cassette is in use.
    """

    key: bytes | None
    marks: int = 0


NOT_FILED = FiledKey(None)


@dataclass(frozen=True, slots=True)
class InteractionColumns:
    """The columns of an interaction; the request's columns are empty for kinds without HTTP.

    `weight` is the size of the bodies in the text, in bytes; None for other kinds than exchanges,
    and where some bodies lie in files, whose digests `bodies` holds. `size` is the size of the text
    and these files. `order` has the keys by which neighbours of a request are found, `filed` is what
    an index in memory needs.
    """

    text: bytes
    exchange: bool
    size: int
    keys: tuple[bytes, ...] = ()
    route: str = ""
    base: str = ""
    method: str = ""
    path: str = ""
    query: str = ""
    weight: int | None = None
    bodies: tuple[str, ...] = ()
    order: tuple[bytes, bytes] | None = None
    filed: "FiledKey" = NOT_FILED


def recording_text(recording: Recording) -> bytes:
    """The document of a recording, checked. Raises StoreError, also for a credential in it."""
    return serialize_recording(recording, dump)


def imported_text(item: AnyInteraction) -> bytes:
    """The document of an imported interaction. Raises StoreError."""
    text = serialize_recording(Recording(item), dump)
    # What orjson writes has room for eight times as much, and many of these are held at once.
    return bytes(memoryview(text)) if len(text) > _SMALL else text


def text_with_index(text: bytes, index: int) -> bytes:
    """The document under another index."""
    return dump(document.numbered(index, _document(text)))


def columns_of(item: AnyInteraction, text: bytes, under: Rules) -> InteractionColumns:
    """The columns of an interaction with this document; the keys are made under these rules."""
    exchange = exchange_of(item)
    if exchange is None:
        return InteractionColumns(text, exchange=False, size=len(text))
    request, response = exchange.request, exchange.response
    files = [file for file in (request.file, response.file) if file is not None]
    path, mark, query = column_text(request.target).partition("?")
    return InteractionColumns(
        text,
        exchange=True,
        size=len(text) + sum([file.size for file in files]),
        keys=keys_of(exchange, under),
        route=column_text(request.route),
        base=column_text(request.base),
        method=column_text(request.method),
        path=path,
        query=mark + query,
        weight=weight_of(exchange),
        bodies=tuple(dict.fromkeys([file.digest for file in files])),
        order=None if files else order_keys(request),
        filed=filed_key(exchange, under),
    )


def keys_of(exchange: Interaction, under: Rules) -> tuple[bytes, ...]:
    """The keys by which a recording is found under other identifiers: the digest that its request
    shares with requests that differ in identifiers alone, and those of the identifiers it issued.
    """
    alike = alike_key_of(RecordedRequest(exchange.request, under))
    return (*(() if alike is None else (alike,)), *issued_keys(exchange))


def may_be_filed(item: Interaction) -> bool:
    """Whether a recording may stay in its store until it is replayed."""
    return bool(
        item.request.route
        and not item.has_large_bodies
        and item.failure is None
        and not item.again
        and not item.stored_keys
        and item.response.status not in CONDITIONAL_STATUSES
    )


def filed_key(item: AnyInteraction, under: Rules) -> FiledKey:
    """What an index needs of a recording, under the rules of its cassette."""
    if not isinstance(item, Interaction) or not may_be_filed(item):
        return NOT_FILED
    return FiledKey(request_key(item.request, under), marks_of(item.request, under))


def marks_of(request: Request, under: Rules, parsed: ReadJson | None = None) -> int:
    """The marks of a recording with this request, whose JSON may be read already."""
    marks = CREDENTIALS * may_hold_credentials(request, under, parsed)
    return marks | CONDITIONS * bool(request.varied)


def column_text(text: str) -> str:
    """A text as a column can hold it: what is no UTF-8 is escaped, the same way each time."""
    return escape_octets(text)


def interaction_of(text: bytes, index: int, place: str) -> AnyInteraction:
    """The interaction of a document. Raises CassetteCorrupt, naming the place."""
    try:
        return document.decode(_document(text), index)
    except (FormatFault, NotJson) as exc:
        raise CassetteCorrupt(
            f"{place}, interaction {index}: {exc}; it was left as it is: edit or remove it"
        ) from exc


def head_text(head: CassetteHead) -> bytes:
    """The `meta` of a head as JSON. Raises StoreError."""
    try:
        check_json(head.meta, depth=3)
        return dump(dict(head.meta))
    except (NotJson, UnicodeEncodeError, TypeError, RecursionError) as exc:
        raise StoreError("this cassette's meta cannot be kept: it is no JSON") from exc


def head_of(created_at: str, run_id: str, meta: bytes, place: str) -> CassetteHead:
    """The head again. Raises CassetteCorrupt."""
    try:
        return CassetteHead(created_at, run_id, _document(meta))
    except NotJson as exc:
        raise CassetteCorrupt(f"{place}: its meta is no JSON ({exc})") from exc


@lru_cache(maxsize=64)
def rules_of(meta: bytes) -> Rules:
    """The rules a head states. Raises StoreError where they cannot be used."""
    if b'"rules"' not in meta:
        return NO_RULES
    try:
        return rules.rules_of_meta(_document(meta))
    except (RulesFault, NotJson) as exc:
        raise StoreError(f"the cassette's meta cannot be used: {exc}") from exc


def _document(text: bytes) -> Document:
    value = parse(text)
    if not isinstance(value, dict):
        raise NotJson("it is no object")
    return value
