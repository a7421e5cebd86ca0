"""The token counts in an LLM response."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tapeway.core.json_text import Json, peek_json
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import documents
from tapeway.providers.api_call import ApiCall


class Usage(NamedTuple):
    """Tokens an LLM call was charged for, in OpenAI's terms."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    def fields(self) -> dict[str, Json]:
        """The counts as a recording stores them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }


@dataclass(frozen=True, slots=True)
class _UsageFields:
    """The fields of a dialect's token counts: the objects they are in, and the fields to add up.

    `objects` are dotted paths, empty for the document itself. Without `total` the total is the sum.
    """

    objects: tuple[str, ...]
    prompt: tuple[str, ...]
    completion: tuple[str, ...] = ()
    total: str | None = None
    adds_up: bool = False
    """Whether the recording has several answers, each with its own counts."""
    all_fields: tuple[str, ...] = field(init=False)
    marks: tuple[bytes, ...] = field(init=False)
    """Searched in a text before parsing."""
    paths: tuple[tuple[str, ...], ...] = field(init=False)
    """The names that lead to the objects."""

    def __post_init__(self) -> None:
        names = (*self.prompt, *self.completion, *((self.total,) if self.total else ()))
        object.__setattr__(self, "all_fields", names)
        object.__setattr__(self, "marks", tuple([name.encode() for name in names]))
        paths = [tuple(path.split(".")) if path else () for path in self.objects]
        object.__setattr__(self, "paths", tuple(paths))


# OpenAI's prompt_tokens include cached tokens and its completion_tokens include reasoning. Other
# providers report these counts separately, so the sums are made here.
_CHAT = _UsageFields(
    ("usage", "x_groq.usage"), ("prompt_tokens",), ("completion_tokens",), "total_tokens"
)
_RESPONSES = _UsageFields(
    ("usage", "response.usage"), ("input_tokens",), ("output_tokens",), "total_tokens"
)
_REALTIME = _UsageFields(
    ("service.response.usage",),
    ("input_tokens",),
    ("output_tokens",),
    "total_tokens",
    adds_up=True,
)
_ANTHROPIC = _UsageFields(
    ("usage", "message.usage"),
    ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    ("output_tokens",),
)
_GEMINI = _UsageFields(
    ("usageMetadata",),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("candidatesTokenCount", "thoughtsTokenCount"),
    "totalTokenCount",
)
_GEMINI_LIVE = _UsageFields(
    ("service_binary_json.usageMetadata", "service.usageMetadata"),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("responseTokenCount", "thoughtsTokenCount"),
    "totalTokenCount",
    adds_up=True,
)
_BEDROCK = _UsageFields(
    ("usage",),
    ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    ("outputTokens",),
    "totalTokens",
)
_COHERE = _UsageFields(
    ("usage.tokens", "delta.usage.tokens", "meta.tokens"), ("input_tokens",), ("output_tokens",)
)
_OLLAMA = _UsageFields(("",), ("prompt_eval_count",), ("eval_count",))

_BY_ENDPOINT: Mapping[str, _UsageFields] = {
    "BidiGenerateContent": _GEMINI_LIVE,
    "api.chat": _OLLAMA,
    "api.embed": _OLLAMA,
    "api.generate": _OLLAMA,
    "audio.transcriptions": _RESPONSES,
    "batchEmbedContents": _GEMINI,
    "chat": _COHERE,
    "chat.completions": _CHAT,
    "completions": _CHAT,
    "converse": _BEDROCK,
    "embed": _COHERE,
    "embedContent": _GEMINI,
    "embeddings": _CHAT,
    "fim.completions": _CHAT,
    "generateContent": _GEMINI,
    "images.edits": _RESPONSES,
    "images.generations": _RESPONSES,
    "invoke": _ANTHROPIC,
    "messages": _ANTHROPIC,
    "rawPredict": _ANTHROPIC,
    "realtime": _REALTIME,
    "responses": _RESPONSES,
    "streamGenerateContent": _GEMINI,
    "streamRawPredict": _ANTHROPIC,
}
"""By endpoint and not by provider: one provider may speak several dialects."""


def token_usage(call: ApiCall, response: Response, value: Json = None) -> Usage | None:
    """The token counts of a response, None if there are none to read.

    Later counts of a stream replace earlier ones, field by field; those of a session are added up. `value` is the parsed plain JSON
    body, if it was read.
    """
    usage = _BY_ENDPOINT.get(call.endpoint)
    if usage is None:
        return None
    counts: dict[str, int] = {}
    if value is None:
        values: Iterable[Json] = _documents_with_counts(usage, response)
    else:
        values = _values_in(value) if _has_mark(response.body, usage.marks) else ()
    for document in values:
        for path in usage.paths:
            _count(usage, _value_at(document, path), counts)
    return _sum(usage, counts) if counts else None


_CACHED: tuple[tuple[str, str], ...] = (
    ("usage.prompt_tokens_details", "cached_tokens"),
    ("x_groq.usage.prompt_tokens_details", "cached_tokens"),
    ("usage.input_tokens_details", "cached_tokens"),
    ("response.usage.input_tokens_details", "cached_tokens"),
    ("usage", "cache_read_input_tokens"),
    ("message.usage", "cache_read_input_tokens"),
    ("usage", "prompt_cache_hit_tokens"),
    ("usageMetadata", "cachedContentTokenCount"),
    ("usage", "cacheReadInputTokens"),
)
"""Where answers tell how much of the prompt came from the service's cache."""


def cached_prompt_tokens(call: ApiCall, response: Response) -> int | None:
    """How many tokens of the prompt the service had cached, None where the answer does not tell."""
    if call.endpoint not in _BY_ENDPOINT:
        return None
    last: int | None = None
    marks = {name.encode() for _, name in _CACHED}
    for text in documents(response):
        if not any(mark in text for mark in marks):
            continue
        values = peek_json(text)
        for value in values if isinstance(values, list) else [values]:
            for path, name in _CACHED:
                at = _value_at(value, path.split("."))
                count = at.get(name) if isinstance(at, dict) else None
                last = count if type(count) is int else last
    return last


def _documents_with_counts(usage: _UsageFields, response: Response) -> Iterator[Json]:
    # Most events of a stream have no counts; they are not parsed.
    for text in documents(response, usage.marks):
        if _has_mark(text, usage.marks):
            yield from _values_in(peek_json(text))


def _has_mark(text: bytes, marks: Sequence[bytes]) -> bool:
    # `in` builds and drops an error message before a search of bytes in bytes.
    find = text.find
    for mark in marks:  # noqa: SIM110 - any() costs five times the search
        if find(mark) >= 0:
            return True
    return False


def _values_in(value: Json) -> Sequence[Json]:
    # Without alt=sse, Gemini streams one JSON array.
    return value if isinstance(value, list) else (value,)


def _value_at(value: Json, path: Sequence[str]) -> Json:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _count(usage: _UsageFields, value: Json, counts: dict[str, int]) -> None:
    if isinstance(value, dict):
        for name in usage.all_fields:
            if type(count := value.get(name)) is int and count >= 0:
                counts[name] = count + (counts.get(name, 0) if usage.adds_up else 0)


def _sum(usage: _UsageFields, counts: Mapping[str, int]) -> Usage:
    prompt = completion = 0
    for name in usage.prompt:
        prompt += counts.get(name, 0)
    for name in usage.completion:
        completion += counts.get(name, 0)
    total = counts.get(usage.total, 0) if usage.total else 0
    # Some embeddings report only the total: all of it is the prompt.
    if not prompt and not completion:
        prompt = total
    return Usage(prompt, completion, total or prompt + completion)
