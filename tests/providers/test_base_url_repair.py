"""Wrong base URLs are repaired, all other addresses stay unchanged."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    BaseUrlFault,
    RequestAddress,
    Route,
    RouteTable,
    resolve,
)
from tapeway.core.model.messages import Headers
from tapeway.providers.base_url_repair import PREFIXES, repair_address, repair_target
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner

TABLE = RouteTable({name: Route(name, each.url) for name, each in PROVIDERS.items()})
ANTHROPIC: Headers = ((b"anthropic-version", b"2023-06-01"),)
SUFFIXES = [
    (name, suffix)
    for name, provider in PROVIDERS.items()
    for _, suffix in provider.variables
    if suffix.startswith(("/v", "/api/v", "/openai/v", "/inference/v"))
]


def found(target: str, headers: Headers = (), table: RouteTable = TABLE) -> RequestAddress:
    return repair_address(resolve(table, owner, target, headers), table)


@pytest.mark.parametrize(
    ("target", "route", "meant", "fault"),
    [
        (
            "/openai/v1/v1/models",
            "openai",
            "/v1/models",
            BaseUrlFault("doubled", "/v1", "/v1/v1/models"),
        ),
        (
            "/anthropic/messages",
            "anthropic",
            "/v1/messages",
            BaseUrlFault("missing", "/v1", "/messages"),
        ),
        (
            "/v1/v1/messages",
            "anthropic",
            "/v1/messages",
            BaseUrlFault("doubled", "/v1", "/v1/v1/messages"),
        ),
        ("/messages?beta=true", "anthropic", "/v1/messages?beta=true", None),
        ("/chat/completions", "openai", "/v1/chat/completions", None),
        ("/v1/v1/chat/completions", "openai", "/v1/chat/completions", None),
        ("/responses/r/cancel", "openai", "/v1/responses/r/cancel", None),
        ("/embeddings", "openai", "/v1/embeddings", None),
        ("/v1beta/v1beta/models/g:countTokens", "gemini", "/v1beta/models/g:countTokens", None),
        ("/api/api/chat", "ollama", "/api/chat", None),
    ],
)
def test_a_wrong_base_url_is_repaired(
    target: str, route: str, meant: str, fault: BaseUrlFault | None
) -> None:
    address = found(f"/@suite{target}")

    assert (address.cassette, address.route.name, address.target) == ("suite", route, meant)
    assert address.base_url_fault is not None
    assert fault in (None, address.base_url_fault)


def test_a_header_that_names_the_provider_decides_for_a_path_without_a_version() -> None:
    address = found("/models", ANTHROPIC)

    assert (address.route.name, address.target) == ("anthropic", "/v1/models")


@pytest.mark.parametrize(
    "target",
    [
        "/models",
        "/files",
        "/v1/v1/unheard_of",
        "/v1/v1beta/models",
        "/chat/completionsx",
        "/v1/chat/completions",
        "/openai//v1/v1/models",
        "/openai/%2Fv1/v1/models",
        "//messages",
    ],
)
def test_an_address_that_needs_no_repair_is_returned_itself(target: str) -> None:
    address = resolve(TABLE, owner, target, ())

    assert repair_address(address, TABLE) is address


def test_an_unknown_service_gets_the_target_as_written() -> None:
    url = "http://127.0.0.1:9000"
    routes = {"mine": Route("mine", url), **TABLE.routes}
    table = RouteTable(routes, Route(DEFAULT_ROUTE, url))

    for target in ("/chat/completions", "/v1/v1/messages", "/mine/chat/completions"):
        assert found(target, table=table).base_url_fault is None


def test_a_default_upstream_that_is_a_provider_is_known_as_one() -> None:
    table = RouteTable({}, Route("openai", "https://api.openai.com"))

    assert found("/chat/completions", table=table).target == "/v1/chat/completions"


def test_a_provider_without_a_route_is_never_meant() -> None:
    assert (
        found("/messages", table=RouteTable({"openai": Route("openai", None)})).base_url_fault
        is None
    )


def test_a_url_of_the_route_that_holds_the_version_doubles_it_too() -> None:
    table = RouteTable({"openai": Route("openai", "http://gateway/v1/")})
    address = found("/openai/v1/models", table=table)

    assert (address.target, address.route.url) == ("/v1/models", "http://gateway")
    assert address.base_url_fault == BaseUrlFault("upstream", "/v1", "/v1/models")


@pytest.mark.parametrize(
    ("url", "written", "right", "repeated"),
    [
        ("https://gw.example/v1", "/v1/chat/completions", "https://gw.example", "/v1"),
        ("https://gw.example/v1/", "/v1/models?limit=2", "https://gw.example", "/v1"),
        ("https://gw.example/llm/v1", "/v1/messages", "https://gw.example/llm", "/v1"),
        (
            "https://gw.example/groq/openai/v1",
            "/v1/responses/r",
            "https://gw.example/groq/openai",
            "/v1",
        ),
        (
            "https://gw.example/g/openai/v1",
            "/openai/v1/chat/completions",
            "https://gw.example/g",
            "/openai/v1",
        ),
        ("https://gw.example/v1beta", "/v1beta/models/g:x", "https://gw.example", "/v1beta"),
        ("https://gw.example/api", "/api/chat", "https://gw.example", "/api"),
    ],
)
def test_an_upstream_that_ends_in_what_the_client_adds_is_corrected(
    url: str, written: str, right: str, repeated: str
) -> None:
    table = RouteTable({"mine": Route("mine", url)}, Route(DEFAULT_ROUTE, url))

    for prefix in ("", "/mine"):
        address = found(prefix + written, table=table)
        assert (address.route.url, address.target) == (right, written)
        assert address.base_url_fault == BaseUrlFault("upstream", repeated, written)


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
def test_an_upstream_that_may_have_this_path_gets_it_as_written(url: str, written: str) -> None:
    table = RouteTable({"mine": Route("mine", url)}, Route(DEFAULT_ROUTE, url))

    for prefix in ("", "/mine"):
        assert found(prefix + written, table=table).base_url_fault is None


def test_a_built_in_route_with_a_gateway_s_url_that_ends_in_its_version_is_corrected() -> None:
    table = RouteTable({"openai": Route("openai", "https://gw.example/llm/v1")})

    assert found("/openai/v1/chat/completions", table=table).route.url == "https://gw.example/llm"


def documented() -> Iterator[tuple[str, str]]:
    """What the page on HTTP says is asked for, and where it goes."""
    page = Path(__file__).parents[2].joinpath("docs", "http.md").read_text()
    section = page.partition("## A base URL that is a `/v1` off")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (.*) \| (.*) \|$", section, re.MULTILINE)[2:]:
        for asked in re.findall(r"`(/[^`]*)`", row[0]):
            yield asked, row[1].strip("`")


@pytest.mark.parametrize(("asked", "goes_to"), list(documented()))
def test_the_documented_errors_are_repaired_as_documented(asked: str, goes_to: str) -> None:
    address = found(asked)

    assert address.base_url_fault is not None
    assert address.target == goes_to or goes_to.startswith("the provider")


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
def test_a_path_unknown_to_the_api_is_repaired(provider: str, written: str, meant: str) -> None:
    found = repair_target(provider, written)

    assert found is not None
    assert found.target == meant
    assert found.fault == ("doubled" if len(written) > len(meant) else "missing")
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
    assert repair_target(provider, target) is None


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
def test_the_path_of_the_route_s_url_counts(
    provider: str, base: str, written: str, meant: str | None
) -> None:
    found = repair_target(provider, written, base)

    assert (found and found.target) == meant
    if found is not None:
        assert f"{base}{found.target}".startswith(f"{base}{found.prefix}/")


PIECES = st.sampled_from(
    ["v1", "v2", "v1beta", "api", "openai", "inference", "chat", "completions", "models", "", "x"]
)


@given(
    st.sampled_from(sorted(PROVIDERS)), st.lists(PIECES, max_size=6), st.text("?/=v1", max_size=5)
)
def test_a_repaired_target_needs_no_repair_and_keeps_the_rest(
    provider: str, pieces: list[str], rest: str
) -> None:
    written = f"/{'/'.join(pieces)}{rest}"
    found = repair_target(provider, written)

    if found is not None:
        assert repair_target(provider, found.target) is None
        endpoint = found.target.removeprefix(found.prefix)
        assert endpoint != found.target
        assert written.endswith(endpoint)


@given(
    st.sampled_from([(name, each.path) for name, all in PREFIXES.items() for each in all]),
    st.integers(0, 3),
    st.lists(PIECES, min_size=1, max_size=5),
)
def test_a_target_repaired_below_a_part_of_the_prefix_makes_the_url_right(
    known: tuple[str, str], parts: int, pieces: list[str]
) -> None:
    provider, prefix = known
    base = "/".join(prefix.split("/")[: parts + 1])
    found = repair_target(provider, f"/{'/'.join(pieces)}", base)

    if found is not None:
        url = base + found.target
        assert any(url.startswith(f"{each.path}/") for each in PREFIXES[provider])
        assert url.startswith(f"{base}{found.prefix}/")
        assert repair_target(provider, found.target, base) is None
