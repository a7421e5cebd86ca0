"""Origins of URLs, and a Location that leads back to the proxy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.location import origin, rewrite_location, without_userinfo


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Api.OpenAI.com/v1", "https://api.openai.com"),
        ("HTTPS://api.openai.com:443", "https://api.openai.com"),
        ("http://host:80/x", "http://host"),
        ("http://host:443", "http://host:443"),
        ("https://host:80", "https://host:80"),
        ("https://me:pw@host:8443/x", "https://host:8443"),
        ("http://[::1]:8080/x", "http://[::1]:8080"),
        ("http://[2001:DB8::1]/", "http://[2001:db8::1]"),
    ],
)
def test_an_origin_is_written_in_one_way(url: str, expected: str) -> None:
    assert origin(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:pw@host/x", "https://host/x"),
        ("https://me@host:1/x", "https://host:1/x"),
        ("https://me:p@w@host/x@y", "https://host/x@y"),
        ("https://host/@scope/x", "https://host/@scope/x"),
        ("https://host?x=a@b", "https://host?x=a@b"),
        ("https://host#a@b", "https://host#a@b"),
        ("me:pw@host/x", "host/x"),
        ("//me:pw@host/x", "//host/x"),
        ("/path/a@b", "/path/a@b"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_user_and_password(url: str, expected: str) -> None:
    assert without_userinfo(url) == expected


UP = "https://api.example.com/base"
PROXY = "http://127.0.0.1:8080/@c/openai"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://api.example.com/base/files/1?a=b#c", f"{PROXY}/files/1?a=b#c"),
        ("https://api.example.com/base", f"{PROXY}/"),
        ("https://api.example.com/base?a=b", f"{PROXY}/?a=b"),
        ("HTTPS://API.Example.COM:443/base/x", f"{PROXY}/x"),
        ("https://someone@api.example.com/base/x", f"{PROXY}/x"),
        ("//api.example.com/base/x", f"{PROXY}/x"),
        ("/base/x?y=1", "/@c/openai/x?y=1"),
        ("/base", "/@c/openai/"),
    ],
)
def test_a_location_below_the_upstream_leads_back_to_the_proxy(
    location: str, expected: str
) -> None:
    assert rewrite_location(location, UP, PROXY) == expected
    assert rewrite_location(location, UP + "/", PROXY) == expected


@pytest.mark.parametrize(
    "location",
    [
        "https://other.example.com/base/x",
        "http://api.example.com/base/x",
        "https://api.example.com:8443/base/x",
        "https://api.example.com/elsewhere",
        "https://api.example.com/basement",
        "https://api.example.com.evil.example/base/x",
        "https://api.example.com@evil.example/base/x",
        "//evil.example/base/x",
        "/elsewhere",
        "x",
        "../x",
        "?a=b",
        "#c",
        "",
        "mailto:me@api.example.com",
        "https://api.example.com:port/base",
        "https://api.example.com:99999/base",
        "https://[::1/base",
        "https://[nonsense]/base",
    ],
)
def test_any_other_location_comes_back_as_it_is(location: str) -> None:
    assert rewrite_location(location, UP, PROXY) == location


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("https://host/v1", "http://127.0.0.1:8080/v1"),
        ("https://host", "http://127.0.0.1:8080/"),
        ("https://host?a=b", "http://127.0.0.1:8080/?a=b"),
        ("/v1/x", "/v1/x"),
        ("v1/x", "v1/x"),
        ("?a=b", "?a=b"),
        ("", ""),
    ],
)
def test_a_path_stays_as_it_is_where_the_proxy_adds_none(location: str, expected: str) -> None:
    assert rewrite_location(location, "https://host", "http://127.0.0.1:8080") == expected


@given(
    st.text(max_size=30), st.sampled_from(["", "https://api.example.com", "https://", "//", "/"])
)
def test_no_location_at_all_is_an_error(rest: str, start: str) -> None:
    rewrite_location(start + rest, UP, PROXY)
    rewrite_location(UP, start + rest, PROXY)
    rewrite_location("/x", start + rest, start + rest)
