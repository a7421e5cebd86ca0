"""One Chromium for each module of tests, and a profile for each page that they open.

Not for the whole session: Playwright's blocking client keeps an event loop running in its thread,
in which no asynchronous test could run.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.web.opened_page import OpenedPage, PageOpener

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

# Its sandbox refuses to run as root, which containers are.
SANDBOX = ["--no-sandbox"] if os.getuid() == 0 else []

WIDE, NARROW = (1280, 800), (390, 844)


@pytest.fixture(scope="module", autouse=True)
def _forked(forked_proxies: None) -> None: ...


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. Tests are skipped where there is none."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with (
        sync_playwright() as client,
        client.chromium.launch(executable_path=CHROMIUM, args=SANDBOX) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def upstream() -> Iterator[ThreadedStandIn]:
    with ThreadedStandIn() as found:
        yield found


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[PageOpener]:
    """Opens an address in a profile of its own, and fails the test for what the browser complains of."""
    opened: list[OpenedPage] = []

    def open_(
        url: str,
        size: tuple[int, int] = WIDE,
        scheme: str = "light",
        *,
        token: str | None = None,
        wait: bool = True,
    ) -> OpenedPage:
        opened.append(OpenedPage(chromium, url, size, scheme, token, wait=wait))
        return opened[-1]

    yield open_
    for descriptor in opened:
        descriptor.close()
    assert [complaint for descriptor in opened for complaint in descriptor.complaints] == []


@pytest.fixture
def deck(tmp_path: Path, upstream: ThreadedStandIn) -> Iterator[Deck]:
    """A tapeway in mode auto over an empty folder."""
    with serve(store=str(tmp_path / "cassettes"), mode="auto", upstream=upstream.url) as found:
        yield found


@pytest.fixture(scope="module")
def shared_deck(
    tmp_path_factory: pytest.TempPathFactory, upstream: ThreadedStandIn
) -> Iterator[Deck]:
    """The same for tests that use cassettes of their own."""
    store = str(tmp_path_factory.mktemp("cassettes"))
    with serve(store=store, mode="auto", upstream=upstream.url) as found:
        yield found
