"""A login by cookie works in Chromium through the proxy, recorded and replayed."""

from pathlib import Path

from playwright.sync_api import Browser

from tapeway.embedded.deck import Deck, serve
from tests.support.handing_out import service


def who(deck: Deck, chromium: Browser) -> str:
    """Log in and ask who one is, in a profile of its own."""
    context = chromium.new_context()
    tab = context.new_page()
    tab.goto(f"{deck.url()}/@login/svc/app/login")
    tab.goto(f"{deck.url()}/@login/svc/app/me")
    found = tab.inner_text("body")
    context.close()
    return found


def test_a_browser_sends_the_cookie_back_to_the_proxy(chromium: Browser, tmp_path: Path) -> None:
    store = str(tmp_path)
    with service() as (url, _), serve(store=store, mode="record", route=[f"svc={url}"]) as deck:
        live = who(deck, chromium)
    with serve(store=store, mode="replay", route=[f"svc={url}"]) as deck:
        replayed = who(deck, chromium)

    assert (live, replayed) == ('"me"', '"me"')
