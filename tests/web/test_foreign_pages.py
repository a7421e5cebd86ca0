"""Pages of strangers, and those of the developer's own machine, call the proxy in Chromium."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.support.serving_thread import serving
from tests.web.conftest import CHROMIUM, SANDBOX

PATIENCE_S = 30
NAMES = "MAP *.example 127.0.0.1, MAP web 127.0.0.1, MAP tapeway 127.0.0.1"
"""What DNS says here: strangers have their names lead to this machine, containers have short names."""
WITHOUT_ITS_OWN_CHECKS = "--disable-features=LocalNetworkAccessChecks"
"""New browsers ask a person before a page may call this machine; others do not."""

ATTEMPTS = {
    "fetch": "url => fetch(url).then(read => read.text(), () => null)",
    "fetch with credentials": "url => fetch(url, { credentials: 'include' }).catch(() => null)",
    "fetch without CORS": "url => fetch(url, { mode: 'no-cors' }).then(read => read.text())",
    "plain POST": """url => fetch(url, { method: 'POST', mode: 'no-cors', body: '{}' })
        .then(read => read.text())""",
    "preflighted POST": """url => fetch(url, { method: 'POST', body: '{}',
        headers: { 'content-type': 'application/json' } }).then(read => read.text(), () => null)""",
    "beacon": "url => { navigator.sendBeacon(url, 'x'); }",
    "events": """url => new Promise(done => { const source = new EventSource(url);
        source.onerror = source.onmessage = () => { source.close(); done(null); }; })""",
    "WebSocket": """url => new Promise(done => { const socket = new WebSocket(url);
        socket.onerror = () => done(null); socket.onopen = () => done('open'); })""",
    "image": """url => new Promise(done => { const image = new Image();
        image.onload = () => done('loaded'); image.onerror = () => done(null); image.src = url; })""",
    "image without a referer": """url => new Promise(done => { const image = new Image();
        image.referrerPolicy = 'no-referrer';
        image.onload = () => done('loaded'); image.onerror = () => done(null); image.src = url; })""",
    "script": """url => new Promise(done => { const script = document.createElement('script');
        script.onload = () => done('loaded'); script.onerror = () => done(null);
        script.src = url; document.body.append(script); })""",
    "style": """url => new Promise(done => { const link = document.createElement('link');
        link.rel = 'stylesheet'; link.onload = () => done('loaded'); link.onerror = () => done(null);
        link.href = url; document.body.append(link); })""",
    "frame": """url => { const frame = document.createElement('iframe');
        frame.src = url; document.body.append(frame); }""",
    "sandboxed frame": """url => { const frame = document.createElement('iframe');
        frame.sandbox = 'allow-scripts'; frame.srcdoc = `<script>fetch('${url}')</script>`;
        document.body.append(frame); }""",
    "form": """url => { const form = document.createElement('form');
        form.method = 'post'; form.action = url; document.body.append(form); form.submit(); }""",
    "form without a referer": """url => { const form = document.createElement('form');
        document.head.innerHTML = '<meta name=referrer content=no-referrer>';
        form.method = 'post'; form.action = url; document.body.append(form); form.submit(); }""",
    "form that asks": """url => { const form = document.createElement('form');
        form.action = url; document.body.append(form); form.submit(); }""",
    "address of the tab": "url => { location.href = url; }",
}
"""What a page can do to an address; each returns what the page gets to see."""


CODE = """url => fetch(url + '/@~unset/v1/models', { headers: { 'x-own': '1' } })
    .then(answer => answer.json()).then(body => body.error.code)"""
"""Asks through a slot that there is not, after a preflight."""


class _Pages(http.server.BaseHTTPRequestHandler):
    """An empty page, and `/to?URL`, which redirects there."""

    def do_GET(self) -> None:
        _, _, url = self.path.partition("/to?")
        self.send_response(307 if url else 200)
        self.send_header("Location", url) if url else None
        self.send_header("Content-Type", "text/html")
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def named_chromium() -> Iterator[Browser]:
    """A browser that knows names which lead to this machine."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    flags = [*SANDBOX, f"--host-resolver-rules={NAMES}", WITHOUT_ITS_OWN_CHECKS]
    with (
        sync_playwright() as client,
        client.chromium.launch(executable_path=CHROMIUM, args=flags) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def pages_port() -> Iterator[int]:
    """The port of a server with an empty page under every name."""
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)) as server:
        yield server.server_port


@contextmanager
def page_at(browser: Browser, url: str) -> Iterator[Page]:
    tab = browser.new_page()
    tab.goto(url)
    try:
        yield tab
    finally:
        tab.close()


@contextmanager
def proxy_in_front(upstream: ThreadedStandIn, folder: Path, **options: Any) -> Iterator[Deck]:
    """A proxy in mode auto."""
    with serve(store=str(folder), mode="auto", upstream=upstream.url, **options) as deck:
        yield deck


def refusals(deck: Deck) -> list[str]:
    """The messages of what the proxy refused."""
    return [entry["message"] for entry in deck.journal() if entry["status"] in (403, 421)]


def asked(deck: Deck) -> list[tuple[str, str, int]]:
    """Method, path and status of the requests."""
    return [(entry["method"], entry["path"], entry["status"]) for entry in deck.journal()]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.fixture
def proxy(tmp_path: Path, upstream: ThreadedStandIn) -> Iterator[Deck]:
    with proxy_in_front(upstream, tmp_path) as deck:
        yield deck


def attempt(tab: Page, name: str, url: str) -> Any:
    if name == "WebSocket":
        url = url.replace("http", "ws", 1)
    return tab.evaluate(ATTEMPTS[name], url)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        *[(name, "127.0.0.1") for name in ATTEMPTS],
        *[(name, "localhost") for name in ("fetch", "image", "form", "WebSocket")],
    ],
)
def test_a_foreign_page_sees_nothing_and_causes_no_call(
    name: str,
    host: str,
    named_chromium: Browser,
    pages_port: int,
    proxy: Deck,
    upstream: ThreadedStandIn,
) -> None:
    before = len(upstream.requests), upstream.connections
    url = proxy.url().replace("127.0.0.1", host) + "/v1/models"
    with page_at(named_chromium, f"http://evil.example:{pages_port}/") as tab:
        seen = attempt(tab, name, url)
        until(lambda: refusals(proxy))

    # An opaque answer has an empty text.
    assert seen in (None, "")
    assert all(message.startswith("foreign_origin: ") for message in refusals(proxy))
    assert {entry["outcome"] for entry in proxy.journal()} == {"error"}
    assert (len(upstream.requests), upstream.connections) == before


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "web", "app.localhost"])
@pytest.mark.parametrize("called", ["127.0.0.1", "localhost", "tapeway"])
def test_a_page_of_this_machine_or_of_a_container_calls_the_proxy(
    host: str,
    called: str,
    named_chromium: Browser,
    pages_port: int,
    proxy: Deck,
) -> None:
    url = proxy.url().replace("127.0.0.1", called)
    with page_at(named_chromium, f"http://{host}:{pages_port}/") as tab:
        # The service answers without CORS, so a page reads only what the proxy itself says.
        said = tab.evaluate(CODE, url)
        attempt(tab, "image", url + "/v1/models")
        opened = attempt(tab, "WebSocket", url + "/v1/responses")

    assert said == "no_slot"
    assert opened == "open"
    assert refusals(proxy) == []
    assert ("GET", "/v1/models", 200) in asked(proxy)


def test_a_page_that_is_named_by_an_option_calls_the_proxy(
    named_chromium: Browser, pages_port: int, tmp_path: Path, upstream: ThreadedStandIn
) -> None:
    page = f"http://app.example:{pages_port}"
    with proxy_in_front(upstream, tmp_path, allow_origin=[page]) as deck:
        url = deck.url() + "/v1/models"
        with page_at(named_chromium, page) as tab:
            attempt(tab, "image", url)
            assert tab.evaluate(CODE, deck.url()) == "no_slot"
            assert attempt(tab, "WebSocket", deck.url() + "/v1/responses") == "open"

        assert refusals(deck) == []
        assert ("GET", "/v1/models", 200) in asked(deck)


def test_a_page_whose_name_is_made_to_lead_to_the_proxy_sees_nothing(
    named_chromium: Browser, proxy: Deck, upstream: ThreadedStandIn
) -> None:
    before = len(upstream.requests)
    url = proxy.url().replace("127.0.0.1", "evil.example")
    # The page comes from its own server, before its name leads elsewhere.
    with closing(named_chromium.new_page()) as tab:
        tab.route(f"{url}/", lambda route: route.fulfill(body="a page", content_type="text/html"))
        tab.goto(f"{url}/")
        text = tab.evaluate("() => fetch('/v1/models').then(answer => answer.text())")
        post = "() => fetch('/v1/responses', { method: 'POST', body: '{}' }).then(it => it.status)"
        assert tab.evaluate(post) == 421

    assert "foreign_host" in text
    assert "default" not in text
    assert len(upstream.requests) == before
    assert len(refusals(proxy)) >= 2


@pytest.mark.parametrize("name", ["fetch", "plain POST", "image", "form"])
def test_a_foreign_page_gains_nothing_by_a_redirect_of_a_page_on_this_machine(
    name: str,
    named_chromium: Browser,
    pages_port: int,
    proxy: Deck,
    upstream: ThreadedStandIn,
) -> None:
    before = len(upstream.requests)
    redirecting = f"http://localhost:{pages_port}/to?{proxy.url()}/v1/models"
    with page_at(named_chromium, f"http://evil.example:{pages_port}/") as tab:
        seen = attempt(tab, name, redirecting)
        until(lambda: refusals(proxy))

    assert seen in (None, "")
    assert len(upstream.requests) == before


def test_what_a_person_opens_in_a_tab_is_served(named_chromium: Browser, proxy: Deck) -> None:
    with page_at(named_chromium, f"{proxy.url()}/v1/models") as tab:
        assert "gpt" in tab.inner_text("body")
        again = tab.evaluate("() => fetch('/v1/models').then(answer => answer.status)")

    assert again == 200
