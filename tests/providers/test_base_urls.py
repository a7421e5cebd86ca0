"""A base URL with a version too many or too few is recognised, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    BaseUrlFault,
    Route,
    RouteTable,
    resolve,
)
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import RequestFields
from tapeway.providers.base_urls import base_url_fault, fault_without_route
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner

TABLE = RouteTable({name: Route(name, provider.url) for name, provider in PROVIDERS.items()})
ANTHROPIC: Headers = ((b"anthropic-version", b"2023-06-01"),)
SUFFIXES = [
    (name, suffix)
    for name, provider in PROVIDERS.items()
    for _, suffix in provider.variables
    if suffix.startswith(("/v", "/api/v", "/openai/v", "/inference/v"))
]


def found(target: str, headers: Headers = (), table: RouteTable = TABLE) -> BaseUrlFault | None:
    """The fault of a request that a route takes, or else of one that none takes."""
    address = resolve(table, owner, target, RequestFields(headers))
    return base_url_fault(address) or fault_without_route(address)


def at(provider: str, target: str, base: str = "") -> BaseUrlFault | None:
    """The fault of a request to a provider whose route has a URL with this path."""
    table = RouteTable({provider: Route(provider, f"https://host.example{base}")})
    return base_url_fault(resolve(table, owner, f"/{provider}{target}", RequestFields(())))


def test_a_header_that_names_the_provider_decides_for_a_path_without_a_version() -> None:
    assert found("/models", ANTHROPIC) == BaseUrlFault("missing", "/v1")


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("/chat/completions", BaseUrlFault("missing", "/v1")),
        ("/@suite/responses", BaseUrlFault("missing", "/v1")),
        ("/v1/v1/chat/completions", BaseUrlFault("doubled", "/v1")),
        ("/v1beta/v1beta/models/g:countTokens", BaseUrlFault("doubled", "/v1beta")),
        ("/api/api/chat", BaseUrlFault("doubled", "/api")),
        ("/models", None),
        ("/files", None),
        ("/messages/?session_id=abc", None),
        ("/responses/r/cancel", None),
        ("/v1/v1/unheard_of", None),
        ("/chat/completionsx", None),
        ("/v1/chat/completions", None),
        ("//messages", None),
    ],
)
def test_a_path_at_the_root_is_wrong_where_only_an_llm_api_has_it_below_a_version(
    target: str, fault: BaseUrlFault | None
) -> None:
    assert found(target) == fault


@pytest.mark.parametrize(
    "target", ["/chat/completions", "/v1/v1/messages", "/mine/chat/completions"]
)
def test_an_unknown_service_may_have_any_path(target: str) -> None:
    url = "http://127.0.0.1:9000"
    table = RouteTable({"mine": Route("mine", url)}, Route(DEFAULT_ROUTE, url))

    assert base_url_fault(resolve(table, owner, target, RequestFields(()))) is None


def test_a_default_upstream_that_is_a_provider_is_known_as_one() -> None:
    table = RouteTable({}, Route("openai", "https://api.openai.com"))

    assert found("/chat/completions", table=table) == BaseUrlFault("missing", "/v1")


@pytest.mark.parametrize(
    ("url", "written", "repeated"),
    [
        ("https://gw.example/v1", "/v1/chat/completions", "/v1"),
        ("https://gw.example/v1/", "/v1/models?limit=2", "/v1"),
        ("https://gw.example/llm/v1", "/v1/messages", "/v1"),
        ("https://gw.example/groq/openai/v1", "/v1/responses/r", "/v1"),
        ("https://gw.example/g/openai/v1", "/openai/v1/chat/completions", "/openai/v1"),
        ("https://gw.example/v1beta", "/v1beta/models/g:x", "/v1beta"),
        ("https://gw.example/api", "/api/chat", "/api"),
    ],
)
def test_an_upstream_that_ends_in_what_the_client_adds_is_wrong(
    url: str, written: str, repeated: str
) -> None:
    table = RouteTable({"mine": Route("mine", url)}, Route(DEFAULT_ROUTE, url))

    for prefix in ("", "/mine"):
        assert found(prefix + written, table=table) == BaseUrlFault("upstream", repeated)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://gw.example/v1", "/v1/tapes/1"),
        ("https://gw.example/v1", "/chat/completions"),
        ("https://gw.example/v1", "/v1"),
        ("https://gw.example/v1", "/v1x/chat/completions"),
        ("https://gw.example/v1", "/v2/chat"),
        ("https://gw.example/xv1", "/v1/chat/completions/1"),
        ("https://gw.example/v11", "/v1/chat/completions"),
        ("https://gw.example", "/v1/v1/chat/completions"),
    ],
)
def test_an_upstream_may_have_every_other_path(url: str, written: str) -> None:
    table = RouteTable({"mine": Route("mine", url)}, Route(DEFAULT_ROUTE, url))

    for prefix in ("", "/mine"):
        assert base_url_fault(resolve(table, owner, prefix + written, RequestFields(()))) is None


def documented() -> Iterator[str]:
    """The targets that the page on HTTP says are wrong."""
    page = Path(__file__).parents[2].joinpath("docs", "http.md").read_text()
    section = page.partition("## A base URL that is a `/v1` off")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (`.*) \| (.*) \|$", section, re.MULTILINE):
        yield from re.findall(r"`(/[^`]*)`", row[0])


@pytest.mark.parametrize("target", list(documented()))
def test_the_documented_mistakes_are_recognised(target: str) -> None:
    assert found(target) is not None


def test_only_bedrock_has_no_version_in_its_paths() -> None:
    assert [name for name, provider in PROVIDERS.items() if not provider.prefixes] == ["bedrock"]


@pytest.mark.parametrize(("name", "suffix"), SUFFIXES)
def test_the_version_a_variable_is_printed_with_is_a_prefix_of_that_api(
    name: str, suffix: str
) -> None:
    assert suffix in {prefix.path for prefix in PROVIDERS[name].prefixes}


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
        ("openai", "/v1/v1", "/v1"),
        ("openai", "/v1/v1/v1/models", "/v1/v1/models"),
        ("openai", "/v1/v1//models", "/v1//models"),
        ("gemini", "/v1/v1beta/models", "/v1beta/models"),
        ("gemini", "/v1beta/v1/models", "/v1/models"),
        ("cohere", "/v1/v2/chat", "/v2/chat"),
    ],
)
def test_a_path_that_the_api_cannot_have_is_wrong(provider: str, written: str, meant: str) -> None:
    fault = at(provider, written)

    assert fault is not None
    assert fault.kind == ("doubled" if len(written) > len(meant) else "missing")
    assert f"{meant}/".startswith(f"{fault.prefix}/")


AS_IT_IS = (
    ("openai", "/v1/chat/completions"),
    ("openai", "/v1/messages"),
    ("openai", "/v1/unheard_of"),
    ("openai", "/unheard_of"),
    ("openai", "/messages"),
    ("openai", "/"),
    ("openai", "/v1"),
    ("openai", "//v1/v1/models"),
    ("openai", "/v1//v1/models"),
    ("openai", "//models"),
    ("openai", "/v1/v1x/models"),
    ("openai", "/%76%31/v1/models"),
    ("openai", "/V1/v1/models"),
    ("openai", "/modelsx"),
    ("openai", "/models%2Fx"),
    ("openai", "/x?y=/v1/v1/models"),
    ("openai", "/?/models"),
    ("anthropic", "/api/hello"),
    ("anthropic", "/v1/messages"),
    ("gemini", "/upload/v1beta/files"),
    ("gemini", "/v1beta/openai/chat/completions"),
    ("bedrock", "/model/m/converse"),
    ("azure", "/v1/chat/completions"),
    ("azure", "/deployments/d/chat/completions"),
    ("cohere", "/chat"),
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
def test_every_other_path_is_right(provider: str, target: str) -> None:
    assert at(provider, target) is None


@pytest.mark.parametrize(
    ("provider", "base", "written", "prefix"),
    [
        ("openai", "/v1", "/chat/completions", None),
        ("openai", "/v1", "/messages", None),
        ("openai", "/mine", "/v1/v1/models", "/v1"),
        ("openai", "/mine", "/chat/completions", None),
        ("openai", "/v", "/chat/completions", None),
        ("groq", "/openai", "/v1/chat/completions", None),
        ("groq", "/openai", "/chat/completions", "/v1"),
        ("groq", "/openai", "/openai/v1/models", None),
    ],
)
def test_the_path_of_the_route_s_url_counts(
    provider: str, base: str, written: str, prefix: str | None
) -> None:
    fault = at(provider, written, base)

    assert (fault and fault.prefix) == prefix


def test_the_message_names_the_right_url() -> None:
    root = "http://127.0.0.1:8080/openai"

    assert BaseUrlFault("doubled", "/v1").message("openai", root) == (
        f"the client's base URL has its version twice: set it to {root}/v1, or to {root} if the "
        "client adds /v1 itself"
    )
    assert f"set the client's base URL to {root}" in BaseUrlFault("upstream", "/v1").message(
        "openai", root
    )
