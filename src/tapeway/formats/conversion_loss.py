"""The losses of a conversion to or from a foreign format, and tapeway's extension field against
loss.

Data without a field in the foreign format go into an extension field, and the foreign tool ignores
the extension field. When a file is read back, the fields of the format take precedence: an edit
with the tool, or by hand, wins.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tapeway.core import loose_json
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.formats.errors import pointer_text
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import http_exchange

_OTHER_FIELDS = ("latency_ms", "usage", "tags", "metadata", "match_key")
_FAILURE_FIELDS = ("error", http_exchange.PARTIAL)


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


@dataclass(frozen=True, slots=True)
class ExtensionField:
    """tapeway's extension field in a foreign format: the data that the fields of the format lack.

    `request` and `response` name the fields of a cassette's document that the format has too.
    """

    request: Collection[str]
    response: Collection[str]

    def rest(self, interaction: Interaction, document: Document) -> Document:
        """The content of the extension field: everything else in the interaction's document."""
        kept: Document = {"request": _without(document["request"], self.request)}
        if "response" in document:
            kept["response"] = _without(document["response"], self.response)
        names = _OTHER_FIELDS if interaction.stored_keys else _OTHER_FIELDS[:-1]
        return kept | {
            name: document[name] for name in (*_FAILURE_FIELDS, *names) if name in document
        }

    def merge(self, plain: Interaction, rest: Fields) -> Interaction:
        """The interaction from the format's fields and the rest. Raises FormatFault."""
        request, response = rest.object("request"), rest.object("response")
        own = http_exchange.encode(plain)
        document: Document = {name: own[name] for name in ("index", "kind")}
        document["request"] = {
            **_only(own["request"], self.request),
            **_without(request.values, self.request),
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
