import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Headers
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner

ANTHROPIC: Headers = ((b"Anthropic-Version", b"2023-06-01"),)
GOOGLE: Headers = ((b"host", b"x"), (b"X-Goog-Api-Key", b"k"))


@pytest.mark.parametrize(
    ("target", "provider"),
    [
        ("/v1/chat/completions", "openai"),
        ("/v1/chat/completions?x=1", "openai"),
        ("/v1/chat/completions/chatcmpl-1/messages", "openai"),
        ("/v1/responses", "openai"),
        ("/v1/responses/resp_1/cancel", "openai"),
        ("/v1/embeddings", "openai"),
        ("/v1/completions", "openai"),
        ("/v1/models", "openai"),
        ("/v1/models/gpt-4o", "openai"),
        ("/v1/models/ft:gpt-4o:org::id", "openai"),
        ("/v1/files", "openai"),
        ("/v1/images/generations", "openai"),
        ("/v1/audio/transcriptions", "openai"),
        ("/v1/batches", "openai"),
        ("/v1/moderations", "openai"),
        ("/v1/vector_stores/vs_1/files", "openai"),
        ("/v1/assistants", "openai"),
        ("/v1/threads/t/messages", "openai"),
        ("/v1/uploads", "openai"),
        ("/v1/fine_tuning/jobs", "openai"),
        ("/v1/realtime?model=gpt-realtime", "openai"),
        ("/v1/conversations", "openai"),
        ("/v1/messages", "anthropic"),
        ("/v1/messages?beta=true", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/v1/complete", "anthropic"),
        ("/v1/oauth/token", "anthropic"),
        ("/v1beta/models/gemini-2.5-flash:generateContent", "gemini"),
        ("/v1beta/models", "gemini"),
        ("/v1beta", "gemini"),
        ("/v1alpha/models/x:generateContent", "gemini"),
        ("/v1/models/gemini-2.5-flash:generateContent", "gemini"),
        ("/v1/models/gemini-2.5-flash%3AstreamGenerateContent?alt=sse", "gemini"),
        ("/upload/v1beta/files", "gemini"),
        ("/api/chat", "ollama"),
        ("/api/generate", "ollama"),
        ("/api/embed", "ollama"),
        ("/api/tags", "ollama"),
        ("/api/version", "ollama"),
        ("/", None),
        ("", None),
        ("/v1", None),
        ("/v1/", None),
        ("/v1/chat", None),
        ("/v1/unheard_of", None),
        ("/v2/chat", None),
        ("/api/users", None),
        ("/api/v1/chat/completions", None),
        ("/chat/completions", None),
        ("//v1/messages", None),
        ("/v1betamax/models", None),
        ("/openai/v1/chat/completions", None),
    ],
)
def test_a_path_belongs_to_the_provider_that_alone_has_it(
    target: str, provider: str | None
) -> None:
    assert owner(target, ()) == provider


@pytest.mark.parametrize(
    ("target", "headers", "provider"),
    [
        ("/v1/models", ANTHROPIC, "anthropic"),
        ("/v1/files", ANTHROPIC, "anthropic"),
        ("/anything", ANTHROPIC, "anthropic"),
        ("/v1/models", GOOGLE, "gemini"),
        ("/v1/anything", GOOGLE, "gemini"),
        ("/v1/models", ((b"authorization", b"Bearer x"),), "openai"),
    ],
)
def test_a_provider_s_own_header_decides_before_the_path(
    target: str, headers: Headers, provider: str
) -> None:
    assert owner(target, headers) == provider


@given(st.text(alphabet="/v1betaapichatmodels:%3A?.", max_size=60))
def test_an_owner_is_always_a_built_in_route(target: str) -> None:
    assert owner(target, ()) in {None, *PROVIDERS}
