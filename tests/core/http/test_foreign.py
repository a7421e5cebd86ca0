"""Which pages may call a listener, and under which names."""

import pytest

from tapeway.core.http.foreign import ForeignGuard
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import RequestFields
from tapeway.errors import Foreign, RequestError

LOOPBACK = ForeignGuard.of_listener("127.0.0.1", ["proxy.example", "tunnel.example"])
EVERYWHERE = ForeignGuard.of_listener("0.0.0.0", ["0.0.0.0"])
NAMED = ForeignGuard.of_listener(
    "127.0.0.1",
    origins=["https://app.example", "http://app.example:3000", "null", "app://obsidian.md"],
)


def refusal(guard: ForeignGuard, *fields: tuple[bytes, bytes], target: str = "/x") -> str:
    """The code of a refusal, empty for a request that is served."""
    try:
        guard.check(target, RequestFields(fields))
    except Foreign as error:
        return error.code
    return ""


def of_page(guard: ForeignGuard, origin: str, host: str = "127.0.0.1:8080") -> str:
    sent = (b"Host", host.encode()), (b"Origin", origin.encode("latin-1"))
    served = guard.serves(sent[0][1], sent[1][1], None)
    found = refusal(guard, *sent)
    # The short way of plain requests decides alike.
    assert served == (not found)
    return found


SERVED = [
    *("http://localhost:3000", "https://localhost", "http://127.0.0.1:3000", "http://127.9.9.9"),
    *("http://[::1]:5173", "http://[::ffff:127.0.0.1]:3000", "http://[::ffff:7f00:1]"),
    *("HTTP://LOCALHOST:3000", "http://localhost.:3000", "http://app.localhost:3000"),
    *("http://web:3000", "http://my_web", "http://box.local", "http://a.b.internal"),
    *("https://shop.test", "http://SHOP.TEST.", "http://xn--bcher-kva.test", "http://2130706433"),
    *("tauri://localhost", "http://tauri.localhost", "https://proxy.example"),
    *("http://proxy.example:3000", "http://tunnel.example."),
]
FOREIGN = [
    *("https://evil.example", "null", "", "*", "file://", "http://", "http://."),
    *("http://localhost.evil.example", "http://127.0.0.1.evil.example", "http://evil.local.com"),
    *("http://evil-localhost.example", "http://xlocalhost.example", "http://notlocal.example"),
    *("http://localhost@evil.example", "http://evil.example@localhost", "http://u:p@localhost"),
    *(
        "http://localhost:3000/",
        "http://localhost/path",
        "http://localhost?x",
        "http://localhost#x",
    ),
    *("http://localhost http://evil.example", "http://localhost, http://localhost"),
    *(
        "http://localhost:3000x",
        "http://localhost:99999999",
        "http://[::1",
        "http://[localhost]",
        "http://[dead]",
    ),
    *("http://0x7f.1", "http://192.168.1.5:3000", "http://[fe80::1]", "http://[fe80::1%25eth0]"),
    *("http://10.0.0.1", "http://0.0.0.0:3000", "http://ai.", "http://xn--lcalhost-n6a.example"),
    *("http://localhost\xa0", "http://l\xf6calhost", "http://localhost%2eevil.example"),
    *("http://localhost\\.evil.example", "localhost:3000", "//localhost", "localhost"),
    *("chrome-extension://abcdefghijklmnop", "vscode-webview://0abc", "moz-extension://a-b"),
]


@pytest.mark.parametrize("origin", SERVED)
def test_a_page_of_this_machine_or_of_a_private_name_may_call(origin: str) -> None:
    assert of_page(LOOPBACK, origin) == ""


@pytest.mark.parametrize("origin", FOREIGN)
def test_any_other_page_may_not_call(origin: str) -> None:
    assert of_page(LOOPBACK, origin) == "foreign_origin"


@pytest.mark.parametrize("origin", FOREIGN)
def test_every_page_may_call_where_all_origins_are_allowed(origin: str) -> None:
    assert of_page(ForeignGuard.of_listener("127.0.0.1", origins=["*"]), origin) == ""


@pytest.mark.parametrize(
    ("origin", "code"),
    [
        *[(origin, "") for origin in ("https://app.example", "https://APP.example:443", "null")],
        *[(origin, "") for origin in ("http://app.example:3000", "app://obsidian.md")],
        ("http://app.example", "foreign_origin"),
        ("https://app.example:3000", "foreign_origin"),
        ("https://sub.app.example", "foreign_origin"),
        ("https://app.example.evil.example", "foreign_origin"),
    ],
)
def test_an_allowed_origin_is_scheme_host_and_port(origin: str, code: str) -> None:
    assert of_page(NAMED, origin) == code


@pytest.mark.parametrize(
    ("origin", "host", "code"),
    [
        ("http://192.168.1.5:3000", "192.168.1.5:8080", ""),
        ("http://[2001:db8::1]:3000", "[2001:db8::1]:8080", ""),
        ("http://192.168.1.6", "192.168.1.5:8080", "foreign_origin"),
        # A name may have been made to resolve to the listener.
        ("http://evil.example:8080", "evil.example:8080", "foreign_origin"),
    ],
)
def test_a_page_of_the_address_that_it_calls_may_call(origin: str, host: str, code: str) -> None:
    assert of_page(EVERYWHERE, origin, host) == code


@pytest.mark.parametrize(
    ("host", "code"),
    [
        *[(host, "") for host in ("localhost", "LOCALHOST.:1", "127.0.0.1:80", "[::1]:8080")],
        *[
            (host, "")
            for host in ("10.0.0.1", "[2001:db8::1]", "web:8080", "x.localhost", "a.test")
        ],
        *[(host, "") for host in ("host.docker.internal", "box.local.", "proxy.example:8080")],
        *[(host, "") for host in ("TUNNEL.example", "tunnel.example.", "2130706433")],
        *[(host, "foreign_host") for host in ("evil.example", "localhost.evil.example:8080")],
        *[(host, "foreign_host") for host in ("127.0.0.1.evil.example", "0x7f.1", "ai.", "")],
        *[(host, "foreign_host") for host in ("[dead]", "[:::]:80")],
        *[(host, "foreign_host") for host in ("sub.proxy.example", "a~b", "%6cocalhost")],
    ],
)
def test_a_listener_on_loopback_is_called_by_a_name_that_nobody_can_take_over(
    host: str, code: str
) -> None:
    sent = (b"Host", host.encode())

    assert refusal(LOOPBACK, sent) == code
    assert LOOPBACK.serves(sent[1], None, None) == (not code)
    assert refusal(EVERYWHERE, sent) == ""


@pytest.mark.parametrize(
    "host", [b"a b", b"user@localhost", b"[::1", b"localhost:x", b"[::1%eth0]"]
)
def test_a_malformed_host_is_no_name_at_all(host: bytes) -> None:
    with pytest.raises(RequestError, match="not a host and port") as caught:
        LOOPBACK.check("/", RequestFields(((b"Host", host),)))

    assert caught.value.code == "bad_request"
    assert not LOOPBACK.serves(host, None, None)


def test_without_a_host_a_request_is_served() -> None:
    assert refusal(LOOPBACK) == ""
    assert LOOPBACK.serves(None, None, None)


def test_in_the_absolute_form_the_host_header_does_not_count() -> None:
    foreign = (b"Host", b"evil.example")

    assert refusal(LOOPBACK, foreign, target="http://127.0.0.1:8080/x") == ""
    assert refusal(LOOPBACK, foreign, target="/x?next=http://127.0.0.1") == "foreign_host"


def test_of_several_origins_each_must_be_served() -> None:
    home, evil = (b"origin", b"http://localhost"), (b"ORIGIN", b"http://evil.example")

    assert refusal(LOOPBACK, home, home) == ""
    assert refusal(LOOPBACK, home, evil) == refusal(LOOPBACK, evil, home) == "foreign_origin"


CROSS, SAME = (b"Sec-Fetch-Site", b"cross-site"), (b"Sec-Fetch-Site", b"same-site")
LOCAL = (b"Host", b"localhost:8080")
TAB = ((b"Sec-Fetch-Mode", b"navigate"), (b"Sec-Fetch-Dest", b"document"))


def referer(url: bytes) -> tuple[bytes, bytes]:
    return (b"Referer", url)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([(b"Sec-Fetch-Site", b"none")], ""),
        ([(b"Sec-Fetch-Site", b"same-origin")], ""),
        ([CROSS, referer(b"http://127.0.0.1:3000/")], ""),
        ([CROSS, referer(b"http://web:3000")], ""),
        ([CROSS, (b"Origin", b"http://127.0.0.1:3000")], ""),
        ([SAME], ""),
        ([SAME, referer(b"http://localhost:3000/a?b")], ""),
        ([CROSS], "foreign_origin"),
        ([CROSS, *TAB], "foreign_origin"),
        ([CROSS, referer(b"https://evil.example/")], "foreign_origin"),
        ([CROSS, referer(b"http://localhost@evil.example/")], "foreign_origin"),
        ([CROSS, referer(b"http://localhost\\@evil.example/")], "foreign_origin"),
        ([CROSS, referer(b"http://localhost/"), referer(b"http://localhost/")], "foreign_origin"),
        ([CROSS, referer(b"")], "foreign_origin"),
        ([(b"Sec-Fetch-Site", b"none"), CROSS], "foreign_origin"),
        ([(b"Sec-Fetch-Site", b"what")], "foreign_origin"),
        ([SAME, referer(b"https://evil.example/")], "foreign_origin"),
    ],
)
def test_a_request_without_an_origin_is_judged_by_where_the_browser_says_it_comes_from(
    fields: list[tuple[bytes, bytes]], code: str
) -> None:
    assert refusal(LOOPBACK, LOCAL, *fields) == code


def test_what_shares_a_site_with_a_public_name_may_be_a_stranger() -> None:
    public: Headers = ((b"Host", b"proxy.example"),)

    assert refusal(LOOPBACK, *public, SAME) == "foreign_origin"
    assert refusal(LOOPBACK, *public, SAME, referer(b"https://evil.example/")) == "foreign_origin"
    assert refusal(LOOPBACK, *public, SAME, referer(b"https://proxy.example/")) == ""


def test_an_allowed_origin_counts_as_a_referer_too() -> None:
    page = referer(b"https://app.example/page?x")

    assert refusal(NAMED, LOCAL, CROSS, page) == ""
    assert refusal(ForeignGuard.of_listener("::1", origins=["*"]), LOCAL, CROSS) == ""


@pytest.mark.parametrize(
    ("origin", "host", "code"),
    [
        ("https://api.one.example", "api.one.example", ""),
        ("https://API.one.example:443", "api.one.example.:443", ""),
        ("http://localhost:3000", "api.one.example", ""),
        ("https://app.example", "api.one.example", ""),
        # Another route is another service.
        ("https://api.two.example", "api.one.example", "foreign_origin"),
        ("https://evil.example", "api.one.example", "foreign_origin"),
        ("http://localhost:3000", "api.two.example", ""),
        ("http://localhost:3000", "evil.example", "foreign_host"),
        ("http://localhost:3000", "localhost:8080", "foreign_host"),
    ],
)
def test_by_the_names_of_services_the_host_of_the_called_route_counts(
    origin: str, host: str, code: str
) -> None:
    routed = {"api.one.example", "api.two.example"}
    guard = NAMED.at_route("api.one.example", lambda name: name.rstrip(".") in routed)

    assert of_page(guard, origin, host) == code


def test_a_link_may_open_a_service_in_a_tab() -> None:
    guard = LOOPBACK.at_route("api.one.example", lambda name: True)
    host = (b"Host", b"api.one.example")

    assert refusal(guard, host, CROSS, *TAB) == ""
    assert refusal(guard, host, CROSS, TAB[0], (b"Sec-Fetch-Dest", b"iframe")) == "foreign_origin"
    assert refusal(guard, host, CROSS) == "foreign_origin"


@pytest.mark.parametrize(
    ("sent", "asker", "option"),
    [
        (
            (b"Origin", b"https://Evil.example:443"),
            "a request of a page of https://evil.example",
            "--allow-origin https://evil.example",
        ),
        ((b"Origin", b"null"), "a request of a page without an origin", "--allow-origin null"),
        (
            (b"Origin", b"sk-secret"),
            "a request of a page whose Origin is none",
            "--allow-origin '*'",
        ),
        (
            (b"Sec-Fetch-Site", b"cross-site"),
            "a request of a page of another site that does not say which",
            "--allow-origin '*'",
        ),
        (
            (b"Host", b"Evil.example:8080"),
            "a request under the name evil.example",
            "--allow-host evil.example",
        ),
        ((b"Host", b"sk~secret"), "a request under a name that is none", None),
    ],
)
def test_a_refusal_names_the_option_that_would_serve_the_request(
    sent: tuple[bytes, bytes], asker: str, option: str | None
) -> None:
    with pytest.raises(Foreign) as caught:
        LOOPBACK.check("/", RequestFields((sent,)))

    assert (caught.value.asker, caught.value.option) == (asker, option)
    assert "example" not in caught.value.message
