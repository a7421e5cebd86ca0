"""Recognises the provider of a path without a route name.

With it `OPENAI_BASE_URL=http://127.0.0.1:8080/v1` works without any option. Only paths that a single
provider has are recognised.
"""

import re
from functools import lru_cache

from tapeway.core.model.messages import Headers
from tapeway.providers.catalogue import PROVIDERS

_BY_HEADER = {
    provider.own_header: name for name, provider in PROVIDERS.items() if provider.own_header
}
PROVIDER_HEADERS = (*_BY_HEADER,)
"""The request fields whose presence names a provider."""
_BY_PATH = [
    (re.compile(provider.own_paths), name)
    for name, provider in PROVIDERS.items()
    if provider.own_paths
]


def owner(target: str, headers: Headers) -> str | None:
    """The built-in route for a raw target without a route name, None if no provider is recognised."""
    for name, _ in headers:
        if (provider := _BY_HEADER.get(name.lower())) is not None:
            return provider
    return _owner_of(target.partition("?")[0])


# Asked several times about each call, and clients use few paths.
@lru_cache(maxsize=512)
def _owner_of(path: str) -> str | None:
    matches = [(match.end(), name) for own, name in _BY_PATH if (match := own.match(path))]
    # The longest: /v1/models/m:generateContent is Gemini's, other models are OpenAI's.
    return max(matches)[1] if matches else None
