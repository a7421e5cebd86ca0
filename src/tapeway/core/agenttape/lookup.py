"""Further names of recordings that AgentTape made.

AgentTape took its keys before it redacted, so only the key it stored finds such a recording again;
it hashes headers too, and leaves out names wherever they stand. A request that is not found under
its own key is looked for under the keys that AgentTape would have given it. What its matcher
`ordered` recorded has no key of its own: it answers in order whatever is asked.
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
from tapeway.core.matching.document import document
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request

ALIAS_PREFIX = b"agenttape:"
"""No match key of ours begins like this."""

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_DIGEST_SIZE = 16


def uses_agenttape_keys(meta: Mapping[str, Json]) -> bool:
    """Whether AgentTape's keys count in a cassette that says this: not where tapeway alone made it.

    Other tools' recordings that were brought in have such keys too, but never had that rule.
    """
    return "agenttape_version" in meta or "tapeway_version" not in meta


def answers_in_order(interaction: Interaction) -> bool:
    """Whether it was recorded to answer in order."""
    return ORDERED_KEY in interaction.stored_keys


def recording_aliases(interaction: Interaction, rules: Rules = NO_RULES) -> tuple[bytes, ...]:
    """The further names of a recording, none for one that AgentTape did not make."""
    if not interaction.stored_keys:
        return ()
    return tuple(dict.fromkeys(_of_interaction(interaction, rules)))


def request_aliases(
    request: Request, redacted: Request, origins: Iterable[str], rules: Rules = NO_RULES
) -> tuple[bytes, ...]:
    """The names to look for a request under, the most exact first.

    `request` is as it came: the keys were taken before anything was redacted. `origins` are those
    that recordings of its route were made at; without any, only an SDK's call has names.
    """
    return tuple(dict.fromkeys(_of_request(request, redacted, origins, rules)))


def origin_of(interaction: Interaction) -> str | None:
    """The origin a recording of AgentTape's HTTP adapter was made at, as it was written."""
    return origin_of_url(interaction.request.base) if interaction.stored_keys else None


def origin_of_url(url: str) -> str | None:
    """The origin a URL begins with, as it is written, None for a path alone."""
    found = _ORIGIN.match(url)
    return found[0] if found else None


class AliasIndex:
    """The further names of the recordings of one cassette."""

    def __init__(self) -> None:
        self._by_name: dict[bytes, list[int]] = {}
        self._names_of: dict[int, tuple[bytes, ...]] = {}
        self._origins: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._names_of)

    @property
    def origins(self) -> Iterable[str]:
        """Where recordings were made that have such names."""
        return self._origins

    def add(self, interaction: Interaction, rules: Rules) -> None:
        """Take in a recording, which may have none."""
        names = recording_aliases(interaction, rules)
        if not names:
            return
        self._names_of[interaction.index] = names
        if (origin := origin_of(interaction)) is not None:
            self._origins[origin] = self._origins.get(origin, 0) + 1
        for name in names:
            insort(self._by_name.setdefault(name, []), interaction.index)

    def remove(self, index: int) -> None:
        """A recording is gone; where it was made is still worth a look."""
        for name in self._names_of.pop(index, ()):
            self._by_name[name].remove(index)
            if not self._by_name[name]:
                del self._by_name[name]

    def found(self, names: Iterable[bytes]) -> Sequence[int]:
        """The recordings with one of these names, those of the first name first."""
        return list(dict.fromkeys(each for name in names for each in self._by_name.get(name, ())))


def _of_interaction(interaction: Interaction, rules: Rules) -> Iterator[bytes]:
    request, ignore = interaction.request, _ignored(rules)
    origin = origin_of(interaction)
    endpoint = sdk_calls.endpoint_of(request) if origin is None else None
    if answers_in_order(interaction):
        yield _ordered(origin)
        return
    yield from [_named(key) for key in interaction.stored_keys if key]
    if endpoint is None:
        if key := stored_http_key(request, ignore[0]):
            yield _named(key)
        return
    arguments = sdk_calls.arguments_of(sdk_calls.body_of(request))
    yield from _of_call(endpoint, arguments, ignore[:1])
    yield _lenient(endpoint, arguments, rules)


def _of_request(
    request: Request, redacted: Request, origins: Iterable[str], rules: Rules
) -> Iterator[bytes]:
    origins, ignore = tuple(origins), _ignored(rules)
    below = _ORIGIN.sub("", request.base, count=1) + request.target
    for origin in origins:
        for key in possible_http_keys(request, origin + below, ignore):
            yield _named(key)
    if endpoint := sdk_calls.endpoint_of(request):
        asked = sdk_calls.arguments_of(sdk_calls.body_of(request))
        yield from _of_call(endpoint, asked, ignore)
        yield _lenient(endpoint, sdk_calls.arguments_of(sdk_calls.body_of(redacted)), rules)
        yield _ordered(None)
    yield from map(_ordered, origins)


def _of_call(
    endpoint: str, arguments: Mapping[str, Json], ignore: Sequence[Iterable[str]]
) -> Iterator[bytes]:
    for key in possible_keys({"endpoint": endpoint, **arguments}, ignore):
        yield _named(key)
    if "encoding_format" in arguments and endpoint == "embeddings":
        fewer = {name: each for name, each in arguments.items() if name != "encoding_format"}
        yield from _of_call(endpoint, fewer, ignore)


def _lenient(endpoint: str, arguments: Mapping[str, Json], rules: Rules) -> bytes:
    asked = sdk_calls.canonical_request(endpoint, arguments)
    # Which headers count is said for HTTP alone, and AgentTape's record of a call has none.
    said = document(asked, replace(rules, match=()))
    return _name(b"call", canonical(said))


def _ordered(origin: str | None) -> bytes:
    return _name(b"ordered", (origin or "").encode("utf-8", "surrogatepass"))


def _named(key: str) -> bytes:
    return _name(b"key", key.encode("utf-8", "surrogatepass"))


def _name(sort: bytes, said: bytes) -> bytes:
    return (
        ALIAS_PREFIX + hashlib.blake2b(b"%b\0%b" % (sort, said), digest_size=_DIGEST_SIZE).digest()
    )


@lru_cache(maxsize=16)
def _ignored(rules: Rules) -> tuple[tuple[str, ...], ...]:
    if rules.agenttape_ignore is not None:
        return (rules.agenttape_ignore,)
    # By default, by its configuration as it is written at first, and by its matcher `exact`.
    return (DEFAULT_IGNORED, INIT_IGNORED, ())
