"""A cookie reaches the client so that the client sends it back to the proxy."""

from email.utils import parsedate_to_datetime

import pytest

from tapeway.core.model.messages import ResponseHead
from tapeway.core.way_back.cookies import lead_cookie, needs_change, with_later_expiry


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


NOON = "Sat, 28 Nov 2026 12:00:00 GMT"
DAY_S = 24 * 60 * 60


def moved(expires: str, *fields: tuple[bytes, bytes], days: float, first_day: str = "") -> str:
    """When a cookie of an answer ends that is replayed some days after noon."""
    cookie = (b"Set-Cookie", f"sid=1; Path=/; Expires={expires}; HttpOnly".encode())
    now = parsedate_to_datetime(NOON).timestamp() + days * DAY_S
    head = with_later_expiry(ResponseHead(200, headers=(cookie, *fields)), first_day, now)
    begin, _, rest = head.headers[0][1].decode().partition("Expires=")
    assert begin == "sid=1; Path=/; "
    assert rest.endswith("; HttpOnly")
    assert head.headers[1:] == fields
    return rest.removesuffix("; HttpOnly")


@pytest.mark.parametrize(
    "expires", ["Sat, 28 Nov 2026 13:00:00 GMT", "Saturday, 28-Nov-26 13:00:00 GMT"]
)
def test_a_cookie_lives_as_long_as_when_it_was_recorded(expires: str) -> None:
    date = (b"Date", NOON.encode())

    assert moved(expires, date, days=10) == "Tue, 08 Dec 2026 13:00:00 GMT"
    assert moved(expires, days=10, first_day="2026-11-28T12:00:00+00:00") == (
        "Tue, 08 Dec 2026 13:00:00 GMT"
    )
    assert parsedate_to_datetime(moved(expires, date, days=-1)) == parsedate_to_datetime(expires)


@pytest.mark.parametrize(
    "expires",
    ["Thu, 01 Jan 1970 00:00:00 GMT", NOON, "soon", "", "Fri, 31 Dec 9999 23:59:59 GMT"],
)
def test_a_cookie_that_was_taken_away_and_a_time_that_cannot_be_read_stay(expires: str) -> None:
    assert moved(expires, (b"date", NOON.encode()), days=10) == expires


def test_without_any_moment_of_the_answer_no_cookie_changes() -> None:
    assert moved("Sat, 28 Nov 2026 13:00:00 GMT", days=10) == "Sat, 28 Nov 2026 13:00:00 GMT"
