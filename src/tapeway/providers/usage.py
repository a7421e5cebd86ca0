"""How many tokens an answer says it cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Response
from tapeway.core.streams.documents import documents
from tapeway.providers.api_call import ApiCall


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens an LLM call was charged for, in OpenAI's terms."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where a dialect writes its counts: the objects that hold them, and the fields to add up.

    `places` are dotted paths, empty for the document itself. Where no total is named it is the sum.
    """

    places: tuple[str, ...]
    prompt: tuple[str, ...]
    completion: tuple[str, ...] = ()
    total: str | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.prompt, *self.completion, *((self.total,) if self.total else ()))


# OpenAI's prompt_tokens count cached tokens and its completion_tokens count reasoning. Others list
# them apart, so they are added.
_CHAT = _Shape(
    ("usage", "x_groq.usage"), ("prompt_tokens",), ("completion_tokens",), "total_tokens"
)
_RESPONSES = _Shape(
    ("usage", "response.usage"), ("input_tokens",), ("output_tokens",), "total_tokens"
)
_ANTHROPIC = _Shape(
    ("usage", "message.usage"),
    ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    ("output_tokens",),
)
_GEMINI = _Shape(
    ("usageMetadata",),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("candidatesTokenCount", "thoughtsTokenCount"),
    "totalTokenCount",
)
_BEDROCK = _Shape(
    ("usage",),
    ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    ("outputTokens",),
    "totalTokens",
)
_COHERE = _Shape(
    ("usage.tokens", "delta.usage.tokens", "meta.tokens"), ("input_tokens",), ("output_tokens",)
)
_OLLAMA = _Shape(("",), ("prompt_eval_count",), ("eval_count",))

_SHAPES: Mapping[str, _Shape] = {
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
    "responses": _RESPONSES,
    "streamGenerateContent": _GEMINI,
    "streamRawPredict": _ANTHROPIC,
}
"""By endpoint and not by provider: one provider may speak several dialects."""


def token_usage(call: ApiCall, response: Response) -> Usage | None:
    """The tokens the answer names, or None where it names none that can be read.

    A stream's later counts replace earlier ones, field by field.
    """
    shape = _SHAPES.get(call.endpoint)
    if shape is None:
        return None
    counts: dict[str, int] = {}
    for value in _telling(shape, response):
        for place in shape.places:
            counts |= _counts(shape, _at(value, place))
    return _sum(shape, counts) if counts else None


def _telling(shape: _Shape, response: Response) -> Iterator[Json]:
    # Most events of a stream hold no counts: those are not worth parsing.
    marks = [field.encode() for field in shape.fields]
    for text in documents(response):
        if not any(mark in text for mark in marks):
            continue
        try:
            value: Json = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        # Without alt=sse, Gemini streams one JSON array.
        yield from value if isinstance(value, list) else (value,)


def _at(value: Json, place: str) -> Json:
    for name in place.split(".") if place else ():
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _counts(shape: _Shape, value: Json) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    found = {field: value.get(field) for field in shape.fields}
    return {field: count for field, count in found.items() if type(count) is int and count >= 0}


def _sum(shape: _Shape, counts: Mapping[str, int]) -> Usage:
    prompt = sum(counts.get(field, 0) for field in shape.prompt)
    completion = sum(counts.get(field, 0) for field in shape.completion)
    total = counts.get(shape.total, 0) if shape.total else 0
    # Some embeddings name the total alone: all of it was prompt.
    if not prompt and not completion:
        prompt = total
    return Usage(prompt, completion, total or prompt + completion)
