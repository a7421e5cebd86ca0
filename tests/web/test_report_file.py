"""The report of a run as one file, opened from the disk: the page without a server."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tapeway.embedded.deck import Deck, serve
from tapeway.html_report.collection import ReportLimits
from tapeway.html_report.page import collected_page
from tapeway.testing import ThreadedStandIn
from tests.support import fork_server
from tests.web.asking import ask
from tests.web.conftest import NARROW, WIDE
from tests.web.opened_page import PageOpener
from tests.web.recorded import exchange, stored
from tests.web.test_history_views import call
from tests.web.test_run_views import agent, realtime

ASK = """
import json, os, sys, urllib.error, urllib.request
for text in sys.argv[1:]:
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}).encode()
    url = os.environ["TAPEWAY_URL"] + "/v1/chat/completions"
    sent = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(sent).read()
    except urllib.error.HTTPError:
        pass
"""
EVIL = "</script><script>document.title='run'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, upstream: ThreadedStandIn) -> Path:
    """The report of a run with a hit, a miss, and a prompt that is markup."""
    folder = tmp_path_factory.mktemp("run")
    for mode, questions in (("auto", ("one", EVIL)), ("replay", ("one", "three", EVIL))):
        subprocess.run(
            [
                *(*fork_server.command(), "run", "--mode", mode, "--upstream", upstream.url),
                *("--report", "run.html", "--", sys.executable, "-c", ASK, *questions),
            ],
            cwd=folder,
            check=False,
            capture_output=True,
        )
    return folder / "run.html"


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_it_opens_with_a_summary(
    report: Path, open_page: PageOpener, size: tuple[int, int], scheme: str
) -> None:
    page = open_page(report.as_uri(), size, scheme)

    page.see("Why requests missed")
    assert "messages[0].content: one → three" in page.text
    assert "tokens saved" in page.text
    assert "this file holds" not in page.text
    assert (
        page.tab.locator("main li").get_by_role("link", name="1 miss").get_attribute("href")
        is not None
    )
    assert page.tab.locator("img[src=x]").count() == 0
    assert page.faults_of_access() == []
    assert not page.overflows()
    page.tab.locator("main li").get_by_role("link", name="1 miss").click()
    page.see("body.messages[0].content")


@pytest.mark.slow
def test_the_journal_opens_from_the_disk(report: Path, open_page: PageOpener) -> None:
    page = open_page(f"{report.as_uri()}#/journal")

    page.tab.get_by_text("miss").first.wait_for()
    assert page.tab.locator("main").inner_text().count("/v1/chat/completions") == 3
    assert page.tab.title().endswith("tapeway")


@pytest.mark.slow
def test_nothing_is_offered_that_a_file_cannot_do(report: Path, open_page: PageOpener) -> None:
    (data,) = re.findall(r'id="recorded">(.*?)</script>', report.read_text(encoding="utf-8"))
    views = [answer for answer in json.loads(data)["answers"] if answer.endswith("/view")]
    _, name, _, index, _ = views[0].split("/")
    page = open_page(report.as_uri())

    page.see("Summary")
    assert page.tab.get_by_role("navigation").get_by_role("link").all_inner_texts() == [
        "Summary",
        "Deck",
        "Journal",
        "Cassettes",
    ]
    for hash_, left in [
        ("#/journal", []),
        ("#/deck", []),
        (f"#/cassettes/{name}/{index}", ["Copy as…"]),
    ]:
        page.go(hash_)
        buttons = page.tab.locator("main").get_by_role("button", disabled=False)
        offered = [text for text in buttons.all_inner_texts() if text.endswith("…")]
        assert offered == left, hash_


@pytest.mark.slow
def test_a_miss_is_shown_beside_its_nearest_recording(report: Path, open_page: PageOpener) -> None:
    (data,) = re.findall(r'id="recorded">(.*?)</script>', report.read_text(encoding="utf-8"))
    recorded = json.loads(data)
    miss = next(entry["id"] for entry in recorded["entries"] if entry["outcome"] == "miss")
    page = open_page(report.as_uri())

    page.go(f"#/journal/{miss}")

    page.tab.get_by_text("body.messages[0].content").first.wait_for()
    shown = page.tab.locator("main").inner_text()
    assert "three" in shown
    assert "one" in shown


@pytest.mark.slow
def test_a_prompt_that_is_markup_is_text(report: Path, open_page: PageOpener) -> None:
    (data,) = re.findall(r'id="recorded">(.*?)</script>', report.read_text(encoding="utf-8"))
    views = [answer for answer in json.loads(data)["answers"] if answer.endswith("/view")]
    page = open_page(report.as_uri())

    for view in views:
        _, name, _, index, _ = view.split("/")
        page.go(f"#/cassettes/{name}/{index}")
        page.tab.wait_for_timeout(50)

    assert page.tab.locator("img[src=x]").count() == 0
    assert page.tab.title() != "run"
    assert page.tab.evaluate("window.violations") == []


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """The report of a tapeway with an agent's run, a session, a miss and a cassette of one POST."""
    with serve(store=str(tmp_path / "cassettes"), mode="replay") as deck:
        stored(deck, "runs/agent", [*agent(), realtime()])
        stored(deck, "runs/voice", [realtime()])
        stored(deck, "one", [exchange({"a": 1}, {"json": {}})])
        requests.post(f"{deck.proxy_url}/@one/v1/items", json={"a": 1}, timeout=60)
        for request in agent():
            ask(f"{deck.proxy_url}/@runs%2Fagent/openai", "", **request["request"]["json"])
        ask(f"{deck.proxy_url}/@runs%2Fagent/openai", "Never asked")
        subprocess.run(
            [*fork_server.command(), "report", "--report", "run.html", "--admin", deck.admin_url],
            cwd=tmp_path,
            check=True,
        )
    return tmp_path / "run.html"


NO_LEADS = ("This cannot be shown", "is not in the journal", "does not hold", "are not kept")


@pytest.mark.slow
def test_every_link_of_a_report_leads_to_what_is_in_it(told: Path, open_page: PageOpener) -> None:
    page = open_page(told.as_uri())
    left, seen = ["#/summary"], set[str]()
    while left:
        hash_ = left.pop()
        if hash_ in seen:
            continue
        seen.add(hash_)
        page.go(hash_)
        page.tab.wait_for_timeout(50)
        assert not [words for words in NO_LEADS if words in page.text], hash_
        left += page.tab.evaluate(
            "[...document.querySelectorAll('a[href]')].map((each) => each.getAttribute('href'))"
        )

    views = {hash_.split("?")[0].split("/")[1] for hash_ in seen}
    assert views == {"summary", "deck", "journal", "cassettes", "conversation"}
    assert "#/conversation/runs%2Fagent" in seen
    assert "#/cassettes/runs%2Fagent/1" in seen
    assert "#/cassettes/one" in seen


@pytest.mark.slow
def test_one_click_in_a_report_says_which_turn_was_slow_and_what_was_said(
    told: Path, open_page: PageOpener
) -> None:
    page = open_page(told.as_uri())
    slow = page.tab.locator(".panel", has_text="Slowest calls").locator("li").first
    # A replay takes no time: the time is that of the recorded call.
    assert slow.get_by_role("link").first.inner_text() == "9.00 s"
    page.tab.locator("main").get_by_role("link", name="runs/agent", exact=True).click()

    page.see("The slowest is")
    assert "The slowest is turn 2 with 9.00 s. The dearest is turn 3" in page.text
    page.see("Of course. When?")
    page.until("() => document.querySelector('.spoken audio').duration > 0")
    page.see("tool result of tool_1, failed")
    page.tab.get_by_label("Search").fill("no rain")
    page.see("1 found")
    page.go("#/cassettes/runs%2Fagent?order=slowest")
    page.until("() => document.querySelector('[role=option]')?.innerText.includes('9.00 s')")


@pytest.mark.slow
def test_a_run_without_room_for_its_messages_is_told_by_their_beginnings(
    tmp_path: Path, open_page: PageOpener
) -> None:
    long = "It is sunny. " * 100
    with serve(store=str(tmp_path / "cassettes"), mode="replay") as deck:
        asked = [[{"role": "user", "content": f"Question {at}"}] for at in range(20)]
        stored(deck, "long", [call(each, {"content": long}) for each in asked])
        for each in asked[:2]:
            ask(f"{deck.proxy_url}/@long/openai", "", **call(each, {})["request"]["json"])
        (tmp_path / "run.html").write_text(
            collected_page(deck.admin, ReportLimits(48 * 1024)), encoding="utf-8"
        )
    page = open_page(f"{(tmp_path / 'run.html').as_uri()}#/conversation/long")

    page.see("Question 19")
    assert "It is sunny." in page.tab.locator("#turn-3").inner_text()
    assert long not in page.text


@pytest.mark.slow
def test_the_report_of_a_running_tapeway_is_the_same_page(
    deck: Deck, tmp_path: Path, open_page: PageOpener
) -> None:
    requests.get(f"{deck.proxy_url}/v1/models", timeout=60)

    done = subprocess.run(
        [
            *(*fork_server.command(), "report", "--report", "live.html"),
            *("--admin", deck.admin_url, "--html-max", "1MiB"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )

    page = open_page(f"{(tmp_path / 'live.html').as_uri()}#/journal")
    page.tab.get_by_text("/v1/models").first.wait_for()
    assert done.stdout == b""


def test_the_report_of_a_running_tapeway_is_written_in_the_form_of_each_suffix(
    deck: Deck, tmp_path: Path
) -> None:
    requests.get(f"{deck.proxy_url}/v1/models", timeout=60)
    names = [f"x.{suffix}" for suffix in ("json", "xml", "md", "txt", "html")]

    files = [part for name in names for part in ("--report", name)]
    subprocess.run(
        [*fork_server.command(), "report", *files, "--admin", deck.admin_url],
        cwd=tmp_path,
        check=True,
    )

    texts = [(tmp_path / name).read_text() for name in names]
    beginnings = ('{"cassettes":[', "<?xml", "| cassette |", "default:", "<!doctype html>")
    for text, beginning in zip(texts, beginnings, strict=True):
        assert text.lower().startswith(beginning), text[:200]
    assert json.loads(texts[0])["cassettes"][0]["name"] == "default"


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--report", "x.pdf"), 2, "--report: x.pdf does not end in .json, .xml, .md, .txt, .html"),
        (("--html-max", "much"), 2, "--html-max"),
        (("--admin", "http://127.0.0.1:9"), 1, "does not answer"),
    ],
)
def test_what_keeps_it_from_being_made_is_said(
    tmp_path: Path, more: tuple[str, ...], code: int, said: str
) -> None:
    done = subprocess.run(
        [*fork_server.command(), "report", "--report", "x.html", *more],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, list(tmp_path.iterdir())) == (code, [])
    assert said in done.stderr
