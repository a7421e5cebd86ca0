"""The losses of a conversion to or from a foreign format, and tapeway's extension field against
loss.

Data without a field in the foreign format go into an extension field, and the foreign tool ignores
the extension field. When a file is read back, the fields of the format take precedence: an edit
with the tool, or by hand, wins.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from tapeway.core import loose_json
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.formats.errors import pointer_text
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import http_exchange

_OTHER_FIELDS = ("latency_ms", "usage", "tags", "metadata", "match_key")
_FAILURE_FIELDS = ("error", http_exchange.PARTIAL)

_BASE_URL = "base_url"
"""The base URL of a target, for formats without hosts."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Data that a conversion does not keep; `left_out` marks a whole interaction."""

    place: Pointer
    what: str
    left_out: bool = False

    def __str__(self) -> str:
        return ": ".join(filter(None, [pointer_text(self.place), self.what]))


def lost_interaction(position: int, why: str) -> Loss:
    """The loss of a whole interaction of a cassette."""
    return Loss(("interactions", position), f"{why}: left out", left_out=True)


def unknown_fields(fields: Fields, known: Collection[str]) -> Iterator[Loss]:
    """A loss for each non-empty field that a cassette has no place for."""
    for name, value in fields.values.items():
        if name not in known and value not in (None, "", [], {}):
            yield Loss((*fields.at, name), "is not kept")


@dataclass(frozen=True, slots=True)
class ImportedCassette:
    """A cassette from a foreign file, and the losses of the conversion."""

    cassette: StoredCassette
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedCassette:
    """A cassette as a foreign file, and the losses of the conversion."""

    text: bytes
    losses: tuple[Loss, ...] = ()

    @property
    def left_out(self) -> frozenset[int]:
        """The positions of the interactions that are not in the file."""
        places = [loss.place for loss in self.losses if loss.left_out]
        return frozenset([at[1] for at in places if len(at) > 1 and isinstance(at[1], int)])


def reason_unfit(item: AnyInteraction, tool: str, *, failures: bool = False) -> str:
    """Why a format of HTTP calls cannot hold an interaction, "" if it can.

    `failures` says that the format can hold recorded failures.
    """
    if isinstance(item, ForeignInteraction):
        kind = item.document.get("kind")
        what = "another tool's error" if kind == "http" else f"a recording of kind '{kind}'"
        return f"is {what}, and {tool} holds only requests and their answers"
    if item.failure is not None and not failures:
        return f"is a recorded failure, which {tool} cannot express"
    if item.request.file is not None or item.response.file is not None:
        return (
            f"its large body is in a file beside the cassette, and {tool} holds bodies in the text"
        )
    return ""


@dataclass(frozen=True, slots=True)
class ExtensionField:
    """tapeway's extension field in a foreign format: the data that the fields of the format lack.

    `request` and `response` name the fields of a cassette's document that the format has too;
    `host` says whether requests in the format have a host.
    """

    request: Collection[str]
    response: Collection[str]
    host: bool = True

    def rest(self, interaction: Interaction, document: Document) -> Document:
        """The content of the extension field: everything else in the interaction's document."""
        request = _without(document["request"], self.request)
        if not self.host and interaction.request.base:
            request[_BASE_URL] = interaction.request.base
        kept: Document = {"request": request}
        if "response" in document:
            kept["response"] = _without(document["response"], self.response)
        names = _OTHER_FIELDS if interaction.stored_keys else _OTHER_FIELDS[:-1]
        return kept | {
            name: document[name] for name in (*_FAILURE_FIELDS, *names) if name in document
        }

    def merge(self, plain: Interaction, rest: Fields) -> Interaction:
        """The interaction from the format's fields and the rest. Raises FormatFault."""
        request, response = rest.object("request"), rest.object("response")
        if not self.host and _BASE_URL in request:
            based = replace(plain.request, base=request.text(_BASE_URL))
            plain = replace(plain, request=based)
        own = http_exchange.encode(plain)
        document: Document = {name: own[name] for name in ("index", "kind")}
        document["request"] = {
            **_only(own["request"], self.request),
            **_without(request.values, (*self.request, _BASE_URL)),
        }
        if "error" not in rest:
            document["response"] = {
                **_only(own["response"], self.response),
                **_without(response.values, self.response),
            }
        document |= {
            name: rest.values[name] for name in (*_FAILURE_FIELDS, *_OTHER_FIELDS) if name in rest
        }
        return http_exchange.decode(document, plain.index, rest.at)


def head_fields(head: CassetteHead) -> Document:
    """The head of a cassette as fields."""
    return {"created_at": head.created_at, "run_id": head.run_id, "meta": dict(head.meta)}


def read_head(fields: Fields, fresh: CassetteHead) -> CassetteHead:
    """The head in the fields, or the fresh head where the fields have none. Raises FormatFault."""
    if "run_id" not in fields:
        return fresh
    return CassetteHead(
        fields.text("created_at") or fresh.created_at,
        fields.text("run_id"),
        fields.object("meta").values,
    )


def _without(value: object, names: Collection[str]) -> Document:
    return {name: inner for name, inner in loose_json.fields(value).items() if name not in names}


def _only(value: object, names: Collection[str]) -> Document:
    return {name: inner for name, inner in loose_json.fields(value).items() if name in names}
