"""What another tool's format has no field for, in a field of ours that its tool reads over.

It holds what a cassette's document says besides the fields the format has itself. Read back, those
go first: an edit with the other tool, or by hand, always wins.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.formats import exchange, failing
from tapeway.formats.fields import Fields

Document = dict[str, Json]

_ROOT = ("latency_ms", "usage", "tags", "metadata", "match_key")
_FAILED = ("error", failing.PARTIAL)
_BASE_URL = "base_url"
"""The URL a target lies below, for formats that know no host."""


@dataclass(frozen=True, slots=True)
class Held:
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
        own = exchange.encode(plain)
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
        return exchange.decode(document, plain.index, rest.at)


def of_head(head: CassetteHead) -> Document:
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
