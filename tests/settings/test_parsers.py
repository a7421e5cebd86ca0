from collections.abc import Callable
from functools import partial
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.streams.pacing import Pace
from tapeway.settings import parsers
from tapeway.settings.parsers import CertificateChoice, HostPort, RouteChoice

Reader = Callable[[object], object]

READERS: list[Reader] = [
    parsers.host_port,
    parsers.host_port_or_off,
    parsers.size,
    parsers.seconds,
    parsers.boolean,
    parsers.url,
    parsers.route,
    parsers.statuses,
    parsers.network,
    parsers.page_origin,
    parsers.host_name,
    parsers.pace,
    parsers.token,
    parsers.text,
]


MISS_STATUS = partial(parsers.integer, least=400, most=599)


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (parsers.size, "1", 1),
        (parsers.size, 1048576, 1048576),
        (parsers.size, "512B", 512),
        (parsers.size, "1KiB", 1024),
        (parsers.size, "64MiB", 64 * 2**20),
        (parsers.size, "64 MiB", 64 * 2**20),
        (parsers.size, "2GiB", 2 * 2**30),
        (parsers.seconds, "10", 10.0),
        (parsers.seconds, 0.5, 0.5),
        (parsers.seconds, " 8 ", 8.0),
        (parsers.seconds, 3, 3.0),
        (partial(parsers.seconds, least=0), "0", 0),
        (MISS_STATUS, "400", 400),
        (MISS_STATUS, 599, 599),
        (MISS_STATUS, "424", 424),
        *[(parsers.boolean, value, True) for value in (True, "true", "Yes", "on", "1", 1)],
        *[(parsers.boolean, value, False) for value in (False, "false", "NO", "off", "0", 0)],
        (parsers.url, "https://api.example.com", "https://api.example.com"),
        (parsers.url, "https://api.example.com/", "https://api.example.com"),
        (parsers.url, "http://host:9000/base/", "http://host:9000/base"),
        (parsers.url, "http://[::1]:9", "http://[::1]:9"),
        (parsers.url, "https://user:pass@host/v1", "https://user:pass@host/v1"),
        (parsers.page_origin, "https://app.example.com", "https://app.example.com"),
        (parsers.page_origin, "https://App.example.com:443/", "https://app.example.com"),
        (parsers.page_origin, "http://app.example:3000", "http://app.example:3000"),
        (parsers.page_origin, "http://[2001:db8::1]:3000", "http://[2001:db8::1]:3000"),
        *[(parsers.page_origin, value, value) for value in ("*", "null", "file://", "app://x")],
        (parsers.host_name, "Tunnel.example.com", "tunnel.example.com"),
        (parsers.statuses, "200-299", frozenset(range(200, 300))),
        (parsers.statuses, "200, 404", frozenset({200, 404})),
        (parsers.statuses, ["200-201", "599"], frozenset({200, 201, 599})),
        (parsers.statuses, 404, frozenset({404})),
        (parsers.statuses, [200, 201], frozenset({200, 201})),
        (parsers.statuses, "", frozenset()),
        (parsers.pace, "none", 0.0),
        (parsers.pace, "recorded", 1.0),
        (parsers.pace, "1x", 1.0),
        (parsers.pace, "2x", 0.5),
        (parsers.pace, "0.5x", 2.0),
        (parsers.pace, Pace(3), 3.0),
        (parsers.days, "30d", 30),
        (parsers.days, "8w", 56),
        (parsers.days, "30", 30),
        (parsers.days, 7, 7),
        (parsers.days, "0d", 0),
        (parsers.proxy_or_off, "off", "off"),
        (parsers.proxy_or_off, "http://proxy.example.com:3128/", "http://proxy.example.com:3128"),
        (parsers.proxy_or_off, "https://bob:p%40ss@proxy", "https://bob:p%40ss@proxy"),
        (parsers.proxy_or_off, "http://[fd00::1]:3128", "http://[fd00::1]:3128"),
        (parsers.page_url, "https://host/tapeway/", "https://host/tapeway/"),
        (parsers.page_url, "file:///x/last.html", "file:///x/last.html"),
        (partial(parsers.choice, accepted=("buffer", "stream")), "stream", "stream"),
    ],
)
def test_a_value_is_read(read: Reader, value: object, expected: object) -> None:
    assert read(value) == expected


REFUSED: list[tuple[Reader, str, list[object]]] = [
    (
        parsers.host_port,
        r"give HOST:PORT .* such as 127\.0\.0\.1:8080",
        [
            "", "8080", 8080, ":", ":x", "host", "host:", "host:x", "host:65536", "host:-1",
            "host:1 ", "::1:80", "[::1]", "[x]:1", "a b:1", "http://host:1", "user@host:1", None,
            True,
        ],
    ),
    (parsers.host_port_or_off, "or off$", ["none"]),
    (
        parsers.size,
        "such as 64MiB",
        ["", "0", 0, "-1", "1.5MiB", "64MB", "64mib", "MiB", True, 1.5, "9" * 40],
    ),
    (
        parsers.seconds,
        "give seconds above 0",
        ["", "0", "-1", "nan", "inf", "10s", True, None, []],
    ),
    (MISS_STATUS, "from 400 to 599", ["399", "600", "x", "424.0", 424.5, True, ""]),
    (parsers.boolean, "give true or false", ["", "maybe", 2, None]),
    (
        parsers.url,
        r"such as https://api\.example\.com",
        [
            "", "host", "host:80", "ftp://host", "http://", "http://:80", "http://host:",
            "http://host:0", "http://host:99999", "http://host:x", "http://ho st",
            "http://host/#a", "http://host\\evil", "//host", "https:/host", "http://h\r\nost",
            "http://h\u00f6st", None, 5,
        ],
    ),
    (
        parsers.statuses,
        "such as 200-299,404",
        ["2xx", "199", "600", "299-200", "100-200", "200-", "-1", True],
    ),
    (
        parsers.pace,
        "is not a pace; give none, recorded, or a speed",
        ["", "x", "2", 2.0, "0x", "1001x", "-1x", "2 x", "1e3x", None],
    ),
    (
        parsers.page_origin,
        "is not the origin of a page; give scheme, host and port, such as https://app.example.com",
        ["", "app.example.com", "https://", "https://a.example/path", "https://a.example?x", None],
    ),
    (
        parsers.page_origin,
        "or null, or *",
        ["https://u:p@a.example", "https://*.example", "http://a b", "//a.example", "none"],
    ),
    (
        parsers.host_name,
        "is not the name of a host; give it without scheme and port, such as tapeway.example.com",
        ["", "*", "*.example.com", "https://a.example", "a.example:8080", "a b", "[::1]", ".a"],
    ),
    (
        parsers.days,
        "is not an age; give days or weeks, such as 30d or 8w",
        ["", "1.5d", "-1d", "12h", "d", True, "9999999"],
    ),
    (parsers.certificate, "names no certificate", ["", ":key.pem", "corp=", "corp=a.pem:"]),
    (parsers.page_url, "'nope' is no address of a page", ["nope"]),
    (
        partial(parsers.choice, accepted=("buffer", "stream")),
        "'flow' is not accepted; use buffer, stream",
        ["flow"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "value", "accepted"),
    [(read, value, accepted) for read, accepted, values in REFUSED for value in values],
)
def test_any_other_value_is_refused_with_what_is_accepted(
    read: Reader, value: object, accepted: str
) -> None:
    with pytest.raises(ValueError, match=accepted):
        read(value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("localhost:0", "localhost", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("[::1]:8080", "::1", 8080),
        ("my-host.example:80", "my-host.example", 80),
    ],
)
def test_an_address_is_a_host_and_a_port_and_writes_itself_alike(
    text: str, host: str, port: int
) -> None:
    address = parsers.host_port(text)

    assert (address.host, address.port) == (host, port)
    assert str(address) == text
    assert parsers.host_port(address) is address


def test_a_port_alone_is_open_to_this_machine_alone() -> None:
    assert parsers.host_port(":8080") == parsers.host_port("127.0.0.1:8080")


def test_off_turns_a_listener_off() -> None:
    assert parsers.host_port_or_off("off") is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_only_loopback_is_loopback(host: str, expected: bool) -> None:
    assert HostPort(host, 1).loopback is expected


@pytest.mark.parametrize(
    "text",
    [
        "me:canary@host",
        "http://me:canary@host:x",
        "http://me:can/ary@host",
        "ftp://canary@host",
        "http://host/?key=canary",
        "http://host/#canary",
        "http://me:canary@host?x=canary",
    ],
)
def test_a_url_that_cannot_be_used_is_named_without_what_may_be_secret(text: str) -> None:
    with pytest.raises(ValueError, match="upstream URL") as caught:
        parsers.url(text)

    assert "can" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openai=https://host/v1/", RouteChoice("openai", "https://host/v1")),
        ("my.api=http://a=b:1", None),
        ("openai=off", RouteChoice("openai", off=True)),
        ("openai", RouteChoice("openai")),
        ("all", RouteChoice("all")),
        ("all=http://host", None),
        ("=http://host", None),
        ("a/b=http://host", None),
        ("@x=http://host", None),
        ("default=http://host", None),
        ("openai=", None),
        ("openai=host", None),
    ],
)
def test_a_route_is_a_name_and_what_becomes_of_it(text: str, expected: RouteChoice | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"route|upstream"):
            parsers.route(text)
    else:
        assert parsers.route(text) == expected


def test_a_route_s_text_form_does_not_show_its_url() -> None:
    assert "canary" not in repr(parsers.route("openai=https://me:canary@host"))


def test_a_block_of_addresses_has_no_host_bits() -> None:
    assert parsers.network("10.0.0.0/8") == ip_network("10.0.0.0/8")
    assert parsers.network("192.0.2.7") == ip_network("192.0.2.7/32")
    for text in ("10.0.0.1/8", "x", "", "10.0.0.0/33"):
        with pytest.raises(ValueError, match=r"such as 10\.0\.0\.0/8"):
            parsers.network(text)


@pytest.mark.parametrize("value", ["", "two words", "caf\u00e9", "line\nbreak", None, 5])
def test_a_token_that_no_header_can_carry_is_refused_and_not_repeated(value: object) -> None:
    with pytest.raises(ValueError, match="visible ASCII") as caught:
        parsers.token(value)

    assert not value or str(value) not in str(caught.value)


def test_a_list_is_cut_at_commas_only_where_it_is_one_text() -> None:
    read = parsers.list_of(parsers.text)

    assert read("a, b,,c") == ("a", "b", "c")
    assert read(["a,b", "c"]) == ("a,b", "c")
    assert read("") == ()


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.text())))
def test_every_reader_reads_or_says_what_it_accepts(value: object) -> None:
    for read in READERS:
        try:
            read(value)
        except ValueError as exc:
            assert "\n" not in str(exc)  # noqa: PT017 - most values are refused, some are not


@pytest.mark.parametrize("read", [parsers.route, parsers.host_port, parsers.size, parsers.pace])
def test_a_url_in_the_wrong_place_is_named_without_what_may_be_secret(
    read: Callable[[object], object],
) -> None:
    with pytest.raises(ValueError, match="…@host") as caught:
        read("https://me:pass@word@host:80")

    assert "pass" not in str(caught.value)


def test_the_query_of_an_upstream_is_named_without_its_values() -> None:
    with pytest.raises(ValueError, match=r"'…@h/v1' with '\?api-version=…&key=…' is not") as found:
        parsers.url("https://u:pw@h/v1?api-version=2024-05-01&key=s3cret")

    assert "s3cret" not in str(found.value)
    assert "pw" not in str(found.value)


@pytest.mark.parametrize(
    "written",
    ["proxy:3128", "socks5://bob:secret@proxy:1080", "http://", "http://bob:secret@proxy/path", ""],
)
def test_what_is_no_proxy_is_refused_without_its_password(written: str) -> None:
    with pytest.raises(ValueError, match=r"is (?:not the URL of a|a SOCKS) proxy") as caught:
        parsers.proxy_or_off(written)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("client.pem", CertificateChoice("", "client.pem")),
        (
            "/etc/a/client.pem:/etc/a/key.pem",
            CertificateChoice("", "/etc/a/client.pem", "/etc/a/key.pem"),
        ),
        ("corp=client.pem:key.pem", CertificateChoice("corp", "client.pem", "key.pem")),
        ("./a=b.pem", CertificateChoice("", "./a=b.pem")),
    ],
)
def test_a_client_certificate_is_a_file_its_key_s_file_and_a_route(
    written: str, read: CertificateChoice
) -> None:
    assert parsers.certificate(written) == read
    assert parsers.certificate(read) is read


def test_a_route_s_websocket_can_only_be_off() -> None:
    assert parsers.route("x=http://h?websocket=off").websocket is False

    with pytest.raises(ValueError, match=r"of the route x can only be '\?websocket=off'"):
        parsers.route("x=http://h?websocket=maybe")
