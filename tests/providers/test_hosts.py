"""Which hosts lead to which routes, for programs that have no base URL."""

import pytest

from tapeway.providers.hosts import HostRoutes
from tapeway.settings.options import Settings, resolve_routes


def hosts(environ: dict[str, str] | None = None, **options: object) -> HostRoutes:
    return HostRoutes(resolve_routes(Settings.parse(options), environ or {}), environ or {})


def found(table: HostRoutes, host: str, target: str = "/v1/x", port: int = 443) -> object:
    if (host_found := table.find(host, port)) is None:
        return None
    route, below = host_found.find(target)
    return route.name, route.url, below


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.openai.com", "openai"),
        ("API.OpenAI.com.", "openai"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("aiplatform.googleapis.com", "vertex"),
        ("us-central1-aiplatform.googleapis.com", "vertex"),
        ("aiplatform.eu.rep.googleapis.com", "vertex"),
        ("bedrock-runtime.eu-central-1.amazonaws.com", "bedrock"),
        ("my-resource.openai.azure.com", "azure"),
        ("api.together.xyz", "together"),
    ],
)
def test_a_provider_s_own_host_leads_to_its_route(host: str, name: str) -> None:
    own = host.lower().rstrip(".")
    assert found(hosts(), host) == (name, f"https://{own}", "/v1/x")


@pytest.mark.parametrize(
    "host",
    [
        *("openai.com", "xapi.openai.com", "api.openai.com.evil.org", "127.0.0.1", "localhost"),
        *("bedrock-runtime.a.b.amazonaws.com", "s3.amazonaws.com", "oauth2.googleapis.com"),
        *("openai.azure.com", "bedrock-runtime..amazonaws.com", ""),
    ],
)
def test_no_other_host_leads_anywhere(host: str) -> None:
    assert found(hosts(), host) is None


def test_another_port_is_another_host() -> None:
    table = hosts(route="svc=https://svc.example.com:8443/base")
    assert found(table, "api.openai.com", port=8443) is None
    assert found(table, "svc.example.com") is None
    expected = ("svc", "https://svc.example.com:8443/base", "/v1")
    assert found(table, "svc.example.com", "/base/v1", 8443) == expected
    outside = ("svc", "https://svc.example.com:8443", "/other")
    assert found(table, "svc.example.com", "/other", 8443) == outside


def test_a_route_with_another_url_keeps_the_provider_s_host() -> None:
    table = hosts(route=["openai=http://127.0.0.1:9", "bedrock=http://127.0.0.1:8"])
    assert found(table, "api.openai.com") == ("openai", "http://127.0.0.1:9", "/v1/x")
    regional = found(table, "bedrock-runtime.us-east-1.amazonaws.com")
    assert regional == ("bedrock", "http://127.0.0.1:8", "/v1/x")


def test_the_region_of_the_environment_is_no_url_that_somebody_gave() -> None:
    table = hosts({"AWS_REGION": "eu-west-1"})
    other = "bedrock-runtime.us-east-1.amazonaws.com"
    assert found(table, other) == ("bedrock", f"https://{other}", "/v1/x")


def test_a_route_that_is_off_leads_nowhere() -> None:
    assert found(hosts(route="openai=off"), "api.openai.com") is None
    assert found(hosts(upstream="https://svc.example.com"), "api.openai.com") is None


def test_the_longest_path_of_a_host_comes_first() -> None:
    table = hosts(route=["a=https://svc.example.com", "b=https://svc.example.com/deep/er"])
    assert found(table, "svc.example.com", "/deep/er/x") == (
        *("b", "https://svc.example.com/deep/er"),
        "/x",
    )
    assert found(table, "svc.example.com", "/deep/er?q") == (
        *("b", "https://svc.example.com/deep/er"),
        "/?q",
    )
    assert found(table, "svc.example.com", "/deep/error") == (
        *("a", "https://svc.example.com"),
        "/deep/error",
    )


def test_the_names_of_hosts_are_those_that_an_authority_may_vouch_for() -> None:
    names = set(hosts(route="svc=https://svc.example.com").names())
    assert {"api.openai.com", "svc.example.com", "amazonaws.com", "googleapis.com"} <= names
    assert {"openai.azure.com", "rep.googleapis.com", "amazonaws.com.cn"} <= names
    assert not {"com", "", "com.cn"} & names
