"""Recognises the provider of a path without a route name.

With it `OPENAI_BASE_URL=http://127.0.0.1:8080/v1` works without any option. Only paths that a single
provider has are recognised.
"""

import re

from tapeway.core.model.messages import Headers

_OPENAI_RESOURCES = frozenset(
    {
        "assistants",
        "audio",
        "batches",
        "chatkit",
        "completions",
        "containers",
        "conversations",
        "edits",
        "embeddings",
        "engines",
        "evals",
        "files",
        "fine_tuning",
        "images",
        "models",
        "moderations",
        "organization",
        "realtime",
        "responses",
        "threads",
        "uploads",
        "vector_stores",
        "videos",
    }
)
_ANTHROPIC_RESOURCES = frozenset(
    {"complete", "messages", "oauth"}
)  # oauth: its SDK renews tokens there
_OLLAMA_RESOURCES = frozenset(
    {
        "blobs",
        "chat",
        "copy",
        "create",
        "delete",
        "embed",
        "embeddings",
        "generate",
        "ps",
        "pull",
        "push",
        "show",
        "tags",
        "version",
    }
)
_BY_HEADER = {b"anthropic-version": "anthropic", b"x-goog-api-key": "gemini"}
PROVIDER_HEADERS = (*_BY_HEADER,)
"""The request fields whose presence names a provider."""
# google-genai 3 asks for /v1/, earlier ones for /v1beta/; uploads go below /upload/. The verbs are
# named since OpenAI's fine-tuned models have colons too.
_GEMINI_PATH = re.compile(
    r"/(?:(?:upload|download)/)?v1(?:beta|alpha)\d*(?:/|$)"
    r"|/v1/(?:tunedModels|cachedContents)(?:/|$)"
    r"|/v1/models/[^/]+(?::|%3[aA])(?:\w*(?:Contents?|Tokens)|predict\w*)$"
)


def owner(target: str, headers: Headers) -> str | None:
    """The built-in route for a raw target without a route name, None if no provider is recognised."""
    for name, _ in headers:
        if (provider := _BY_HEADER.get(name.lower())) is not None:
            return provider
    path = target.partition("?")[0]
    if _GEMINI_PATH.match(path):
        return "gemini"
    _, first, second, *_ = [*path.split("/", 3), "", ""]
    if first == "api":
        return "ollama" if second in _OLLAMA_RESOURCES else None
    if first != "v1":
        return None
    if second in _ANTHROPIC_RESOURCES:
        return "anthropic"
    # /v1/chat alone is Cohere's.
    if second in _OPENAI_RESOURCES or path.startswith("/v1/chat/completions"):
        return "openai"
    return None
