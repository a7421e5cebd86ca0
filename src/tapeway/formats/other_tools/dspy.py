"""DSPy's replay caches: one value for each key, as ReplayCache stores them in a JSON file.

An entry becomes a recording of kind `llm`, since DSPy calls a library and no URL. It is found by
DSPy's own key, computed bit for bit as DSPy does.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import orjson

from tapeway.core.cassette import cursors
from tapeway.core.digests import sha256
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.formats import conversion_loss
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields

IGNORED = ("api_key", "api_base", "base_url")
"""The arguments that are not part of a key and should not be in an entry."""

EXTENSION_NAME = "tapeway"

META = "dspy"
"""In the metadata of a cassette what its file says of itself, in that of an entry its key and type."""

_FUNCTION = "_fn_identifier"
_ENDPOINTS = {
    "completion": "chat.completions",
    "text_completion": "completions",
    "responses_completion": "responses",
    "compute_embeddings": "embeddings",
}
"""AgentTape's names of the endpoints behind the functions that DSPy caches."""


def cache_key(request: Mapping[str, Json], ignored: Collection[str] = IGNORED) -> str:
    """DSPy's key of a request that is JSON. Raises ValueError where DSPy has none (64 bits and more)."""
    counted = {name: value for name, value in request.items() if name not in ignored}
    try:
        text = orjson.dumps(counted, option=orjson.OPT_SORT_KEYS)
    except TypeError as exc:
        raise ValueError("DSPy caches no request that orjson cannot write") from exc
    return sha256(text).hexdigest()


def recognises(value: Json) -> bool:
    """Whether a document looks like such a file."""
    match value:
        case {"metadata": {}, "entries": {}}:
            return True
        case _:
            return False


def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
    """The cassette. Raises FormatFault with the place."""
    root = Fields.of(value, ())
    root.require("entries")
    about, entries = root.object("metadata"), root.object("entries")
    interactions = [
        ForeignInteraction(index, document_of(key, entries.object(key)))
        for index, key in enumerate(entries.values)
    ]
    rest = {name: value for name, value in about.values.items() if name != EXTENSION_NAME}
    fresh = replace(fresh, meta=cursors.meta_with_repeats(fresh.meta, "last"))
    began = replace(fresh, created_at=about.text("created_at") or fresh.created_at)
    head = conversion_loss.read_head(about.object(EXTENSION_NAME), began)
    if rest:
        head = replace(head, meta={**head.meta, META: rest})
    return StoredCassette(head, tuple(interactions)), []


def document_of(key: str, entry: Fields) -> Document:
    """The document of an entry in a cassette. Raises FormatFault with the place."""
    entry.require("request", "response")
    request, response = dict(entry.object("request").values), entry.object("response")
    if "data" not in response.values:
        raise FormatFault("the field 'data' is missing", response.at)
    about: Document = {"key": key}
    if _FUNCTION in request:
        about[_FUNCTION] = request.pop(_FUNCTION)
    about["response"] = {name: value for name, value in response.values.items() if name != "data"}
    endpoint = _endpoint(about)
    return {
        "kind": "llm",
        "boundary": "llm",
        "request": {"endpoint": endpoint, **request} if endpoint else request,
        "response": response.values["data"],
        "metadata": {META: about},
    }


def entry_of(document: Mapping[str, Json]) -> tuple[str, Document] | None:
    """The key and the entry in a document, None for one that DSPy did not record."""
    metadata, request = document.get("metadata"), document.get("request")
    about = metadata.get(META) if isinstance(metadata, dict) else None
    if not isinstance(about, dict) or not isinstance(request, dict) or "response" not in document:
        return None
    key, rest = about.get("key"), about.get("response")
    if not isinstance(key, str) or not isinstance(rest, dict):
        return None
    arguments = dict(request)
    if (endpoint := _endpoint(about)) and arguments.get("endpoint") == endpoint:
        del arguments["endpoint"]
    if _FUNCTION in about:
        arguments[_FUNCTION] = about[_FUNCTION]
    return key, {"request": arguments, "response": {**rest, "data": document["response"]}}


def _endpoint(about: Mapping[str, Json]) -> str:
    # `dspy.clients.lm.alitellm_completion` and `…embedding._cached_compute_embeddings`
    name = str(about.get(_FUNCTION, "")).rpartition(".")[2]
    for prefix in ("alitellm_", "litellm_", "_cached_a", "_cached_"):
        if name.startswith(prefix):
            return _ENDPOINTS.get(name.removeprefix(prefix), "")
    return ""
