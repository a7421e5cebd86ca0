"""Which provider answers which path, and how."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tapeway.testing import bedrock, gemini, ollama
from tapeway.testing.answer import StandInAnswer
from tapeway.testing.anthropic import envelope as anthropic_envelope
from tapeway.testing.anthropic import messages
from tapeway.testing.openai import (
    chat,
    envelope,
    resources,
    responses,
)
from tapeway.testing.reply import InvalidToolResult, StandInState
from tapeway.testing.request import StandInRequest

_Answer = Callable[[StandInRequest, StandInState], StandInAnswer]


class _Failure(Protocol):
    def __call__(
        self, status: int, call: StandInRequest, state: StandInState, message: str = ""
    ) -> StandInAnswer: ...


@dataclass(frozen=True, slots=True)
class Route:
    """What answers a path; `keyed` says that a call needs a key where the stand-in requires keys."""

    method: str
    path: re.Pattern[str]
    answer: _Answer
    failure: _Failure
    header: str = ""
    keyed: bool = True

    def match(self, call: StandInRequest) -> dict[str, str] | None:
        """The parameters in the path of a call that is this route's, else None."""
        match = self.path.fullmatch(call.path)
        if match is None or call.method != self.method:
            return None
        if self.header and self.header not in call.headers:
            return None
        return match.groupdict()


def openai_route(method: str, path: str, answer: _Answer) -> Route:
    """A route of OpenAI, and of what speaks its API."""
    # Groq, OpenRouter and Azure have these endpoints below prefixes.
    return Route(method, re.compile(_OPENAI_PREFIX + path), answer, envelope.failure)


def anthropic_route(method: str, path: str, answer: _Answer) -> Route:
    """A route of Anthropic."""
    return Route(method, re.compile(path), answer, anthropic_envelope.failure)


def _gemini(method: str, path: str, answer: _Answer) -> Route:
    # Vertex has the same methods below /v1/projects/…/publishers/google.
    return Route(method, re.compile(_GEMINI_PREFIX + path), answer, gemini.failure)


def _bedrock(action: str, answer: _Answer) -> Route:
    path = re.compile("/model/(?P<model>.+)/" + action)
    return Route("POST", path, answer, bedrock.failure)


def _ollama(method: str, path: str, answer: _Answer) -> Route:
    return Route(method, re.compile(path), answer, ollama.failure, keyed=False)


_OPENAI_PREFIX = r"(?:/openai|/api)?(?:/v1|/openai/deployments/[^/]+|/deployments/[^/]+)"
_GEMINI_PREFIX = r"/v1(?:beta|beta1)?(?:/projects/.+/publishers/google)?/models"
_SOCKET = re.compile(_OPENAI_PREFIX + "/(?:realtime|responses)")
_SOCKET_KEY = "openai-insecure-api-key."
"""The subprotocol that carries a browser's key. Browsers cannot add a header field."""
_SUBPROTOCOLS = "sec-websocket-protocol"
_MODEL = r"/(?P<model>[^/:]+)"

ROUTES = (
    anthropic_route("POST", "/v1/messages", messages.create),
    anthropic_route("POST", "/v1/messages/count_tokens", messages.count_tokens),
    # The three providers' model lists share a path; the header tells whose client asks.
    replace(anthropic_route("GET", "/v1/models", messages.list_models), header="anthropic-version"),
    _gemini("POST", _MODEL + ":generateContent", gemini.generate),
    _gemini("POST", _MODEL + ":streamGenerateContent", gemini.stream_generate),
    _gemini("POST", _MODEL + ":embedContent", gemini.embed),
    _gemini("POST", _MODEL + ":batchEmbedContents", gemini.embed_batch),
    _gemini("POST", _MODEL + ":countTokens", gemini.count_tokens),
    replace(_gemini("GET", "", gemini.list_models), header="x-goog-api-key"),
    _bedrock("converse", bedrock.converse),
    _bedrock("converse-stream", bedrock.converse_stream),
    _bedrock("invoke", bedrock.invoke),
    _bedrock("invoke-with-response-stream", bedrock.invoke_stream),
    _ollama("POST", "/api/chat", ollama.chat),
    _ollama("POST", "/api/generate", ollama.generate),
    _ollama("POST", "/api/embed", ollama.embed),
    _ollama("POST", "/api/embeddings", ollama.embed_one),
    _ollama("GET", "/api/tags", ollama.list_models),
    _ollama("POST", "/api/show", ollama.show),
    _ollama("GET", "/api/version", ollama.version),
    openai_route("POST", "/chat/completions", chat.complete),
    openai_route("POST", "/realtime/client_secrets", resources.client_secret),
    openai_route("POST", "/responses", responses.create),
    openai_route("GET", "/responses/(?P<id>[^/]+)", responses.retrieve),
    openai_route("POST", "/embeddings", resources.embed),
    openai_route("POST", "/files", resources.upload_file),
    openai_route("GET", "/files", resources.list_files),
    openai_route("GET", "/files/(?P<id>[^/]+)", resources.retrieve_file),
    openai_route("GET", "/files/(?P<id>[^/]+)/content", resources.file_content),
    openai_route("DELETE", "/files/(?P<id>[^/]+)", resources.delete_file),
    openai_route("GET", "/models", resources.list_models),
    openai_route("POST", "/audio/speech", resources.speak),
    openai_route("POST", "/audio/transcriptions", resources.transcribe),
)


def speaks_websocket(call: StandInRequest) -> bool:
    """Whether a request asks for a WebSocket where OpenAI has one."""
    wanted = call.method == "GET" and "websocket" in call.headers.get("upgrade", "").lower()
    return wanted and _SOCKET.fullmatch(call.path) is not None


def socket_refusal(
    call: StandInRequest, state: StandInState, *, required: bool
) -> StandInAnswer | None:
    """The answer to an upgrade without a required key, None for any other request."""
    if not required or call.credential or _SOCKET_KEY in call.headers.get(_SUBPROTOCOLS, ""):
        return None
    return envelope.failure(401, call, state)


def respond(
    call: StandInRequest,
    state: StandInState,
    routes: Sequence[Route] = ROUTES,
    *,
    require_credential: bool = False,
) -> StandInAnswer:
    """The provider's answer, the error that the model's name asks for, or OpenAI's 404."""
    for route in routes:
        params = route.match(call)
        if params is None:
            continue
        call = replace(call, params=params)
        if require_credential and route.keyed and not call.credential:
            return route.failure(401, call, state)
        if call.requested_error:
            return route.failure(call.requested_error, call, state)
        try:
            return route.answer(call, state)
        except InvalidToolResult as refused:
            return route.failure(400, call, state, str(refused))
    unknown = f"Invalid URL ({call.method} {call.path})"
    return envelope.failure(404, call, state, unknown)
