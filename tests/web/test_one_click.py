"""How many clicks the page's first view is away from the answer to a person's question: at most one."""

from collections.abc import Iterator

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.web.asking import ask
from tests.web.conftest import NARROW, WIDE
from tests.web.opened_page import OpenedPage, PageOpener

CALLS = 24


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, upstream: ThreadedStandIn) -> Iterator[Deck]:
    """Calls that were replayed, one that was refused with 429, and as the last one a miss."""
    store = str(tmp_path_factory.mktemp("cassettes"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-of-the-test-0123456789")
        with serve(store=store, mode="auto", route=[f"openai={upstream.url}"]) as deck:
            url = f"{deck.proxy_url}/openai"
            for number in range(CALLS):
                ask(url, f"Question {number}")
            ask(url, "Too much", model="error-429")
            deck.mode("replay")
            ask(url, "Question 7, please")
            yield deck


@pytest.fixture
def page(run: Deck, open_page: PageOpener) -> OpenedPage:
    """The page as who types its address sees it, with a count of the clicks."""
    found = open_page(run.admin.url)
    found.tab.evaluate(
        "() => { window.clicks = 0; addEventListener('click', (e) => { window.clicks += e.isTrusted; }, true); }"
    )
    return found


def clicks(page: OpenedPage) -> int:
    found: int = page.tab.evaluate("window.clicks")
    return found


def test_why_the_test_is_red_takes_no_click(page: OpenedPage) -> None:
    page.tab.locator(".side-pane").get_by_text("differs at messages[0].content").first.wait_for()
    page.see("Record this one now")
    assert clicks(page) == 0


def test_what_call_23_said_takes_one_click(page: OpenedPage) -> None:
    page.tab.get_by_role("option").filter(has_text="#23").click()

    page.tab.locator(".side-pane").get_by_text("You said “Question 23”.").wait_for()
    assert clicks(page) == 1


def test_why_the_429_takes_no_click_and_its_whole_answer_one(page: OpenedPage) -> None:
    row = page.tab.get_by_role("option").filter(has_text="Too much")
    assert "429" in row.inner_text()
    assert "rate_limit" in row.inner_text()
    assert clicks(page) == 0

    row.click()
    page.tab.locator(".side-pane .wrong").first.wait_for()
    assert clicks(page) == 1


def test_recording_the_miss_anew_takes_one_click(page: OpenedPage, run: Deck) -> None:
    page.click("Record this one now")

    page.see("✓ Recorded")
    assert clicks(page) == 1
    assert ask(f"{run.proxy_url}/openai", "Question 7, please") == "replayed"


@pytest.mark.slow
def test_nothing_opens_by_itself_where_it_would_cover_the_list_or_where_a_list_was_asked_for(
    run: Deck, open_page: PageOpener
) -> None:
    for address, size in [(run.admin.url, NARROW), (f"{run.admin.url}/#/journal", WIDE)]:
        page = open_page(address, size)
        page.tab.locator("[role=option]").first.wait_for()
        assert page.tab.locator(".opened").count() == 0
