"""Which addresses are forgiven, and that all others stay the ones they are."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapeway.core.http.routing import DEFAULT, RequestAddress, Route, RouteTable, Slip, resolve
from tapeway.core.model.messages import Headers
from tapeway.providers.base_url_repair import forgive
from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.paths import owner

TABLE = RouteTable({name: Route(name, each.url) for name, each in PROVIDERS.items()})
ANTHROPIC: Headers = ((b"anthropic-version", b"2023-06-01"),)


def found(target: str, headers: Headers = (), table: RouteTable = TABLE) -> RequestAddress:
    return forgive(resolve(table, owner, target, headers), table)


@pytest.mark.parametrize(
    ("target", "route", "meant", "slip"),
    [
        ("/openai/v1/v1/models", "openai", "/v1/models", Slip("doubled", "/v1", "/v1/v1/models")),
        ("/anthropic/messages", "anthropic", "/v1/messages", Slip("missing", "/v1", "/messages")),
        ("/v1/v1/messages", "anthropic", "/v1/messages", Slip("doubled", "/v1", "/v1/v1/messages")),
        ("/messages?beta=true", "anthropic", "/v1/messages?beta=true", None),
        ("/chat/completions", "openai", "/v1/chat/completions", None),
        ("/v1/v1/chat/completions", "openai", "/v1/chat/completions", None),
        ("/responses/r/cancel", "openai", "/v1/responses/r/cancel", None),
        ("/embeddings", "openai", "/v1/embeddings", None),
        ("/v1beta/v1beta/models/g:countTokens", "gemini", "/v1beta/models/g:countTokens", None),
        ("/api/api/chat", "ollama", "/api/chat", None),
    ],
)
def test_a_slip_leads_to_what_was_meant(
    target: str, route: str, meant: str, slip: Slip | None
) -> None:
    address = found(f"/@suite{target}")

    assert (address.cassette, address.route.name, address.target) == ("suite", route, meant)
    assert address.slip is not None
    assert slip in (None, address.slip)


def test_a_field_that_names_the_provider_decides_for_a_path_without_a_version() -> None:
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
def test_what_needs_no_forgiving_is_the_very_address_it_was(target: str) -> None:
    address = resolve(TABLE, owner, target, ())

    assert forgive(address, TABLE) is address


def test_a_service_nobody_knows_gets_what_was_written() -> None:
    url = "http://127.0.0.1:9000"
    routes = {"mine": Route("mine", url), **TABLE.routes}
    table = RouteTable(routes, Route(DEFAULT, url))

    for target in ("/chat/completions", "/v1/v1/messages", "/mine/chat/completions"):
        assert found(target, table=table).slip is None


def test_a_default_upstream_that_is_a_provider_is_known_as_one() -> None:
    table = RouteTable({}, Route("openai", "https://api.openai.com"))

    assert found("/chat/completions", table=table).target == "/v1/chat/completions"


def test_a_provider_that_is_switched_off_is_not_meant() -> None:
    assert found("/messages", table=RouteTable({"openai": Route("openai", None)})).slip is None


def test_a_url_of_the_route_that_holds_the_version_doubles_it_too() -> None:
    table = RouteTable({"openai": Route("openai", "http://gateway/v1/")})
    address = found("/openai/v1/models", table=table)

    assert address.target == "/models"
    assert address.slip == Slip("doubled", "", "/v1/models")


def documented() -> Iterator[tuple[str, str]]:
    """What the page on HTTP says is asked for, and where it goes."""
    page = Path(__file__).parents[2].joinpath("docs", "http.md").read_text()
    section = page.partition("## A base URL that is a `/v1` off")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (.*) \| (.*) \|$", section, re.MULTILINE)[2:]:
        for asked in re.findall(r"`(/[^`]*)`", row[0]):
            yield asked, row[1].strip("`")


@pytest.mark.parametrize(("asked", "goes_to"), list(documented()))
def test_the_documented_slips_are_forgiven_as_documented(asked: str, goes_to: str) -> None:
    address = found(asked)

    assert address.slip is not None
    assert address.target == goes_to or goes_to.startswith("the provider")
