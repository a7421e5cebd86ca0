"""Origins of URLs."""

import pytest

from tapeway.core.http.location import origin, origin_at, without_default_port, without_userinfo


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
    ("scheme", "host", "port", "expected"),
    [
        ("https", "host", None, "https://host"),
        ("https", "host", 443, "https://host"),
        ("http", "host", 443, "http://host:443"),
        ("http", "::1", 8080, "http://[::1]:8080"),
        ("http", "[::1]", 80, "http://[::1]"),
        ("ftp", "host", 80, "ftp://host:80"),
    ],
)
def test_an_origin_is_made_of_scheme_host_and_port(
    scheme: str, host: str, port: int | None, expected: str
) -> None:
    assert origin_at(scheme, host, port) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("https://Host:443", "https://Host"),
        ("HTTP://host:80", "HTTP://host"),
        ("https://host:80", "https://host:80"),
        ("http://host:8080", "http://host:8080"),
        ("http://[::80]", "http://[::80]"),
        ("ftp://host:", "ftp://host:"),
        ("", ""),
    ],
)
def test_an_origin_loses_the_default_port_of_its_scheme_alone(written: str, expected: str) -> None:
    assert without_default_port(written) == expected


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
