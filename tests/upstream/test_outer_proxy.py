"""Upstreams that are reached through another proxy."""

import base64
import logging
import ssl

import pytest
from yarl import URL

from tapeway.errors import UpstreamError
from tapeway.upstream.outer_proxy import ProxyChoice, proxy_choice
from tests.server.in_process_proxy import running_proxy
from tests.support.forward_proxy import ForwardProxy
from tests.support.login_service import LoginService, first_step, login_of
from tests.support.socket_upstream import Peer
from tests.upstream.certificate_authority import AUTHORITY, client, server

HTTPS, HTTP = "https://api.example.com", "http://api.example.com"
PROXY = "http://proxy.example.com:3128"
LOGIN = b"Basic Ym9iOnAlc3N3b3JkLTEyMzQ="
PASSWORD = "p%25ssword-1234"


def through(proxy: ForwardProxy, *, user: str | None = None) -> ProxyChoice:
    url = proxy.url if user is None else proxy.url_of(user, PASSWORD)
    return proxy_choice(None, {"HTTPS_PROXY": url, "HTTP_PROXY": url})


def peer_of(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The two sides of TLS of an upstream with this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(name).configure_cert(context)
    return context, client()


@pytest.mark.parametrize("upstream", [HTTP, f"{HTTP}:8000/base", "http://10.0.0.7"])
async def test_plain_http_goes_to_the_proxy_with_the_whole_url(upstream: str) -> None:
    host = URL(upstream).host or ""
    async with (
        Peer() as peer,
        ForwardProxy({host: peer.port}) as proxy,
        running_proxy(upstream, proxies=through(proxy)) as tapeway,
    ):
        answer = await tapeway.ask(b"POST /a%2Fb?c=+d", b"Proxy-Authorization: mine", body=b"{}")

        assert (answer.status, answer.body, answer.outcome) == (200, b"ok", b"recorded")
        assert proxy.asked == [b"POST %b/a%%2Fb?c=+d HTTP/1.1" % upstream.encode()]
        assert b"\r\nHost: %b\r\n" % upstream.split("/")[2].encode() in proxy.heads[0]
        assert b"\r\nProxy-Authorization: mine\r\n" in proxy.heads[0]


async def test_tls_goes_through_a_tunnel_that_the_proxy_cannot_read() -> None:
    theirs, ours = peer_of("api.example.com")
    async with (
        Peer(tls=theirs) as peer,
        ForwardProxy({"api.example.com": peer.port}, login=LOGIN) as proxy,
        running_proxy(HTTPS, tls=ours, proxies=through(proxy, user="bob")) as tapeway,
    ):
        answers = [await tapeway.ask(b"GET /%d" % number, b"X-Key: secret") for number in range(3)]

        assert [answer.outcome for answer in answers] == [b"recorded"] * 3
        assert proxy.asked == [b"CONNECT api.example.com:443 HTTP/1.1"]
        assert b"secret" not in b"".join(proxy.heads)
        assert all(
            b"roxy-" not in request and request.startswith(b"GET /") for request in peer.requests
        )


async def test_a_login_that_holds_for_a_connection_holds_for_one_tunnel() -> None:
    theirs, ours = peer_of("api.example.com")
    async with (
        LoginService(theirs) as service,
        ForwardProxy({"api.example.com": service.port}) as proxy,
        running_proxy(HTTPS, mode="passthrough", tls=ours, proxies=through(proxy)) as tapeway,
        tapeway.connect() as ada,
    ):
        for fields in ([], [first_step()], [login_of(b"ada")], []):
            answer = await ada.ask(tapeway.request(b"GET /mail", *fields))

        assert answer.body == b"mail of ada"
        assert (await tapeway.ask(b"GET /mail")).body == b"who?"
        assert len(proxy.asked) == 2


async def test_a_login_is_sent_with_each_plain_request_in_place_of_the_client_s() -> None:
    async with (
        Peer() as peer,
        ForwardProxy({"api.example.com": peer.port}, login=LOGIN) as proxy,
        running_proxy(HTTP, proxies=through(proxy, user="bob")) as tapeway,
    ):
        answer = await tapeway.ask(b"GET /", b"Proxy-Authorization: Basic Zm9vOmJhcg==")

        assert answer.status == 200
        assert proxy.heads[0].count(b"Proxy-Authorization") == 1


@pytest.mark.parametrize("upstream", [HTTP, HTTPS])
@pytest.mark.parametrize("user", [None, "alice"])
async def test_a_proxy_that_wants_another_login_is_an_error_of_its_own(
    upstream: str, user: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        ForwardProxy(login=LOGIN) as proxy,
        running_proxy(upstream, tls=client(), proxies=through(proxy, user=user)) as tapeway,
    ):
        answer = await tapeway.ask()

        assert (answer.status, answer.outcome) == (502, b"error")
        assert b'"code":"upstream_proxy_auth"' in answer.body
        assert f"{proxy.url} (HTTP".encode() in answer.body
        assert await tapeway.recorded() == []
        [entry] = tapeway.journal
        for text in (answer.body.decode(), caplog.text, entry.message or ""):
            assert "ssword-1234" not in text


@pytest.mark.parametrize("upstream", [HTTP, HTTPS])
async def test_a_proxy_that_cannot_be_reached_is_named_without_its_password(upstream: str) -> None:
    async with ForwardProxy() as gone:
        pass
    proxies = through(gone, user="bob")
    async with running_proxy(upstream, tls=client(), proxies=proxies) as tapeway:
        answer = await tapeway.ask()

        assert answer.status == 502
        assert b'"code":"upstream_proxy"' in answer.body
        assert b"the proxy http://127.0.0.1:%d (HTTP" % gone.port in answer.body
        assert b"cannot be reached" in answer.body
        assert b"ssword-1234" not in answer.body


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", b"it answered 403"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", b"it answered 502"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", b"broke off"),
    ],
)
async def test_a_proxy_that_does_not_connect_is_an_error_of_its_own(
    said: bytes, expected: bytes
) -> None:
    async with (
        ForwardProxy(refuses=said) as proxy,
        running_proxy(HTTPS, tls=client(), proxies=through(proxy)) as tapeway,
    ):
        answer = await tapeway.ask()

        assert answer.status == 502
        assert b'"code":"upstream_proxy"' in answer.body
        assert expected in answer.body


async def test_a_bad_certificate_behind_a_proxy_is_the_upstream_s_fault() -> None:
    async with (
        Peer(tls=server("another name")) as peer,
        ForwardProxy({"api.example.com": peer.port}) as proxy,
        running_proxy(HTTPS, tls=client(), proxies=through(proxy)) as tapeway,
    ):
        answer = await tapeway.ask()

        assert b'"code":"upstream_tls"' in answer.body
        assert b"api.example.com" in answer.body
        assert peer.requests == []


@pytest.mark.parametrize("upstream", [HTTP, HTTPS])
async def test_the_proxy_itself_may_speak_tls(upstream: str) -> None:
    theirs, ours = peer_of("api.example.com")
    async with (
        Peer(tls=theirs if upstream == HTTPS else None) as peer,
        ForwardProxy({"api.example.com": peer.port}, tls=server("good"), login=LOGIN) as proxy,
        running_proxy(upstream, tls=ours, proxies=through(proxy, user="bob")) as tapeway,
    ):
        assert (await tapeway.ask()).body == b"ok"
        assert len(proxy.heads) == 1


async def test_a_proxy_whose_certificate_is_bad_is_named() -> None:
    async with (
        ForwardProxy(tls=server("expired")) as proxy,
        running_proxy(HTTPS, tls=client(), proxies=through(proxy)) as tapeway,
    ):
        answer = await tapeway.ask()

        assert b'"code":"upstream_proxy"' in answer.body
        assert b"the proxy https://127.0.0.1:%d" % proxy.port in answer.body


async def test_an_upstream_on_loopback_is_reached_directly() -> None:
    async with Peer() as peer, ForwardProxy() as proxy:
        for choice in (through(proxy), proxy_choice(proxy.url, {})):
            async with running_proxy(peer.url, proxies=choice) as tapeway:
                assert (await tapeway.ask()).status == 200
        assert proxy.heads == []


@pytest.mark.parametrize(
    ("environ", "https", "http"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": PROXY}, "HTTPS_PROXY", None),
        ({"HTTP_PROXY": PROXY}, None, "HTTP_PROXY"),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, "https_proxy", None),
        ({"HTTPS_PROXY": "proxy.example.com:3128"}, "HTTPS_PROXY", None),
        ({"HTTPS_PROXY": " "}, None, None),
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, None, None),
        ({"ALL_PROXY": "socks5://proxy.example.com:1080"}, None, None),
    ],
)
def test_the_variables_name_the_proxy(
    environ: dict[str, str], https: str | None, http: str | None
) -> None:
    choice = proxy_choice(None, environ)
    for url, source in ((URL(HTTPS), https), (URL(HTTP), http)):
        proxy = choice.proxy_for(url)
        assert (None if proxy is None else proxy.source) == source
        assert proxy is None or str(proxy) == f"the proxy {PROXY} ({source})"


@pytest.mark.parametrize(
    ("login", "sent"),
    [("bob:a%40b%3Ac", b"bob:a@b:c"), ("bob", b"bob:"), ("bob:", b"bob:"), (":pw", b":pw")],
)
def test_a_login_is_decoded_and_always_has_a_colon(login: str, sent: bytes) -> None:
    proxy = proxy_choice(f"http://{login}@proxy.example.com:3128", {}).proxy_for(URL(HTTPS))

    assert proxy is not None
    assert proxy.headers == {"Proxy-Authorization": f"Basic {base64.b64encode(sent).decode()}"}
    assert login not in str(proxy)


def test_the_option_comes_before_every_variable() -> None:
    environ = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "*"}
    assert proxy_choice("off", environ).proxy_for(URL(HTTPS)) is None
    proxy = proxy_choice(PROXY, environ).proxy_for(URL(HTTPS))
    assert proxy is not None
    assert str(proxy) == f"the proxy {PROXY} (--upstream-proxy)"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("socks5://127.0.0.1:1080", "a SOCKS proxy, which"),
        ("SOCKS4a://127.0.0.1:1080", "a SOCKS proxy, which"),
        ("http://", "no proxy that"),
        ("http://a:b:c", "no proxy that"),
        ("http://h:99999", "no proxy that"),
    ],
)
def test_a_variable_that_names_no_usable_proxy_is_an_error_once_it_is_needed(
    value: str, what: str
) -> None:
    choice = proxy_choice(None, {"HTTPS_PROXY": value})
    assert choice.proxy_for(URL(HTTP)) is None
    assert choice.proxy_for(URL("https://localhost:1")) is None
    with pytest.raises(UpstreamError, match=f"HTTPS_PROXY names {what} tapeway can") as caught:
        choice.proxy_for(URL(HTTPS))
    assert caught.value.code == "upstream_proxy"


@pytest.mark.parametrize(
    ("no_proxy", "direct", "proxied"),
    [
        ("*", HTTPS, None),
        ("example.com", HTTPS, "https://notexample.com"),
        (".example.com", HTTPS, "https://example.com.evil.org"),
        ("*.example.com", HTTPS, "https://example.org"),
        ("EXAMPLE.com", HTTPS, "https://com"),
        ("foo, api.example.com ,bar", HTTPS, "https://other.example.com"),
        ("foo api.example.com", "https://api.example.com.", "https://example.com"),
        ("example.com:8443", "https://api.example.com:8443", HTTPS),
        ("example.com:443", HTTPS, "https://api.example.com:8443"),
        ("10.0.0.0/8", "http://10.2.3.4", "http://11.2.3.4"),
        ("10.1.2.3/8", "http://10.2.3.4", "http://172.16.0.1"),
        ("10.2.3.4", "http://10.2.3.4:99", "http://10.2.3.40"),
        ("10.2.3.4:99", "http://10.2.3.4:99", "http://10.2.3.4:98"),
        ("fd00::/8", "http://[fd00::1]", "http://[2001:db8::1]"),
        ("[fd00::1]", "http://[fd00::1]", "http://[fd00::2]"),
        ("[fd00::1]:99", "http://[fd00::1]:99", "http://[fd00::1]:98"),
        ("fd00::1", "http://[fd00::1]:99", "http://[fd00::2]"),
        ("", "http://127.1.2.3", "http://10.0.0.1"),
        (",", "http://[::1]:80", HTTPS),
        ("10.0.0.0/99,bad/cidr", "http://LOCALHOST", "http://10.0.0.1"),
        ("0.0.1", "http://app.localhost", "http://10.0.0.1"),
    ],
)
def test_no_proxy_names_ends_of_names_addresses_ranges_and_everything(
    no_proxy: str, direct: str, proxied: str | None
) -> None:
    choice = proxy_choice(None, {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert choice.proxy_for(URL(direct)) is None
    assert proxied is None or choice.proxy_for(URL(proxied)) is not None
