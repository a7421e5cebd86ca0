"""Aliases: additional keys of recordings that AgentTape made.

AgentTape computed keys before redaction, over headers too and without certain names at any
depth. Only the stored keys find such a recording again. A request that is not found by
tapeway's key is therefore looked up by AgentTape's keys too. A recording by AgentTape's
matcher `ordered` has no real key, and answers any request in order.
"""

import hashlib
import re
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from tapeway.core.agenttape import sdk_calls
from tapeway.core.agenttape.key import (
    DEFAULT_IGNORED,
    INIT_IGNORED,
    ORDERED_KEY,
    possible_http_keys,
    possible_keys,
    stored_http_key,
)
from tapeway.core.json_text import Json, canonical
from tapeway.core.matching.document import request_document
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request

ALIAS_PREFIX = b"agenttape:"
"""No match key of tapeway begins with this."""

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_DIGEST_SIZE = 16


def uses_agenttape_keys(meta: Mapping[str, Json]) -> bool:
    """Whether the keys of HTTP requests count in a cassette. Not if tapeway alone recorded.

    Recordings converted from further tools store such keys too, without AgentTape's rule.
    """
    return "agenttape_version" in meta or "tapeway_version" not in meta


def answers_in_order(interaction: Interaction) -> bool:
    """Whether a recording answers in order, for any request."""
    return ORDERED_KEY in interaction.stored_keys


def recording_aliases(interaction: Interaction, rules: Rules) -> tuple[bytes, ...]:
    """The aliases of a recording. A recording that AgentTape did not make has none."""
    if not interaction.stored_keys:
        return ()
    return tuple(dict.fromkeys(_recording_aliases(interaction, rules)))


def request_aliases(
    request: Request, redacted: Request, origins: Iterable[str], rules: Rules
) -> tuple[bytes, ...]:
    """The aliases of a request, the most exact first.

    `request` is the received one: AgentTape computed keys before redaction. `origins` are the origins
    of the route's recordings; without any, only an SDK call has aliases. Aliases are digests,
    which do not reveal the request.
    """
    return tuple(dict.fromkeys(_request_aliases(request, redacted, origins, rules)))


def origin_of(interaction: Interaction) -> str | None:
    """The origin a recording of AgentTape's HTTP adapter was made at, as it was written."""
    return origin_of_url(interaction.request.base) if interaction.stored_keys else None


def origin_of_url(url: str) -> str | None:
    """The origin a URL begins with, as it is written, None for a path alone."""
    match = _ORIGIN.match(url)
    return match[0] if match else None


class AliasIndex:
    """The aliases of the recordings of one cassette that a key of tapeway may not find.

    Those are calls of an SDK and, in a cassette of AgentTape's, its HTTP requests.
    """

    def __init__(self) -> None:
        self._by_alias: dict[bytes, list[int]] = {}
        self._aliases_of: dict[int, tuple[bytes, ...]] = {}
        self._origins: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._aliases_of)

    @property
    def origins(self) -> Iterable[str]:
        """The origins of recordings with aliases, also of removed ones."""
        return self._origins

    def add(self, interaction: Interaction, rules: Rules, meta: Mapping[str, Json]) -> None:
        """Add a recording of a cassette with this `meta`, if it has aliases."""
        origin = origin_of(interaction)
        if origin is not None and not uses_agenttape_keys(meta):
            return
        aliases = recording_aliases(interaction, rules)
        if not aliases:
            return
        self._aliases_of[interaction.index] = aliases
        if origin is not None:
            self._origins[origin] = None
        for alias in aliases:
            insort(self._by_alias.setdefault(alias, []), interaction.index)

    def remove(self, index: int) -> None:
        """Remove a recording, if it has aliases."""
        for alias in self._aliases_of.pop(index, ()):
            self._by_alias[alias].remove(index)
            if not self._by_alias[alias]:
                del self._by_alias[alias]

    def find(self, alias: bytes) -> Sequence[int]:
        """The indexes of the recordings with this alias, in order."""
        return self._by_alias.get(alias, ())


def _recording_aliases(interaction: Interaction, rules: Rules) -> Iterator[bytes]:
    request, ignored = interaction.request, _ignored_names(rules)
    origin = origin_of(interaction)
    endpoint = sdk_calls.endpoint_of(request) if origin is None else None
    if answers_in_order(interaction):
        yield _ordered_alias(origin)
        return
    yield from [_key_alias(key) for key in interaction.stored_keys if key]
    if endpoint is None:
        if key := stored_http_key(request, ignored[0]):
            yield _key_alias(key)
        return
    arguments = sdk_calls.arguments_of(sdk_calls.body_of(request))
    yield from _call_aliases(endpoint, arguments, ignored[:1])
    yield _lenient_alias(endpoint, arguments, rules)


def _request_aliases(
    request: Request, redacted: Request, origins: Iterable[str], rules: Rules
) -> Iterator[bytes]:
    origins, ignored = tuple(origins), _ignored_names(rules)
    path = _ORIGIN.sub("", request.base, count=1) + request.target
    for origin in origins:
        for key in possible_http_keys(request, origin + path, ignored):
            yield _key_alias(key)
    if endpoint := sdk_calls.endpoint_of(request):
        arguments = sdk_calls.arguments_of(sdk_calls.body_of(request))
        yield from _call_aliases(endpoint, arguments, ignored)
        yield _lenient_alias(endpoint, sdk_calls.arguments_of(sdk_calls.body_of(redacted)), rules)
        yield _ordered_alias(None)
    yield from map(_ordered_alias, origins)


def _call_aliases(
    endpoint: str, arguments: Mapping[str, Json], ignored: Sequence[Iterable[str]]
) -> Iterator[bytes]:
    for key in possible_keys({"endpoint": endpoint, **arguments}, ignored):
        yield _key_alias(key)
    if "encoding_format" in arguments and endpoint == "embeddings":
        fewer = {
            name: argument for name, argument in arguments.items() if name != "encoding_format"
        }
        yield from _call_aliases(endpoint, fewer, ignored)


def _lenient_alias(endpoint: str, arguments: Mapping[str, Json], rules: Rules) -> bytes:
    """The alias of a call's content under tapeway's rules, without the SDK's additions."""
    request = sdk_calls.canonical_request(endpoint, arguments)
    # Rules on headers are for HTTP alone: AgentTape's record of a call has none.
    return _alias(b"call", canonical(request_document(request, replace(rules, match=()))))


def _ordered_alias(origin: str | None) -> bytes:
    return _alias(b"ordered", (origin or "").encode("utf-8", "surrogatepass"))


def _key_alias(key: str) -> bytes:
    return _alias(b"key", key.encode("utf-8", "surrogatepass"))


def _alias(kind: bytes, value: bytes) -> bytes:
    digest = hashlib.blake2b(b"%b\0%b" % (kind, value), digest_size=_DIGEST_SIZE)
    return ALIAS_PREFIX + digest.digest()


@lru_cache(maxsize=16)
def _ignored_names(rules: Rules) -> tuple[tuple[str, ...], ...]:
    if rules.agenttape_ignore is not None:
        return (rules.agenttape_ignore,)
    # By default, by the configuration that `agenttape init` writes, and by the matcher `exact`.
    return (DEFAULT_IGNORED, INIT_IGNORED, ())
