"""A cookie reaches the client so that the client sends it back to the proxy."""

import pytest

from tapeway.core.way_back.cookies import lead_cookie, needs_change


@pytest.mark.parametrize(
    ("cookie", "led"),
    [
        ("sid=1", "sid=1"),
        ("sid=1; Path=/", "sid=1; Path=/@c/svc/"),
        ("sid=1; path=/app; HttpOnly", "sid=1; path=/@c/svc/app; HttpOnly"),
        ("sid=1; Path=/app/; Max-Age=9", "sid=1; Path=/@c/svc/app/; Max-Age=9"),
        ("sid=1; Domain=api.example; Path=/app", "sid=1; Path=/@c/svc/app"),
        ("sid=1; domain=.api.example;secure;SameSite=None", "sid=1;SameSite=None"),
        ("sid=1; Secure; HttpOnly; Partitioned; SameSite=Lax", "sid=1; HttpOnly; SameSite=Lax"),
        ("sid=Secure=Domain; Path=relative; Path=", "sid=Secure=Domain; Path=relative; Path="),
        ("__Host-sid=1; Path=/; Secure", "__Host-sid=1; Path=/"),
        ("__Secure-sid=1; Path=/; Secure", "__Secure-sid=1; Path=/@c/svc/"),
        (
            "sid=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
            "sid=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT",
        ),
        ("Domain=x; Domain=y", "Domain=x"),
        ("", ""),
    ],
)
def test_a_cookie_names_the_proxy_s_paths_and_no_domain(cookie: str, led: str) -> None:
    assert lead_cookie(cookie, "", "/@c/svc", tls=False) == led


@pytest.mark.parametrize(
    ("path", "led"),
    [
        ("/", "/svc/"),
        ("/base", "/svc/"),
        ("/base/", "/svc/"),
        ("/base/v1", "/svc/"),
        ("/base/v1/app", "/svc/app"),
        ("/base/v1beta", "/base/v1beta"),
        ("/other", "/other"),
    ],
)
def test_the_path_of_the_route_s_url_is_cut_off(path: str, led: str) -> None:
    assert lead_cookie(f"a=b; Path={path}", "/base/v1", "/svc", tls=False) == f"a=b; Path={led}"


def test_without_a_prefix_the_path_stays() -> None:
    for path in ("/", "/app", "/app/"):
        assert lead_cookie(f"a=b; Path={path}", "", "", tls=False) == f"a=b; Path={path}"


def test_over_tls_a_cookie_stays_secure() -> None:
    cookie = "a=b; Secure; Partitioned; SameSite=None"

    assert lead_cookie(cookie, "", "/svc", tls=True) == cookie


def test_what_names_no_place_needs_no_change() -> None:
    assert not needs_change(b"a=b; HttpOnly; SameSite=Lax; Max-Age=3")
    assert needs_change(b"a=b; PATH=/")
