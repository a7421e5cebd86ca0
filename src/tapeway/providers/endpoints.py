"""What differs by endpoint: one row for each endpoint of a model.

The rows are by endpoint and not by provider: one provider may speak several dialects. They follow
the providers' documents and recorded streams. Where neither is certain a field stays empty: a
complete answer must not be taken for a truncated one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tapeway.core.streams.end_marks import EndMarks, Ends, LastFrame, LastLine


@dataclass(frozen=True, slots=True)
class UsageFields:
    """The fields of a dialect's token counts: the objects they are in, and the fields to add up.

    `objects` are dotted paths, empty for the document itself. Without `total` the total is the sum.
    """

    objects: tuple[str, ...]
    prompt: tuple[str, ...]
    completion: tuple[str, ...] = ()
    total: str | None = None
    cached: tuple[str, ...] = ()
    """Dotted paths, inside the objects, to how much of the prompt came from the service's cache."""
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


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """How the answers of an endpoint end and what they count, for each form they may have."""

    ends: tuple[Ends, ...] = ()
    """What ends the streams, for each framing they may have."""
    usage: UsageFields | None = None
    samples: bool = False
    """Whether a model writes the answer, in new words each time by default."""
    streams_unasked: bool = False
    """Whether the answer is a stream unless the request says otherwise."""
    calls_model: bool = True
    """Whether a call asks a model for an answer, and leaves nothing behind at the service."""
    api: str = ""
    """The provider whose API this is where no route tells; empty where other APIs have the path."""
    tail: str = ""
    """What the path of a call ends with on any route, as a regular expression."""


# OpenAI's prompt_tokens include cached tokens and its completion_tokens include reasoning. Other
# providers report these counts separately, so the sums are made here.
_CHAT_USAGE = UsageFields(
    ("usage", "x_groq.usage"),
    ("prompt_tokens",),
    ("completion_tokens",),
    "total_tokens",
    cached=("prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens"),
)
_RESPONSES_USAGE = UsageFields(
    ("usage", "response.usage"),
    ("input_tokens",),
    ("output_tokens",),
    "total_tokens",
    cached=("input_tokens_details.cached_tokens",),
)
_REALTIME_USAGE = UsageFields(
    ("service.response.usage",),
    ("input_tokens",),
    ("output_tokens",),
    "total_tokens",
    adds_up=True,
)
_ANTHROPIC_USAGE = UsageFields(
    ("usage", "message.usage"),
    ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    ("output_tokens",),
    cached=("cache_read_input_tokens",),
)
_GEMINI_USAGE = UsageFields(
    ("usageMetadata",),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("candidatesTokenCount", "thoughtsTokenCount"),
    "totalTokenCount",
    cached=("cachedContentTokenCount",),
)
_LIVE_USAGE = UsageFields(
    ("service_binary_json.usageMetadata", "service.usageMetadata"),
    ("promptTokenCount", "toolUsePromptTokenCount"),
    ("responseTokenCount", "thoughtsTokenCount"),
    "totalTokenCount",
    adds_up=True,
)
_BEDROCK_USAGE = UsageFields(
    ("usage",),
    ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    ("outputTokens",),
    "totalTokens",
    cached=("cacheReadInputTokens",),
)
_COHERE_USAGE = UsageFields(
    ("usage.tokens", "delta.usage.tokens", "meta.tokens"), ("input_tokens",), ("output_tokens",)
)
_OLLAMA_USAGE = UsageFields(("",), ("prompt_eval_count",), ("eval_count",))

_DONE = frozenset({b"[DONE]"})
_CHAT_MARKS = EndMarks(_DONE)
_ANTHROPIC_MARKS = EndMarks(names=frozenset({"message_stop"}))
_COHERE_MARKS = EndMarks(_DONE, frozenset({"message-end"}))
# OpenRouter puts [DONE] behind the Responses API's own mark.
_RESPONSES_MARKS = EndMarks(
    _DONE,
    frozenset({"response.completed", "response.incomplete"}),
    frozenset({"error", "response.failed"}),
)
# No end mark at all: the transport's end is the only one.
_GEMINI_MARKS = EndMarks()
# Gateways and self-hosted servers have these paths below any prefix.
_OPENAI = r"/(?:v\d\w*|openai/deployments/[^/]+)/"
_GEMINI = r"/models/[^/]+(?::|%3[aA])"
_BEDROCK = "/model/[^/]+/"


def _openai(name: str, usage: UsageFields | None = None, *ends: EndMarks) -> ApiEndpoint:
    return ApiEndpoint(ends, usage=usage, samples=bool(ends), api="openai", tail=_OPENAI + name)


def _gemini(
    verb: str,
    usage: UsageFields | None = None,
    *ends: EndMarks,
    samples: bool = False,
) -> ApiEndpoint:
    return ApiEndpoint(ends, usage=usage, samples=samples, api="gemini", tail=_GEMINI + verb)


ENDPOINTS: Mapping[str, ApiEndpoint] = {
    "BidiGenerateContent": ApiEndpoint(usage=_LIVE_USAGE, calls_model=False),
    "api.chat": ApiEndpoint(
        (LastLine("done", True),),
        usage=_OLLAMA_USAGE,
        samples=True,
        streams_unasked=True,
        api="ollama",
        tail="/api/chat",
    ),
    "api.embed": ApiEndpoint(usage=_OLLAMA_USAGE),
    "api.embeddings": ApiEndpoint(),
    "api.generate": ApiEndpoint(
        (LastLine("done", True),),
        usage=_OLLAMA_USAGE,
        samples=True,
        streams_unasked=True,
        api="ollama",
        tail="/api/generate",
    ),
    "audio.speech": _openai("audio/speech"),
    "audio.transcriptions": _openai("audio/transcriptions", _RESPONSES_USAGE),
    "audio.translations": _openai("audio/translations"),
    "batchEmbedContents": _gemini("batchEmbedContents", _GEMINI_USAGE),
    "chat": ApiEndpoint(
        (_COHERE_MARKS, LastLine("event_type", "stream-end")),
        usage=_COHERE_USAGE,
        samples=True,
        api="cohere",
        tail="/v2/chat",
    ),
    "chat.completions": ApiEndpoint(
        (_CHAT_MARKS,), usage=_CHAT_USAGE, samples=True, api="openai", tail="/chat/completions"
    ),
    "classify": ApiEndpoint(),
    "complete": ApiEndpoint(),
    "completions": _openai("completions", _CHAT_USAGE, _CHAT_MARKS),
    "computeTokens": ApiEndpoint(),
    "converse": ApiEndpoint(
        usage=_BEDROCK_USAGE, samples=True, api="bedrock", tail=f"{_BEDROCK}converse"
    ),
    # Its counts are in the last frame, and are not read.
    "converse-stream": ApiEndpoint(
        (LastFrame("metadata"),),
        samples=True,
        api="bedrock",
        tail=f"{_BEDROCK}converse-stream",
    ),
    "countTokens": _gemini("countTokens"),
    "edits": ApiEndpoint(),
    "embed": ApiEndpoint(usage=_COHERE_USAGE),
    "embedContent": _gemini("embedContent", _GEMINI_USAGE),
    "embeddings": _openai("embeddings", _CHAT_USAGE),
    "fim.completions": ApiEndpoint((_CHAT_MARKS,), usage=_CHAT_USAGE, samples=True),
    "generateAnswer": ApiEndpoint(),
    "generateContent": _gemini("generateContent", _GEMINI_USAGE, samples=True),
    "images.edits": _openai("images/edits", _RESPONSES_USAGE),
    "images.generations": _openai("images/generations", _RESPONSES_USAGE),
    "images.variations": _openai("images/variations"),
    "invoke": ApiEndpoint(
        usage=_ANTHROPIC_USAGE, samples=True, api="bedrock", tail=f"{_BEDROCK}invoke"
    ),
    "invoke-with-response-stream": ApiEndpoint(
        (LastFrame(None),),
        samples=True,
        api="bedrock",
        tail=f"{_BEDROCK}invoke-with-response-stream",
    ),
    "messages": ApiEndpoint(
        (_ANTHROPIC_MARKS,),
        usage=_ANTHROPIC_USAGE,
        samples=True,
        api="anthropic",
        tail="/v1/messages",
    ),
    "messages.count_tokens": ApiEndpoint(api="anthropic", tail="/v1/messages/count_tokens"),
    "moderations": _openai("moderations"),
    "ocr": ApiEndpoint(),
    "predict": ApiEndpoint(),
    "rawPredict": ApiEndpoint(usage=_ANTHROPIC_USAGE, samples=True),
    "realtime": ApiEndpoint(usage=_REALTIME_USAGE, calls_model=False),
    "rerank": ApiEndpoint(api="cohere", tail=r"/v\d\w*/rerank"),
    "responses": _openai("responses", _RESPONSES_USAGE, _RESPONSES_MARKS),
    "responses.input_tokens": _openai("responses/input_tokens"),
    "serverStreamingPredict": ApiEndpoint(),
    "streamGenerateContent": _gemini(
        "streamGenerateContent", _GEMINI_USAGE, _GEMINI_MARKS, samples=True
    ),
    "streamRawPredict": ApiEndpoint((_ANTHROPIC_MARKS,), usage=_ANTHROPIC_USAGE, samples=True),
    "tokenize": ApiEndpoint(),
}
"""By the name that `api_call.describe_call` gives an endpoint: its path with dots, or its verb."""

UNKNOWN = ApiEndpoint(calls_model=False)
"""Any other endpoint."""
UNKNOWN_ENDS: tuple[Ends, ...] = (EndMarks(_DONE), LastLine(), LastFrame())
"""What ends other streams: clients of any provider disconnect at [DONE]."""

_BY_TAIL = [
    (re.compile(f"{endpoint.tail}$", re.ASCII), endpoint.api)
    for endpoint in ENDPOINTS.values()
    if endpoint.api
]


def endpoint_named(name: str) -> ApiEndpoint:
    """The row of an endpoint, `UNKNOWN` without one."""
    return ENDPOINTS.get(name, UNKNOWN)


@lru_cache(maxsize=512)
def api_of_path(path: str) -> tuple[str, str] | None:
    """The provider whose API a path ends with, below any prefix, and that part of the path."""
    for pattern, api in _BY_TAIL:
        if (match := pattern.search(path)) is not None:
            return api, match[0]
    return None
