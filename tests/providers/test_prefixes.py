"""Where each API's paths begin, and the slips that are forgiven."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.providers.base_url_repair import PREFIXES, mended
from tapeway.providers.catalogue import PROVIDERS

SUFFIXES = [
    (name, suffix)
    for name, provider in PROVIDERS.items()
    for _, suffix in provider.variables
    if suffix.startswith(("/v", "/api/v", "/openai/v", "/inference/v"))
]


def test_every_built_in_route_has_its_prefixes_and_no_other_has_any() -> None:
    assert PREFIXES.keys() == PROVIDERS.keys()


@pytest.mark.parametrize(("name", "suffix"), SUFFIXES)
def test_the_version_a_variable_is_printed_with_is_a_prefix_of_that_api(
    name: str, suffix: str
) -> None:
    assert suffix in {prefix.path for prefix in PREFIXES[name]}


@pytest.mark.parametrize(
    ("provider", "written", "meant"),
    [
        ("openai", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("openai", "/v1/v1/unheard_of?a=b", "/v1/unheard_of?a=b"),
        ("openai", "/chat/completions", "/v1/chat/completions"),
        ("openai", "/responses/resp_1?x=//y", "/v1/responses/resp_1?x=//y"),
        ("openai", "/models", "/v1/models"),
        ("openai", "/models?limit=2", "/v1/models?limit=2"),
        ("openai", "/files/a%2Fb%7E/content", "/v1/files/a%2Fb%7E/content"),
        ("anthropic", "/messages", "/v1/messages"),
        ("anthropic", "/messages?beta=true", "/v1/messages?beta=true"),
        ("anthropic", "/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("azure", "/openai/openai/deployments/d/x", "/openai/deployments/d/x"),
        ("azure", "/openai/v1/v1/responses", "/openai/v1/responses"),
        ("azure", "/openai/v1/openai/v1/responses", "/openai/v1/responses"),
        ("gemini", "/v1beta/v1beta/models/g:embedContent", "/v1beta/models/g:embedContent"),
        ("gemini", "/v1/v1/models/g", "/v1/models/g"),
        ("gemini", "/models/g:generateContent", "/v1beta/models/g:generateContent"),
        ("vertex", "/v1/v1/projects/p", "/v1/projects/p"),
        ("vertex", "/v1beta1/v1beta1/projects/p", "/v1beta1/projects/p"),
        ("vertex", "/projects/p/locations/l", "/v1/projects/p/locations/l"),
        ("mistral", "/fim/completions", "/v1/fim/completions"),
        ("groq", "/openai/v1/openai/v1/chat/completions", "/openai/v1/chat/completions"),
        ("groq", "/openai/v1/v1/chat/completions", "/openai/v1/chat/completions"),
        ("groq", "/openai/chat/completions", "/openai/v1/chat/completions"),
        ("groq", "/v1/chat/completions", "/openai/v1/chat/completions"),
        ("groq", "/chat/completions", "/openai/v1/chat/completions"),
        ("cohere", "/v2/v2/chat", "/v2/chat"),
        ("cohere", "/v1/v1/chat", "/v1/chat"),
        ("cohere", "/tokenize", "/v1/tokenize"),
        ("together", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("fireworks", "/v1/chat/completions", "/inference/v1/chat/completions"),
        ("fireworks", "/inference/v1/v1/completions", "/inference/v1/completions"),
        ("fireworks", "/inference/chat/completions", "/inference/v1/chat/completions"),
        ("cerebras", "/v1/v1/tcp_warming", "/v1/tcp_warming"),
        ("perplexity", "/responses", "/v1/responses"),
        ("openrouter", "/chat/completions", "/api/v1/chat/completions"),
        ("openrouter", "/v1/chat/completions", "/api/v1/chat/completions"),
        ("openrouter", "/api/chat/completions", "/api/v1/chat/completions"),
        ("openrouter", "/api/v1/v1/models", "/api/v1/models"),
        ("deepseek", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("xai", "/chat/completions", "/v1/chat/completions"),
        ("ollama", "/api/api/chat", "/api/chat"),
        ("ollama", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("ollama", "/chat/completions", "/v1/chat/completions"),
        ("ollama", "/generate", "/api/generate"),
        ("voyage", "/embeddings", "/v1/embeddings"),
        ("huggingface", "/chat/completions", "/v1/chat/completions"),
    ],
)
def test_a_path_the_api_does_not_know_is_taken_for_the_one_that_was_meant(
    provider: str, written: str, meant: str
) -> None:
    found = mended(provider, written)

    assert found is not None
    assert found.target == meant
    assert found.slip == ("doubled" if len(written) > len(meant) else "missing")
    assert meant.startswith(found.prefix + "/")


AS_IT_IS = (
    ("openai", "/v1/chat/completions"),
    ("openai", "/v1/messages"),
    ("openai", "/v1/unheard_of"),
    ("openai", "/unheard_of"),
    ("openai", "/messages"),
    ("openai", "/"),
    ("openai", "/v1"),
    ("openai", "/v1/v1"),
    ("openai", "/v1/v1/"),
    ("openai", "/v1/v1/v1/models"),
    ("openai", "/v1/v1//models"),
    ("openai", "//v1/v1/models"),
    ("openai", "/v1//v1/models"),
    ("openai", "//models"),
    ("openai", "/v1/v1beta/models"),
    ("openai", "/v1/v1x/models"),
    ("openai", "/%76%31/v1/models"),
    ("openai", "/V1/v1/models"),
    ("openai", "/modelsx"),
    ("openai", "/models%2Fx"),
    ("openai", "/x?y=/v1/v1/models"),
    ("openai", "/?/models"),
    ("anthropic", "/api/hello"),
    ("anthropic", "/v1/messages"),
    ("gemini", "/v1/v1beta/models"),
    ("gemini", "/upload/v1beta/files"),
    ("gemini", "/v1beta/openai/chat/completions"),
    ("bedrock", "/model/m/converse"),
    ("azure", "/v1/chat/completions"),
    ("azure", "/deployments/d/chat/completions"),
    ("cohere", "/chat"),
    ("cohere", "/v1/v2/chat"),
    ("deepseek", "/chat/completions"),
    ("deepseek", "/v1/chat/completions"),
    ("perplexity", "/chat/completions"),
    ("openrouter", "/models"),
    ("ollama", "/embeddings"),
    ("ollama", "/api/chat"),
    ("ollama", "/chat"),
    ("huggingface", "/together/v1/chat/completions"),
    ("unheard_of", "/v1/v1/chat/completions"),
    ("default", "/chat/completions"),
)


@pytest.mark.parametrize(("provider", "target"), AS_IT_IS)
def test_every_other_path_is_left_as_it_is(provider: str, target: str) -> None:
    assert mended(provider, target) is None


@pytest.mark.parametrize(
    ("provider", "base", "written", "meant"),
    [
        ("openai", "/v1", "/v1/chat/completions", "/chat/completions"),
        ("openai", "/v1", "/chat/completions", None),
        ("openai", "/v1", "/messages", None),
        ("openai", "/mine", "/v1/v1/models", "/v1/models"),
        ("openai", "/mine", "/chat/completions", None),
        ("openai", "/mine/v1", "/v1/chat/completions", None),
        ("openai", "/v", "/chat/completions", None),
        ("groq", "/openai", "/v1/chat/completions", None),
        ("groq", "/openai", "/chat/completions", "/v1/chat/completions"),
        ("groq", "/openai", "/openai/v1/models", None),
        ("groq", "/openai/v1", "/openai/v1/models", "/models"),
        ("groq", "/openai/v1", "/v1/models", "/models"),
    ],
)
def test_what_the_route_s_own_url_begins_with_counts(
    provider: str, base: str, written: str, meant: str | None
) -> None:
    found = mended(provider, written, base)

    assert (found and found.target) == meant
    if found is not None:
        assert f"{base}{found.target}".startswith(f"{base}{found.prefix}/")


PIECES = st.sampled_from(
    ["v1", "v2", "v1beta", "api", "openai", "inference", "chat", "completions", "models", "", "x"]
)


@given(
    st.sampled_from(sorted(PROVIDERS)), st.lists(PIECES, max_size=6), st.text("?/=v1", max_size=5)
)
def test_what_was_mended_is_right_and_keeps_all_behind_the_slip(
    provider: str, pieces: list[str], rest: str
) -> None:
    written = f"/{'/'.join(pieces)}{rest}"
    found = mended(provider, written)

    if found is not None:
        assert mended(provider, found.target) is None
        endpoint = found.target.removeprefix(found.prefix)
        assert endpoint != found.target
        assert written.endswith(endpoint)


@given(
    st.sampled_from([(name, each.path) for name, all in PREFIXES.items() for each in all]),
    st.integers(0, 3),
    st.lists(PIECES, min_size=1, max_size=5),
)
def test_what_was_mended_below_a_part_of_the_prefix_makes_the_url_right(
    known: tuple[str, str], parts: int, pieces: list[str]
) -> None:
    provider, prefix = known
    base = "/".join(prefix.split("/")[: parts + 1])
    found = mended(provider, f"/{'/'.join(pieces)}", base)

    if found is not None:
        url = base + found.target
        assert any(url.startswith(f"{each.path}/") for each in PREFIXES[provider])
        assert url.startswith(f"{base}{found.prefix}/")
        assert mended(provider, found.target, base) is None
