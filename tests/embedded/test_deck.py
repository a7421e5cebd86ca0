"""`tapeway.serve`: started, steered, asked and stopped, blocking and not."""

import asyncio
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tapeway.embedded.admin_client import AdminClient, DeckError
from tapeway.embedded.deck import AsyncDeck, Deck, serve
from tapeway.embedded.server_process import ServerProcess, command_line
from tapeway.testing import ThreadedStandIn

# That a process is started, and from what, is left to the last test.
pytestmark = pytest.mark.usefixtures("forked_proxies")


def ask(url: str, words: str) -> str:
    """The outcome of a chat request."""
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    request = urllib.request.Request(  # noqa: S310 - our own
        f"{url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310 - our own
            return str(response.headers["Tapeway-Outcome"])
    except HTTPError as error:
        with error:
            return str(error.headers["Tapeway-Outcome"])


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deck]:
    with (
        ThreadedStandIn() as upstream,
        serve(
            store=str(tmp_path_factory.mktemp("deck")),
            mode="auto",
            route=[f"openai={upstream.url}", "mine=http://127.0.0.1:9"],
            admin_token="token-of-the-deck",
        ) as found,
    ):
        yield found


def test_what_import_tapeway_gives() -> None:
    package = importlib.import_module("tapeway")

    assert package.__all__ == ["AsyncDeck", "Deck", "DeckError", "serve"]
    assert package.serve is serve
    assert all(hasattr(package, name) for name in package.__all__)


def test_a_url_is_the_one_that_the_client_of_a_route_expects(deck: Deck) -> None:
    root = deck.proxy_url

    assert deck.url() == root
    assert deck.url("openai") == f"{root}/openai/v1"
    assert deck.url("anthropic") == f"{root}/anthropic"
    assert deck.url("mine") == f"{root}/mine"
    assert deck.url("openai", cassette="a/b") == f"{root}/@a%2Fb/openai/v1"
    assert deck.url("openai", slot="w0") == f"{root}/@~w0/openai/v1"


def test_a_deck_records_replays_and_reports(deck: Deck) -> None:
    deck.insert("smoke", "auto")
    outcomes = [ask(deck.url("openai"), "one") for _ in range(2)]
    assert deck.mode() == "auto"
    assert deck.mode("replay") == "replay"
    outcomes.append(ask(deck.url("openai"), "two"))
    (miss,) = deck.journal(outcome="miss", cassette="smoke")
    (report,) = [cassette for cassette in deck.report()["cassettes"] if cassette["name"] == "smoke"]
    deck.rewind("smoke")
    ejected = deck.eject()

    assert outcomes == ["recorded", "replayed", "miss"]
    assert "nearest #0 differs at messages[0].content" in miss["message"]
    assert (report["recorded"], report["replayed"]) == (1, 1)
    assert [missed["times"] for missed in ejected["misses"]] == [1]


def test_a_mode_set_everywhere_ends_the_modes_of_single_cassettes(deck: Deck) -> None:
    deck.mode("record", cassette="alone")
    deck.mode("auto")
    own = deck.mode(cassette="alone")

    deck.mode("auto", everywhere=True)

    assert (own, deck.mode(cassette="alone")) == ("record", "auto")


def test_a_slot_points_where_it_is_told(deck: Deck) -> None:
    takes = [deck.point("w0", f"slots/{name}", "auto") for name in "ab"]
    deck.point("w0", "slots/a", "auto", rules={"ignore": ["body.messages"]})

    outcomes = [ask(deck.url("openai", slot="w0"), words) for words in ("one", "other")]

    assert takes[0] < takes[1]
    assert outcomes == ["recorded", "replayed"]


def test_what_was_sent_through_a_slot_is_told_after_a_rewind_too(deck: Deck) -> None:
    first = deck.point("w1", "slots/sent", "auto")
    for words in ("one", "two", "three"):
        ask(deck.url("openai", slot="w1"), words)
        deck.rewind("slots/sent")

    said = [request["body"]["messages"][0]["content"] for request in deck.requests("w1")]

    assert said == ["one", "two", "three"]
    assert deck.requests("w1", first) == deck.requests("w1")[:1]
    with pytest.raises(DeckError, match="name one"):
        deck.requests()


def test_what_is_refused_has_the_error_s_code(deck: Deck) -> None:
    with pytest.raises(DeckError, match="not loaded") as caught:
        deck.eject("never-seen")

    assert (caught.value.code, caught.value.status) == ("not_inserted", 409)


async def test_the_asynchronous_twin_does_the_same(tmp_path: Path) -> None:
    async with serve(store=str(tmp_path), mode="replay", cassette="x") as deck:
        assert isinstance(deck, AsyncDeck)
        outcome = await asyncio.to_thread(ask, deck.url("openai"), "one")
        await deck.insert("y")
        await deck.point("w0", "z")
        await deck.rewind()
        assert await deck.mode() == "replay"
        (entry,) = await deck.journal()
        report = await deck.report()
        await deck.eject("y")

    assert outcome == entry["outcome"] == "miss"
    assert {cassette["name"] for cassette in report["cassettes"]} == {"x", "y"}
    with pytest.raises(DeckError, match=r"does not answer at .*: Connection refused$"):
        await deck.report()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "sideways"}, "--mode: 'sideways' is not accepted"),
        ({"stor": "x"}, "No such option '--stor'"),
        ({"store": "memory:", "admin_listen": "off"}, "needs the admin API"),
    ],
)
def test_what_cannot_start_says_why(options: dict[str, str], said: str) -> None:
    with pytest.raises(DeckError, match=said), serve(**options):  # type: ignore[arg-type] # wrong ones
        pass


def test_who_asks_before_a_server_serves_waits_for_it(tmp_path: Path) -> None:
    process = ServerProcess({"store": str(tmp_path)}, waits=False)
    try:
        proxy, admin = process.urls
        assert AdminClient(admin).call("GET", "status")["cassette"] == "default"
        assert ask(f"{proxy}/nowhere", "one") == "error"
        assert [process.wait()[text] for text in ("proxy", "admin")] == [proxy, admin]
    finally:
        process.stop()


def test_why_a_server_did_not_start_is_told_to_who_waits_for_it() -> None:
    process = ServerProcess({"mode": "sideways"}, waits=False)

    with pytest.raises(DeckError, match="--mode: 'sideways' is not accepted"):
        process.wait()


def test_no_option_is_in_the_process_list(tmp_path: Path) -> None:
    process = ServerProcess({"store": f"sqlite:{tmp_path}/of-a-s3cret.db", "mode": "passthrough"})
    try:
        shown = Path(f"/proc/{process.wait()['pid']}/cmdline").read_bytes()
    finally:
        process.stop()

    assert b"s3cret" not in shown
    assert b"passthrough" not in shown


def test_options_become_flags() -> None:
    flags = command_line(
        {
            "mode": "replay",
            "cassette": None,
            "record_failures": True,
            "rewrite": False,
            "route": ["a=b", "c=d"],
            "max_body": 5,
            "admin_token": "secret",
        }
    )

    assert flags == [
        *("--mode=replay", "--record-failures", "--no-rewrite"),
        *("--route=a=b", "--route=c=d", "--max-body=5", "--admin-token=secret"),
    ]
    with pytest.raises(TypeError, match="rules"):
        command_line({"rules": object()})


PARENT = """
import os, sys
from tapeway.embedded.server_process import ServerProcess

process = ServerProcess({"store": "memory:"})
print(process.wait()["pid"], flush=True)
sys.stdin.read()
"""


def test_its_process_ends_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    child = os.pidfd_open(pid)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()

    try:
        assert select.select([child], [], [], 60)[0], "it still runs"
    finally:
        os.close(child)
