"""What a conversion between formats could not carry, and where it stood.

Why an interaction has no place in a format that knows only requests and their answers.

What another tool's format has no field for, in a field of ours that its tool reads over.

It holds what a cassette's document says besides the fields the format has itself. Read back, those
go first: an edit with the other tool, or by hand, always wins.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tapeway.core.json_text import Json, Pointer
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.formats.errors import pointer_text
from tapeway.formats.fields import Document, Fields
from tapeway.formats.native import http_exchange

_ROOT = ("latency_ms", "usage", "tags", "metadata", "match_key")
_FAILED = ("error", http_exchange.PARTIAL)

_BASE_URL = "base_url"
"""The URL a target lies below, for formats that know no host."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that is no more after a conversion; `left_out` where it is a whole interaction."""

    place: Pointer
    what: str
    left_out: bool = False

    def __str__(self) -> str:
        return ": ".join(filter(None, [pointer_text(self.place), self.what]))


def dropped(fields: Fields, known: Collection[str]) -> Iterator[Loss]:
    """A loss for each field that says something and has no place in a cassette."""
    for name, value in fields.values.items():
        if name not in known and value not in (None, "", [], {}):
            yield Loss((*fields.at, name), "is not kept")


@dataclass(frozen=True, slots=True)
class ImportedCassette:
    """What a file of another tool says, as a cassette, and what that cannot hold."""

    cassette: StoredCassette
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class ExportedCassette:
    """The file of a cassette in another tool's format, and what that cannot hold."""

    text: bytes
    losses: tuple[Loss, ...] = ()

    @property
    def left_out(self) -> frozenset[int]:
        """The positions of the interactions that are not in the file."""
        places = [loss.place for loss in self.losses if loss.left_out]
        return frozenset([at[1] for at in places if len(at) > 1 and isinstance(at[1], int)])


def unfit(item: AnyInteraction, tool: str, *, failures: bool = False) -> str:
    """The reason, or "" for one that fits; `failures` where the format can tell of those."""
    if isinstance(item, ForeignInteraction):
        said = item.document.get("kind")
        kind = "another tool's error" if said == "http" else f"a recording of kind '{said}'"
        return f"is {kind}, and {tool} holds only requests and their answers"
    if item.failure is not None and not failures:
        return f"is a recorded failure, which {tool} has no way to tell"
    if item.request.file is not None or item.response.file is not None:
        return f"its large body lies in a file beside the cassette, and {tool} holds bodies in the text"
    return ""


@dataclass(frozen=True, slots=True)
class ExtensionField:
    """The fields of a cassette's request and response that a format has itself."""

    request: Collection[str]
    response: Collection[str]
    host: bool = True

    def rest(self, interaction: Interaction, document: Document) -> Document:
        """All else that the interaction's document says."""
        request = _without(document["request"], self.request)
        if not self.host and interaction.request.base:
            request[_BASE_URL] = interaction.request.base
        found: Document = {"request": request}
        if "response" in document:
            found["response"] = _without(document["response"], self.response)
        names = _ROOT if interaction.stored_keys else _ROOT[:-1]
        return found | {name: document[name] for name in (*_FAILED, *names) if name in document}

    def joined(self, plain: Interaction, rest: Fields) -> Interaction:
        """What the format's own fields say, and the rest. Raises FormatFault with the place."""
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
        document |= {name: rest.values[name] for name in (*_FAILED, *_ROOT) if name in rest}
        return http_exchange.decode(document, plain.index, rest.at)


def head_fields(head: CassetteHead) -> Document:
    """What a cassette says about itself."""
    return {"created_at": head.created_at, "run_id": head.run_id, "meta": dict(head.meta)}


def head(fields: Fields, fresh: CassetteHead) -> CassetteHead:
    """What it said about itself, or the fresh one where it said nothing. Raises FormatFault."""
    if "run_id" not in fields:
        return fresh
    return CassetteHead(
        fields.text("created_at") or fresh.created_at,
        fields.text("run_id"),
        fields.object("meta").values,
    )


def _without(value: object, names: Collection[str]) -> Document:
    return {name: inner for name, inner in _fields(value).items() if name not in names}


def _only(value: object, names: Collection[str]) -> Document:
    return {name: inner for name, inner in _fields(value).items() if name in names}


def _fields(value: object) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
