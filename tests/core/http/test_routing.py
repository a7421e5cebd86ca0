"""From what an app asked for to cassette, route and target, and back for a Location."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    RequestAddress,
    Route,
    RouteTable,
    assign_routes,
    check_cassette_name,
    no_route_error,
    resolve,
    valid_cassette_name,
)
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.model.request_fields import RequestFields
from tapeway.errors import RequestError

OPENAI = Route("openai", "https://api.openai.com")
AZURE = Route("azure", None)
MINE = Route(DEFAULT_ROUTE, "http://127.0.0.1:9000/base")
ROUTES = {"openai": OPENAI, "azure": AZURE}


def owner(target: str, headers: Headers) -> str | None:
    if any(name.lower() == b"anthropic-version" for name, _ in headers):
        return "anthropic"
    return "openai" if target.startswith("/v1/chat") else None


def address(
    target: str, *headers: tuple[bytes, bytes], default: Route | None = None
) -> RequestAddress:
    return resolve(RouteTable(ROUTES, default), owner, target, RequestFields(headers))


@pytest.mark.parametrize(
    ("target", "route", "below", "prefix"),
    [
        ("/openai/v1/models", "openai", "/v1/models", "/openai"),
        ("/openai/v1/models?limit=2", "openai", "/v1/models?limit=2", "/openai"),
        ("/openai", "openai", "/", "/openai"),
        ("/openai/", "openai", "/", "/openai"),
        ("/openai?a=b", "openai", "/?a=b", "/openai"),
        ("/openai/?", "openai", "/?", "/openai"),
        ("/openai//v1", "openai", "//v1", "/openai"),
        ("/openai/v1/a%2Fb%7E;c?x=a+b%20&&y", "openai", "/v1/a%2Fb%7E;c?x=a+b%20&&y", "/openai"),
        ("/openai/v1/../x", "openai", "/v1/../x", "/openai"),
        ("/openai/openai/v1", "openai", "/openai/v1", "/openai"),
        ("/azure/openai/deployments/x", "azure", "/openai/deployments/x", "/azure"),
    ],
)
def test_a_path_that_begins_with_a_route_goes_there(
    target: str, route: str, below: str, prefix: str
) -> None:
    assert address(target) == RequestAddress(None, ROUTES[route], below, prefix)


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models",
        "/",
        "/?",
        "//openai/v1",
        "/OpenAI/v1",
        "/openaix/v1",
        "/?/openai",
        "/x?y=/openai/z",
    ],
)
def test_a_default_upstream_owns_every_other_path_as_it_was_written(target: str) -> None:
    assert address(target, default=MINE) == RequestAddress(None, MINE, target, "")


def test_without_a_default_a_providers_path_goes_to_the_provider() -> None:
    target = "/v1/chat/completions"

    assert address(target) == RequestAddress(None, OPENAI, target, "", guessed=True)


@pytest.mark.parametrize(
    ("target", "headers"), [("/other", ()), ("/v1/messages", ((b"Anthropic-Version", b"1"),))]
)
def test_what_no_route_takes_may_still_be_recorded_on_the_default(
    target: str, headers: Headers
) -> None:
    assert address(target, *headers) == RequestAddress(
        None, Route(DEFAULT_ROUTE, None), target, "", guessed=True
    )


@pytest.mark.parametrize(
    ("target", "cassette", "route", "below", "prefix"),
    [
        ("/@smoke/openai/v1/models", "smoke", "openai", "/v1/models", "/@smoke/openai"),
        ("/@smoke/v1/chat/x", "smoke", "openai", "/v1/chat/x", "/@smoke"),
        ("/@smoke/openai", "smoke", "openai", "/", "/@smoke/openai"),
        ("/@a%2Fb.c/openai/x?y=1", "a/b.c", "openai", "/x?y=1", "/@a%2Fb.c/openai"),
        ("/@a%2fb/openai/x", "a/b", "openai", "/x", "/@a%2fb/openai"),
        ("/@smoke//openai/x", "smoke", DEFAULT_ROUTE, "//openai/x", "/@smoke"),
        ("/@smoke", "smoke", DEFAULT_ROUTE, "/", "/@smoke"),
        ("/@smoke?a=b", "smoke", DEFAULT_ROUTE, "/?a=b", "/@smoke"),
    ],
)
def test_a_path_may_begin_with_a_cassette(
    target: str, cassette: str, route: str, below: str, prefix: str
) -> None:
    found = address(target)

    assert (found.cassette, found.route.name) == (cassette, route)
    assert (found.target, found.prefix) == (below, prefix)


def test_a_field_may_name_the_cassette_and_the_path_wins() -> None:
    named = (b"TAPEWAY-Cassette", b"suite/one")

    assert address("/openai/x", named).cassette == "suite/one"
    assert address("/@two/openai/x", named).cassette == "two"
    assert address("/openai/@two/x", named).target == "/@two/x"


@pytest.mark.parametrize(
    "name",
    ["a", "A-1_b.c", "a/b/c/d/e/f/g/h", "0", "a" * 128, "console", "com10", "a..b", "a.con"],
)
def test_a_cassette_may_be_called_this(name: str) -> None:
    assert check_cassette_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/..",
        "../a",
        "/a",
        "a/",
        "a//b",
        ".hidden",
        "-flag",
        "_a",
        "a b",
        "a\n",
        "a\0",
        "a\\b",
        "a%2fb",
        "é",
        "\uff41",
        "a" * 129,
        "a/b/c/d/e/f/g/h/i",
        *("CON", "nul", "nul.json", "suite/Aux/x", "com1", "LPT9.a.b", "prn"),
        *("a.", "a./b", "a/b."),
    ],
)
def test_a_cassette_may_not_be_called_this(name: str) -> None:
    assert not valid_cassette_name(name)
    with pytest.raises(RequestError) as caught:
        check_cassette_name(name)
    assert (caught.value.status, caught.value.code) == (400, "bad_cassette_name")


def test_a_header_names_a_cassette_or_a_slot_and_counts_before_the_slot_of_the_path() -> None:
    named = [
        address("/@~w0/openai/x", (b"Tapeway-Cassette", name))
        for name in (b"~w1", b"suite/a", b"a")
    ]

    assert [(each.cassette, each.slot) for each in named] == [
        (None, "w1"),
        ("suite/a", None),
        ("a", None),
    ]
    assert address("/@b/openai/x", (b"Tapeway-Cassette", b"~w1")).cassette == "b"
    with pytest.raises(RequestError, match="name of a slot"):
        address("/openai/x", (b"Tapeway-Cassette", b"~a/b"))


@pytest.mark.parametrize("target", ["/@", "/@/openai/x", "/@..%2Fx/y", "/@a%00/x", "/@a%252Fb/x"])
def test_a_path_with_a_cassette_that_is_none_is_refused(target: str) -> None:
    with pytest.raises(RequestError, match="cassette name"):
        address(target)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters=" #")))
def test_prefix_and_target_are_what_was_written(rest: str) -> None:
    if not rest.startswith("@"):
        found = address(f"/openai/{rest}", default=MINE)

        assert found.prefix + found.target == f"/openai/{rest}"
        assert address(f"/@c/openai/{rest}").target == found.target


def test_the_refusal_of_a_path_names_the_routes_there_are() -> None:
    error = no_route_error(RouteTable(ROUTES), DEFAULT_ROUTE, "/nowhere?key=x")

    assert (error.status, error.code) == (404, "no_route")
    assert "/nowhere" in error.message
    assert "azure, openai" in error.message
    assert "key" not in error.message


def test_the_refusal_of_a_route_without_a_url_says_how_to_give_one() -> None:
    assert "--route azure=https://" in no_route_error(RouteTable(ROUTES), "azure", "/x").message


def recorded(base: str, target: str, route: str = "") -> Interaction:
    return Interaction(0, Request(route, "GET", target, base=base), Response(ResponseHead(200)))


def adopted(interaction: Interaction, *routes: Route, default: Route | None = None) -> Request:
    table = RouteTable({route.name: route for route in routes}, default)
    stored = StoredCassette(CassetteHead("", ""), (interaction,))
    found = assign_routes(stored, table).interactions[0]
    assert isinstance(found, Interaction)
    return found.request


SUB = Route("sub", "https://api.openai.com/sub/")


@pytest.mark.parametrize(
    ("base", "target", "route", "below"),
    [
        ("https://api.openai.com", "/v1/x", "openai", "/v1/x"),
        ("https://API.openai.com:443", "/v1/x?a=b", "openai", "/v1/x?a=b"),
        ("https://api.openai.com", "/sub/v1/x", "sub", "/v1/x"),
        ("https://api.openai.com", "/subway", "openai", "/subway"),
        ("http://127.0.0.1:9000", "/base/x", "default", "/x"),
        ("http://127.0.0.1:9000", "/x", "default", "/x"),
        ("https://elsewhere.example", "/v1/x", "default", "/v1/x"),
        ("https://host:port", "/v1/x", "default", "/v1/x"),
        ("", "/v1/x", "default", "/v1/x"),
    ],
)
def test_a_recording_without_a_route_is_given_the_one_of_its_origin(
    base: str, target: str, route: str, below: str
) -> None:
    request = adopted(recorded(base, target), OPENAI, AZURE, SUB, default=MINE)

    assert (request.route, request.target) == (route, below)
    assert request.url == base + target


def test_a_recording_keeps_the_route_it_has() -> None:
    interaction = recorded("https://api.openai.com", "/x", "mine")

    assert adopted(interaction, OPENAI) == interaction.request


def test_a_foreign_interaction_gets_no_route() -> None:
    foreign = ForeignInteraction(0, {"kind": "tool"})
    stored = StoredCassette(CassetteHead("", ""), (foreign,))

    assert assign_routes(stored, RouteTable()) == stored


def test_a_route_is_found_again_by_the_address_that_recorded_it() -> None:
    found = address("/openai/v1/x?y")
    request = Request("", "GET", found.target, base=found.route.url or "")
    interaction = replace(recorded("", ""), request=request)

    assert adopted(interaction, OPENAI) == replace(request, route="openai")
